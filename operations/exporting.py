"""A definition as a document that `import` takes, here or in another database.

Its schedules go along, and are made OFFLINE where they get in.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from zoneinfo import ZoneInfo

from common.model.grants import GrantKind
from common.model.states import ExecutionType
from common.store.connect import Connection
from common.store.people.definitions import (
    DefinitionRow,
    drawing,
    execution_type_of,
)
from common.store.people.grants import granted_numbers_named
from common.store.people.schedule_views import schedules
from common.store.people.shares import targets_with_ids
from operations.references import add_names, wanted
from operations.secret_references import with_references
from operations.stored_schedules import zone_of_schedule


@dataclass(frozen=True, slots=True, kw_only=True)
class Export:
    """A document, and the variables of the environment that its references stand for."""

    document: dict[str, object]
    references: tuple[str, ...]


def exported_with_references(db: Connection, found: DefinitionRow, *, zone: ZoneInfo) -> Export:
    """The document with a reference in the place of each secret."""
    referenced = with_references(exported(db, found, zone=zone))
    return Export(document=referenced.document, references=tuple(sorted(referenced.values)))


def exported(db: Connection, found: DefinitionRow, *, zone: ZoneInfo) -> dict[str, object]:
    """The document with its secrets.

    A JSON that can't be read is given as it stands, so that it can be mended. Times of schedules
    that name no zone of their own are written in `zone`, the cluster's.
    """
    text = found.process_definition_json or "{}"
    try:
        inner: object = json.loads(text)
    except (ValueError, RecursionError):
        inner = text
    if isinstance(inner, dict):
        add_names(
            inner,
            project_id=found.project_id,
            # Readers may not see the name of a definition that the project no longer reaches.
            definitions=targets_with_ids(db, found.project_id, wanted(inner).definition_ids),
            # Nor may they see the names of objects that the project may not use.
            datasources=granted_numbers_named(db, GrantKind.DATASOURCE, found.project_id),
            worker_groups=granted_numbers_named(db, GrantKind.WORKER_GROUP, found.project_id),
            environments=granted_numbers_named(db, GrantKind.ENVIRONMENT, found.project_id),
        )
    document: dict[str, object] = {"name": found.name}
    if found.description:
        document["description"] = found.description
    document["processDefinitionJson"] = inner
    if found.global_params:
        document["globalParams"] = found.global_params
    if found.timeout_minutes:
        document["timeout"] = found.timeout_minutes
    if found.tenant_id != -1:
        document["tenantId"] = found.tenant_id
    execution_type = execution_type_of(db, found.id)
    if execution_type:
        document["executionType"] = ExecutionType(execution_type).name
    if found.date_rule is not None:
        document["complementDateRule"] = found.date_rule.value
    locations, connects = drawing(db, found.id)
    if locations:
        document["processDefinitionLocations"] = locations
    if connects:
        document["processDefinitionConnects"] = connects
    views = schedules(db, definition_id=found.id)
    if views:
        # Reading cron lines takes a while to import.
        from operations.exported_schedule import schedule_in_file

        document["schedules"] = [
            schedule_in_file(each, zone=zone_of_schedule(each, zone)) for each in views
        ]
    return document
