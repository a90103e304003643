"""Resolves the references of a document before it is in force.

A *binding* is the definition that a reference means. A proposed or compared document gets the names
of its bindings, so that a reviewer also sees a reference move to another project.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from common.model.reach import Target
from common.store.connect import Connection
from common.store.people.definitions import DefinitionRow, definitions_by_id
from common.store.people.shares import targets_named, targets_with_ids
from operations.definition_document import CHILD_ID, DefinitionReference, definition_references
from operations.definition_reach import Reach, name_definition
from operations.references import wanted
from operations.stored_documents import stored_document

_JSON: Final = "processDefinitionJson"


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignReference:
    """A reference to a definition that another project shares with this one.

    `starts` is True if the task runs the definition, in the version in force when the task starts,
    and False if the task waits for its runs. `version` is the version in force now.
    """

    task: str
    starts: bool
    project: str
    definition: str
    version: int


def bound_ids(row: DefinitionRow) -> frozenset[int]:
    """Return the ids of the definitions that a definition refers to now."""
    return frozenset(
        each.number
        for each in definition_references(stored_document(row))
        if each.number is not None
    )


def with_bindings(
    db: Connection, document: Mapping[str, Any], *, project_id: int, row: DefinitionRow | None
) -> dict[str, Any]:
    """Return the document with each reference written by name and project.

    `row` is the definition that the document will replace. An unresolved reference is kept as is.
    """
    copied: dict[str, Any] = copy.deepcopy(dict(document))
    for reference, target in _bound(db, copied, project_id=project_id, row=row):
        name_definition(reference, target, own_project=project_id)
    return copied


def foreign_references(
    db: Connection, document: Mapping[str, Any], *, project_id: int, row: DefinitionRow | None
) -> tuple[ForeignReference, ...]:
    """List the references of a document to definitions of other projects, each once."""
    copied = copy.deepcopy(dict(document))
    found = [
        (reference, target)
        for reference, target in _bound(db, copied, project_id=project_id, row=row)
        if target.project_id != project_id
    ]
    rows = definitions_by_id(db, {target.id for _, target in found}) if found else {}
    listed = (
        ForeignReference(
            task=reference.node,
            starts=reference.id_key == CHILD_ID,
            project=target.project_name or str(target.project_id),
            definition=target.name,
            version=rows[target.id].version,
        )
        for reference, target in found
        if target.id in rows
    )
    return tuple(dict.fromkeys(listed))


def _bound(
    db: Connection, document: Mapping[str, Any], *, project_id: int, row: DefinitionRow | None
) -> Iterator[tuple[DefinitionReference, Target]]:
    inner = document.get(_JSON)
    if not isinstance(inner, dict):
        return
    references = list(definition_references(inner))
    if not references:
        return
    needed = wanted(inner)
    named: dict[str, list[Target]] = {}
    for each in targets_named(db, project_id, needed.definition_names):
        named.setdefault(each.name, []).append(each)
    reach = Reach(
        project_id=project_id,
        names=named,
        ids=targets_with_ids(db, project_id, needed.definition_ids),
        bound={} if row is None else {row.name: bound_ids(row)},
    )
    for reference in references:
        name = reference.name
        target = (
            reach.ids.get(reference.number or 0)
            if name is None
            else reach.named(reference, name, referring=None if row is None else row.name)
        )
        if isinstance(target, Target):
            yield reference, target
