"""Turns a workflow that pydolphinscheduler submits into an export of 3.x. Reads no database.

Resources and data sources are named by the ids that the gateway gave to the client; the former are
paths already. Relations come in the order of a set, which differs from one process to the next, and
are sorted, so that the same file makes no new version.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from common.errors import InvalidDefinitionError
from common.model.codes import code_in
from common.strict_json import strict_json
from operations.definition_document import (
    DEPENDENT_CODE,
    DEPENDENT_TASK_CODE,
    listed,
    object_of,
    objects_of,
)
from operations.errors import UsageError

_DEFAULT: Final = "default"


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """A workflow as it is submitted. `schedule`, `relations` and `tasks` are JSON in text."""

    project: str
    name: str
    description: str
    global_params: str
    schedule: str | None
    schedule_online: bool
    warning_type: str
    warning_group_id: int
    timeout: int
    worker_group: str
    tenant: str | None
    online: bool
    relations: str
    tasks: str
    execution_type: str


def entry_of(given: Submission) -> dict[str, Any]:
    """Return the definition as an entry of an export, its schedule left out."""
    tasks = decoded("taskDefinitionJson", given.tasks)
    for task in objects_of(tasks):
        _name_resources(task)
    return {
        "processDefinition": {
            "name": given.name,
            "description": given.description,
            "globalParams": decoded("globalParams", given.global_params),
            "timeout": given.timeout,
            "tenantCode": given.tenant,
            "executionType": given.execution_type or "PARALLEL",
            "warningGroupId": given.warning_group_id,
        },
        "processTaskRelationList": _sorted(decoded("taskRelationJson", given.relations), tasks),
        "taskDefinitionList": tasks,
    }


def schedule_of(given: Submission) -> Mapping[str, str] | None:
    """Return the schedule's parts that are texts; None without a schedule."""
    if given.schedule is None:
        return None
    found = decoded("schedule", given.schedule)
    if not isinstance(found, dict) or not isinstance(found.get("crontab"), str):
        raise UsageError("schedule", "is no object with a crontab")
    return {key: value for key, value in found.items() if isinstance(value, str) and value}


def group_named(name: str) -> str | None:
    """Return the name of a worker group; None for the default one."""
    return None if name in ("", _DEFAULT) else name


def decoded(field: str, text: str) -> Any:
    """Read JSON within the limits of files; `UsageError` names the argument."""
    try:
        return strict_json(text.encode("utf-8", "surrogatepass"))
    except InvalidDefinitionError as error:
        raise UsageError(field, f"{field}: {error}") from error


def dependent_items(entry: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the items of DEPENDENT tasks that name a task of a definition by its code."""
    for task in objects_of(entry.get("taskDefinitionList")):
        dependence = object_of(object_of(task.get("taskParams")).get("dependence"))
        for group in listed(dependence.get("dependTaskList")):
            for item in listed(group.get("dependItemList")) if isinstance(group, dict) else ():
                is_item = isinstance(item, dict) and code_in(item.get(DEPENDENT_CODE)) is not None
                if is_item and code_in(item.get(DEPENDENT_TASK_CODE)) is not None:
                    yield item


def name_task(item: dict[str, Any], name: str) -> None:
    """Put the name of the task that a dependent item looks at in the place of its code."""
    del item[DEPENDENT_TASK_CODE]
    item["depTasks"] = name


def datasources_in(entry: Mapping[str, Any]) -> Iterator[int]:
    """Yield the ids of data sources that tasks name."""
    for task in objects_of(entry.get("taskDefinitionList")):
        number = object_of(task.get("taskParams")).get("datasource")
        if isinstance(number, int) and not isinstance(number, bool):
            yield number


def _name_resources(task: Mapping[str, Any]) -> None:
    """Name each resource by its path, which the gateway has given as its id."""
    params = task.get("taskParams")
    if not isinstance(params, dict):
        return
    for entry in (params.get("mainJar"), *listed(params.get("resourceList"))):
        if isinstance(entry, dict) and isinstance(entry.get("id"), str):
            entry["res"] = entry.pop("id")


def _sorted(relations: Any, tasks: Any) -> Any:
    """Return the relations in the order of the tasks that they lead from and to."""
    places = {task.get("code"): place for place, task in enumerate(objects_of(tasks))}

    def place(relation: object) -> tuple[int, int]:
        found = relation if isinstance(relation, dict) else {}
        codes = (found.get("preTaskCode"), found.get("postTaskCode"))
        before, after = (places.get(each, -1) if isinstance(each, int) else -1 for each in codes)
        return before, after

    return sorted(relations, key=place) if isinstance(relations, list) else relations
