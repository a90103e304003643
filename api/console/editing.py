"""The tasks of a draft as an editor has them: shown as fields, and changed by those of a form.

Pure. A task is found by its name. What the form has no field for stands as JSON in two more, so
that nothing of a task is out of reach, or lost.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from common.errors import InvalidDefinitionError
from common.strict_json import strict_json

_JSON: Final = "processDefinitionJson"
_SCRIPTS: Final = ("rawScript", "sql")
_SCRIPTED: Final = {
    "SHELL": "rawScript",
    "PYTHON": "rawScript",
    "PYSPARK": "rawScript",
    "SPARK_SQL": "rawScript",
    "SQL": "sql",
}
_NUMBERS: Final = ("maxRetryTimes", "retryInterval")
_WORDS: Final = ("description", "runFlag", "taskInstancePriority")
_FIELDS: Final = frozenset({"id", "name", "type", "preTasks", "params", *_NUMBERS, *_WORDS})
RUN_FLAGS: Final = ("NORMAL", "FORBIDDEN")
PRIORITIES: Final = ("HIGHEST", "HIGH", "MEDIUM", "LOW", "LOWEST")


class FieldError(Exception):
    """A field of the form can't be read; `field` is its name."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field: Final = field


@dataclass(frozen=True, slots=True, kw_only=True)
class Fields:
    """A task as the form shows it; `script` None: its type has none."""

    name: str
    type: str
    script: str | None
    before: str
    words: Mapping[str, str]
    params: str
    others: str


def nodes_in(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the tasks of a document that have names."""
    nodes = document[_JSON].get("tasks")
    return [
        each
        for each in (nodes if isinstance(nodes, list) else ())
        if isinstance(each, dict) and isinstance(each.get("name"), str)
    ]


def before(node: Mapping[str, Any]) -> list[str]:
    """Return the names of the tasks that a task waits for."""
    names = node.get("preTasks")
    return [each for each in names if isinstance(each, str)] if isinstance(names, list) else []


def fields_of(node: Mapping[str, Any]) -> Fields:
    """Return a task as the form shows it."""
    params = node.get("params")
    params = dict(params) if isinstance(params, dict) else {}
    key = _script_key(node, params)
    script = None if key is None else params.pop(key, "")
    words = {name: node.get(name) for name in (*_NUMBERS, *_WORDS)}
    return Fields(
        name=str(node["name"]),
        type=str(node.get("type", "")),
        script=script if script is None or isinstance(script, str) else json.dumps(script),
        before=", ".join(before(node)),
        words={name: "" if each is None else str(each) for name, each in words.items()},
        params=_shown(params),
        others=_shown({key: each for key, each in node.items() if key not in _FIELDS}),
    )


def typed(form: Mapping[str, str]) -> Fields:
    """Return what somebody has typed, to be shown once more."""
    return Fields(
        name=form.get("name", ""),
        type=form.get("type", ""),
        script=form.get("script"),
        before=form.get("before", ""),
        words={name: form.get(name, "") for name in (*_NUMBERS, *_WORDS)},
        params=form.get("params", ""),
        others=form.get("others", ""),
    )


def changed(document: Mapping[str, Any], task: str, form: Mapping[str, str]) -> dict[str, Any]:
    """Return the document with a task as the form has it; others follow its new name."""
    made = copy.deepcopy(dict(document))
    node = _node(made, task)
    name = form.get("name", task).strip()
    params = _object("params", form.get("params", ""))
    key = _script_key({**node, "type": form.get("type", "")}, node.get("params"))
    if key is not None and "script" in form:
        params[key] = form["script"].replace("\r\n", "\n")
    kept = {key: node[key] for key in ("id",) if key in node}
    new = {
        **kept,
        "name": name,
        "type": form.get("type", ""),
        "params": params,
        "preTasks": [each.strip() for each in form.get("before", "").split(",") if each.strip()],
    }
    for each in _NUMBERS:
        text = form.get(each, "").strip()
        if text:
            new[each] = int(text) if text.isascii() and text.isdigit() and len(text) < 10 else text
    for each in _WORDS:
        if form.get(each, ""):
            new[each] = form[each].replace("\r\n", "\n")
    others = _object("others", form.get("others", ""))
    node.clear()
    node.update({**new, **{key: each for key, each in others.items() if key not in _FIELDS}})
    if name != task:
        for other in nodes_in(made):
            if task in before(other):
                other["preTasks"] = [name if each == task else each for each in before(other)]
    return made


def added(document: Mapping[str, Any], after: str | None) -> tuple[dict[str, Any], str]:
    """Return the document with one more task behind another, and the name of the new one."""
    made = copy.deepcopy(dict(document))
    known = {each["name"] for each in nodes_in(made)}
    name = next(each for n in range(1, len(known) + 2) if (each := f"task-{n}") not in known)
    node = {
        "name": name,
        "type": "SHELL",
        "params": {"rawScript": "true"},
        "preTasks": [after] if after in known else [],
    }
    tasks = made[_JSON].get("tasks")
    made[_JSON]["tasks"] = [*(tasks if isinstance(tasks, list) else ()), node]
    return made, name


def removed(document: Mapping[str, Any], task: str) -> dict[str, Any]:
    """Return the document without a task; those behind it wait for those before it."""
    made = copy.deepcopy(dict(document))
    node = _node(made, task)
    above = before(node)
    made[_JSON]["tasks"] = [each for each in made[_JSON]["tasks"] if each is not node]
    for other in nodes_in(made):
        names = before(other)
        if task in names:
            at = names.index(task)
            others = [each for each in above if each not in names]
            other["preTasks"] = [*names[:at], *others, *names[at + 1 :]]
    return made


def _node(document: Mapping[str, Any], task: str) -> dict[str, Any]:
    for each in nodes_in(document):
        if each["name"] == task:
            return each
    raise FieldError("task", f"there is no task {task!r:.100} in the draft any more")


def _script_key(node: Mapping[str, Any], params: object) -> str | None:
    found = [each for each in _SCRIPTS if isinstance(params, dict) and each in params]
    return found[0] if found else _SCRIPTED.get(str(node.get("type", "")).upper())


def _shown(document: Mapping[str, Any]) -> str:
    return json.dumps(document, ensure_ascii=False, indent=2) if document else "{}"


def _object(field: str, text: str) -> dict[str, Any]:
    if not text.strip():
        return {}
    try:
        found = strict_json(text.encode())
    except InvalidDefinitionError as error:
        raise FieldError(field, "; ".join(error.mistakes)) from None
    if not isinstance(found, dict):
        raise FieldError(field, "it is no JSON object")
    return found


def lines_in(text: str) -> int:
    """Return the number of lines that an editor shows of a text."""
    return text.count("\n") + 1
