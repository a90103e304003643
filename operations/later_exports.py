"""Turns exports of DolphinScheduler 2.x and 3.x into the 1.2 JSON that is stored here.

These lines write a *later export*: a definition, its tasks and the relations between them beside
each other, all of which name each other by *codes*, whole numbers of 64 bits. Codes of tasks become
names here; those of other definitions and of their tasks stay as they are, for
`operations.references`. The codes of the definition and its tasks are kept, since files that come
later may refer to them.

The shape is read strictly: whatever has the wrong type, and a relation to a task that is not there,
is a mistake with its place. A part that has no counterpart is a finding instead, and one without
which the definition can't do its work keeps it OFFLINE. Reads no database.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from common.errors import InvalidDefinitionError
from common.model.codes import code_in
from common.model.control_types import CONTROL_TYPES
from common.model.definitions import MAX_NODES
from common.model.states import ExecutionType, Priority
from common.strict_json import strict_json
from common.task_types import known_task_types
from operations.environment_references import ENVIRONMENT_CODE, ENVIRONMENT_NAME
from operations.findings import Finding
from operations.later_params import Notes, declare_responses, node_parts
from operations.leniency import of_foreign_type

_DEFINITIONS: Final = ("processDefinition", "workflowDefinition")
_RELATIONS: Final = ("processTaskRelationList", "workflowTaskRelationList")
_TASKS: Final = "taskDefinitionList"
_TYPES: Final = {"SUB_WORKFLOW": "SUB_PROCESS"}
"""The names of types that have others here."""
_FLAGS: Final = {"YES": True, "NO": False, "1": True, "0": False}
_TIMEOUTS: Final = {"OPEN": True, "CLOSE": False, "1": True, "0": False}


@dataclass(frozen=True, slots=True, kw_only=True)
class LaterExport:
    """One definition of a later export, in the form of 1.x.

    `wrapped` is the object around the JSON, `inner` the JSON itself. `code` is the definition's
    own, `tasks` are the names of its tasks by their codes.
    """

    wrapped: dict[str, Any]
    inner: dict[str, Any]
    code: int | None
    tasks: Mapping[int, str]
    findings: tuple[Finding, ...]


def is_later_export(entry: Mapping[str, Any]) -> bool:
    """Return whether an object of a file has the shape of a later export."""
    return any(key in entry for key in (*_DEFINITIONS, *_RELATIONS, _TASKS))


def name_in(entry: Mapping[str, Any]) -> object:
    """Return the definition's name, as it stands there."""
    _, definition = _first(entry, _DEFINITIONS)
    return definition.get("name") if isinstance(definition, dict) else None


def read_later_export(entry: Mapping[str, Any]) -> LaterExport:
    """Return the definition; `InvalidDefinitionError` with every mistake in its shape."""
    return _Reader(entry).read()


def _first(entry: Mapping[str, Any], keys: tuple[str, ...]) -> tuple[str, object]:
    """Return the first of the keys that is there, with its value."""
    return next(((key, entry[key]) for key in keys if entry.get(key) is not None), (keys[0], None))


