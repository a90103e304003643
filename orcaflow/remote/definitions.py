"""The operations on definitions that an api-server answers.

A name is looked up first, and the order names its id: among names one could look for foreign ones.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from common.errors import NotAllowedError, NotFoundError
from common.model.states import ExecutionType, ReleaseState
from common.store.people.definitions import DefinitionRow
from operations.definitions import ExecutionTypeSet, Released
from operations.deleting import Deleted, DeletedDefinitions
from operations.exporting import Export
from orcaflow.remote.client import Client
from orcaflow.remote.documents import definition_of, deleted_of

_PAGE: Final = 500


def definition_named(client: Client, name: str) -> DefinitionRow:
    """Return the definition of this name; `NotAllowedError` if several projects have one."""
    found = client.get("/definitions", {"name": name[:255], "limit": 2})["items"]
    if not found or len(name) > 255:
        raise NotFoundError(
            f"there is no process definition {name!r}; see `orcaflow definition list`"
        )
    if len(found) > 1:
        raise NotAllowedError(f"{name!r} is ambiguous: it stands in more than one project")
    return definition_of(found[0])


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
    "definitions.export_definition": export_definition,
    "definitions.list_definitions": list_definitions,
    "definitions.release": release,
    "definitions.set_execution_type": set_execution_type,
    "deleting.delete_definitions": delete_definitions,
    "deleting.delete_instances": delete_instances,
}
