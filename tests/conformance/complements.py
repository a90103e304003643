"""Complements in both stores: their making, their progress and their rows."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from common.model.commands import CommandOutcome, CommandType
from common.model.complement_states import ComplementState, OnFailure, Reprocess, RunOrder
from common.model.complements import (
    ComplementDecider,
    ComplementSnapshot,
    ComplementStep,
    NewComplement,
    RunSettings,
)
from common.model.instances import Ownership
from common.model.plans import Complement, Handled, Plan
from common.store import tables as t
from common.store.master.ports import Progressed
from master.logic.complement import step
from tests.builders import NOON
from tests.conformance.store_tables import (
    MASTER,
    Tables,
    a_begin,
    by_id,
    carry_out,
    has,
    take,
    the_row,
)

DAY = timedelta(days=1)
DAYS = tuple(NOON - (9 - number) * DAY for number in range(9))
RUNNING, READY_PAUSE, READY_STOP = (
    ComplementState.RUNNING,
    ComplementState.READY_PAUSE,
    ComplementState.READY_STOP,
)


def new(*dates: datetime, **changes: Any) -> NewComplement:
    """A complement of definition 1 with these dates."""
    found = NewComplement(
        process_definition_id=1,
        dates=dates,
        timezone_id="UTC",
        parallelism=1,
        order=RunOrder.ASCENDING,
        on_failure=OnFailure.STOP,
        reprocess=Reprocess.ALL,
        settings=RunSettings(),
    )
    return replace(found, **changes)


def create(db: Tables, *complements: NewComplement, now: datetime = NOON) -> list[int]:
    """Carry out a command that creates these complements; return their ids."""
    known = {row["id"] for row in db.rows(t.complement)}
    handled = carry_out(db, Complement(complements=complements), now=now)
    line = db.rows(t.command_ledger)[-1]
    assert has(
        line, command_id=handled.command_id, outcome=CommandOutcome.TAKEN, process_instance_id=None
    )
    return [row["id"] for row in db.rows(t.complement) if row["id"] not in known]


def a_complement(db: Tables, count: int = 3, **changes: Any) -> int:
    """A RUNNING complement of this many days, none of which has begun."""
    (complement_id,) = create(db, new(*DAYS[:count], **changes))
    return complement_id


def the_complement(db: Tables, complement_id: int) -> dict[str, Any]:
    return the_row(db, t.complement, complement_id)


def dates_of(db: Tables, complement_id: int) -> list[dict[str, Any]]:
    """The dates of a complement, in order."""
    found = [row for row in db.rows(t.complement_date) if row["complement_id"] == complement_id]
    return sorted(found, key=lambda row: int(row["position"]))


def states(db: Tables, complement_id: int) -> list[str]:
    return [row["state"] for row in dates_of(db, complement_id)]


def request(db: Tables, complement_id: int, state: ComplementState) -> None:
    """A person's requests about a complement."""
    db.update(t.complement, complement_id, state=int(state))


def advance(
    db: Tables,
    decide: ComplementDecider = step,
    *,
    now: datetime = NOON,
    thorough: bool = False,
) -> Progressed:
    return db.complements.advance(decide=decide, now=now, thorough=thorough)


def begin_waiting(db: Tables, *, now: datetime = NOON, **changes: Any) -> list[Handled]:
    """Take the commands of dates and let each begin; return the results."""
    plans: dict[int, Plan] = {
        row["id"]: a_begin(
            command_type=CommandType.COMPLEMENT_DATA,
            complement_date_id=row["complement_date_id"],
            schedule_time=row["schedule_time"],
            **changes,
        )
        for row in db.rows(t.command)
    }
    return list(take(db, by_id(plans), now=now))


def under_way(db: Tables, count: int = 3, *, begun: int = 1, **changes: Any) -> int:
    """A complement whose first dates have begun to run."""
    complement_id = a_complement(db, count, parallelism=begun, **changes)
    advance(db)
    assert all(one.ownership for one in begin_waiting(db))
    return complement_id


def run_of(db: Tables, complement_id: int, place: int = 0) -> Ownership:
    """The run of a date."""
    run_id = dates_of(db, complement_id)[place]["process_instance_id"]
    return Ownership(process_instance_id=run_id, host=MASTER.address, epoch=1)


def decided_on(db: Tables, *, thorough: bool = False) -> ComplementSnapshot:
    """The decider's view of the only complement that is due."""
    seen: list[ComplementSnapshot] = []

    def decide(found: ComplementSnapshot) -> ComplementStep:
        seen.append(found)
        return ComplementStep(state=found.state)

    advance(db, decide, thorough=thorough)
    return seen[-1]
