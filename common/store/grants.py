"""Conditions on grants, for the statements of masters, workers and people. Does no I/O.

A *grant* (`t_ds_grant`) allows the tasks of a project to name one shared object. Each caller adds
one of these conditions to a statement that it runs anyway.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final

from sqlalchemy import ColumnElement, Integer, exists, func, literal_column, or_, select

from common.model.grants import GrantedObject, GrantKind
from common.model.rights import Action
from common.store.tables import grant, relation_project_user, user

_ADMINISTRATOR: Final = 0
AT_START: Final = (GrantKind.ENVIRONMENT, GrantKind.WORKER_GROUP)
"""The kinds that a command can name."""


def is_granted(
    kind: GrantKind, number: ColumnElement[Any], project_id: ColumnElement[Any]
) -> ColumnElement[bool]:
    """Build the condition that an object is granted to a project; both are columns of a row."""
    return (
        select(literal_column("1"))
        .select_from(grant)
        # A literal, so that the plan of a prepared statement remains a look-up by the key.
        .where(grant.c.object_type == literal_column(f"{kind:d}", Integer))
        .where(grant.c.object_id == number)
        .where(grant.c.project_id == project_id)
        .correlate_except(grant)
        .exists()
    )


def lends_files(user_id: ColumnElement[Any], project_id: ColumnElement[Any]) -> ColumnElement[bool]:
    """Build the condition that tasks of a project may use the resources of a user.

    The user has a role there, or is an administrator. Disabled users count, so that their
    definitions continue to run.
    """
    owner, role = user.alias("owner"), relation_project_user.alias("role")
    has_role = (
        exists()
        .where(role.c.user_id == owner.c.id)
        .where(role.c.project_id == project_id)
        .where(role.c.perm.op("&")(int(Action.VIEW)) != 0)
        .correlate_except(role)
    )
    return (
        exists()
        .where(owner.c.id == user_id)
        .where(or_(owner.c.user_type == _ADMINISTRATOR, has_role))
        .correlate_except(owner)
    )


def is_granted_if_any(
    kind: GrantKind, number: ColumnElement[Any], project_id: ColumnElement[Any]
) -> ColumnElement[bool]:
    """Build the same condition; it is also true for NULL, 0 and less, which name no object."""
    return or_(number.is_(None), number <= 0, is_granted(kind, number, project_id))


def grants_of(
    project_id: ColumnElement[Any], kinds: Collection[GrantKind] = AT_START
) -> ColumnElement[Any]:
    """Build the grants of a project as one value for `objects_in`; NULL without grants."""
    pair = grant.c.object_type.concat(":").concat(grant.c.object_id)
    return (
        select(func.array_agg(pair))
        .where(grant.c.project_id == project_id)
        .where(grant.c.object_type.in_([literal_column(f"{kind:d}") for kind in kinds]))
        .correlate_except(grant)
        .scalar_subquery()
    )


def objects_in(granted: Collection[str] | None) -> frozenset[GrantedObject]:
    """Return the objects in a value that `grants_of` built."""
    pairs = (each.split(":", 1) for each in granted or ())
    return frozenset(GrantedObject(GrantKind(int(kind)), int(number)) for kind, number in pairs)
