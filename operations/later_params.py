"""Turns the `taskParams` of DolphinScheduler 2.x and 3.x into the parts of a node as it is here.

The branches and conditions of CONDITIONS and SWITCH name tasks of the same definition by codes, and
get their names; items of DEPENDENT and sub processes keep the codes of other definitions. Keys that
have another name here are renamed, those that mean nothing are left out, and a value that is lost
becomes a finding. Nothing here refuses anything: the reader of definitions does, with the same
words as for any file.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from common.model.codes import code_in
from common.model.task_type import LOCAL_PARAMS, is_absent
from common.params import response_name
from operations.definition_document import (
    CHILD_CODES,
    CHILD_ID,
    DEPENDENT_CODE,
    DEPENDENT_TASK_CODE,
    listed,
    object_of,
    objects_of,
)
from operations.findings import Finding, Severity

_PARTS: Final = ("dependence", "conditionResult", "switchResult")
_EMPTY_ELSEWHERE: Final = (*_PARTS, "waitStartTimeout", "timeoutSetting", "varPool")
"""Keys that the front end writes into the parameters of every task."""
_WHOLE_WORKFLOW: Final = (None, "", 0, -1, "0", "-1")
"""The codes that stand for no single task of a definition."""
_STORAGE: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:.*?/resources/(?P<path>.+)")
"""A path in the storage of a 3.2 or later: scheme, root and tenant stand before its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Notes:
    """The findings about one task, or about the definition if `node` is None."""

    node: str | None
    findings: list[Finding]

    def unmapped(
        self, key: str, problem: str, cure: str = "", *, keeps_offline: bool = False
    ) -> None:
        self.findings.append(
            Finding(
                severity=Severity.UNMAPPED,
                node=self.node,
                key=key,
                problem=problem,
                cure=cure,
                keeps_offline=keeps_offline,
            )
        )

    def warn(self, key: str, problem: str, cure: str = "") -> None:
        self.findings.append(
            Finding(severity=Severity.WARNING, node=self.node, key=key, problem=problem, cure=cure)
        )


def node_parts(
    kind: str, given: Mapping[str, Any], names: Mapping[int, str], notes: Notes
) -> dict[str, Any]:
    """Return `params` and the other parts of a node of this type; `names` are those of its tasks.

    `kind` is a type that is run here.
    """
    params = dict(given)
    parts: dict[str, Any] = {"type": kind}
    wait = object_of(params.get("waitStartTimeout"))
    if wait.get("enable") in (True, "true"):
        parts["waitStartTimeout"] = dict(wait)
    own = {key: object_of(params.get(key)) for key in _PARTS}
    for key in _EMPTY_ELSEWHERE:
        params.pop(key, None)
    if kind == "CONDITIONS":
        parts["dependence"] = _conditions(own["dependence"], names)
        result = own["conditionResult"]
        parts["conditionResult"] = {
            key: _targets(result.get(key), names) for key in ("successNode", "failedNode")
        }
        if any(listed(result.get("failedNode"))):
            notes.warn(
                "conditionResult.failedNode",
                "a run that takes this branch ends as SUCCESS if the tasks of the branch succeed;"
                " some releases of DolphinScheduler 3.0 and 3.1 end it as FAILURE",
                "to let such a run fail, put a task that fails at the end of the branch",
            )
    elif kind == "SWITCH":
        parts["switchResult"] = _switch(own["switchResult"], names)
    elif kind == "DEPENDENT":
        parts["dependence"] = _dependent(own["dependence"], notes)
    elif kind == "SUB_PROCESS":
        params = _child(params)
    else:
        _resources(params)
        change = _CHANGES.get(kind)
        if change is not None:
            change(params, parts, notes)
    # `localParams: []` and their like are what an absent key means.
    parts["params"] = {key: value for key, value in params.items() if value not in (None, "", [])}
    return parts


def declare_responses(nodes: Sequence[dict[str, Any]]) -> None:
    """Declare the output `<task>.response` of an HTTP task if another task reads it.

    In 3.x every HTTP task has this output. Here a task has only the outputs that it declares.
    """
    text = json.dumps(nodes, ensure_ascii=False)
    for node in nodes:
        if node["type"] != "HTTP":
            continue
        name = response_name(str(node["name"]))
        quoted = json.dumps(name, ensure_ascii=False)
        is_read = any(f"{sign}{{{quoted[1:-1]}}}" in text for sign in "$!")
        local = list(objects_of(node["params"].get(LOCAL_PARAMS.name)))
        if any(each.get("prop") == name for each in local):
            continue
        if is_read or f'"prop": {quoted}' in text:
            declared = {"prop": name, "direct": "OUT", "type": "VARCHAR", "value": ""}
            node["params"][LOCAL_PARAMS.name] = [*local, declared]


