"""The tasks of a draft as an editor has them: shown as fields, and changed by those of a form.

Pure. A task is found by its name. The fields for the keys of its type come from the type's
specification (`api.console.task_inputs`); all other keys are JSON in two more fields, so that the
form can change everything and loses nothing. A change of the type removes the keys of the former
type.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from api.console.task_inputs import (
    PARAM,
    FieldError,
    Input,
    inputs_of,
    params_of,
    read_params,
    read_parts,
    typed_inputs,
    without_field,
)
from common.errors import InvalidDefinitionError
from common.model.task_type import TaskTypeSpec
from common.strict_json import strict_json
from common.task_types import task_type_spec

_JSON: Final = "processDefinitionJson"
_NUMBERS: Final = ("maxRetryTimes", "retryInterval")
_WORDS: Final = ("description", "runFlag", "taskInstancePriority")
_FIELDS: Final = frozenset({"id", "name", "type", "preTasks", "params", *_NUMBERS, *_WORDS})
RUN_FLAGS: Final = ("NORMAL", "FORBIDDEN")
PRIORITIES: Final = ("HIGHEST", "HIGH", "MEDIUM", "LOW", "LOWEST")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fields:
    """A task as the form shows it; `script` is None for a type without scripts.

    `inputs` are for the keys of `form_type`, which is not `type` while another one is chosen.
    """

    name: str
    type: str
    form_type: str
    script: str | None
    inputs: tuple[Input, ...]
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
    spec = _spec(node)
    words = {name: node.get(name) for name in (*_NUMBERS, *_WORDS)}
    return Fields(
        name=str(node["name"]),
        type=str(node.get("type", "")),
        form_type=str(node.get("type", "")),
        script=_script(node, spec) if spec.program else None,
        inputs=inputs_of(spec, node),
        before=", ".join(before(node)),
        words={name: "" if each is None else str(each) for name, each in words.items()},
        params=_shown(without_field(spec, node)),
        others=_shown(_others(node, spec)),
    )


def typed(form: Mapping[str, str]) -> Fields:
    """Return what somebody has typed, to be shown once more."""
    form_type = form.get("form_type") or form.get("type", "")
    return Fields(
        name=form.get("name", ""),
        type=form.get("type", ""),
        form_type=form_type,
        script=form.get("script"),
        inputs=typed_inputs(task_type_spec(form_type.upper()), form),
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
    spec = _spec(node)
    # Another window may have changed the type since this form was shown.
    shown = task_type_spec(form["form_type"].upper()) if form.get("form_type") else spec
    stored = params_of(node)
    params = {**read_params(shown, node, form), **_further_params(form)}
    script = form.get("script", "").replace("\r\n", "\n")
    if shown.program and "script" in form and script != _script(node, shown):
        params[shown.program] = script
    elif spec.program in stored:
        params.setdefault(spec.program, stored[spec.program])
    others = _object("others", form.get("others", ""))
    parts = dict(read_parts(shown, node, form))
    new = {
        **{key: node[key] for key in ("id",) if key in node},
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
    for key, value in parts.items():
        (new if key in node or key not in stored else params)[key] = value
    new |= {key: each for key, each in others.items() if key not in _FIELDS}
    if new["type"].upper() != shown.name:
        new = retyped(new, shown, task_type_spec(new["type"].upper()))
    node.clear()
    node.update(new)
    if name != task:
        for other in nodes_in(made):
            if task in before(other):
                other["preTasks"] = [name if each == task else each for each in before(other)]
    return made


def retyped(node: Mapping[str, Any], former: TaskTypeSpec, wanted: TaskTypeSpec) -> dict[str, Any]:
    """Return a task that has become one of another type, without the keys of the former type.

    The text of its program stays if both types have a program, except for the initial text.
    """
    params = {
        key: value
        for key, value in node["params"].items()
        if wanted.keeps(key) or not former.keeps(key)
    }
    program = node["params"].get(former.program)
    if wanted.program and program not in (None, "", former.starts_with.get(former.program)):
        params.setdefault(wanted.program, program)
    elif former.program == wanted.program:
        params.pop(former.program, None)
    made = {
        key: value
        for key, value in node.items()
        if key not in former.node_keys or key in wanted.node_keys
    }
    return _started({**made, "params": params}, wanted)


def added(
    document: Mapping[str, Any], after: str | None, type_name: str = "SHELL"
) -> tuple[dict[str, Any], str]:
    """Return the document with one more task behind another, and the name of the new one."""
    made = copy.deepcopy(dict(document))
    known = {each["name"] for each in nodes_in(made)}
    name = next(each for n in range(1, len(known) + 2) if (each := f"task-{n}") not in known)
    node = _started(
        {
            "name": name,
            "type": type_name,
            "params": {},
            "preTasks": [after] if after in known else [],
        },
        task_type_spec(type_name.upper()),
    )
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


def _spec(node: Mapping[str, Any]) -> TaskTypeSpec:
    return task_type_spec(str(node.get("type", "")).upper())


def _script(node: Mapping[str, Any], spec: TaskTypeSpec) -> str:
    given = params_of(node).get(spec.program) or ""
    return given if isinstance(given, str) else json.dumps(given)


def _further_params(form: Mapping[str, str]) -> dict[str, Any]:
    """Return the parameters that were written as JSON; none of them may have a field as well."""
    found = _object("params", form.get("params", ""))
    for key in found:
        if form.get(PARAM + key, "").strip():
            raise FieldError(key, "is in its field and in the further parameters; delete one")
    return found


def _others(node: Mapping[str, Any], spec: TaskTypeSpec) -> dict[str, Any]:
    known = {*_FIELDS, *spec.node_keys}
    return {key: each for key, each in node.items() if key not in known}


def _started(node: dict[str, Any], spec: TaskTypeSpec) -> dict[str, Any]:
    """Return a new task of a type with the initial values that it lacks."""
    starts = copy.deepcopy(dict(spec.starts_with))
    parts = {key: each for key, each in starts.items() if key in spec.node_keys}
    params = {key: each for key, each in starts.items() if key not in parts}
    return {**parts, **node, "params": {**params, **node["params"]}}


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
