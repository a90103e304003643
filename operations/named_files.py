"""Finds the files that a definition's tasks name, and ties their content to the definition.

A script can be *inlined*: its text becomes `fileText`, a part of the definition. For every other
file that exists, `digests` holds its SHA-256, which a worker checks before it uses the file. So a
version, a difference and a review cover the content that runs.

Files are read only by commands on the author's computer: import, propose, lint and convert. For a
definition in a request no file is read, so that answers do not depend on the files of the server.
Reads no database.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from common.model.spark_paths import scheme_of
from common.model.task_type import DIGESTS, FILE_TEXT, Key, Shape
from operations.definition_document import name_of, nodes_of
from operations.task_params import spec_of

LARGEST_INLINE: Final = 1_000_000
_PLACEHOLDER: Final = re.compile(r"\$[{\[]")
_SHIPPED: Final = ("files", "pyFiles", "jars", "archives")
"""The keys of Spark tasks for files to ship: a list of names, or a text with commas."""
_FILE: Final = "file"


@dataclass(frozen=True, slots=True, kw_only=True)
class FileRules:
    """The rules for the files of a definition's tasks.

    `folder` holds the definition's file; None means that no file is read. `inlines` copies scripts
    into the definition.
    """

    folder: Path | None
    resources: Path
    inlines: bool = False


@dataclass(slots=True, kw_only=True)
class _Task:
    """A task with the rules for its files; `digests` collects the SHA-256 of each file."""

    params: dict[str, Any]
    place: str
    rules: FileRules
    digests: dict[str, str] = field(default_factory=dict)


def tie_files(document: Mapping[str, Any], rules: FileRules) -> Iterator[str]:
    """Make the paths of tasks' files absolute and add their content or digests, in place.

    Yields a mistake for each path that is wrong, such as a missing file.
    """
    for node in nodes_of(document):
        params = node.get("params")
        if isinstance(params, str) and params.strip():
            try:
                params = json.loads(params)
            except (ValueError, RecursionError):
                continue  # The reader of the definition reports it.
            node["params"] = params
        if not isinstance(params, dict):
            continue
        task = _Task(params=params, place=f"task {name_of(node)[:80]!r}, params", rules=rules)
        for key in spec_of(node).files():
            yield from _of_key(task, key, f"{task.place}.{key.name}")
        if rules.folder is not None:
            for name in _SHIPPED:
                _digest_shipped(task, params.get(name))
            params.pop(DIGESTS.name, None)
            if task.digests:
                params[DIGESTS.name] = task.digests


def _of_key(task: _Task, key: Key, where: str) -> Iterator[str]:
    if key.name == _FILE and isinstance(task.params.get(FILE_TEXT.name), str):
        return  # The definition holds the text, so the name is not a path.
    if key.shape is Shape.RESOURCES:
        listed = task.params.get(key.name)
        for index, entry in enumerate(listed if isinstance(listed, list) else ()):
            if isinstance(entry, dict):
                yield from _resource(task, {"": entry}, "", f"{where}[{index}]")
    elif key.shape is Shape.RESOURCE:
        yield from _resource(task, task.params, key.name, where)
    else:
        yield from _named(task, task.params, key.name, where, is_in_resources=key.is_in_resources)


def _resource(task: _Task, holder: dict[str, Any], key: str, where: str) -> Iterator[str]:
    """Check a resource: a text, or an object with the text under one of two keys."""
    entry = holder.get(key)
    if isinstance(entry, dict):
        inner = next((name for name in ("res", "resourceName") if entry.get(name)), None)
        if inner is not None:
            yield from _named(task, entry, inner, f"{where}.{inner}", is_in_resources=True)
    else:
        yield from _named(task, holder, key, where, is_in_resources=True)


def _named(
    task: _Task, holder: dict[str, Any], key: str, where: str, *, is_in_resources: bool
) -> Iterator[str]:
    name = holder.get(key)
    if name is None or name == "":
        return  # The task type decides if a value is required.
    if not isinstance(name, str):
        yield f"{where}: must be text"
        return
    # Spark reads hdfs:, s3a: and other URIs itself, and a parameter may hold one.
    if scheme_of(name) or name.startswith("$"):
        return
    folder = task.rules.folder
    if folder is None:
        if not is_in_resources and not name.startswith("/"):
            yield (
                f"{where}: {name!r:.200} is a relative path, and the definition is in no folder"
                " here; send the text of the file (`orcaflow definition import` does), or name"
                " the file by its absolute path on the workers"
            )
        return
    path = (folder / name).absolute()
    if _PLACEHOLDER.search(name):
        holder[key] = str(path)
        return
    # The operating system raises `OSError` for names that are too long or invalid.
    try:
        if path.is_file():
            yield from _found(task, holder, key, where, path)
        elif path.is_dir():
            yield f"{where}: {name!r:.200} is a folder, not a file"
        elif is_in_resources and (task.rules.resources / name).is_file():
            task.digests[name] = digest_of(task.rules.resources / name)
        else:
            yield f"{where}: there is no file {name!r:.200} ({str(path)!s:.300})"
    except OSError as error:
        yield f"{where}: {name!r:.200}: {error.strerror}"


def _found(task: _Task, holder: dict[str, Any], key: str, where: str, path: Path) -> Iterator[str]:
    if key == _FILE and task.rules.inlines:
        content = path.read_bytes()
        try:
            if len(content) > LARGEST_INLINE:
                yield (
                    f"{where}: {path.name!r:.200} has more than {LARGEST_INLINE:,} bytes and is not"
                    " inlined; give --no-inline, or put it on the workers"
                )
                return
            task.params[FILE_TEXT.name] = content.decode()
            holder[key] = path.name
        except UnicodeDecodeError:
            yield f"{where}: {path.name!r:.200} is not text in UTF-8, and can't be inlined"
        return
    holder[key] = str(path)
    task.digests[str(path)] = digest_of(path)


def _digest_shipped(task: _Task, value: object) -> None:
    entries = value.split(",") if isinstance(value, str) else value
    for entry in entries if isinstance(entries, list) else ():
        if not isinstance(entry, str) or scheme_of(entry) or _PLACEHOLDER.search(entry):
            continue
        name = entry.partition("#")[0].strip()
        try:
            path = task.rules.resources / name
            if name and path.is_file():
                task.digests[name] = digest_of(path)
        except (OSError, ValueError):
            continue  # The worker reports the fault at launch.


def digest_of(path: Path) -> str:
    """Return the SHA-256 of a file in hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