def _conditions(dependence: Mapping[str, Any], names: Mapping[int, str]) -> dict[str, Any]:
    def condition(item: Mapping[str, Any]) -> dict[str, Any]:
        task = item.get("depTaskCode")
        return {
            "depTasks": item.get("depTasks") if task is None else _task(task, names),
            "status": item.get("status"),
        }

    return _relations(dependence, condition)


def _switch(result: Mapping[str, Any], names: Mapping[int, str]) -> dict[str, Any]:
    return {
        "dependTaskList": [
            {"condition": each.get("condition"), "nextNode": _targets(each.get("nextNode"), names)}
            if isinstance(each, dict)
            else each
            for each in listed(result.get("dependTaskList"))
        ],
        "nextNode": _targets(result.get("nextNode"), names),
    }


def _dependent(dependence: Mapping[str, Any], notes: Notes) -> dict[str, Any]:
    policy = dependence.get("failurePolicy")
    if policy not in (None, "", "DEPENDENT_FAILURE_FAILURE"):
        minutes = dependence.get("failureWaitingTime")
        notes.unmapped(
            "dependence.failurePolicy",
            f"{policy!r:.60} is not known here: a failed run is not waited for again, where there"
            f" it was for {minutes!r:.20} minutes",
            "give the task retries instead",
        )

    def item(given: Mapping[str, Any]) -> dict[str, Any]:
        if given.get("parameterPassing") in (True, "true"):
            problem = "parameters of the run awaited are not passed on"
            notes.unmapped("dependence.parameterPassing", problem)
        made = {key: given[key] for key in ("cycle", "dateValue") if key in given}
        for key in (DEPENDENT_CODE, "definitionId", "definitionName", "projectId"):
            if given.get(key) is not None:
                made[key] = given[key]
        task = given.get(DEPENDENT_TASK_CODE)
        if given.get("depTasks"):
            made["depTasks"] = given["depTasks"]
        elif task in _WHOLE_WORKFLOW:
            made["depTasks"] = "ALL"
        else:
            made[DEPENDENT_TASK_CODE] = task
        return made

    return _relations(dependence, item)


def _relations(
    dependence: Mapping[str, Any], item: Callable[[Mapping[str, Any]], dict[str, Any]]
) -> dict[str, Any]:
    """Return the groups of a dependence with their items changed."""
    groups = [
        {
            "relation": group.get("relation") or "AND",
            "dependItemList": [
                item(each) if isinstance(each, dict) else each
                for each in listed(group.get("dependItemList"))
            ],
        }
        if isinstance(group, dict)
        else group
        for group in listed(dependence.get("dependTaskList"))
    ]
    return {"relation": dependence.get("relation") or "AND", "dependTaskList": groups}


def _targets(value: object, names: Mapping[int, str]) -> list[str]:
    """Return the names of a branch, of which a code or a list of codes is given."""
    those = value if isinstance(value, list) else [value]
    return [_task(each, names) for each in those if each not in _WHOLE_WORKFLOW]


def _task(value: object, names: Mapping[int, str]) -> str:
    """Return a task's name; a code that is nobody's stays, and is refused as the name it is not."""
    code = code_in(value)
    return str(value)[:200] if code is None else names.get(code, str(code))


def _child(params: Mapping[str, Any]) -> dict[str, Any]:
    """A sub process needs nothing but the definition; early exports of 2.x name its id."""
    keys = (*CHILD_CODES, CHILD_ID, "processDefinitionName", "localParams")
    return {key: params[key] for key in keys if params.get(key) not in (None, "", 0)}


def _resources(params: dict[str, Any]) -> None:
    """Give each resource the path at which it is looked for here."""
    jar = params.get("mainJar")
    if isinstance(jar, dict):
        params["mainJar"] = _resource(jar)
    resources = params.get("resourceList")
    if isinstance(resources, list):
        params["resourceList"] = [
            _resource(each) if isinstance(each, dict) else each for each in resources
        ]


