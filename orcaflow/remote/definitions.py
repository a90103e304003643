"""The operations on definitions that an api-server answers.

A name is looked up first, and the order names its id: among names one could look for foreign ones.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Final
from urllib.parse import urlencode
from zoneinfo import ZoneInfo

from common.definition_diff import Difference, TaskChange, ValueChange
from common.errors import NotAllowedError, NotFoundError
from common.model.definitions import TaskNode
from common.model.states import ExecutionType, Priority, ReleaseState
from common.store.people.definitions import DEFAULT_PROJECT, DefinitionRow
from operations.definition_files import DefinitionDocument, InvalidFilesError, Mistake, Place
from operations.definition_versions import Compared, Version, place_of
from operations.definitions import DefinitionDetail, ExecutionTypeSet, Released
from operations.deleting import Deleted, DeletedDefinitions
from operations.exported_schedule import ImportedSchedule
from operations.exporting import Export
from operations.findings import Finding, Severity
from operations.importing import Imported
from operations.lookup import candidates_of
from operations.naming import MOST_CANDIDATES, check_one, id_in
from operations.run_versions import RunAndLatest
from operations.secret_references import without_references
from orcaflow.remote.client import Client, RefusedDefinitionError
from orcaflow.remote.documents import definition_of, deleted_of

_PAGE: Final = 500
_LONGEST_NAME: Final = 255


def definition_named(client: Client, given: str, *, takes_ids: bool = True) -> DefinitionRow:
    """Return the only definition of this name, or else the one with this id."""
    rows: list[DefinitionRow] = []
    if len(given) <= _LONGEST_NAME:
        asked = {"name": given, "limit": MOST_CANDIDATES}
        rows = [definition_of(each) for each in client.get("/definitions", asked)["items"]]
    check_one(given, candidates_of(rows))
    if rows:
        return rows[0]
    number = id_in(given) if takes_ids else None
    if number is not None:
        return definition_of(client.get(f"/definitions/{number}"))
    raise NotFoundError(f"there is no process definition {given!r}; see `orcaflow definition list`")


def list_definitions(client: Client) -> list[DefinitionRow]:
    """List the definitions, a page at a time."""
    found: list[DefinitionRow] = []
    after: str | None = None
    while True:
        answer = client.get("/definitions", {"limit": _PAGE, "after": after})
        found += [definition_of(row) for row in answer["items"]]
        after = answer["next"]
        if after is None:
            return sorted(found, key=lambda each: (each.project_id, each.name))


def export_definition(client: Client, definition: str, *, with_secrets: bool = False) -> Export:
    """Return the definition as a document."""
    if with_secrets:
        raise NotAllowedError(
            "secrets are exported at the database alone: leave --with-secrets out, or --server"
        )
    answer = client.get(f"/definitions/{definition_named(client, definition).id}/export")
    return Export(document=answer["document"], references=tuple(answer["references"]))


def definition_detail(client: Client, definition: str) -> DefinitionDetail:
    """Return the definition with its tasks and its schedules."""
    # Its module finds definitions by this one.
    from orcaflow.remote.schedules import schedule_of

    row = client.get(f"/definitions/{definition_named(client, definition).id}")
    return DefinitionDetail(
        row=definition_of(row),
        execution_type=ExecutionType[row["execution_type"]],
        nodes=tuple(
            TaskNode(
                name=each["name"],
                task_type=each["type"],
                upstream=tuple(each["upstream"]),
                forbidden=each["forbidden"],
                max_retry_times=each["max_retry_times"],
                retry_interval=timedelta(),
                priority=Priority[each["priority"]],
                worker_group_id=each["worker_group_id"],
                task_json="",
            )
            for each in row["tasks"]
        ),
        schedules=tuple(schedule_of(each) for each in row["schedules"]),
        zone=ZoneInfo("UTC"),
        mistakes=tuple(row["mistakes"]),
        tag="",
    )


def versions(client: Client, definition: str, *, limit: int) -> list[Version]:
    """List the newest versions first, a page at a time."""
    number = definition_named(client, definition).id
    found: list[Version] = []
    after: str | None = None
    while len(found) < limit:
        asked = {"limit": min(_PAGE, limit - len(found)), "after": after}
        answer = client.get(f"/definitions/{number}/versions", asked)
        found += [
            Version(
                version=row["version"],
                user_name=row["user"],
                note=row["note"],
                create_time=datetime.fromisoformat(row["create_time"]),
                is_current=row["current"],
            )
            for row in answer["items"]
        ]
        after = answer["next"]
        if after is None:
            break
    return found


def export_version(client: Client, definition: str, version: int) -> Export:
    """Return a version of a definition as a document."""
    number = definition_named(client, definition).id
    answer = client.get(f"/definitions/{number}/versions/{version}")
    return Export(document=answer["document"], references=tuple(answer["references"]))


def compare(
    client: Client, definition: str, *, before: int | None = None, after: int | None = None
) -> Compared:
    """Return the difference of two versions."""
    number = definition_named(client, definition).id
    row = client.get(f"/definitions/{number}/diff", {"from": before, "to": after})
    return Compared(
        name=row["definition"],
        before=row["before"],
        after=row["after"],
        difference=difference_of(row),
    )


def compare_with_latest(client: Client, process_instance_id: int) -> RunAndLatest:
    """Compare a run with the latest version of its definition."""
    row = client.get(f"/instances/{process_instance_id}/diff")
    return RunAndLatest(
        process_instance_id=row["process_instance_id"],
        definition=row["definition"],
        version=row["version"],
        latest_version=row["latest_version"],
        difference=difference_of(row),
        kept=tuple(row["kept"]),
        runs=tuple(row["runs"]),
        removed=tuple(row["removed_tasks"]),
    )


def difference_of(row: Mapping[str, Any]) -> Difference:
    """Return the difference that a document tells."""
    return Difference(
        added=tuple(row["added"]),
        removed=tuple(row["removed"]),
        changed=tuple(_task_change_of(each) for each in row["changed"]),
        contents=tuple(_task_change_of(each) for each in row["contents"]),
        edges_added=tuple((above, below) for above, below in row["edges_added"]),
        edges_removed=tuple((above, below) for above, below in row["edges_removed"]),
        settings=tuple(_change_of(each) for each in row["settings"]),
        risks=tuple(row["risks"]),
    )


def _task_change_of(row: Mapping[str, Any]) -> TaskChange:
    return TaskChange(
        name=row["name"],
        was=row["was"],
        changes=tuple(_change_of(each) for each in row["changes"]),
    )


def _change_of(row: Mapping[str, Any]) -> ValueChange:
    return ValueChange(
        key=row["key"], before=row["before"], after=row["after"], lines=tuple(row["lines"])
    )


def restore(client: Client, definition: str, version: int) -> Imported:
    """Save an old version once more."""
    found = definition_named(client, definition)
    document = DefinitionDocument(
        name=found.name,
        description=None,
        document={},
        global_params=None,
        timeout_minutes=0,
        tenant_id=-1,
        task_count=0,
        place=Place(file=place_of(version), definition=found.name),
    )
    try:
        row = client.post(f"/definitions/{found.id}/restore", {"version": version})
    except RefusedDefinitionError as error:
        rows = error.rows or [{}]
        raise InvalidFilesError([_mistake(each, [document]) for each in rows]) from None
    return _imported(row, replace(document, task_count=row["tasks"]))


def import_definitions(
    client: Client,
    documents: Sequence[DefinitionDocument],
    *,
    online: bool | None,
    environment: Mapping[str, str],
    project_id: int = DEFAULT_PROJECT,
) -> list[Imported]:
    """Import the documents, all or none; the server reads what they were read from once more.

    Secrets of the environment are put in here, since the server has another one.
    """
    left: set[str] = set()
    content = [
        without_references(each.source.content, environment, left)
        for each in documents
        if each.source is not None
    ]
    given = {
        f"{kind.value}:{number}={name}"
        for each in documents
        if each.source is not None
        for (kind, number), name in each.source.given.items()
    }
    asked = {
        # Whether unknown keys are mistakes has been decided here.
        "strict": "false",
        "project_id": project_id,
        "online": None if online is None else str(online).lower(),
        "map": sorted(given),
        "name": documents[0].name if len(documents) == 1 else None,
    }
    query = urlencode({key: each for key, each in asked.items() if each is not None}, doseq=True)
    try:
        # Without the limit, so that the server reports other projects that use the name.
        items = client.everywhere().post(f"/definitions/import?{query}", content)["items"]
    except RefusedDefinitionError as error:
        raise InvalidFilesError(
            [_mistake(row, documents) for row in error.rows] or [_mistake({}, documents)]
        ) from None
    return [_imported(row, document) for row, document in zip(items, documents, strict=True)]


def _mistake(row: Mapping[str, Any], documents: Sequence[DefinitionDocument]) -> Mistake:
    places = {each.name: each.place for each in documents}
    place = places.get(row.get("definition", ""), documents[0].place)
    return Mistake(place=place, text=str(row.get("text") or row.get("message") or "is refused"))


def _imported(row: Mapping[str, Any], document: DefinitionDocument) -> Imported:
    return Imported(
        document=document,
        project=row["project"],
        id=row["id"],
        version=row["version"],
        release_state=ReleaseState[row["release_state"]],
        changed=row["changed"],
        is_kept_offline=row["kept_offline"],
        findings=tuple(
            Finding(
                severity=Severity(each["severity"]),
                node=each["node"],
                key=each["key"],
                problem=each["problem"],
                cure=each["cure"] or "",
                keeps_offline=each["keeps_offline"],
            )
            for each in row["findings"]
        ),
        schedules=tuple(
            ImportedSchedule(id=each["id"], crontab=each["crontab"], is_new=each["new"])
            for each in row["schedules"]
        ),
    )


def release(client: Client, definitions: Sequence[str], wanted: ReleaseState) -> list[Released]:
    """Set the release state of definitions, all or none."""
    rows = [definition_named(client, each) for each in definitions]
    body = {"ids": [each.id for each in rows], "release_state": wanted.name}
    items = client.post("/definitions/release", body)["items"]
    return [
        Released(
            row=row,
            release_state=ReleaseState[each["release_state"]],
            changed=each["changed"],
            schedules_taken_offline=tuple(each["schedules"]),
            has_offline_schedules=each["has_offline_schedules"],
        )
        for row, each in zip(rows, items, strict=True)
    ]


def set_execution_type(
    client: Client, definitions: Sequence[str], wanted: ExecutionType
) -> list[ExecutionTypeSet]:
    """Set how new runs of definitions behave while another goes on; all or none."""
    rows = [definition_named(client, each) for each in definitions]
    body = {"ids": [each.id for each in rows], "execution_type": wanted.name}
    items = client.post("/definitions/execution-type", body)["items"]
    return [
        ExecutionTypeSet(
            row=row, execution_type=ExecutionType[each["execution_type"]], changed=each["changed"]
        )
        for row, each in zip(rows, items, strict=True)
    ]


def delete_definitions(
    client: Client, definitions: Sequence[str], *, with_instances: bool, force: bool
) -> DeletedDefinitions:
    """Delete definitions, all or none."""
    rows = [definition_named(client, each) for each in definitions]
    ids = [each.id for each in rows]
    body = {"ids": ids, "with_instances": with_instances, "force": force}
    answer = client.post("/definitions/delete", body)
    runs = answer["instances"]
    return DeletedDefinitions(
        rows=tuple(rows),
        schedules=tuple(answer["schedules"]),
        instances=None if runs is None else deleted_of(runs),
        kept_instances=answer["kept_instances"],
    )


def delete_instances(client: Client, ids: Sequence[int], *, force: bool) -> Deleted:
    """Delete runs, all or none."""
    return deleted_of(client.post("/instances/delete", {"ids": list(ids), "force": force}))


ANSWERS: Final[Mapping[str, Callable[..., Any]]] = {
    "definition_versions.compare": compare,
    "definition_versions.export_version": export_version,
    "definition_versions.restore": restore,
    "definition_versions.versions": versions,
    "run_versions.compare_with_latest": compare_with_latest,
    "definitions.definition_detail": definition_detail,
    "definitions.import_definitions": import_definitions,
    "definitions.export_definition": export_definition,
    "definitions.list_definitions": list_definitions,
    "definitions.release": release,
    "definitions.set_execution_type": set_execution_type,
    "deleting.delete_definitions": delete_definitions,
    "deleting.delete_instances": delete_instances,
}