class _Reader:
    """Reads one object, and collects mistakes and findings while it reads."""

    def __init__(self, entry: Mapping[str, Any]) -> None:
        self._entry = entry
        self._mistakes: list[str] = []
        self._findings: list[Finding] = []

    def read(self) -> LaterExport:
        place, definition = _first(self._entry, _DEFINITIONS)
        if not isinstance(definition, dict):
            self._mistakes.append(f"{place}: must be an object")
            definition = {}
        tasks = self._tasks()
        # After a mistake in the tasks, relations to these would only repeat it.
        upstream = {} if self._mistakes else self._upstream(tasks)
        if self._mistakes:
            raise InvalidDefinitionError(tuple(self._mistakes))
        names = {code: str(task["name"]) for code, (_, task) in tasks.items()}
        nodes = [
            self._node(where, code, task, names, upstream.get(code))
            for code, (where, task) in tasks.items()
        ]
        declare_responses(nodes)
        code = code_in(definition.get("code"))
        inner: dict[str, Any] = {
            "globalParams": self._global_params(place, definition),
            "tasks": nodes,
            "tenantId": definition.get("tenantId") or -1,
            "timeout": self._number(place, definition, "timeout"),
        }
        if code is not None:
            inner["code"] = code
        tenant = self._text(place, definition, "tenantCode")
        schedule = self._entry.get("schedule")
        if not tenant and isinstance(schedule, dict):
            # From 3.2 on the tenant belongs to the schedule.
            tenant = self._text("schedule", schedule, "tenantCode")
        if tenant and tenant != "default":
            inner["tenantCode"] = tenant
        wrapped = {
            "name": definition.get("name"),
            "description": self._text(place, definition, "description") or None,
            "executionType": self._execution_type(definition),
            "processDefinitionLocations": definition.get("locations"),
            "timeout": inner["timeout"],
            "projectName": self._text(place, definition, "projectName"),
        }
        self._of_definition(place, definition)
        if self._mistakes:
            raise InvalidDefinitionError(tuple(self._mistakes))
        return LaterExport(
            wrapped=wrapped,
            inner=inner,
            code=code,
            tasks=names,
            findings=tuple(self._findings),
        )

    def _tasks(self) -> dict[int, tuple[str, dict[str, Any]]]:
        """Return the tasks by their codes, each with its place."""
        found: dict[int, tuple[str, dict[str, Any]]] = {}
        for where, task in self._objects(_TASKS, self._entry.get(_TASKS), needed=True):
            code = code_in(task.get("code"))
            name, kind = task.get("name"), task.get("taskType")
            if code is None:
                self._mistakes.append(f"{where}.code: {_must(task.get('code'), 'a task code')}")
            elif code in found:
                self._mistakes.append(f"{where}.code: {code} is used twice")
            if not isinstance(name, str) or not name:
                self._mistakes.append(f"{where}.name: {_must(name, 'the name of a task')}")
            if not isinstance(kind, str) or not kind:
                self._mistakes.append(f"{where}.taskType: {_must(kind, 'the type of a task')}")
            params = self._object(f"{where}.taskParams", task.get("taskParams"))
            if code is not None:
                found[code] = (where, {**task, "taskParams": params})
        return found

    def _upstream(self, tasks: Mapping[int, Any]) -> dict[int, dict[int, None]]:
        """Return the codes before each task that stands in a relation at all."""
        key, listed = _first(self._entry, _RELATIONS)
        upstream: dict[int, dict[int, None]] = {}
        for where, relation in self._objects(key, listed, needed=False):
            post = self._of_relation(f"{where}.postTaskCode", relation.get("postTaskCode"), tasks)
            before = relation.get("preTaskCode")
            # The first tasks follow the task 0, which is none.
            pre = 0
            if before not in (None, 0, "0", ""):
                pre = self._of_relation(f"{where}.preTaskCode", before, tasks) or 0
            if post is None:
                continue
            those = upstream.setdefault(post, {})
            if pre:
                those[pre] = None
                upstream.setdefault(pre, {})
        if len(tasks) == 1:
            # Alone it has no order, and programs that write such files leave its relation out.
            upstream.update((code, {}) for code in tasks if code not in upstream)
        return upstream

    def _of_relation(self, where: str, value: object, tasks: Mapping[int, Any]) -> int | None:
        code = code_in(value)
        if code is None:
            self._mistakes.append(f"{where}: {_must(value, 'a task code')}")
        elif code not in tasks:
            self._mistakes.append(f"{where}: there is no task {code} in {_TASKS}")
        return code

    def _node(
        self,
        where: str,
        code: int,
        task: Mapping[str, Any],
        names: Mapping[int, str],
        upstream: Iterable[int] | None,
    ) -> dict[str, Any]:
        name = names[code]
        notes = Notes(node=name, findings=self._findings)
        written = str(task["taskType"]).strip().upper()
        kind = _TYPES.get(written, written)
        if upstream is None:
            notes.unmapped(
                "preTasks",
                "the task stands in no relation, so that it would never run there",
                "take it out of the export, or give it a relation",
                keeps_offline=True,
            )
        node: dict[str, Any] = {
            "name": name,
            "type": kind,
            "code": code,
            "preTasks": [names[each] for each in upstream or ()],
            "maxRetryTimes": self._number(where, task, "failRetryTimes"),
            "retryInterval": self._number(where, task, "failRetryInterval"),
            "taskInstancePriority": self._priority(where, task.get("taskPriority")),
        }
        if description := self._text(where, task, "description"):
            node["description"] = description
        if not self._word(where, task, "flag", _FLAGS, default=True):
            node["runFlag"] = "FORBIDDEN"
        if self._word(where, task, "timeoutFlag", _TIMEOUTS, default=False):
            node["timeout"] = {
                "strategy": self._text(where, task, "timeoutNotifyStrategy") or "WARN",
                "interval": self._number(where, task, "timeout"),
                "enable": True,
            }
        group = self._text(where, task, "workerGroup")
        if group and group != "default":
            node["workerGroup"] = group
        environment = code_in(task.get(ENVIRONMENT_CODE))
        named = self._text(where, task, ENVIRONMENT_NAME)
        if named:
            node[ENVIRONMENT_NAME] = named
        elif environment is not None:
            node[ENVIRONMENT_CODE] = environment
        delay = self._number(where, task, "delayTime")
        if delay and kind in CONTROL_TYPES:
            problem = f"a {kind} is never held back, so that its delay of {delay} minutes is lost"
            notes.unmapped("delayTime", problem, "give it to the tasks around it")
        elif delay:
            node["delayTime"] = delay
        self._of_task(where, task, notes)
        if kind not in known_task_types():
            self._findings.append(of_foreign_type(name, written))
            node["params"] = task["taskParams"]
            return node
        node |= node_parts(kind, task["taskParams"], names, notes)
        return node

    def _of_task(self, where: str, task: Mapping[str, Any], notes: Notes) -> None:
        """Note what a task asks for, beside its parameters, that has no counterpart."""
        group = self._number(where, task, "taskGroupId")
        if group:
            notes.unmapped(
                "taskGroupId",
                f"the task group {group} of the other system is not kept: nothing limits how many"
                " such tasks run at once",
                'make a pool (orcaflow pool create) and name it: "taskGroups": ["NAME"]',
            )
        for key, what in (("cpuQuota", "processor time"), ("memoryMax", "memory")):
            if code_in(task.get(key)) is not None:
                notes.unmapped(key, f"the limit of {what}, {task[key]}, is not kept")
        if str(task.get("isCache") or "NO").upper() not in ("NO", "0"):
            notes.unmapped("isCache", "results are not cached: the task is run every time")
        if str(task.get("taskExecuteType") or "BATCH").upper() not in ("BATCH", "0"):
            notes.unmapped("taskExecuteType", "a STREAM is no task that ends", keeps_offline=True)

    def _of_definition(self, place: str, definition: Mapping[str, Any]) -> None:
        """Note what a definition asks for that has no counterpart."""
        notes = Notes(node=None, findings=self._findings)
        if not self._word(place, definition, "flag", _FLAGS, default=True):
            notes.unmapped("flag", "the definition was not usable (flag NO)", keeps_offline=True)
        group = definition.get("warningGroupId")
        schedule = self._entry.get("schedule")
        kept = schedule.get("warningGroupId") if isinstance(schedule, dict) else None
        if code_in(group) is not None and code_in(kept) is None:
            notes.unmapped(
                "warningGroupId",
                f"the alert group {group} of the definition is not kept: alerts go to that of the"
                " schedule or of the start",
            )

    def _global_params(self, place: str, definition: Mapping[str, Any]) -> list[Any]:
        key, value = _first(definition, ("globalParams", "globalParamList"))
        if isinstance(value, str) and value.strip():
            value = self._decoded(f"{place}.{key}", value)
        if value in (None, ""):
            return []
        if not isinstance(value, list):
            self._mistakes.append(f"{place}.{key}: must be a list")
            return []
        return value

    def _execution_type(self, definition: Mapping[str, Any]) -> object:
        """Return the name; whatever is none is refused where files of any form are."""
        value = definition.get("executionType")
        numbers = {str(int(each)): each.name for each in ExecutionType}
        return numbers.get(str(value), value)

    def _priority(self, where: str, value: object) -> str:
        if value in (None, ""):
            return Priority.MEDIUM.name
        for each in Priority:
            if str(value).strip().upper() in (each.name, str(int(each))):
                return each.name
        known = ", ".join(Priority.__members__)
        self._mistakes.append(f"{where}.taskPriority: must be one of {known}, not {value!r:.60}")
        return Priority.MEDIUM.name

    def _number(self, where: str, holder: Mapping[str, Any], key: str) -> int:
        """Return a whole number, 0 for one that is absent or below."""
        value = holder.get(key)
        if value in (None, ""):
            return 0
        text = str(value).strip()
        digits = text.removeprefix("-")
        is_number = digits.isascii() and digits.isdecimal() and len(digits) < 10
        if isinstance(value, bool | float) or not is_number:
            self._mistakes.append(f"{where}.{key}: {_must(value, 'a whole number')}")
            return 0
        return max(0, int(text))

    def _text(self, where: str, holder: Mapping[str, Any], key: str) -> str:
        value = holder.get(key)
        if value is None:
            return ""
        if not isinstance(value, str):
            self._mistakes.append(f"{where}.{key}: {_must(value, 'text')}")
            return ""
        return value.strip()

    def _word(
        self,
        where: str,
        holder: Mapping[str, Any],
        key: str,
        words: Mapping[str, bool],
        *,
        default: bool,
    ) -> bool:
        value = holder.get(key)
        if value in (None, ""):
            return default
        found = words.get(str(value).strip().upper())
        if found is None:
            known = " or ".join(word for word in words if word.isalpha())
            self._mistakes.append(f"{where}.{key}: {_must(value, known)}")
            return default
        return found

    def _object(self, where: str, value: object) -> dict[str, Any]:
        """Return an object, also one that a text holds as JSON."""
        if isinstance(value, str) and value.strip():
            value = self._decoded(where, value)
        if value in (None, ""):
            return {}
        if not isinstance(value, dict):
            self._mistakes.append(f"{where}: must be an object")
            return {}
        return value

    def _objects(
        self, where: str, value: object, *, needed: bool
    ) -> list[tuple[str, dict[str, Any]]]:
        """Return the objects of a list, each with its place."""
        if isinstance(value, str) and value.strip():
            value = self._decoded(where, value)
        if not isinstance(value, list) or (needed and not value):
            wanted = "a list of one task or more" if needed else "a list"
            self._mistakes.append(f"{where}: must be {wanted}")
            return []
        if len(value) > MAX_NODES * 10:
            self._mistakes.append(f"{where}: {len(value):,} entries are more than can be read")
            return []
        found: list[tuple[str, dict[str, Any]]] = []
        for index, each in enumerate(value):
            if isinstance(each, dict):
                found.append((f"{where}[{index}]", each))
            else:
                self._mistakes.append(f"{where}[{index}]: must be an object")
        return found

    def _decoded(self, where: str, text: str) -> object:
        try:
            return strict_json(text.encode())
        except InvalidDefinitionError as error:
            self._mistakes.extend(f"{where}: {each}" for each in error.mistakes)
            return None


def _must(value: object, what: str) -> str:
    """Return the second half of a mistake, bounded; parts that may be deep are only named."""
    if value is None:
        return f"must be {what}, and is missing"
    if isinstance(value, dict | list):
        return f"must be {what}, not {'an object' if isinstance(value, dict) else 'a list'}"
    return f"must be {what}, not {value!r:.60}"
