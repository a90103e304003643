"""The rights that people hold in projects, as the tables have them at the moment of a statement.

A project's actions are those of its grants (`t_ds_relation_project_user.perm`, added up); an
administrator holds all of them everywhere, somebody disabled none. A token's scope and projects
limit both. The owner of the database is asked for nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cache, cached_property, partial
from typing import Any, Final, TypeAlias

from sqlalchemy import (
    ColumnElement,
    CompoundSelect,
    Connection,
    Integer,
    Select,
    and_,
    bindparam,
    case,
    false,
    func,
    literal,
    or_,
    select,
    true,
)

from common.model.rights import EVERYTHING, NOTHING, Action, Principal
from common.store.fixed_statement import FixedRead
from common.store.tables import (
    command,
    command_ledger,
    complement,
    error_command,
    process_definition,
    process_instance,
    project,
    relation_project_user,
    schedule,
    task_instance,
    user,
)

LARGEST_ID: Final = 2**31 - 1
_ADMINISTRATOR: Final = 0
_ENABLED: Final = 1


_Condition: TypeAlias = Callable[[ColumnElement[Any]], ColumnElement[bool]]


class Thing(Enum):
    """The kinds of objects that belong to a project; the values stand in the audit."""

    PROJECT = "project"
    DEFINITION = "definition"
    INSTANCE = "instance"
    TASK = "task"
    SCHEDULE = "schedule"
    COMPLEMENT = "complement"
    COMMAND = "command"
    DATASET = "dataset"


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """The actions that a principal may do to an object, and the object's project."""

    actions: Action
    project_id: int | None


def held(db: Connection, principal: Principal, thing: Thing, object_id: int) -> Held | None:
    """Read the principal's actions on an object, by one statement; None if there is no object."""
    if not 0 < object_id <= LARGEST_ID:
        return None
    if principal.projects is None and not principal.owns_database:
        values = {**told(principal), "object_id": object_id}
        (row,) = _held_by_told(thing).rows(db, values)
    else:
        row = db.execute(
            _held_of(
                _owners(thing, literal(object_id)), lambda project: actions_in(principal, project)
            )
        ).one()
    if row.actions is None:
        return None
    return Held(actions=Action(row.actions), project_id=row.project_id)


def may_anywhere(db: Connection, principal: Principal, action: Action) -> bool:
    """Return True if there is a project in which the principal may do this."""
    if principal.projects is None and not principal.owns_database:
        (row,) = _anywhere().rows(db, {**told(principal), "action": int(action)})
        return bool(row.yes)
    allowed = actions_in(principal, project.c.id).op("&")(int(action)) != 0
    return bool(db.scalar(select(select(project.c.id).where(allowed).exists())))


def may_in(
    principal: Principal, action: Action, project_id: ColumnElement[Any]
) -> ColumnElement[bool]:
    """Build the condition that the principal may perform an action in a row's project."""
    return actions_in(principal, project_id).op("&")(int(action)) != 0


def seen_projects(principal: Principal, project_id: ColumnElement[Any]) -> ColumnElement[bool]:
    """Build the condition of lists: the row's project is one that the principal may see.

    What the principal holds is read once, and not for each row.
    """
    if principal.owns_database:
        return true() if principal.projects is None else project_id.in_(principal.projects)
    if not principal.scope & Action.VIEW:
        return false()
    seen = _seen_by(literal(principal.user_id), project_id)
    # A deleted definition leaves runs without a project, which no token for projects covers.
    return seen if principal.projects is None else and_(project_id.in_(principal.projects), seen)


def sees_every_project(db: Connection, principal: Principal) -> bool:
    """Return True if the principal may see all projects that exist."""
    hidden = select(project.c.id).where(~seen_projects(principal, project.c.id))
    return not db.scalar(select(hidden.exists()))


def told_seen(project_id: ColumnElement[Any]) -> ColumnElement[bool]:
    """Build the same for a fixed statement, which is given the values of `told`."""
    allowed = bindparam("scope", type_=Integer).op("&")(int(Action.VIEW)) != 0
    return and_(allowed, _seen_by(bindparam("user_id", type_=Integer), project_id))


