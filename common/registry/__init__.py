"""ZooKeeper: sessions, membership, the mutex, the task queue and the kill queue.

The only door to kazoo. `protocol` is what the loops know; the rest fulfils it:

- `config`      where ZooKeeper is and how long a session lasts
- `connect`     the composition: `connect(config, clock)` gives a `Registry`
- `trust`       how long a daemon may believe in its session (pure; the simulator uses it too)
- `session`     one ZooKeeper session at a time: contact, watches, translated errors
- `membership`  who is alive, joining, beating, adopting
- `mutex`       the locks of `lock/`
- `name_set`    a folder of znodes whose names say everything, with a bell that offers ring
- `task_queue`, `kill_queue`  `tasks_queue` with its claims, and `tasks_kill`

Nothing is imported here, so that `protocol` and `config` can be had without kazoo.

Under the root: `masters/<host:port>` and `workers/<host:port>` (ephemeral), `dead-servers`,
`tasks_queue/<entry>`, `tasks_kill/<entry>`, `lock/…` as in the specification §4.1, and besides
`tasks_claimed/<entry>` and `adopting/<host:port>` (both ephemeral). Every parent is made again
whenever it is found missing, for the tree may be wiped at any moment.
"""
