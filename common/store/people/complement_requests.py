"""Requests to a complement: pause, resume, cancel, and retry its failed dates.

Each is one conditional UPDATE that counts its rows; a master carries it out. The row of the
complement is locked by it before any row of its dates, as by the masters.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from sqlalchemy import Connection, case, exists, or_, select, update

from common.model.complement_states import ComplementState, DateState
from common.model.states import LIVE_PROCESS_STATES, ProcessState
from common.store.tables import command, complement, complement_date, process_instance

PAUSABLE: Final = (ComplementState.SUBMITTED, ComplementState.RUNNING)
RESUMABLE: Final = (ComplementState.PAUSE, ComplementState.READY_PAUSE)
CANCELLABLE: Final = (*PAUSABLE, *RESUMABLE)
RETRIABLE: Final = (ComplementState.RUNNING, ComplementState.FAILURE)


def pause_complement(db: Connection, complement_id: int, *, at: datetime) -> bool:
    """→ READY_PAUSE; False if it is in no state from which it can be paused."""
    return _moved(db, complement_id, PAUSABLE, ComplementState.READY_PAUSE, at=at)


def cancel_complement(db: Connection, complement_id: int, *, at: datetime) -> bool:
    """→ READY_STOP; False if it is in no state from which it can be cancelled."""
    return _moved(db, complement_id, CANCELLABLE, ComplementState.READY_STOP, at=at)


def resume_complement(db: Connection, complement_id: int, *, at: datetime) -> bool:
    """→ RUNNING, or SUBMITTED if it waited for another; False if it was not paused."""
    begun = exists(
        select(complement_date.c.id)
        .where(complement_date.c.complement_id == complement_id)
        .where(complement_date.c.state.not_in((DateState.PENDING, DateState.SKIPPED)))
    )
    changed = db.execute(
        update(complement)
        .where(complement.c.id == complement_id)
        .where(complement.c.state.in_(RESUMABLE))
        .values(
            # One that waited looks again whether it may begin.
            state=case(
                (or_(complement.c.after_id == 0, begun), int(ComplementState.RUNNING)),
                else_=int(ComplementState.SUBMITTED),
            ),
            state_reason=None,
            end_time=None,
            update_time=at,
        )
    )
    return changed.rowcount == 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Retried:
    """The number of failed dates pending again, and the complements after it that wait again."""

    dates: int
    followers: tuple[int, ...] = ()


def retry_complement(db: Connection, complement_id: int, *, at: datetime) -> Retried | None:
    """→ RUNNING with its failed dates pending again; None if its state forbids it.

    A failed date whose run has been recovered since, or is to be, is left to the masters, so that
    it never runs twice at the same time. With no date to retry the caller has to roll back.
    """
    changed = db.execute(
        update(complement)
        .where(complement.c.id == complement_id)
        .where(complement.c.state.in_(RETRIABLE))
        .values(
            state=int(ComplementState.RUNNING), state_reason=None, end_time=None, update_time=at
        )
    )
    if changed.rowcount != 1:
        return None
    recovered = exists(
        select(process_instance.c.id)
        .where(process_instance.c.id == complement_date.c.process_instance_id)
        .where(process_instance.c.state.in_((*LIVE_PROCESS_STATES, ProcessState.SUCCESS)))
    )
    about_to_be = exists(
        select(command.c.id)
        .where(command.c.process_instance_id == complement_date.c.process_instance_id)
        .where(command.c.process_instance_id != 0)
    )
    dates = db.execute(
        update(complement_date)
        .where(complement_date.c.complement_id == complement_id)
        .where(complement_date.c.state == DateState.FAILURE)
        .where(~recovered)
        .where(~about_to_be)
        .values(
            state=DateState.PENDING.value,
            command_id=0,
            process_instance_id=0,
            reason=None,
            update_time=at,
        )
    )
    return Retried(dates=dates.rowcount, followers=_wait_again(db, complement_id, at=at))


def _wait_again(db: Connection, complement_id: int, *, at: datetime) -> tuple[int, ...]:
    """Those after it, and after these, that failed only because it did."""
    own_failure = exists(
        select(complement_date.c.id)
        .where(complement_date.c.complement_id == complement.c.id)
        .where(complement_date.c.state == DateState.FAILURE)
    )
    found: list[int] = []
    above = [complement_id]
    while above:
        above = sorted(
            db.scalars(
                update(complement)
                .where(complement.c.after_id.in_(above))
                .where(complement.c.state == int(ComplementState.FAILURE))
                .where(~own_failure)
                .values(
                    state=int(ComplementState.SUBMITTED),
                    state_reason=None,
                    end_time=None,
                    update_time=at,
                )
                .returning(complement.c.id)
            )
        )
        found += above
    return tuple(found)


def _moved(
    db: Connection,
    complement_id: int,
    expected: Collection[ComplementState],
    wanted: ComplementState,
    *,
    at: datetime,
) -> bool:
    changed = db.execute(
        update(complement)
        .where(complement.c.id == complement_id)
        .where(complement.c.state.in_(expected))
        .values(state=int(wanted), update_time=at, end_time=None)
    )
    return changed.rowcount == 1
