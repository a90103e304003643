"""Live runs beside a complement that wants every slot: the added wait of their tasks.

The worker has few slots, and the dates of the complement have tasks that hold them for seconds, with
as many more in the queue. A live run of one task is put now and then, first with nothing else there
and then beside the complement; the figures are how the latencies of the second compare with those
of the first, from the commit of the row to the start of the task's process. `behind` is what such a
run waits if the same work stands there as runs of its own kind: the length of a task or two.
"""

from __future__ import annotations

import time

from tests.bench import definitions
from tests.bench.figures import Figure, Target, percentile
from tests.bench.moments import count, of
from tests.bench.stage import PATIENCE_SECONDS, Stage

SLOTS = 4
# Tasks killed at the end of a run get no grace period.
SETTINGS = {"worker.exec_threads": SLOTS, "worker.kill_grace_seconds": 0}
_TIMES = 50
_PARALLELISM = 2 * SLOTS
_DATES = 200
_TASK_SECONDS = 4
_BETWEEN_SECONDS = 0.1
_LOOK_SECONDS = 0.1
_LIMIT = 1.5


class NotBusyError(Exception):
    """The complement did not hold the slots all the time, so the times mean nothing."""


def measure(stage: Stage, runs: int) -> list[Figure]:
    live = stage.database.define("live", definitions.chain(1, stage.moments.probed()))
    past = stage.database.define("past", definitions.chain(1, f"exec sleep {_TASK_SECONDS}"))
    # The first of all runs meets daemons that have done nothing yet.
    _latencies(stage, live, 5)
    behind = _behind(stage, live, past)
    alone: list[list[float]] = []
    beside: list[list[float]] = []
    for _ in range(runs):
        alone.append(_latencies(stage, live, _TIMES))
        complement = stage.database.complement(past, dates=_DATES, parallelism=_PARALLELISM)
        _await_tasks(stage, past, _PARALLELISM)
        beside.append(_latencies(stage, live, _TIMES))
        if _tasks(stage, past) < _PARALLELISM - 1:
            # A task may just have ended.
            raise NotBusyError("the complement has run out of dates")
        stage.database.cancel(complement)
        _await_tasks(stage, past, 0)
    stage.database.check_success(live)
    return [
        *(
            Figure(
                name=f"yielding.ratio_p{share}",
                unit="times",
                values=tuple(
                    percentile(slow, share) / percentile(fast, share)
                    for fast, slow in zip(alone, beside, strict=True)
                ),
                target=Target(limit=_LIMIT),
            )
            for share in (50, 95)
        ),
        *(
            Figure(
                name=f"yielding.{name}_p{share}",
                unit="ms",
                values=tuple(percentile(each, share) for each in measured),
            )
            for name, measured in (("alone", alone), ("beside", beside))
            for share in (50, 95)
        ),
        Figure(name="yielding.behind", unit="ms", values=(behind,)),
    ]


def _behind(stage: Stage, live: int, past: int) -> float:
    stage.database.start(past, _PARALLELISM)
    _await_tasks(stage, past, _PARALLELISM)
    (latency,) = _latencies(stage, live, 1)
    _await_tasks(stage, past, 0)
    return latency


def _latencies(stage: Stage, definition: int, times: int) -> list[float]:
    """The latencies in milliseconds, one run after the other."""
    found: list[float] = []
    for _ in range(times):
        stage.moments.forget()
        committed = stage.database.start(definition)
        seen = stage.moments.until(
            lambda moments: count(moments, "end") == 1, within=PATIENCE_SECONDS
        )
        found.append((of(seen, "begin")["t0"] - committed) * 1000)
        # Spread, so that the probes meet the complement at all its moments, and not each other.
        time.sleep(_BETWEEN_SECONDS)
    return found


def _await_tasks(stage: Stage, definition: int, number: int) -> None:
    """Wait until exactly this many attempts wait or run, as many as there are slots among them."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while _tasks(stage, definition) != number or _running(stage, definition) != min(SLOTS, number):
        if time.monotonic() > deadline:
            raise TimeoutError(f"the complement has not come to {number} tasks")
        # Nothing notifies of single tasks; this is between the times that are measured.
        time.sleep(_LOOK_SECONDS)


def _tasks(stage: Stage, definition: int) -> int:
    return stage.database.count(
        "SELECT count(*) FROM t_ds_task_instance"
        " WHERE process_definition_id = %s AND end_time IS NULL",
        (definition,),
    )


def _running(stage: Stage, definition: int) -> int:
    return stage.database.count(
        "SELECT count(*) FROM t_ds_task_instance WHERE process_definition_id = %s AND state = 1",
        (definition,),
    )
