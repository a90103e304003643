"""The gateway that takes notes: what a file of pydolphinscheduler submits, without a cluster.

Codes are counted as they are asked for, and turned back into names at the end. Whatever the file
asks for is there: data sources and definitions are believed to exist by their names.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from common.model.codes import code_in
from common.py4j.wire import Thing
from operations.definition_document import DEPENDENT_TASK_CODE, objects_of
from operations.environment_references import ENVIRONMENT_CODE, ENVIRONMENT_NAME
from operations.python_gateway.submissions import (
    Submission,
    dependent_items,
    entry_of,
    name_task,
    schedule_of,
)
from operations.references import Kind

_FIRST: Final = 2**40
_LAST_YEAR: Final = "9999"
_DEFAULT_TENANT: Final = "tenant_pydolphin"


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """A workflow that was submitted, as an entry of an export; `project` is where it was meant to.

    `notes` tell what has to be made before the workflow is imported.
    """

    project: str
    entry: dict[str, Any]
    schedule: dict[str, str] | None
    notes: tuple[str, ...]


class RecordedGateway:
    """Notes what a client submits. One thread at a time may call it."""

    def __init__(self) -> None:
        self.runs: list[str] = []
        """The names of the definitions that the file runs."""
        self.resources: dict[str, str] = {}
        """The contents of files by their paths."""
        self._next = _FIRST
        self._given: dict[tuple[str, ...], int] = {}
        self._submitted: dict[tuple[str, str], Submission] = {}

    def user(self) -> Thing:
        return Thing(fields={"id": 1, "userName": "nobody"})

    def tenant(self, code: str) -> Thing:
        return Thing(fields={"id": 1, "tenantCode": code})

    def need_project(self, name: str, description: str | None) -> None:
        """Believe that it is there."""

    def task_code(self, project: str, definition: str, task: str) -> int:
        return self._code("task", project, definition, task)

    def environment(self, name: str) -> int:
        return self._code("environment", name)

    def keep_resource(self, name: str, content: str) -> Thing:
        self.resources[name] = content
        return Thing(fields={"id": name, "fullName": name, "fileName": name})

    def resource(self, name: str) -> str:
        return name

    def datasource(self, name: str, kind: str | None) -> Thing:
        """Believe in the type that the file says, else in PostgreSQL."""
        word = (kind or "postgresql").lower()
        fields = {"id": self._code("datasource", name), "name": name, "connectionParams": "{}"}
        return Thing(fields={**fields, "note": None, "type": {"descp": word, "code": 0}})

    def definition(self, project: str, name: str) -> Mapping[str, int | str]:
        code = self._code("definition", project, name)
        return {"id": 0, "code": code, "name": name, "projectCode": self._code("project", project)}

    def task_of(self, project: str, definition: str, task: str) -> int:
        return self._code("task", project, definition, task)

    def submit(self, given: Submission) -> int:
        """Note a workflow; the last of a name counts."""
        entry_of(given)
        schedule_of(given)
        self._submitted[given.project, given.name] = given
        return self._code("definition", given.project, given.name)

    def run(self, project: str, definition: str, *, worker_group: str, warning_type: str) -> None:
        """Note that the file would begin a run."""
        self.runs.append(definition)

    def recorded(self) -> list[Recorded]:
        """Return all workflows in the order of their first submission."""
        return [self._recorded(given) for given in self._submitted.values()]

    def names(self) -> dict[tuple[Kind, int], str]:
        """Return the names of the codes that were given for definitions and data sources."""
        kinds = {"definition": Kind.DEFINITION, "datasource": Kind.DATASOURCE}
        return {
            (kinds[what], code): rest[-1]
            for (what, *rest), code in self._given.items()
            if what in kinds
        }

    def _recorded(self, given: Submission) -> Recorded:
        entry = entry_of(given)
        definition = entry["processDefinition"]
        definition["code"] = self._code("definition", given.project, given.name)
        if given.tenant == _DEFAULT_TENANT:
            definition["tenantCode"] = None
        tasks = {code: rest[-1] for (what, *rest), code in self._given.items() if what == "task"}
        for item in dependent_items(entry):
            name = tasks.get(code_in(item[DEPENDENT_TASK_CODE]) or 0)
            if name is not None:
                name_task(item, name)
        notes = tuple(self._environments(entry))
        schedule = schedule_of(given)
        return Recorded(
            project=given.project,
            entry=entry,
            schedule=None if schedule is None else _schedule(given, schedule),
            notes=notes,
        )

    def _environments(self, entry: Mapping[str, Any]) -> list[str]:
        """Name environments in the place of their codes; return a note for each task with one."""
        names = {
            code: rest[-1] for (what, *rest), code in self._given.items() if what == "environment"
        }
        notes: list[str] = []
        for task in objects_of(entry["taskDefinitionList"]):
            name = names.get(code_in(task.get(ENVIRONMENT_CODE)) or 0)
            if name is not None and isinstance(task, dict):
                del task[ENVIRONMENT_CODE]
                task[ENVIRONMENT_NAME] = name
                notes.append(
                    f"task {task.get('name')!r} names the environment {name!r}: make it, unless it"
                    " is there (orcaflow environment create)"
                )
        return notes

    def _code(self, *what: str) -> int:
        known = self._given.get(what)
        if known is None:
            # Data sources have ids, which are smaller than codes.
            known = len(self._given) + 1 if what[0] == "datasource" else self._next
            self._next += 1
            self._given[what] = known
        return known


def _schedule(given: Submission, schedule: Mapping[str, str]) -> dict[str, str]:
    """Return the schedule as files of Orcaflow have it."""
    kept = {
        key: schedule[key]
        for key in ("crontab", "timezoneId", "startTime", "endTime")
        if key in schedule and not schedule[key].startswith(_LAST_YEAR)
    }
    if given.warning_type.upper() != "NONE":
        kept["warningType"] = given.warning_type.upper()
    if given.worker_group not in ("", "default"):
        kept["workerGroup"] = given.worker_group
    return kept
