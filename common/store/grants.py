"""Conditions on grants, for the statements of masters, workers and people. Does no I/O.

A *grant* (`t_ds_grant`) allows the tasks of a project to name one shared object. Each caller adds
one of these conditions to a statement that it runs anyway.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final

from sqlalchemy import ColumnElement, Integer, func, literal_column, or_, select

from common.model.grants import GrantedObject, GrantKind
from common.store.tables import grant

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
