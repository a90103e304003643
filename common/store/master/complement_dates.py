"""Dates of complements whose runs begin: part of the transaction that takes their commands.

Claiming a date makes sure that no date is begun twice, and none of a complement that is to begin no
further ones. `common.store.master.complement_progress` puts the commands and settles the ends.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Final

from sqlalchemy import Connection, DateTime, Integer, bindparam, exists, select, update

from common.model.complement_states import ComplementState, DateState
from common.store.tables import complement, complement_date
from common.store.transaction import unnested

_MOMENT: Final = DateTime(timezone=True)
_CLAIMING: Final = unnested("claiming", date_id=Integer, command_id=Integer)
_WANTED: Final = (
    select(complement_date.c.id)
    .join_from(_CLAIMING, complement_date, complement_date.c.id == _CLAIMING.c.date_id)
    .where(complement_date.c.command_id == _CLAIMING.c.command_id)
    .where(complement_date.c.state == DateState.SUBMITTED)
    .where(
        exists()
        .where(complement.c.id == complement_date.c.complement_id)
        .where(complement.c.state == ComplementState.RUNNING)
    )
    # One that stays locked elsewhere loses its command, is found to have lost it, and gets another:
    # it keeps no other command waiting.
    .with_for_update(of=complement_date, key_share=True, skip_locked=True)
    .cte("wanted")
)
_CLAIM: Final = (
    update(complement_date)
    .where(complement_date.c.id == _WANTED.c.id)
    .where(complement_date.c.state == DateState.SUBMITTED)
    .values(state=DateState.RUNNING.value, update_time=bindparam("now", type_=_MOMENT))
    .returning(complement_date.c.command_id)
)
_CREATED: Final = unnested("created", date_id=Integer, run_id=Integer)
_NOTE_RUNS: Final = (
    update(complement_date)
    .where(complement_date.c.id == _CREATED.c.date_id)
    .values(process_instance_id=_CREATED.c.run_id)
)


def claim_dates(db: Connection, dates: Mapping[int, int], *, now: datetime) -> frozenset[int]:
    """SUBMITTED → RUNNING for the dates that still wait for these commands; return their ids.

    `dates` are the ids of dates by those of commands; the ids of commands are returned. A date is
    claimed only if its row names this very command, so none is begun twice, and only if its
    complement may begin further dates.
    """
    if not dates:
        return frozenset()
    asked = {"claiming_date_id": list(dates.values()), "claiming_command_id": list(dates)}
    return frozenset(db.scalars(_CLAIM, asked | {"now": now}))


def note_runs_of_dates(db: Connection, runs: Mapping[int, int]) -> None:
    """Record the process instances of claimed dates, by the ids of the dates."""
    db.execute(_NOTE_RUNS, {"created_date_id": list(runs), "created_run_id": list(runs.values())})
