"""Resolves the references of stored definitions, which hold ids or names.

`common.model.reach` resolves a name for the project of the row that holds it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, TypeAlias

from common.model.reach import Target, resolve
from common.store.people.shares import targets_named
from operations.awaited import Awaits

if TYPE_CHECKING:
    from common.store.connect import Connection
    from common.store.people.definitions import NamedDefinition

Place: TypeAlias = "tuple[NamedDefinition, Awaits]"


def numbers_in(
    db: Connection, places: Iterable[Place], own: Mapping[int, Iterable[Target]] | None = None
) -> Callable[[NamedDefinition, Awaits], int | None]:
    """Return a function that returns the id of the definition in a place of a row.

    `own` holds definitions by project; they take precedence over the database. The function returns
    None for an unresolved name. It does not check that an id is reached.
    """
    names: dict[int, set[str]] = {}
    for row, place in places:
        if isinstance(place.target, str):
            names.setdefault(row.project_id, set()).add(place.target)
    reached = {
        project: targets_named(db, project, sorted(wanted)) for project, wanted in names.items()
    }
    for project, targets in (own or {}).items():
        first = {each.id: each for each in targets}
        later = [each for each in reached.get(project, ()) if each.id not in first]
        reached[project] = [*first.values(), *later]

    def number(row: NamedDefinition, place: Awaits) -> int | None:
        if isinstance(place.target, int):
            return place.target
        found = resolve(
            [each for each in reached[row.project_id] if each.name == place.target],
            own_project=row.project_id,
            project=place.project,
        )
        return found.id if isinstance(found, Target) else None

    return number
