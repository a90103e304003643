"""Warns of `${name}` and `$[form]` that stay as they are written, or print what nobody means.

In a script, `${name}` may be a variable of the script's own, and is then no finding: one that the
script sets, or one in capitals, which comes from the environment. Reads no database.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from common.model.task_type import LOCAL_PARAMS, TaskKind, TaskTypeSpec
from common.params import ATTEMPT_NAMES, BUILT_IN_NAMES, NAME_REFERENCE, response_name
from common.params.placeholders import unread_forms
from common.params.scope import SYSTEM_NAMES
from operations.definition_document import (
    declared_names,
    has_children,
    nodes_of,
    object_of,
    objects_of,
    type_of,
)
from operations.findings import Finding, Severity
from operations.task_params import spec_of

_REFERENCE: Final = re.compile(r"\$\{([A-Za-z_][\w.-]{0,100})\}")
_FORM: Final = re.compile(r"\$\[([^\[\]$]{1,256})\]")
# Arrays, arithmetic and JSON paths stand in brackets too.
_LIKE_A_DATE: Final = re.compile(r"y{2,}|MM|dd|HH|mm|ss|\b[a-z]+_[a-z_]+\(")
_FOREIGN: Final = re.compile(r"(?m)^\s*(?:\.|source|eval)\s|;\s*(?:\.|source|eval)\s|\bTemplate\(")
"""Words of a script by which variables come from elsewhere."""
_SETTING: Final = (
    r"(?:^|[\s;&|(`])(?:for|read|select|local|declare|typeset|export|readonly|mapfile|readarray"
    r"|getopts|printf\s+-v)\b[^\n;|&]*\b%s\b"
)


@dataclass(frozen=True, slots=True)
class _Text:
    """A text with its place; `is_script` if its language has variables.

    Without a parameter the task fails by a `!{name}` in it if `is_named`, and by a `${name}` if
    `needs_values`. A text of which `is_for_master` is read without `ATTEMPT_NAMES`.
    """

    key: str
    text: str
    is_script: bool = False
    is_named: bool = False
    needs_values: bool = False
    is_for_master: bool = False


def text_warnings(
    document: Mapping[str, Any], inherited: Collection[str] = ()
) -> Iterator[Finding]:
    """Yield the warnings, in the order of the tasks; `inherited` are parameters of parents."""
    declared = _declared(document, inherited)
    nodes = list(nodes_of(document))
    callers = [str(node.get("name", "")) for node in nodes if type_of(node) == "HTTP"]
    responses = {response_name(task): task for task in callers}
    texts = _values(document.get("globalParams"), "globalParams")
    yield from _of_texts(None, texts, declared, responses)
    for node in nodes:
        task = str(node.get("name", ""))
        yield from _of_texts(task, _texts_of(node, spec_of(node)), declared, responses)


def _texts_of(node: Mapping[str, Any], spec: TaskTypeSpec) -> Iterator[_Text]:
    params = object_of(node.get("params"))
    for key, value in params.items():
        if key != LOCAL_PARAMS.name:
            text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            is_named = key in spec.named_keys
            yield _Text(
                f"params.{key:.80}",
                text,
                is_script=spec.names_are_its_own,
                is_named=is_named,
                needs_values=is_named and spec.needs_values,
            )
    yield from _values(
        params.get(LOCAL_PARAMS.name),
        f"params.{LOCAL_PARAMS.name}",
        is_for_master=spec.kind is TaskKind.CONTROL,
    )
    if "switchResult" in spec.node_keys:
        result = object_of(node.get("switchResult"))
        for index, case in enumerate(objects_of(result.get("dependTaskList"))):
            key = f"switchResult.dependTaskList[{index}].condition"
            yield _Text(key, str(case.get("condition") or ""), is_for_master=True)


def _values(parameters: object, place: str, *, is_for_master: bool = False) -> Iterator[_Text]:
    for index, item in enumerate(objects_of(parameters)):
        value = item.get("value")
        if isinstance(value, str) and item.get("direct") != "OUT":
            yield _Text(f"{place}[{index}].value", value, is_for_master=is_for_master)


def _of_texts(
    task: str | None,
    texts: Iterator[_Text],
    declared: Collection[str] | None,
    responses: Mapping[str, str],
) -> Iterator[Finding]:
    """Yield the findings about texts; `responses` are the tasks that can put a response out."""
    for each in texts:
        for name in dict.fromkeys(_REFERENCE.findall(each.text)):
            is_known = declared is None or name in declared
            if name in BUILT_IN_NAMES:
                is_known = not each.is_for_master or name not in ATTEMPT_NAMES
            if not is_known and not (each.is_script and _is_of_script(name, each.text)):
                yield _unknown(task, each, name, responses)
        for name in dict.fromkeys(NAME_REFERENCE.findall(each.text) if each.is_named else ()):
            if declared is not None and name not in declared:
                yield _undeclared(task, each.key, f"!{{{name}}}", responses, fails=True)
        for form, fault in _faulty_forms(each.text):
            yield _warning(task, each.key, f"$[{form:.80}] {fault[0]}", fault[1])


def _unknown(task: str | None, text: _Text, name: str, responses: Mapping[str, str]) -> Finding:
    if name.startswith("system."):
        left_out = ATTEMPT_NAMES if text.is_for_master else ()
        known = ", ".join(each for each in (*SYSTEM_NAMES, *BUILT_IN_NAMES) if each not in left_out)
        consequence = "the task fails" if text.needs_values else "it stays as it is written"
        where = " in a task that a master decides" if name in BUILT_IN_NAMES else ""
        problem = f"${{{name}}} is not a parameter of the system{where}: {consequence}"
        return _warning(task, text.key, problem, f"there are {known}")
    return _undeclared(task, text.key, f"${{{name}}}", responses, fails=text.needs_values)


def _undeclared(
    task: str | None, key: str, shown: str, responses: Mapping[str, str], *, fails: bool
) -> Finding:
    consequence = ": the task fails" if fails else " and stays as it is written"
    name = shown[2:-1]
    cure = f"declare it, or give it to each run: --param {name}=…"
    if name in responses:
        cure = f"declare {name} in localParams of the task {responses[name]!r}, with direct OUT"
    return _warning(task, key, f"{shown} is declared nowhere{consequence}", cure)


def _is_of_script(name: str, script: str) -> bool:
    if name == name.upper() or _FOREIGN.search(script):
        return True
    own = re.escape(name)
    if re.search(rf"\b{own}(?:\[[^\]\n]*\])?\+?=", script):
        return True
    return re.search(_SETTING % own, script) is not None


def _faulty_forms(text: str) -> Iterator[tuple[str, tuple[str, str]]]:
    unread = unread_forms(text)
    for form in dict.fromkeys(_FORM.findall(text)):
        if not _LIKE_A_DATE.search(form):
            continue
        if form in unread:
            yield form, ("is no date and stays as it is written", "see docs/parameters.md")
        elif fault := _odd(form):
            yield form, fault


def _odd(form: str) -> tuple[str, str] | None:
    """Return the letters of a date that print something else than they seem to; None if none do."""
    bare = re.sub(r"'[^']*'", "", form)
    has_hours = re.search(r"[Hh]", bare) is not None
    if re.search(r"[+-]\s+\d[\d/]*\s*$", bare):
        return "prints the sign and the number, and no day is counted", "write no blanks around it"
    if re.search(r"\s[+-]\d[\d/]*\s*$", bare):
        return "prints a blank at its end", "write no blanks before the sign"
    if re.search(r"(?<!y)y{3}(?!y)|y{5,}", bare):
        return "has an odd number of letters for the year", "yyyy is the year, yy its last digits"
    if "YY" in bare:
        return "prints the year of the week, not of the day", "yyyy is the year of the day"
    if "yy" in bare and "MM" in bare and "DD" in bare:
        return "prints the day of the year", "dd is the day of the month"
    if "yy" in bare and "mm" in bare and "MM" not in bare and not has_hours:
        return "prints minutes in the place of the month", "MM is the month"
    return None


def _declared(document: Mapping[str, Any], inherited: Collection[str]) -> frozenset[str] | None:
    """Return every name that some task may have; None if that can't be known."""
    if has_children(document):
        return None
    return frozenset((*declared_names(document), *inherited))


def _warning(task: str | None, key: str, problem: str, cure: str) -> Finding:
    return Finding(severity=Severity.WARNING, node=task, key=key, problem=problem, cure=cure)
