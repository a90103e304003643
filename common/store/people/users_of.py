"""Finds the rows that name a worker group or a tenant, and detaches those of the past from it.

Works within a transaction of the caller, under the lock that keeps commands from being put and
taken (`common.store.people.deletions`), so that no run begins with what is about to go.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from sqlalchemy import Column, Connection, Table, or_, select, update

from common.model.complement_states import ComplementState
from common.model.states import LIVE_PROCESS_STATES, LIVE_TASK_CODES
from common.store.tables import (
    command,
    complement,
    process_definition,
    process_instance,
    schedule,
    task_instance,
    user,
)

_MOVING: Final = tuple(int(state) for state in ComplementState if not state.is_ended)
_MOST: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Users:
    """The ids of rows that need a group or a tenant, a few of each kind; names of people."""

    instances: tuple[int, ...] = ()
    commands: tuple[int, ...] = ()
    schedules: tuple[int, ...] = ()
    complements: tuple[int, ...] = ()
    people: tuple[str, ...] = ()


def users_of_group(db: Connection, group_id: int) -> Users:
    """Find the live runs, commands, schedules and complements that name the group."""
    attempts = (
        select(task_instance.c.process_instance_id)
        .where(task_instance.c.worker_group_id == group_id)
        .where(task_instance.c.state.in_(LIVE_TASK_CODES))
    )
    instances = (
        select(process_instance.c.id)
        .where(process_instance.c.state.in_(LIVE_PROCESS_STATES))
        .where(
            or_(process_instance.c.worker_group_id == group_id, process_instance.c.id.in_(attempts))
        )
        .order_by(process_instance.c.id)
        .limit(_MOST)
    )
    # Commands before runs: one that has been taken since has become a run by now.
    commands = _ids(db, command, command.c.worker_group_id, group_id)
    return Users(
        commands=commands,
        instances=tuple(db.scalars(instances)),
        schedules=_ids(db, schedule, schedule.c.worker_group_id, group_id),
        complements=tuple(
            db.scalars(
                select(complement.c.id)
                .where(complement.c.worker_group_id == group_id)
                .where(complement.c.state.in_(_MOVING))
                .order_by(complement.c.id)
                .limit(_MOST)
            )
        ),
    )


def users_of_tenant(db: Connection, tenant_id: int) -> Users:
    """Find the live runs and the people that name the tenant."""
    return Users(
        instances=tuple(
            db.scalars(
                select(process_instance.c.id)
                .where(process_instance.c.state.in_(LIVE_PROCESS_STATES))
                .where(process_instance.c.tenant_id == tenant_id)
                .order_by(process_instance.c.id)
                .limit(_MOST)
            )
        ),
        people=tuple(
            db.scalars(
                select(user.c.user_name)
                .where(user.c.tenant_id == tenant_id)
                .order_by(user.c.id)
                .limit(_MOST)
            )
        ),
    )


def definitions_of_tenant(db: Connection, tenant_id: int) -> list[str]:
    """List the names of the definitions that run as the tenant."""
    return list(
        db.scalars(
            select(process_definition.c.name)
            .where(process_definition.c.tenant_id == tenant_id)
            .order_by(process_definition.c.id)
        )
    )


def detach(db: Connection, column: Column[int], number: int) -> int:
    """Set the column of ended runs that name the group or the tenant to −1; count them."""
    changed = db.execute(
        update(process_instance)
        .where(column == number)
        .where(process_instance.c.state.not_in(LIVE_PROCESS_STATES))
        .values({column.name: -1})
    )
    return changed.rowcount


def _ids(db: Connection, table: Table, column: Column[int], number: int) -> tuple[int, ...]:
    return tuple(
        db.scalars(select(table.c.id).where(column == number).order_by(table.c.id).limit(_MOST))
    )
