"""Changes of `t_ds_schedules` by people, within transactions of the caller.

A schedule is deleted only while it is OFFLINE, and changed then, or while it stays ONLINE with all
checks of coming ONLINE (contract §8.1). That it comes
ONLINE only together with its definitions is checked under their locks (`lock_definitions`), and a
definition that goes OFFLINE takes its schedules along in the same transaction, so neither misses
the other. Lock order: definitions by id, then schedules by id.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, delete, insert, select, update

from common.model.states import ReleaseState
from common.store.tables import process_definition, schedule


@dataclass(frozen=True, slots=True, kw_only=True)
class LockedDefinition:
    """A definition that can't change its release state before the transaction ends."""

    id: int
    name: str
    is_released: bool
    is_usable: bool


def create_schedule(
    db: Connection, *, process_definition_id: int, values: Mapping[str, Any], at: datetime
) -> int:
    """Insert a schedule, return its id; `values`: its other columns. The database checks codes."""
    made: int = db.execute(
        insert(schedule)
        .values(
            process_definition_id=process_definition_id, create_time=at, update_time=at, **values
        )
        .returning(schedule.c.id)
    ).scalar_one()
    return made


def edit_schedule(
    db: Connection,
    schedule_id: int,
    *,
    values: Mapping[str, Any],
    at: datetime,
    state: ReleaseState = ReleaseState.OFFLINE,
) -> bool:
    """Change columns of a schedule; False unless it exists and has this release state."""
    changed = db.execute(
        update(schedule)
        .where(schedule.c.id == schedule_id)
        .where(schedule.c.release_state == state)
        .values(update_time=at, **values)
    )
    return changed.rowcount == 1


def delete_schedules(db: Connection, ids: Collection[int]) -> frozenset[int]:
    """Delete those of these that are OFFLINE; return their ids. Their fires stay in the ledger."""
    return frozenset(
        db.scalars(
            delete(schedule)
            .where(schedule.c.id.in_(ids))
            .where(schedule.c.release_state == ReleaseState.OFFLINE)
            .returning(schedule.c.id)
        )
    )


def lock_definitions(db: Connection, ids: Collection[int]) -> dict[int, LockedDefinition]:
    """Lock definitions until the transaction ends; one that is gone is left out."""
    rows = db.execute(
        select(
            process_definition.c.id,
            process_definition.c.name,
            process_definition.c.release_state,
            process_definition.c.flag,
        )
        .where(process_definition.c.id.in_(ids))
        .order_by(process_definition.c.id)
        .with_for_update(read=True)
    )
    return {
        row.id: LockedDefinition(
            id=row.id,
            name=row.name,
            is_released=row.release_state == ReleaseState.ONLINE,
            is_usable=row.flag == 1,
        )
        for row in rows
    }


def lock_schedules(db: Connection, ids: Collection[int]) -> frozenset[int]:
    """Lock schedules against fires and changes until the transaction ends; return existing ids."""
    return frozenset(
        db.scalars(
            select(schedule.c.id)
            .where(schedule.c.id.in_(ids))
            .order_by(schedule.c.id)
            .with_for_update()
        )
    )


def release_schedules(
    db: Connection, ids: Collection[int], *, wanted: ReleaseState, at: datetime
) -> frozenset[int]:
    """Bring schedules ONLINE or OFFLINE; return the ids that this changed."""
    return frozenset(
        db.scalars(
            update(schedule)
            .where(schedule.c.id.in_(ids))
            .where(schedule.c.release_state != wanted)
            .values(release_state=wanted, update_time=at)
            .returning(schedule.c.id)
        )
    )


def take_schedules_offline(
    db: Connection, definition_ids: Collection[int], *, at: datetime
) -> dict[int, list[int]]:
    """Set the schedules of these definitions OFFLINE; return those ONLINE before, by definition."""
    rows = db.execute(
        select(schedule.c.id, schedule.c.process_definition_id)
        .where(schedule.c.process_definition_id.in_(definition_ids))
        .where(schedule.c.release_state != ReleaseState.OFFLINE)
        .order_by(schedule.c.id)
        .with_for_update()
    ).all()
    release_schedules(db, [row.id for row in rows], wanted=ReleaseState.OFFLINE, at=at)
    taken: dict[int, list[int]] = {each: [] for each in definition_ids}
    for row in rows:
        taken[row.process_definition_id].append(row.id)
    return taken
