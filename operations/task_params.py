"""Judges the `params` of a definition's tasks by the specifications of their types.

Makes the files that they name absolute, and finds the values that every attempt would fail by, each
with its place. Missing keys are not mistakes but warnings (`operations.lint_warnings`), since a
task may be written before it is finished. Nothing here talks to a database.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from common.model.spark_paths import scheme_of
from common.model.task_type import Key, Shape, TaskKind, TaskTypeSpec, is_open
from common.spark_config import CLASSIC
from common.task_types import task_type_spec
from operations.definition_document import name_of, nodes_of, type_of

_PROFILE: Final = "profile"
_PLACEHOLDER = re.compile(r"\$[{\[]")


def value_mistakes(
    document: Mapping[str, Any], *, known: Sequence[str], profiles: Collection[str] | None = None
) -> Iterator[str]:
    """Yield the mistakes in the values of tasks. A place in `known` is not reported again.

    `profiles` are the Spark profiles of the settings here; None if they are not known.
    """
    for node in nodes_of(document):
        params, spec = node.get("params"), spec_of(node)
        if not isinstance(params, dict) or spec.kind is TaskKind.CONTROL:
            continue
        for fault in spec.faults_in(params):
            place = f"task {_shown(node)}, params.{fault.key}"
            if not fault.is_missing and not any(each.startswith(place) for each in known):
                yield f"{place}: {fault.problem}"
        if profiles is not None and spec.kind is TaskKind.SESSION:
            yield from _unknown_profile(f"task {_shown(node)}", params.get(_PROFILE), profiles)


def _unknown_profile(task: str, value: object, profiles: Collection[str]) -> Iterator[str]:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    name = str(value).strip() if is_number or isinstance(value, str) else ""
    if name and name not in (*profiles, CLASSIC) and not is_open(name):
        known, shown = ", ".join([*sorted(profiles), CLASSIC]), name[:40]
        yield (
            f"{task}, params.{_PROFILE}: there is no Spark profile {shown!r} in worker.toml (it has"
            f" {known}); add [spark.profiles.{shown}], here and on the workers"
        )


def spec_of(node: Mapping[str, Any]) -> TaskTypeSpec:
    """Return the specification of a node's type; a bare one if the type is unknown."""
    return task_type_spec(type_of(node))


def make_files_absolute(
    document: Mapping[str, Any], folder: Path, resources: Path
) -> Iterator[str]:
    """Make the files that tasks name absolute, in place; yield a mistake for each missing one."""
    for node in nodes_of(document):
        params = node.get("params")
        if isinstance(params, str) and params.strip():
            try:
                params = json.loads(params)
            except (ValueError, RecursionError):
                continue  # The reader of the definition says so.
            node["params"] = params
        if isinstance(params, dict):
            place = f"task {_shown(node)}, params"
            for key in spec_of(node).files():
                yield from _absolute_key(params, key, f"{place}.{key.name}", folder, resources)


def _absolute_key(
    params: dict[str, Any], key: Key, where: str, folder: Path, resources: Path
) -> Iterator[str]:
    if key.shape is Shape.RESOURCES:
        listed = params.get(key.name)
        for index, entry in enumerate(listed if isinstance(listed, list) else ()):
            if isinstance(entry, dict):
                yield from _resource({"": entry}, "", f"{where}[{index}]", folder, resources)
    elif key.shape is Shape.RESOURCE:
        yield from _resource(params, key.name, where, folder, resources)
    else:
        in_resources = resources if key.is_in_resources else None
        yield from _absolute(params, key.name, where, folder, in_resources)


def _resource(
    holder: dict[str, Any], key: str, where: str, folder: Path, resources: Path
) -> Iterator[str]:
    """A resource is given as text, or as an object that has the text in one of two keys."""
    entry = holder.get(key)
    if isinstance(entry, dict):
        inner = next((name for name in ("res", "resourceName") if entry.get(name)), None)
        if inner is not None:
            yield from _absolute(entry, inner, f"{where}.{inner}", folder, resources)
    else:
        yield from _absolute(holder, key, where, folder, resources)


def _absolute(
    holder: dict[str, Any], key: str, where: str, folder: Path, resources: Path | None
) -> Iterator[str]:
    name = holder.get(key)
    if name is None or name == "":
        return  # Whether that will do is for the task type to say.
    if not isinstance(name, str):
        yield f"{where}: must be text"
        return
    # Spark reads hdfs:, s3a: and other URIs itself, and a parameter may hold one.
    if scheme_of(name) or name.startswith("$"):
        return
    path = (folder / name).absolute()
    if _PLACEHOLDER.search(name):
        holder[key] = str(path)
        return
    # On a long or odd name the operating system itself refuses to look.
    try:
        if path.is_file():
            holder[key] = str(path)
        elif path.is_dir():
            yield f"{where}: {name!r:.200} is a folder, not a file"
        elif resources is None or not (resources / name).is_file():
            yield f"{where}: there is no file {name!r:.200} ({str(path)!s:.300})"
    except OSError as error:
        yield f"{where}: {name!r:.200}: {error.strerror}"


def _shown(node: Mapping[str, Any]) -> str:
    return f"{name_of(node)[:80]!r}"