def _resource(entry: Mapping[str, Any]) -> dict[str, Any]:
    name = entry.get("resourceName") or entry.get("res")
    if not isinstance(name, str) or not name.strip():
        return {"id": entry.get("id")}
    stored = _STORAGE.fullmatch(name.strip())
    return {"res": stored["path"] if stored else name.strip().lstrip("/")}


def _of_sql(params: dict[str, Any], _parts: dict[str, Any], notes: Notes) -> None:
    for key in ("sendEmail", "sendAlert"):
        if params.pop(key, False) in (True, "true"):
            notes.unmapped(f"params.{key}", "no mail is sent: the result is kept as a file")
    if params.get("connParams"):
        notes.unmapped(
            "params.connParams",
            "parameters of the connection are not taken from tasks",
            "give them to the data source",
        )
    separator = params.pop("segmentSeparator", None)
    if separator not in (None, "", ";"):
        notes.unmapped(
            "params.segmentSeparator",
            f"statements are divided by ';' alone, not by {separator!r:.20}",
            "write ';' between them",
            keeps_offline=True,
        )
    if params.get("sqlResource") and is_absent(params.get("sql")):
        notes.unmapped(
            "params.sqlResource",
            f"the statements stand in the resource {params['sqlResource']!r:.200}",
            "write them into 'sql'",
            keeps_offline=True,
        )
    for key in ("groupId", "limit", "showType", "sqlSource", "sqlResource", "connParams", "type"):
        params.pop(key, None)


def _of_http(params: dict[str, Any], _parts: dict[str, Any], _notes: Notes) -> None:
    method = params.pop("httpRequestMethod", None)
    if method and not params.get("httpMethod"):
        params["httpMethod"] = method


def _of_spark(params: dict[str, Any], parts: dict[str, Any], notes: Notes) -> None:
    version = params.get("sparkVersion")
    if str(version or "").upper() not in ("SPARK1", "SPARK2"):
        params.pop("sparkVersion", None)
    file_mode = str(params.pop("sqlExecutionType", "") or "").upper() == "FILE"
    for theirs, ours in (("appName", "name"), ("yarnQueue", "queue")):
        value = params.pop(theirs, None)
        if not is_absent(value):
            params[ours] = value
    namespace = object_of(params.get("namespace"))
    if namespace:
        params["namespace"] = namespace.get("name")
    if str(params.get("programType") or "").upper() != "SQL":
        params.pop("rawScript", None)
        return
    parts["type"] = "SPARK_SQL"
    lost = {key: params[key] for key in _SIZES if not is_absent(params.get(key))}
    if lost:
        notes.unmapped(
            "params",
            "the task becomes one of SPARK_SQL, whose Spark is the worker's: these are not kept:"
            f" {json.dumps(lost, ensure_ascii=False):.400}",
            "give them to a Spark profile (worker.toml), and name it as params.profile",
        )
    script = params.get("rawScript")
    if file_mode or is_absent(script):
        resources = listed(params.get("resourceList"))
        names = [each.get("res") for each in resources if isinstance(each, dict)]
        notes.unmapped(
            "params.sqlExecutionType",
            f"the statements stand in a resource, of which these are named: {names!r:.300}",
            "write them into rawScript, or name their file as params.file",
            keeps_offline=True,
        )
    kept = ("rawScript", "localParams", "resourceList")
    for key in [key for key in params if key not in kept]:
        del params[key]


_SIZES: Final = (
    *("deployMode", "master", "driverCores", "driverMemory", "numExecutors", "executorMemory"),
    *("executorCores", "others", "name", "queue", "namespace", "sparkVersion"),
)


def _of_quality(params: dict[str, Any], _parts: dict[str, Any], notes: Notes) -> None:
    notes.unmapped(
        "params.ruleId",
        f"rule {params.get('ruleId')!r:.20} is a row of the other database; rules are written into"
        " the task here",
        "write params.rules, as docs/tasks.md shows",
        keeps_offline=True,
    )


_CHANGES: Final[Mapping[str, Callable[[dict[str, Any], dict[str, Any], Notes], None]]] = {
    "SQL": _of_sql,
    "HTTP": _of_http,
    "SPARK": _of_spark,
    "DATA_QUALITY": _of_quality,
}
"""The types whose parameters differ from those of 1.x, each with what changes them."""
