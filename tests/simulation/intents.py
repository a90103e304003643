"""People's requests about complements and schedules, as the rows that the command line writes.

Each is one statement, or one transaction; masters see to the rest.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

from common.model.complement_states import ComplementState, DateState
from tests.memory.store import ComplementRecord, MemoryDatabase, ScheduleRecord, Transaction
from tests.simulation.complements import is_recovered
from tests.simulation.schedules import DENSE, OTHER_ZONE, SPOILT

PAUSABLE = (ComplementState.SUBMITTED, ComplementState.RUNNING)
RESUMABLE = (ComplementState.PAUSE, ComplementState.READY_PAUSE)
CANCELLABLE = (*PAUSABLE, *RESUMABLE)
RETRIABLE = (ComplementState.RUNNING, ComplementState.FAILURE)

_FIRST = datetime(2026, 1, 1, tzinfo=UTC)


def dates_of_a_complement(random: Random, *, has_schedule: bool) -> dict[str, object]:
    """The `command_param` of a COMPLEMENT_DATA row for several dates.

    They are days, or the fires of a minute if the definition `has_schedule`.
    """
    count = random.randint(1, 5)
    days = [_FIRST + timedelta(days=day) for day in range(count)]
    param: dict[str, object] = {
        "expectedParallelismNumber": random.choice((1, 1, "2", 3)),
        "executionOrder": random.choice(("ASC_ORDER", "DESC_ORDER")),
        "onFailure": random.choice(("stop", "continue")),
        "reprocess": random.choice(("all", "all", "failed", "missing")),
    }
    if count % 2:
        param["complementDateRule"] = "business_date"
    if random.random() < 0.3:
        random.shuffle(days)
        param["complementScheduleDateList"] = ",".join(map(_written, days))
    elif has_schedule:
        param["complementStartDate"] = _written(days[0])
        param["complementEndDate"] = _written(days[0] + timedelta(seconds=50))
    else:
        param["complementStartDate"] = _written(days[0])
        param["complementEndDate"] = _written(days[-1] + timedelta(hours=random.choice((0, 5))))
    if random.random() < 0.2:
        param["complementDependentMode"] = "ALL_DEPENDENT"
        param["allLevelDependent"] = random.choice(("true", "false"))
    return param


def change_complement(
    database: MemoryDatabase, row: ComplementRecord, state: ComplementState, now: datetime
) -> None:
    """Pause, resume or cancel a complement, if its state allows that."""
    with database.transaction("update") as tx:
        _move(tx, row, state, now)


def try_again(database: MemoryDatabase, row: ComplementRecord, now: datetime) -> None:
    """Retry its failed dates, except those that somebody has recovered since."""
    with database.transaction("update") as tx:
        _move(tx, row, ComplementState.RUNNING, now)
        for date in database.dates(row.id):
            if date.state == DateState.FAILURE and not is_recovered(database, date):
                tx.update(
                    database.complement_dates,
                    date.id,
                    state=DateState.PENDING,
                    command_id=0,
                    process_instance_id=0,
                    reason=None,
                    update_time=now,
                )


def resumed(database: MemoryDatabase, row: ComplementRecord) -> ComplementState:
    """The next state of a resumed complement: one that waited for another checks that again."""
    has_begun = any(
        date.state not in (DateState.PENDING, DateState.SKIPPED) for date in database.dates(row.id)
    )
    if row.after_id and not has_begun:
        return ComplementState.SUBMITTED
    return ComplementState.RUNNING


def change_schedule(
    random: Random, database: MemoryDatabase, row: ScheduleRecord
) -> dict[str, Any]:
    """Give a schedule another line or zone; return the columns written."""
    columns: dict[str, Any] = random.choice(
        (
            {"release_state": 1 - row.release_state},
            {"release_state": 1 - row.release_state},
            {"crontab": random.choice(DENSE)},
            {"crontab": SPOILT},
            {"timezone_id": OTHER_ZONE},
            {"misfire_policy": "fire_all", "misfire_limit": 2},
        )
    )
    if row.crontab == SPOILT:
        columns = {"crontab": random.choice(DENSE)}
    database.update(database.schedules, row.id, **columns)
    return columns


def _written(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M:%S}"


def _move(tx: Transaction, row: ComplementRecord, state: ComplementState, now: datetime) -> None:
    tx.update(
        tx.database.complements,
        row.id,
        state=int(state),
        state_reason=None,
        end_time=None,
        update_time=now,
    )