class SeenRead:
    """A `FixedRead` of rows that the principal may see; their rights are read by its statement.

    So a missing row and a foreign one are the same: none.
    """

    def __init__(self, build: Callable[[_Condition], Select[Any]]) -> None:
        """`build` makes the statement with the condition of a row's project."""
        self._build = build

    @cached_property
    def _of_all(self) -> FixedRead:
        return FixedRead(self._build(lambda _: true()))

    @cached_property
    def _of_told(self) -> FixedRead:
        return FixedRead(self._build(told_seen))

    def rows(self, db: Connection, principal: Principal, values: Mapping[str, Any]) -> list[Any]:
        """Read its rows, each with its columns by their names."""
        if principal.sees_all:
            return self._of_all.rows(db, values)
        if principal.projects is None:
            return self._of_told.rows(db, {**told(principal), **values})
        statement = self._build(partial(seen_projects, principal))
        return list(db.execute(statement, dict(values)))


def _seen_by(user_id: ColumnElement[int], project_id: ColumnElement[Any]) -> ColumnElement[bool]:
    granted = (
        select(relation_project_user.c.project_id)
        .join_from(relation_project_user, user, user.c.id == relation_project_user.c.user_id)
        .where(user.c.id == user_id)
        .where(user.c.state == _ENABLED)
        .where(relation_project_user.c.perm.op("&")(int(Action.VIEW)) != 0)
        .correlate(None)
    )
    return or_(_is_administrator(user_id), project_id.in_(granted))


def _is_administrator(user_id: ColumnElement[int]) -> ColumnElement[bool]:
    found = select(user.c.id).where(user.c.id == user_id).where(user.c.state == _ENABLED)
    return found.where(user.c.user_type == _ADMINISTRATOR).correlate(None).exists()


def sees_shared(principal: Principal) -> ColumnElement[bool]:
    """Build the condition that the principal sees shared objects without a grant."""
    if principal.owns_database:
        return true()
    if not principal.scope & Action.VIEW:
        return false()
    if principal.projects is not None and not principal.chose_project:
        return false()
    return _is_administrator(literal(principal.user_id))


def seen_instances(db: Connection, principal: Principal, ids: Collection[int]) -> frozenset[int]:
    """Read those of these process instances that exist and that the principal may see."""
    wanted = {each for each in ids if 0 < each <= LARGEST_ID}
    if not wanted:
        return frozenset()
    seen = _of_definition(process_instance, column=process_instance.c.id)
    return frozenset(
        db.scalars(
            seen.where(process_instance.c.id.in_(wanted)).where(
                seen_projects(principal, process_definition.c.project_id)
            )
        )
    )


def actions_in(principal: Principal, project_id: ColumnElement[Any]) -> ColumnElement[int]:
    """Build the expression of the actions that the principal has in a row's project."""
    all_of_them = (
        literal(int(EVERYTHING))
        if principal.owns_database
        else _actions_of(literal(principal.user_id), literal(int(principal.scope)), project_id)
    )
    if principal.projects is None:
        return all_of_them
    # A deleted definition leaves runs without a project, which no token for projects covers.
    among = project_id.in_(principal.projects) if principal.projects else false()
    return case((among, all_of_them), else_=int(NOTHING))


def told_actions(project_id: ColumnElement[Any]) -> ColumnElement[int]:
    """Build the same for a fixed statement, which is given the values of `told`."""
    return _actions_of(
        bindparam("user_id", type_=Integer), bindparam("scope", type_=Integer), project_id
    )


def told(principal: Principal) -> dict[str, int]:
    """Return the values of a principal who is not limited to some projects."""
    assert principal.projects is None
    assert not principal.owns_database
    return {"user_id": principal.user_id, "scope": int(principal.scope)}


def _actions_of(
    user_id: ColumnElement[int], scope: ColumnElement[int], project_id: ColumnElement[Any]
) -> ColumnElement[int]:
    grants = (
        select(func.coalesce(func.bit_or(relation_project_user.c.perm), 0))
        .where(relation_project_user.c.user_id == user.c.id)
        .where(relation_project_user.c.project_id == project_id)
        # Of its own accord it would correlate with the nearest statement alone, and ask for the
        # grants in any project.
        .correlate_except(relation_project_user)
        .scalar_subquery()
    )
    of_user = (
        select(
            case((user.c.user_type == _ADMINISTRATOR, int(EVERYTHING)), else_=grants).op("&")(scope)
        )
        .where(user.c.id == user_id)
        .where(user.c.state == _ENABLED)
        .correlate_except(user)
        .scalar_subquery()
    )
    return func.coalesce(of_user, int(NOTHING))


