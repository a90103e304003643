"""ZooKeeper: sessions, membership, the mutex, the task queue, the kill queue, worker beats.

The only door to kazoo. `protocol` is what loops import; the rest implements it:

- `config`      the address of ZooKeeper and the limits of a session
- `connect`     the composition: `connect(config, clock)` returns a `Registry`
- `trust`       the time for which a daemon may trust its session (pure; the simulator uses it too)
- `session`     one ZooKeeper session at a time: contact, watches, translated errors
- `membership`  joining, heartbeats, living nodes, adopting
- `mutex`       the locks of `lock/`
- `name_set`    a folder of znodes that consist of their names, with change notifications
- `task_queue`, `kill_queue`  `tasks_queue` with its claims, and `tasks_kill`
- `worker_beats`  `workerbeats`, the heartbeats of workers that run topologies

Nothing is imported here, so that `protocol` and `config` can be had without kazoo.

Under the root: `masters/<host:port>` and `workers/<host:port>` (ephemeral), `dead-servers`,
`tasks_queue/<entry>`, `tasks_kill/<entry>`, `lock/…` as in contract §4.1, and besides
`tasks_claimed/<entry>`, `adopting/<host:port>`, `workerbeats/<topology>/<host:port>` (ephemeral).
A missing parent is created again, since the tree may be wiped at any moment.
"""
