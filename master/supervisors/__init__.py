"""Supervisors of streams: the decisions that keep a topic flowing into a dataset, exactly once.

Pure, and without Spark, Kafka or SQL. `deciding.decide` is given a view of one supervisor, a notice
and the time, and returns decisions. Its caller is the keeper loop of the master that holds the
supervisor's lease (`master/loops/supervisor_loop.py`), which loads the view, carries the decisions
out in one transaction, and remembers `Remember.memory` until the next notice.

A *task group* is all tasks that do the same work; its replicas race, and the first to publish wins.
A *hand-over* ends a reading group at offsets on which its tasks agree: it goes on to publish while
the next group reads from there. A *conversation* is the way to such an agreement: all tasks are
asked to pause, the greatest offsets are chosen, all are told. It is a state of the group that the
next run continues, never a wait. A *standby* is a task that is started before it has work, so that
the next group need not wait for its start.
"""
