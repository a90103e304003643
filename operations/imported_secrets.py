"""Restores the secrets of imported definitions, and replaces the secrets of exported ones.

An imported document has references or masks in place of secrets. A reference gets its value from
the environment of the import, or else from the stored definition. A mask gets the secret from the
same place of the stored definition.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from common.store.connect import Connection
from common.store.people.definitions import DefinitionRow
from common.store.people.schedule_views import schedules
from operations.definition_files import DefinitionDocument, InvalidFilesError, Mistake
from operations.exported_schedule import start_params_in_file
from operations.secret_references import with_references, without_masks, without_references
from operations.session import Session


def referenced_rows(session: Session, rows: Sequence[DefinitionRow]) -> list[DefinitionRow]:
    """Return the rows with references in place of secrets; the caller has checked the rights."""
    with session.engine.connect() as db:
        return [_referenced(row, secret_parts(db, row)) for row in rows]


def _referenced(row: DefinitionRow, parts: Mapping[str, Any]) -> DefinitionRow:
    document = with_references(parts).document
    inner = document["processDefinitionJson"]
    return replace(
        row,
        global_params=document["globalParams"],
        process_definition_json=json.dumps(inner, ensure_ascii=False) if inner else "{}",
    )


def with_secrets(
    db: Connection,
    documents: Sequence[DefinitionDocument],
    before: Mapping[str, DefinitionRow | None],
    environment: Mapping[str, str],
) -> list[DefinitionDocument]:
    """Return the documents with their secrets; `InvalidFilesError` names each missing secret.

    `before` maps names to stored definitions.
    """
    mistakes: list[Mistake] = []
    complete: list[DefinitionDocument] = []
    for each in documents:
        known = before[each.name]
        former = {} if known is None else secret_parts(db, known)
        kept = with_references(former).values
        missing: set[str] = set()
        masked: set[str] = set()
        each = _with_former_secrets(each, former, masked)
        mistakes.extend(
            Mistake(
                place=each.place,
                text=f"{place}: the value is masked, and no secret is stored in this place: write"
                " the value",
            )
            for place in sorted(masked)
        )
        secrets = {**kept, **environment}
        complete.append(
            replace(
                each,
                document=without_references(each.document, secrets, missing),
                global_params=without_references(each.global_params, secrets, missing),
                schedules=tuple(
                    replace(one, settings=without_references(one.settings, secrets, missing))
                    for one in each.schedules
                ),
            )
        )
        mistakes.extend(
            Mistake(
                place=each.place,
                text=f"$ENV{{{variable}}}: the secret is neither in the environment nor in a"
                " definition of this name here: set the variable for the import, or write the"
                " value in its place",
            )
            for variable in sorted(missing)
        )
    if mistakes:
        raise InvalidFilesError(mistakes)
    return complete


def _with_former_secrets(
    given: DefinitionDocument, former: Mapping[str, Any], masked: set[str]
) -> DefinitionDocument:
    """Replace the masks of a document by stored secrets; collect the places without one."""
    restored = without_masks(
        {
            "processDefinitionJson": dict(given.document),
            "globalParams": given.global_params,
            "schedules": [one.settings for one in given.schedules],
        },
        former,
        masked,
    )
    return replace(
        given,
        document=restored["processDefinitionJson"],
        global_params=restored["globalParams"],
        schedules=tuple(
            replace(one, settings=settings)
            for one, settings in zip(given.schedules, restored["schedules"], strict=True)
        ),
    )


def secret_parts(db: Connection, row: DefinitionRow) -> dict[str, Any]:
    """Return the parts of a stored definition that can hold secrets, unmasked."""
    try:
        inner = json.loads(row.process_definition_json or "{}")
    except (ValueError, RecursionError):
        inner = {}
    return {
        "processDefinitionJson": inner,
        "globalParams": row.global_params,
        "schedules": [start_params_in_file(each) for each in schedules(db, definition_id=row.id)],
    }
