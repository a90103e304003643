"""Secrets of a definition outside of its database: references stand for them in exports.

A reference is `$ENV{ORCAFLOW_SECRET_DB_PASSWORD}`, in the place of a value whose name sounds
secret, be it of a task, of the definition or among the start-up parameters of a schedule, or of a
password within a URL. An import puts the secret back: from the environment or, if that has none,
from the definition that is there already, of which the references are worked out once more. One
that is found in neither is a mistake, so that nothing is lost unsaid. Nothing here reads the
environment or a database.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, TypeAlias

from common.masking import (
    OPTION_KEYS,
    is_open,
    mask_setting,
    mask_text,
    replace_secrets,
)

_PREFIX: Final = "ORCAFLOW_SECRET_"
_REFERENCE = re.compile(rf"\$ENV\{{({_PREFIX}\w+)\}}")
_VARIABLE = re.compile(r"\$\w+")
"""A shell variable, which is not a secret within a command line. A whole value may be one."""
_MASKED = re.compile(r"\*+")
_HOLE = "\0"
_SCHEDULES = "schedules"

_Found: TypeAlias = tuple[str, str, object]
"""The task, "schedules" or "", the name, and the value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Referenced:
    """A document with references, and the values that they stand for, by the variable's name."""

    document: dict[str, Any]
    values: Mapping[str, object]


def with_references(document: Mapping[str, Any]) -> Referenced:
    """Put references for the secrets of a definition's document.

    Their names follow from those of parameters and keys, and from the task's where one name has
    several values; so they stay the same while the definition changes elsewhere.
    """
    found: list[_Found] = []

    def collect(task: str, name: str, value: object) -> object:
        if not is_mask(value):
            found.append((task, name, value))
        return value

    unchanged = _mapped(document, collect)
    if not found:
        return Referenced(document=unchanged, values={})
    names = _names(found)
    values: dict[str, object] = {}

    def refer(task: str, name: str, value: object) -> object:
        if is_mask(value):
            return value
        variable = names[task, name, str(value)]
        values[variable] = value
        return f"$ENV{{{variable}}}"

    return Referenced(document=_mapped(document, refer), values=values)


def references_in(document: Mapping[str, Any]) -> tuple[str, ...]:
    """The names of the variables that a document refers to."""
    return tuple(sorted(set(_REFERENCE.findall(json.dumps(document)))))


def without_references(value: Any, secrets: Mapping[str, object], missing: set[str]) -> Any:
    """Put secrets for the references in a JSON value; collect those that have no value."""
    match value:
        case str():
            return _resolved(value, secrets, missing)
        case list():
            return [without_references(item, secrets, missing) for item in value]
        case dict():
            return {key: without_references(item, secrets, missing) for key, item in value.items()}
        case _:
            return value


def without_masks(
    document: Mapping[str, Any], former: Mapping[str, Any], missing: set[str]
) -> dict[str, Any]:
    """Replace each mask by the former secret of the same place; collect the places without one.

    A place is a task, or the definition, with the name of a parameter or key. A place with several
    secrets matches them by order, if their number is unchanged or all are equal. A task with a new
    name matches the secrets of that parameter or key in the tasks that are gone.
    """
    known: dict[tuple[str, str], list[object]] = {}
    places: dict[tuple[str, str], int] = {}

    def collect(task: str, name: str, value: object) -> object:
        known.setdefault((task, name), []).append(value)
        return value

    def count(task: str, name: str, value: object) -> object:
        places[task, name] = places.get((task, name), 0) + 1
        return value

    _mapped(former, collect)
    _mapped(document, count)
    passed: dict[tuple[str, str], int] = {}
    tasks = {task for task, _ in places} | _task_names(document)

    gone: dict[str, list[object]] = {}
    for (task, name), values in known.items():
        if task not in tasks:
            gone.setdefault(name, []).extend(values)

    @cache  # Once for each place: a document may have thousands of secrets of one name.
    def former_of(task: str | None, name: str) -> tuple[list[object], bool]:
        """Return the former secrets of a place, or of all tasks that are gone; True if equal."""
        found = gone.get(name, []) if task is None else known[task, name]
        return found, len({str(each) for each in found}) == 1

    def restore(task: str, name: str, value: object) -> object:
        at = passed[task, name] = passed.get((task, name), 0) + 1
        if not is_mask(value):
            return value
        found, is_one = former_of(task if (task, name) in known else None, name)
        if len(found) == places[task, name]:
            return found[at - 1]
        if is_one:
            return found[0]
        missing.add(f"{task}: {name}" if task else name)
        return value

    return _mapped(document, restore)


def _task_names(document: Mapping[str, Any]) -> set[str]:
    inner = document.get("processDefinitionJson")
    nodes = inner.get("tasks") if isinstance(inner, dict) else None
    return {"", _SCHEDULES, *(map(_name_of, nodes) if isinstance(nodes, list) else ())}


