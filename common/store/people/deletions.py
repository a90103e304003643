"""Deletes process instances and definitions, with everything that is nobody else's.

Works within a transaction of the caller, who decides from what the looks here return. Locks are
taken in the order of the masters: instances by id, definitions by id, then the table of commands.
An instance can't be recovered while its row is locked; no run of a definition can begin while no
command can be put or taken, and a command that is being taken is still seen.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Connection, Select, delete, func, or_, select, text

from common.model.complement_states import ComplementState
from common.model.reach import ShareKind
from common.model.states import LIVE_PROCESS_STATES, ProcessState, ReleaseState
from common.store.people.shares import delete_shares_of
from common.store.tables import (
    command,
    complement,
    complement_date,
    process_definition,
    process_instance,
    relation_process_instance,
    schedule,
    task_instance,
)
from common.store.transaction import any_of

_ENDED: Final = tuple(state for state in ProcessState if state.is_terminal)
_MOVING: Final = tuple(int(state) for state in ComplementState if not state.is_ended)

# The instances, and all that their SUB_PROCESS attempts have begun, at whatever depth.
_NAMED: Final = (
    select(process_instance.c.id)
    .where(process_instance.c.id == any_of("ids"))
    .cte("tree", recursive=True)
)
# UNION, not UNION ALL: rows that somebody has tied into a ring by hand must come to an end.
_TREES: Final = _NAMED.union(
    select(relation_process_instance.c.process_instance_id).join_from(
        _NAMED,
        relation_process_instance,
        relation_process_instance.c.parent_process_instance_id == _NAMED.c.id,
    )
)
_LOCK: Final = (
    select(
        process_instance.c.id,
        process_instance.c.state,
        process_instance.c.root_id,
        process_instance.c.is_sub_process,
        process_instance.c.process_definition_id,
    )
    .where(process_instance.c.id.in_(select(_TREES.c.id)))
    .order_by(process_instance.c.id)
    .with_for_update()
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LockedInstance:
    """An instance that nobody else can change or recover before the transaction ends."""

    id: int
    state: int
    root_id: int
    is_sub_process: bool
    process_definition_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingCommand:
    """A command about what is to be deleted; its other columns hold whatever somebody typed."""

    id: int
    process_instance_id: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LostAttempt:
    """An attempt of which processes may still run: nobody has found them gone."""

    id: int
    name: str
    process_instance_id: int
    host: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletedInstances:
    """Instances that are gone: their ids, those of their definitions, and who ran their tasks."""

    ids: tuple[int, ...]
    folders: tuple[tuple[int, int], ...]
    attempts: int
    hosts: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveDocument:
    """A live run and its copy of the JSON; `project_id` is None if its definition was deleted."""

    id: int
    project_id: int | None
    document: str


def lock_trees(db: Connection, ids: Collection[int]) -> list[LockedInstance]:
    """Lock these instances and their sub processes, by id; one that does not exist is left out."""
    return [
        LockedInstance(
            id=row.id,
            state=row.state,
            root_id=row.root_id,
            is_sub_process=row.is_sub_process != 0,
            process_definition_id=row.process_definition_id,
        )
        for row in db.execute(_LOCK, {"ids": sorted(set(ids))})
    ]


def commands_for_instances(db: Connection, ids: Collection[int]) -> list[WaitingCommand]:
    """List the waiting commands about these instances, or about attempts of theirs."""
    attempts = select(task_instance.c.id).where(
        task_instance.c.process_instance_id == any_of("ids")
    )
    return _commands(
        db,
        _COMMANDS.where(
            or_(
                command.c.process_instance_id == any_of("ids"),
                command.c.parent_task_instance_id.in_(attempts),
            )
        ),
        ids,
    )


def lost_attempts(db: Connection, ids: Collection[int]) -> list[LostAttempt]:
    """List the attempts of these instances of which processes may still run."""
    statement = (
        select(
            task_instance.c.id,
            task_instance.c.name,
            task_instance.c.process_instance_id,
            task_instance.c.host,
        )
        .where(task_instance.c.process_instance_id == any_of("ids"))
        .where(task_instance.c.lost_at.is_not(None))
        .order_by(task_instance.c.id)
    )
    return [
        LostAttempt(
            id=row.id, name=row.name, process_instance_id=row.process_instance_id, host=row.host
        )
        for row in db.execute(statement, {"ids": sorted(ids)})
    ]


def complements_of_instances(db: Connection, ids: Collection[int]) -> dict[int, int]:
    """Return the complements that go on with one of these as a date, and that instance."""
    statement = (
        select(complement_date.c.complement_id, func.min(complement_date.c.process_instance_id))
        .join_from(complement_date, complement)
        .where(complement_date.c.process_instance_id == any_of("ids"))
        .where(complement_date.c.process_instance_id != 0)
        .where(complement.c.state.in_(_MOVING))
        .group_by(complement_date.c.complement_id)
        .order_by(complement_date.c.complement_id)
    )
    found = db.execute(statement, {"ids": sorted(ids)})
    return {row[0]: row[1] for row in found}


def delete_instances(db: Connection, ids: Collection[int]) -> DeletedInstances:
    """Delete those of these that have ended, with attempts, relations, slots and quality results.

    Lines of ledgers stay as history: what a command, a fire or a date of a complement came to.
    """
    wanted = {"ids": sorted(set(ids))}
    about = db.execute(
        select(func.count(), func.array_agg(task_instance.c.host.distinct())).where(
            task_instance.c.process_instance_id == any_of("ids")
        ),
        wanted,
    ).one()
    rows = db.execute(
        delete(process_instance)
        .where(process_instance.c.id == any_of("ids"))
        .where(process_instance.c.state.in_(_ENDED))
        .returning(process_instance.c.id, process_instance.c.process_definition_id),
        wanted,
    ).all()
    db.execute(
        delete(relation_process_instance).where(
            or_(
                relation_process_instance.c.parent_process_instance_id == any_of("ids"),
                relation_process_instance.c.process_instance_id == any_of("ids"),
            )
        ),
        {"ids": sorted(row.id for row in rows)},
    )
    return DeletedInstances(
        ids=tuple(sorted(row.id for row in rows)),
        folders=tuple(sorted((row.process_definition_id, row.id) for row in rows)),
        attempts=about[0],
        hosts=tuple(sorted(host for host in about[1] or () if host is not None)),
    )


def instances_of(db: Connection, definition_ids: Collection[int]) -> list[int]:
    """List the instances of these definitions that are no sub processes of others."""
    return list(
        db.scalars(
            select(process_instance.c.id)
            .where(process_instance.c.process_definition_id == any_of("ids"))
            .where(process_instance.c.is_sub_process == 0)
            .order_by(process_instance.c.id),
            {"ids": sorted(definition_ids)},
        )
    )


def lock_definitions_to_delete(db: Connection, ids: Collection[int]) -> dict[int, ReleaseState]:
    """Lock definitions by id against releases and imports; return the state of each."""
    rows = db.execute(
        select(process_definition.c.id, process_definition.c.release_state)
        .where(process_definition.c.id == any_of("ids"))
        .order_by(process_definition.c.id)
        .with_for_update(),
        {"ids": sorted(set(ids))},
    )
    return {row.id: ReleaseState(row.release_state) for row in rows}


def hold_commands(db: Connection) -> None:
    """Let nobody put or take a command before the transaction ends; waits 5 s for it at most.

    A master that is about to take one has its row still: it can't delete it before.
    """
    db.execute(text("SET LOCAL lock_timeout = '5s'"))
    db.execute(text(f"LOCK TABLE {command.name} IN SHARE MODE"))


def commands_for_definitions(db: Connection, ids: Collection[int]) -> list[WaitingCommand]:
    """List the waiting commands that begin or recover runs of these definitions."""
    runs = select(process_instance.c.id).where(
        process_instance.c.process_definition_id == any_of("ids")
    )
    return _commands(
        db,
        _COMMANDS.where(
            or_(
                command.c.process_definition_id == any_of("ids"),
                command.c.process_instance_id.in_(runs),
            )
        ),
        ids,
    )


def live_runs_of(db: Connection, definition_ids: Collection[int]) -> list[tuple[int, int]]:
    """List the runs of these definitions that have not ended, as sub processes too, with states."""
    rows = db.execute(
        select(process_instance.c.id, process_instance.c.state)
        .where(process_instance.c.process_definition_id == any_of("ids"))
        .where(process_instance.c.state.in_(LIVE_PROCESS_STATES))
        .order_by(process_instance.c.id),
        {"ids": sorted(definition_ids)},
    )
    return [(row.id, row.state) for row in rows]


def live_documents(db: Connection) -> list[LiveDocument]:
    """List the live runs that may refer to definitions, each with its copy of the JSON."""
    rows = db.execute(
        select(
            process_instance.c.id,
            process_definition.c.project_id,
            process_instance.c.process_instance_json,
        )
        .outerjoin_from(
            process_instance,
            process_definition,
            process_definition.c.id == process_instance.c.process_definition_id,
        )
        .where(process_instance.c.state.in_(LIVE_PROCESS_STATES))
        .where(process_instance.c.process_instance_json.regexp_match("efinition(Id|Name)"))
        .order_by(process_instance.c.id)
    )
    return [
        LiveDocument(id=row.id, project_id=row.project_id, document=row.process_instance_json)
        for row in rows
    ]


def moving_complements(db: Connection, definition_ids: Collection[int]) -> list[int]:
    """List the complements of these definitions that have not ended."""
    return list(
        db.scalars(
            select(complement.c.id)
            .where(complement.c.process_definition_id == any_of("ids"))
            .where(complement.c.state.in_(_MOVING))
            .order_by(complement.c.id),
            {"ids": sorted(definition_ids)},
        )
    )


def schedules_to_delete(db: Connection, definition_ids: Collection[int]) -> dict[int, ReleaseState]:
    """Lock the schedules of these definitions by id; return the state of each."""
    rows = db.execute(
        select(schedule.c.id, schedule.c.release_state)
        .where(schedule.c.process_definition_id == any_of("ids"))
        .order_by(schedule.c.id)
        .with_for_update(),
        {"ids": sorted(definition_ids)},
    )
    return {row.id: ReleaseState(row.release_state) for row in rows}


def delete_definitions(db: Connection, ids: Collection[int]) -> frozenset[int]:
    """Delete the definitions among these that are OFFLINE, with their shares; return the ids."""
    gone = frozenset(
        db.scalars(
            delete(process_definition)
            .where(process_definition.c.id == any_of("ids"))
            .where(process_definition.c.release_state == ReleaseState.OFFLINE)
            .returning(process_definition.c.id),
            {"ids": sorted(set(ids))},
        )
    )
    delete_shares_of(db, ShareKind.DEFINITION, gone)
    return gone


_COMMANDS: Final[Select[Any]] = select(command.c.id, command.c.process_instance_id).order_by(
    command.c.id
)


def _commands(db: Connection, statement: Select[Any], ids: Collection[int]) -> list[WaitingCommand]:
    wanted: Sequence[int] = sorted(set(ids))
    return [
        WaitingCommand(id=row.id, process_instance_id=row.process_instance_id or None)
        for row in db.execute(statement, {"ids": wanted})
    ]
