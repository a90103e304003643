"""Judges the `params` of a definition's tasks by the specifications of their types.

Finds the values that every attempt would fail by, each with its place. Missing keys are not
mistakes but warnings (`operations.lint_warnings`), since a task may be written before it is
finished. Nothing here talks to a database.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final

from common.model.task_type import TaskKind, TaskTypeSpec, is_open
from common.params import ParameterError, parse_properties
from common.params.values import ParameterValueError, check_given
from common.spark_config import WITHOUT_A_TABLE
from common.task_types import task_type_spec
from operations.definition_document import (
    declared_names,
    has_children,
    name_of,
    nodes_of,
    objects_of,
    type_of,
)

_PROFILE: Final = "profile"


def value_mistakes(
    document: Mapping[str, Any], *, known: Sequence[str], profiles: Collection[str] | None = None
) -> Iterator[str]:
    """Yield the mistakes in the values of tasks. A place in `known` is not reported again.

    `profiles` are the Spark profiles of the settings here; None if they are not known.
    """
    names = frozenset(declared_names(document))
    is_open_ended = has_children(document)

    def is_parameter(name: str) -> bool:
        return is_open_ended or name in names

    for node in nodes_of(document):
        params, spec = node.get("params"), spec_of(node)
        if not isinstance(params, dict) or spec.kind is TaskKind.CONTROL:
            continue
        for fault in spec.faults_in(params, is_parameter):
            place = f"task {_shown(node)}, params.{fault.key}"
            if not fault.is_missing and not any(each.startswith(place) for each in known):
                yield f"{place}: {fault.problem}"
        if profiles is not None and spec.kind is TaskKind.SESSION:
            yield from _unknown_profile(f"task {_shown(node)}", params.get(_PROFILE), profiles)


def _unknown_profile(task: str, value: object, profiles: Collection[str]) -> Iterator[str]:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    name = str(value).strip() if is_number or isinstance(value, str) else ""
    if name and name not in (*profiles, *WITHOUT_A_TABLE) and not is_open(name):
        known, shown = ", ".join([*sorted(profiles), *WITHOUT_A_TABLE]), name[:40]
        yield (
            f"{task}, params.{_PROFILE}: there is no Spark profile {shown!r} in worker.toml (it has"
            f" {known}); add [spark.profiles.{shown}], here and on the workers"
        )


def parameter_mistakes(document: Mapping[str, Any]) -> Iterator[str]:
    """Yield mistakes in declared parameters, which the master or a worker would only find later."""
    given = document.get("globalParams")
    try:
        parse_properties(given or None)
    except ParameterError as error:
        # The reader of the definition reports anything but a list, also within a text.
        if isinstance(given, list) or list(objects_of(given)):
            yield f"globalParams: {error}"
    for node in nodes_of(document):
        params = node.get("params")
        if isinstance(params, dict):
            try:
                parse_properties(params.get("localParams") or None)
            except ParameterError as error:
                yield f"task {_shown(node)}, params.localParams: {error}"


def type_faults(document: Mapping[str, Any]) -> Iterator[str]:
    """Yield a text for each declared value that is not of its declared type."""
    for place, declared in _declarations(document):
        try:
            properties = parse_properties(declared or None)
        except ParameterError:
            continue  # Reported by `parameter_mistakes`.
        for each in properties:
            try:
                check_given({each.prop: each.value}, {each.prop: each.type})
            except ParameterValueError as error:
                yield f"{place}: {error}"


def _declarations(document: Mapping[str, Any]) -> Iterator[tuple[str, object]]:
    yield "globalParams", document.get("globalParams")
    for node in nodes_of(document):
        params = node.get("params")
        if isinstance(params, dict):
            yield f"task {_shown(node)}, params.localParams", params.get("localParams")


def spec_of(node: Mapping[str, Any]) -> TaskTypeSpec:
    """Return the specification of a node's type; an empty one if the type is unknown."""
    return task_type_spec(type_of(node))


def _shown(node: Mapping[str, Any]) -> str:
    return f"{name_of(node)[:80]!r}"
