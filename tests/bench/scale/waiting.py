"""Thousands of things that wait on one master: its memory, its processor time, and the trigger beside.

Three kinds, each on a cluster of its own:

- `open`: runs of ten tasks whose first has failed and is retried in an hour: open, with a timer.
- `held`: attempts that wait for the only slot of a pool.
- `dependents`: DEPENDENT tasks that wait for a run that is not there; at the end it comes.
"""

from __future__ import annotations

import time

from common.model.states import TaskState
from tests.bench import daemons, definitions, trigger
from tests.bench.figures import Figure, Target, percentile
from tests.bench.stage import Stage
from tests.granting import GRANT_ALL

MANY = 10_000
SETTINGS = {"master.exec_threads": 2 * MANY}
_SIZES_OF_OPEN = (1, 1_000, MANY)
_A_RUN = 100
_TIMES = 30
_WINDOW_SECONDS = 10.0
_LOOK_SECONDS = 0.5
_LONGEST_SECONDS = 900.0
_WAITING_RETRIES = """
    SELECT count(*) FROM t_ds_task_instance
    WHERE process_definition_id = %s AND state = 6 AND retry_at IS NOT NULL
"""
_IN_STATE = (
    "SELECT count(*) FROM t_ds_task_instance WHERE process_definition_id = %s AND state = {}"
)
_WAITING_DEPENDENTS = """
    SELECT count(*) FROM t_ds_task_instance
    WHERE process_definition_id = %s AND task_type = 'DEPENDENT' AND end_time IS NULL
"""


def open_runs(stage: Stage, runs: int) -> list[Figure]:
    """1, 1,000 and 10,000 open runs of ten tasks."""
    single = trigger.define(stage)
    waiting = stage.database.define("open", definitions.retried_later((1, 3, 3, 2, 1)))
    figures: list[Figure] = []
    there = 0
    for size in _SIZES_OF_OPEN:
        stage.database.start(waiting, size - there)
        _await(stage, _WAITING_RETRIES, waiting, size)
        there = size
        is_last = size == _SIZES_OF_OPEN[-1]
        figures += _beside(stage, f"open_{size}", single, runs, is_last=is_last)
    return figures


def held(stage: Stage, runs: int) -> list[Figure]:
    """A pool of one slot, for which ten thousand attempts wait."""
    single = trigger.define(stage)
    pool = stage.database.count(
        "INSERT INTO t_ds_task_group (name, group_size) VALUES (%s, 1) RETURNING id", ("one slot",)
    )
    stage.database.execute(GRANT_ALL, {})
    waiting = stage.database.define("held", definitions.pooled(_A_RUN, "exec sleep 7200", pool))
    began = stage.database.start(waiting, MANY // _A_RUN)
    _await(stage, _IN_STATE.format(TaskState.WAITING_DEPEND.value), waiting, MANY - 1)
    seconds = time.monotonic() - began
    return [
        Figure(name="held.until_all_wait", unit="s", values=(seconds,)),
        *_beside(stage, f"held_{MANY}", single, runs, is_last=True),
    ]


def dependents(stage: Stage, runs: int) -> list[Figure]:
    """A hundred runs of a hundred DEPENDENT tasks each."""
    single = trigger.define(stage)
    upstream = stage.database.define("upstream", definitions.chain(1, "true"))
    waiting = stage.database.define("dependents", definitions.dependents(_A_RUN, upstream))
    stage.database.start(waiting, MANY // _A_RUN)
    _await(stage, _WAITING_DEPENDENTS, waiting, MANY)
    figures = _beside(stage, f"dependents_{MANY}", single, runs, is_last=True)
    began = stage.database.start(upstream)
    stage.database.await_ends(1, within=_LONGEST_SECONDS)
    _await(stage, _IN_STATE.format(TaskState.SUCCESS.value), waiting, MANY)
    return [
        *figures,
        Figure(name="dependents.until_decided", unit="s", values=(time.monotonic() - began,)),
    ]


def _beside(stage: Stage, name: str, single: int, runs: int, *, is_last: bool) -> list[Figure]:
    """The master's memory and processor time, and the latency of a run beside what waits."""
    pid = stage.cluster.master_pid
    latencies = [trigger.latencies_ms(stage, single, _TIMES) for _ in range(runs)]
    used: list[float] = []
    for _ in range(runs):
        before, began = daemons.cpu_seconds(pid), time.monotonic()
        # The window over which CPU time is counted; nothing else runs in it.
        time.sleep(_WINDOW_SECONDS)
        used.append(100 * (daemons.cpu_seconds(pid) - before) / (time.monotonic() - began))
    return [
        Figure(
            name=f"{name}.master_memory",
            unit="MiB",
            values=(daemons.shared_mb(pid),),
            target=Target(limit=500) if is_last else None,
        ),
        Figure(name=f"{name}.master_cpu", unit="% of a core", values=tuple(used)),
        *(
            Figure(
                name=f"{name}.trigger_p{share}",
                unit="ms",
                values=tuple(percentile(each, share) for each in latencies),
                target=Target(limit=150) if is_last and share == 95 else None,
            )
            for share in (50, 95)
        ),
    ]


def _await(stage: Stage, query: str, definition: int, number: int) -> None:
    deadline = time.monotonic() + _LONGEST_SECONDS
    while (found := stage.database.count(query, (definition,))) < number:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{found} of {number} wait after {_LONGEST_SECONDS:g} s")
        # Seldom, since each query loads the database under measurement.
        time.sleep(_LOOK_SECONDS)
