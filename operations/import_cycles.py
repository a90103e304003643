"""Finds the definitions of an import that would wait for themselves, directly or through others.

A cycle may lead through definitions of other projects. A mistake names such a definition only if
the reader may see its project, or if it is shared with the project of the import.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from common.model.reach import FOREIGN, Target
from common.model.rights import Principal
from common.store.connect import Connection
from common.store.people.definitions import NamedDefinition, definitions_with_ids
from common.store.people.shares import seen_among, targets_with_ids
from operations.awaited import Awaits, awaited, cycles
from operations.definition_files import DefinitionDocument, Mistake
from operations.stored_documents import stored_document
from operations.stored_targets import numbers_in

_NOTHING: Final = 0


def waits_for_itself(
    db: Connection,
    principal: Principal,
    documents: Sequence[DefinitionDocument],
    numbered: Mapping[str, Mapping[str, Any]],
    *,
    ids: Mapping[str, int],
    project_id: int,
) -> list[Mistake]:
    """Return a mistake for each place where a definition of this import waits for itself.

    `numbered` holds the documents with ids in place of names; `ids` maps each name to its id.
    """
    own = {
        name: Target(id=number, project_id=project_id, name=name) for name, number in ids.items()
    }
    places = {name: list(awaited(inner)) for name, inner in numbered.items()}
    targets = {ids[name]: [_number(each) for each in those] for name, those in places.items()}
    rows: dict[int, NamedDefinition] = {}
    known = set(ids.values()) | {_NOTHING}
    waiting = {each for those in targets.values() for each in those} - known
    while waiting:
        level = definitions_with_ids(db, sorted(waiting))
        known |= waiting
        rows |= {row.id: row for row in level}
        behind = _targets_of(db, level, own, project_id)
        targets |= behind
        waiting = {each for those in behind.values() for each in those} - known
    graph = {str(key): [str(each) for each in those if each] for key, those in targets.items()}
    shown = {str(number): repr(name[:80]) for name, number in ids.items()} | dict(
        _shown(db, principal, rows.values(), project_id)
    )
    return [
        Mistake(place=document.place, text=str(finding))
        for document in documents
        for finding in cycles(
            str(ids[document.name]),
            [(place, str(_number(place))) for place in places[document.name]],
            graph,
            shown,
        )
    ]


def _number(place: Awaits) -> int:
    """Return the id in a place; 0 for an unresolved name."""
    return place.target if isinstance(place.target, int) else _NOTHING


def _targets_of(
    db: Connection, rows: Iterable[NamedDefinition], own: Mapping[str, Target], project_id: int
) -> dict[int, list[int]]:
    """Return the ids that stored rows wait for; rows written by hand may hold names."""
    places = [(row, list(awaited(stored_document(row)))) for row in rows]
    number = numbers_in(
        db, ((row, place) for row, those in places for place in those), {project_id: own.values()}
    )
    return {row.id: [number(row, place) or _NOTHING for place in those] for row, those in places}


def _shown(
    db: Connection, principal: Principal, rows: Iterable[NamedDefinition], project_id: int
) -> Iterator[tuple[str, str]]:
    """Yield the key and the shown name of each definition outside the import."""
    visible = seen_among(db, principal, {row.project_id for row in rows})
    reached = targets_with_ids(db, project_id, [row.id for row in rows])
    for row in rows:
        may_be_named = visible is None or row.project_id in visible or row.id in reached
        elsewhere = "" if row.project_id == project_id else f" of {str(row.project_name)[:80]!r}"
        yield str(row.id), f"{row.name[:80]!r}{elsewhere}" if may_be_named else FOREIGN
