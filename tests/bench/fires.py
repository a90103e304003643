"""Schedules: from the second at which one is due to its task's process, and 500 due at once.

`fires.lag` is of one schedule that fires every second, on an otherwise idle cluster. `fires.crowd`
is of many schedules that are due in the same second: when the last of their runs has begun.
"""

from __future__ import annotations

import math
import time
from datetime import UTC, datetime, timedelta

from tests.bench import definitions
from tests.bench.figures import Figure, Target, percentile
from tests.bench.moments import count
from tests.bench.stage import PATIENCE_SECONDS, Stage

_SECONDS = 20
_CROWD = 500
_AHEAD_SECONDS = 2
_CROWD_LIMIT_SECONDS = 15
_LAG_LIMIT_MS = 50


def measure(stage: Stage, runs: int) -> list[Figure]:
    lags = [_lags(stage, number) for number in range(runs)]
    crowd = [_crowd(stage, number) for number in range(runs)]
    return [
        Figure(
            name="fires.lag_p50",
            unit="ms",
            values=tuple(percentile(each, 50) for each in lags),
            target=Target(limit=_LAG_LIMIT_MS),
        ),
        Figure(
            name="fires.lag_p95",
            unit="ms",
            values=tuple(percentile(each, 95) for each in lags),
        ),
        Figure(
            name="fires.crowd_last",
            unit="s",
            values=tuple(crowd),
            target=Target(limit=_CROWD_LIMIT_SECONDS),
        ),
    ]


def _lags(stage: Stage, number: int) -> list[float]:
    """The lag in milliseconds, from each whole second to the start of its run's process."""
    definition = stage.database.define(
        f"every second {number}", definitions.chain(1, stage.moments.probed())
    )
    stage.moments.forget()
    first = _soon()
    stage.database.schedule(definition, first=first, last=first + timedelta(seconds=_SECONDS - 1))
    seen = stage.moments.until(
        lambda moments: count(moments, "end") == _SECONDS, within=_SECONDS + PATIENCE_SECONDS
    )
    _await_success(stage, definition, _SECONDS)
    # Moments are monotonic times; fires are wall-clock times.
    apart = time.time() - time.monotonic()
    begun = sorted(moment.at + apart for moment in seen if moment.what == "begin")
    return [(moment - (first.timestamp() + index)) * 1000 for index, moment in enumerate(begun)]


def _crowd(stage: Stage, number: int) -> float:
    """The seconds from the common due time to the beginning of the last run."""
    definition = stage.database.define(f"crowd {number}", definitions.chain(1, "true"))
    due = _soon()
    stage.database.schedule(definition, first=due, last=due, times=_CROWD)
    _await_success(stage, definition, _CROWD)
    microseconds = stage.database.count(
        "SELECT (extract(epoch FROM max(start_time) - %s) * 1000000)::bigint"
        " FROM t_ds_process_instance WHERE process_definition_id = %s",
        (due, definition),
    )
    return microseconds / 1_000_000


def _await_success(stage: Stage, definition: int, runs: int) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS + _CROWD_LIMIT_SECONDS
    ended = (
        "SELECT count(*) FROM t_ds_process_instance"
        " WHERE process_definition_id = %s AND end_time IS NOT NULL"
    )
    while stage.database.count(ended, (definition,)) < runs:
        if time.monotonic() > deadline:
            raise TimeoutError(f"not all of {runs} runs have ended")
        # Polling disturbs no figure: the times that count stand in the rows.
        time.sleep(0.2)
    stage.database.check_success(definition)


def _soon() -> datetime:
    return datetime.fromtimestamp(math.ceil(time.time()) + _AHEAD_SECONDS, UTC)