def is_administrator(db: Connection, principal: Principal) -> bool:
    """Return True for an enabled administrator whose token has no limits."""
    if principal.owns_database:
        return True
    if principal.scope != EVERYTHING:
        return False
    if principal.projects is not None and not principal.chose_project:
        return False
    return _is_enabled_administrator(db, principal.user_id)


def sees_everything(db: Connection, principal: Principal) -> bool:
    """Return True for an enabled administrator, whose token is for all projects."""
    if principal.projects is not None:
        return principal.owns_database
    return _is_enabled_administrator(db, principal.user_id)


def told_everything() -> ColumnElement[bool]:
    """Build the condition that somebody who is told sees everything."""
    allowed = bindparam("scope", type_=Integer).op("&")(int(Action.VIEW)) != 0
    return and_(allowed, _is_administrator(bindparam("user_id", type_=Integer)))


def _is_enabled_administrator(db: Connection, user_id: int) -> bool:
    (row,) = _administers().rows(db, {"user_id": user_id})
    return bool(row.yes)


@cache
def _anywhere() -> FixedRead:
    allowed = told_actions(project.c.id).op("&")(bindparam("action", type_=Integer)) != 0
    return FixedRead(select(select(project.c.id).where(allowed).exists().label("yes")))


@cache
def _administers() -> FixedRead:
    return FixedRead(select(_is_administrator(bindparam("user_id", type_=Integer)).label("yes")))


@cache
def _held_by_told(thing: Thing) -> FixedRead:
    return FixedRead(_held_of(_owners(thing, bindparam("object_id", type_=Integer)), told_actions))


def _held_of(
    rows: Select[Any] | CompoundSelect[Any],
    actions: Callable[[ColumnElement[Any]], ColumnElement[int]],
) -> Select[Any]:
    owners = rows.subquery("owners")
    # A command may have several lines: its actions are those that all of them allow.
    return select(
        func.min(owners.c.project_id).label("project_id"),
        func.bit_and(actions(owners.c.project_id)).label("actions"),
    )


def _owners(thing: Thing, object_id: ColumnElement[int]) -> Select[Any] | CompoundSelect[Any]:
    """The rows of an object, each with its project; NULL if its definition is gone."""
    match thing:
        case Thing.PROJECT:
            return select(project.c.id.label("project_id")).where(project.c.id == object_id)
        case Thing.DEFINITION:
            return select(process_definition.c.project_id).where(
                process_definition.c.id == object_id
            )
        case Thing.INSTANCE:
            return _of_definition(process_instance).where(process_instance.c.id == object_id)
        case Thing.TASK:
            return (
                select(process_definition.c.project_id)
                .select_from(task_instance)
                .outerjoin(
                    process_instance, process_instance.c.id == task_instance.c.process_instance_id
                )
                .outerjoin(
                    process_definition,
                    process_definition.c.id == process_instance.c.process_definition_id,
                )
                .where(task_instance.c.id == object_id)
            )
        case Thing.SCHEDULE:
            return _of_definition(schedule).where(schedule.c.id == object_id)
        case Thing.COMPLEMENT:
            return _of_definition(complement).where(complement.c.id == object_id)
        case Thing.COMMAND:
            return _of_command(object_id)
        case Thing.DATASET:
            # Few commands are about datasets; the others need not read these tables in.
            from common.store.tables import dataset

            return select(dataset.c.project_id).where(dataset.c.id == object_id)


def _of_definition(table: Any, *, column: Any = process_definition.c.project_id) -> Select[Any]:
    return (
        select(column)
        .select_from(table)
        .outerjoin(process_definition, process_definition.c.id == table.c.process_definition_id)
    )


def _of_command(command_id: ColumnElement[int]) -> CompoundSelect[Any]:
    """A command wherever it is on record; one that names only an instance belongs to that."""
    found = []
    for table, key in (
        (command, command.c.id),
        (command_ledger, command_ledger.c.command_id),
        (error_command, error_command.c.command_id),
    ):
        of_instance = (
            select(process_instance.c.process_definition_id)
            .where(process_instance.c.id == table.c.process_instance_id)
            .scalar_subquery()
        )
        definition_id = func.coalesce(table.c.process_definition_id, of_instance)
        found.append(
            select(process_definition.c.project_id)
            .select_from(table)
            .outerjoin(process_definition, process_definition.c.id == definition_id)
            .where(key == command_id)
        )
    begun = _of_definition(process_instance).where(process_instance.c.command_id == command_id)
    return found[0].union_all(*found[1:], begun)