def is_mask(value: object) -> bool:
    """Return True for the mask that documents show in place of a secret."""
    return isinstance(value, str) and _MASKED.fullmatch(value) is not None


def _resolved(text: str, secrets: Mapping[str, object], missing: set[str]) -> object:
    if _PREFIX not in text:
        return text
    whole = _REFERENCE.fullmatch(text)
    if whole is not None and whole[1] in secrets:
        return secrets[whole[1]]
    try:
        inner = json.loads(text)
    except (ValueError, RecursionError):
        inner = None
    if isinstance(inner, dict | list):
        # Else a quotation mark in a secret would end the text.
        return json.dumps(without_references(inner, secrets, missing), ensure_ascii=False)

    def put(reference: re.Match[str]) -> str:
        if reference[1] not in secrets:
            missing.add(reference[1])
            return reference[0]
        return str(secrets[reference[1]])

    return _REFERENCE.sub(put, text)


def _mapped(
    document: Mapping[str, Any], replace: Callable[[str, str, object], object]
) -> dict[str, Any]:
    """Replace each secret of a document, told the task that it stands in."""

    def at(task: str) -> Callable[[str, object], object]:
        def visit(name: str, value: object) -> object:
            if not isinstance(value, str):
                return replace(task, name, value)
            if not value or is_open(value) or _REFERENCE.search(value):
                return value
            return replace(task, name, value)

        return visit

    def texts(task: str) -> Callable[[str, str], str]:
        def visit(name: str, text: str) -> str:
            mask = mask_setting if name in OPTION_KEYS else mask_text
            masked = mask(text, mask=_HOLE)
            visit = at(task)

            def within(part: str, value: object) -> object:
                return value if _VARIABLE.fullmatch(str(value)) else visit(part, value)

            return text if masked == text else _refilled(name, text, masked, within)

        return visit

    def walked(value: Any, task: str) -> Any:
        return replace_secrets(value, at(task), texts(task))

    result = dict(document)
    inner = result.get("processDefinitionJson")
    for key, value in document.items():
        if key not in ("processDefinitionJson", _SCHEDULES):
            result[key] = walked({key: value}, "")[key]
    if _SCHEDULES in result:
        result[_SCHEDULES] = walked(result[_SCHEDULES], _SCHEDULES)
    if isinstance(inner, dict):
        result["processDefinitionJson"] = {
            key: [walked(node, _name_of(node)) for node in each]
            if key == "tasks" and isinstance(each, list)
            else walked({key: each}, "")[key]
            for key, each in inner.items()
        }
    elif inner is not None:
        result["processDefinitionJson"] = walked(inner, "")
    return result


def _name_of(node: object) -> str:
    return str(node.get("name", "")) if isinstance(node, dict) else ""


def _refilled(name: str, text: str, masked: str, replace: Callable[[str, object], object]) -> str:
    """Put replacements into the holes that masking has left in a text."""
    parts = masked.split(_HOLE)
    if _HOLE in text or not text.startswith(parts[0]):
        return str(replace(name, text))
    done, at = [parts[0]], len(parts[0])
    for index, part in enumerate(parts[1:], start=1):
        # The last part is the text's end; each other one is the next of its kind.
        is_last = index == len(parts) - 1
        end = len(text) - len(part) if is_last else text.find(part, at + 1) if part else at + 1
        if end < at:
            return str(replace(name, text))
        done += [str(replace(f"{name}_password", text[at:end])), part]
        at = end + len(part)
    return "".join(done)


def _names(found: list[_Found]) -> dict[tuple[str, str, str], str]:
    """Name a variable for each secret: by its name, unless that means several values."""
    values: dict[str, set[str]] = {}
    numbers: dict[tuple[str, str], dict[str, int]] = {}
    for task, name, value in found:
        word, text = _word(name), str(value)
        values.setdefault(word, set()).add(text)
        of_task = numbers.setdefault((task, word), {})
        of_task.setdefault(text, len(of_task) + 1)
    names: dict[tuple[str, str, str], str] = {}
    for task, name, value in found:
        word, text = _word(name), str(value)
        variable = _PREFIX + word
        if len(values[word]) > 1:
            # Only numbered where one task has several: their order is that of the task.
            of_task = numbers[task, word]
            number = f"_{of_task[text]}" if len(of_task) > 1 else ""
            variable = f"{_PREFIX}{_word(task) or 'GLOBAL'}_{word}{number}"
        names[task, name, text] = variable
    return names


def _word(text: str) -> str:
    # Never two underscores: such variables are settings of Orcaflow's.
    return re.sub(r"[\W_]+", "_", text, flags=re.ASCII).strip("_").upper()
