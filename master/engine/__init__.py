"""The workflow engine: decides the next step of a run. Pure: events in, decisions out.

A *run* is a process instance as its owner holds it in memory: one `TaskRun` for every task of the
selected DAG. The whole engine is one line:

    decisions = advance(run, event, now=now)

`advance` asks `decide` what the event means, applies each decision to the run, and follows up until
the run is quiet: tasks whose upstream is done are submitted, due retries are submitted, and a run
with nothing left to do is finished. The caller (`master.loops.run_worker`) then saves the same list
of decisions in one transaction that names the owner. If that fails, it forgets the run; the next
event loads it from the tables. So memory is a cache, and start, restart and failover are one path.

The death of a worker, as the engine sees it: its attempt's row becomes NEED_FAULT_TOLERANCE, which
is reported as `WorkerLost`; the attempt is finished and another one, not counted as a retry, is
submitted. A late report of the lost attempt carries its old number and is ignored. The death of a
master does not involve the engine at all: another master loads the run from its rows and goes on
with `RunOpened`.

Modules: `events`, `run` and `task_run` (changed by `ProcessRun.apply` alone), `invariants`,
`transitions` (the total tables: each event in each state), `rules` (the cells of those tables),
`flow` (the decisions that follow from a change), `branches`, `variables`, `retries`, `advance` (the
step), `load` (rows → run). The decisions stand in `common.model.decisions`, since the store writes
them.

Nothing here reads a clock or a table, draws a number, or iterates over a set: the same events give
the same decisions on every machine.
"""
