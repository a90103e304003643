"""The turns of a serial definition's runs: the other live runs, found under one lock.

Adds the words *turn*, for which a run waits in state SERIAL_WAIT, and *other live run*: another
live instance of the same definition that is no sub process. The lock is that of the definition's
row, so two masters never both find no other live run. Used where commands are carried out.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any, Final

from sqlalchemy import (
    ColumnElement,
    Connection,
    FromClause,
    Integer,
    Text,
    bindparam,
    exists,
    func,
    or_,
    select,
    update,
)

from common.model.states import LIVE_PROCESS_STATES, ExecutionType, ProcessState
from common.store.executed import after_waiting
from common.store.tables import process_definition, process_instance
from common.store.transaction import any_of, lock_in_time, unnested

_DEFINITIONS: Final = (
    select(process_definition.c.id)
    .where(process_definition.c.id == any_of("ids"))
    .order_by(process_definition.c.id)
)
_OTHER_LIVE_RUNS: Final = (
    select(process_instance.c.id)
    .where(process_instance.c.process_definition_id == bindparam("definition_id"))
    .where(process_instance.c.is_sub_process == 0)
    .where(process_instance.c.state.in_(LIVE_PROCESS_STATES))
    .where(process_instance.c.id != bindparam("apart_from"))
    .order_by(process_instance.c.id)
)
IS_STOPPABLE: Final = or_(
    process_instance.c.wanted_state.is_(None),
    process_instance.c.wanted_state == ProcessState.PAUSE,
)
"""The condition that a stop may be requested of a live run: it replaces a pause alone."""
_CAUSES: Final = unnested("cause", id=Integer, reason=Text)
_TO_STOP: Final = (
    select(process_instance.c.id, _CAUSES.c.reason)
    .where(process_instance.c.id == _CAUSES.c.id)
    .where(process_instance.c.state.in_(LIVE_PROCESS_STATES))
    .where(IS_STOPPABLE)
    .order_by(process_instance.c.id)
    .with_for_update(key_share=True, of=process_instance)
    .cte("to_stop")
)
_STOP: Final = (
    update(process_instance)
    .where(process_instance.c.id == _TO_STOP.c.id)
    .values(
        wanted_state=int(ProcessState.STOP),
        wanted_at=bindparam("now"),
        update_time=bindparam("now"),
        # The end keeps it: a person who reads it must not look for another person's request.
        state_reason=_TO_STOP.c.reason,
    )
)

ENDED_WAITING: Final = "stopped before its turn came"
DISPLACED: Final = "displaced by a newer run of its definition (SERIAL_PRIORITY)"
"""The reason of a stop that the definition's execution type requests."""


def is_serial_no_more(run: FromClause) -> ColumnElement[bool]:
    """Return True if this run's definition is parallel by now, so that no other run is in its way.

    Its waiting runs began to wait before that. A run that waits because its own schedule says so
    goes on waiting, whatever the definition is.
    """
    return (
        exists()
        .where(process_definition.c.id == run.c.process_definition_id)
        .where(process_definition.c.execution_type == ExecutionType.PARALLEL)
        .where(run.c.execution_type.is_(None))
    )


def ended_waiting(now: ColumnElement[Any]) -> dict[str, Any]:
    """Return the columns of a run that is stopped while it waits for its turn."""
    return {
        "state": int(ProcessState.STOP),
        "end_time": now,
        "state_reason": func.coalesce(process_instance.c.state_reason, ENDED_WAITING),
        "duration_from": after_waiting(now),
    }


def lock_definitions(db: Connection, definition_ids: Collection[int]) -> frozenset[int]:
    """Keep other masters from deciding on turns of these definitions until the transaction ends.

    Returns the ids that stay locked elsewhere, on which nothing may be decided now.
    """
    return lock_in_time(db, _DEFINITIONS, definition_ids)


def other_live_runs(db: Connection, definition_id: int, *, apart_from: int = 0) -> list[int]:
    """Return the other live runs of a locked definition, waiting ones included."""
    return list(
        db.scalars(_OTHER_LIVE_RUNS, {"definition_id": definition_id, "apart_from": apart_from})
    )


def want_stopped(db: Connection, reasons: Mapping[int, str], *, now: datetime) -> None:
    """Request a stop of these, each for its reason, unless they are to end already."""
    ids = sorted(reasons)
    db.execute(
        _STOP, {"cause_id": ids, "cause_reason": [reasons[each] for each in ids], "now": now}
    )
