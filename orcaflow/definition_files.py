"""Process definitions as files: read strictly, with every mistake in every file found at once.

A file holds one JSON object, a list of them, or a bare 1.2 JSON that gets its name elsewhere. An
object has `name` and `processDefinitionJson` (an object, or text that holds one), and may have
`description`, `globalParams`, `timeout` (minutes) and `tenantId`; the names that the original's
exports use are understood too. What the JSON itself must be is known to `common.model.definitions`.

Scripts, jars and resources that a task names by a relative path are looked for beside the file, and
stored by their absolute path; a resource may also stand in the folder of resources, where workers
find it by its relative path. Nothing here talks to a database.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from common.errors import InvalidDefinitionError
from common.model.definitions import read_process_json
from common.params import ParameterError, parse_properties
from common.task_types import known_task_types

MAX_BYTES = 10_000_000
MAX_DEPTH = 100
MAX_NAME_LENGTH = 200

_NAME_KEYS = ("name", "processDefinitionName")
_DESCRIPTION_KEYS = ("description", "processDefinitionDescription")
_JSON_KEY = "processDefinitionJson"
_STRING_OR_BRACKET = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[{]|[\]}]', re.DOTALL)
_PLACEHOLDER = re.compile(r"\$[{\[]")
_REMOTE = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")


@dataclass(frozen=True, slots=True, kw_only=True)
class DefinitionDocument:
    """One definition that can be imported; `task_count` is for telling."""

    name: str
    description: str | None
    process_definition_json: str
    global_params: str | None
    timeout_minutes: int
    tenant_id: int
    task_count: int
    file: Path


def read_definition_files(
    paths: Sequence[Path], *, resources: Path, name: str | None = None
) -> list[DefinitionDocument]:
    """All definitions of the files, or `InvalidDefinitionError` with all mistakes of all files.

    `resources` is the folder that workers take resources from. `name` is for a file with a single
    definition, and goes before the name that stands in it.
    """
    found: list[DefinitionDocument] = []
    mistakes: list[str] = []
    for path in paths:
        try:
            found.extend(_read_file(path, name, resources))
        except InvalidDefinitionError as error:
            mistakes.extend(error.mistakes)
    first: dict[str, Path] = {}
    for document in found:
        if document.name in first:
            mistakes.append(
                f"{document.file}: {document.name!r} is defined twice"
                f" (also in {first[document.name]})"
            )
        first.setdefault(document.name, document.file)
    if mistakes:
        raise InvalidDefinitionError(tuple(mistakes))
    return found


def _read_file(path: Path, name: str | None, resources: Path) -> list[DefinitionDocument]:
    document = strict_json(_content(path), place=str(path))
    entries = document if isinstance(document, list) else [document]
    if not entries:
        _refuse(f"{path}: the list is empty")
    if name is not None and len(entries) > 1:
        _refuse(f"{path}: holds {len(entries)} definitions, so one name can't be given to it")
    found: list[DefinitionDocument] = []
    mistakes: list[str] = []
    for index, entry in enumerate(entries):
        place = f"{path}: [{index}]" if isinstance(document, list) else f"{path}"
        try:
            found.append(_read_entry(entry, name, place, path, resources))
        except InvalidDefinitionError as error:
            mistakes.extend(error.mistakes)
    if mistakes:
        raise InvalidDefinitionError(tuple(mistakes))
    return found


def _content(path: Path) -> bytes:
    try:
        if path.is_dir():
            _refuse(f"{path}: is a folder, not a file")
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        _refuse(f"{path}: can't be read: {reason}")
    if len(content) > MAX_BYTES:
        _refuse(f"{path}: is larger than {MAX_BYTES // 1_000_000} MB")
    return content


def strict_json(content: bytes, *, place: str) -> Any:
    """The document, refusing what JSON readers silently bend: repeated keys, NaN, deep nesting."""
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        _refuse(f"{place}: line {line}: byte {error.start} is not UTF-8")
    _check_depth(content, place)
    mistakes: list[str] = []

    def of_pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        made = dict(pairs)
        if len(made) < len(pairs):
            seen: set[str] = set()
            for key, _ in pairs:
                if key in seen:
                    near = made.get("name")
                    where = f" (in the object named {near!r:.80})" if isinstance(near, str) else ""
                    mistakes.append(f"{place}: the key {key!r:.80} stands twice{where}")
                seen.add(key)
        return made

    def constant(word: str) -> None:
        mistakes.append(f"{place}: {word} is not JSON")

    try:
        document = json.loads(text, object_pairs_hook=of_pairs, parse_constant=constant)
    except json.JSONDecodeError as error:
        _refuse(f"{place}: line {error.lineno} column {error.colno}: not JSON: {error.msg}")
    except ValueError as error:
        # A whole number of thousands of digits is refused by Python itself.
        _refuse(f"{place}: {error}")
    for where, bad in _unstorable(document, ""):
        mistakes.append(f"{place}: {where}: {bad}")
    if mistakes:
        raise InvalidDefinitionError(tuple(mistakes))
    return document


def _check_depth(content: bytes, place: str) -> None:
    """Before parsing, since the parser itself recurses."""
    depth = 0
    for token in _STRING_OR_BRACKET.finditer(content):
        sign = token.group()
        if sign in (b"[", b"{"):
            depth += 1
            if depth > MAX_DEPTH:
                line = content.count(b"\n", 0, token.start()) + 1
                _refuse(f"{place}: line {line}: nested more than {MAX_DEPTH} levels deep")
        elif sign in (b"]", b"}"):
            depth -= 1


def _unstorable(value: object, where: str) -> Iterator[tuple[str, str]]:
    """Texts that PostgreSQL or a process can't be given, and where they stand."""
    if isinstance(value, str):
        if "\0" in value:
            yield where or "the text", "has a NUL character"
        elif any("\ud800" <= character <= "\udfff" for character in value):
            yield where or "the text", "has half of a surrogate pair, which is no character"
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _unstorable(item, f"{where}[{index}]")
    elif isinstance(value, dict):
        for key, item in value.items():
            inner = f"{where}.{key!s:.80}" if where else f"{key!s:.80}"
            yield from _unstorable(key, f"the key {key!r:.80}")
            yield from _unstorable(item, inner)


def _read_entry(
    entry: object, name: str | None, place: str, path: Path, resources: Path
) -> DefinitionDocument:
    if not isinstance(entry, dict):
        _refuse(f"{place}: a definition must be an object")
    # A bare 1.2 JSON is what others carry in `processDefinitionJson`.
    is_bare = "tasks" in entry and _JSON_KEY not in entry
    of_bare = {key: entry.get(key) for key in (*_NAME_KEYS, *_DESCRIPTION_KEYS)}
    wrapped = {**of_bare, _JSON_KEY: entry} if is_bare else entry
    mistakes: list[str] = []
    name = name if name is not None else _first(wrapped, _NAME_KEYS)
    place = f"{place}: {name!r:.80}" if isinstance(name, str) and name else place
    if fault := _fault_of_name(name):
        mistakes.append(f"{place}: name: {fault}")
    description = _first(wrapped, _DESCRIPTION_KEYS)
    if description is not None and not isinstance(description, str):
        mistakes.append(f"{place}: description: must be text")
    inner = wrapped.get(_JSON_KEY)
    if isinstance(inner, str):
        try:
            inner = strict_json(inner.encode(), place=f"{place}: {_JSON_KEY}")
        except InvalidDefinitionError as error:
            mistakes.extend(error.mistakes)
            raise InvalidDefinitionError(tuple(mistakes)) from error
    if not isinstance(inner, dict):
        mistakes.append(
            f"{place}: {_JSON_KEY}: must be an object with the key 'tasks'"
            if _JSON_KEY in wrapped
            else f"{place}: neither {_JSON_KEY} nor tasks is there, so nothing is defined"
        )
        raise InvalidDefinitionError(tuple(mistakes))
    mistakes.extend(
        f"{place}: {mistake}" for mistake in _with_absolute_files(inner, path.parent, resources)
    )
    text = json.dumps(inner, ensure_ascii=False)
    global_params = None
    task_count = 0
    try:
        graph = read_process_json(text, task_types=known_task_types())
        global_params = None if graph.global_params == "[]" else graph.global_params
        task_count = len(graph.nodes)
    except InvalidDefinitionError as error:
        mistakes.extend(f"{place}: {mistake}" for mistake in error.mistakes)
    mistakes.extend(f"{place}: {mistake}" for mistake in _parameter_mistakes(inner))
    own = wrapped.get("globalParams")
    if own:
        try:
            parse_properties(own)
            global_params = own if isinstance(own, str) else json.dumps(own, ensure_ascii=False)
        except ParameterError as error:
            mistakes.append(f"{place}: globalParams: {error}")
    timeout = _number(wrapped, "timeout", place, mistakes, default=0, lowest=0)
    tenant = _number(wrapped, "tenantId", place, mistakes, default=-1, lowest=-1)
    if mistakes or not isinstance(name, str):
        raise InvalidDefinitionError(tuple(mistakes))
    return DefinitionDocument(
        name=name,
        description=description,
        process_definition_json=text,
        global_params=global_params,
        timeout_minutes=timeout,
        tenant_id=tenant,
        task_count=task_count,
        file=path,
    )


def _fault_of_name(name: object) -> str | None:
    if name is None:
        return "is missing; write it into the file, or give it with --name"
    if not isinstance(name, str):
        return "must be text"
    if not name.strip():
        return "is empty"
    if name != name.strip():
        return "begins or ends with white space"
    if len(name) > MAX_NAME_LENGTH:
        return f"has {len(name)} characters; at most {MAX_NAME_LENGTH} are allowed"
    if not name.isprintable():
        return "has a control character"
    return None


def _number(
    entry: Mapping[str, Any],
    key: str,
    place: str,
    mistakes: list[str],
    *,
    default: int,
    lowest: int,
) -> int:
    value = entry.get(key)
    if value is None or value == "":
        return default
    try:
        number = int(str(value).strip()[:20])
    except ValueError:
        number = lowest - 1
    if not lowest <= number <= 10_000_000:
        mistakes.append(f"{place}: {key}: must be a whole number from {lowest}, not {value!r:.60}")
        return default
    return number


def _parameter_mistakes(document: Mapping[str, Any]) -> Iterator[str]:
    """Mistakes in declared parameters, which the master or a worker would only find later."""
    try:
        parse_properties(document.get("globalParams") or None)
    except ParameterError as error:
        # A list that is none, or an item without a name, has been found by the reader already.
        if isinstance(document.get("globalParams"), list):
            yield f"globalParams: {error}"
    for node in _nodes(document):
        params = node.get("params")
        if isinstance(params, dict):
            try:
                parse_properties(params.get("localParams") or None)
            except ParameterError as error:
                yield f"task {_name_of(node)}, params.localParams: {error}"


def _with_absolute_files(
    document: Mapping[str, Any], folder: Path, resources: Path
) -> Iterator[str]:
    """Make the files that tasks name absolute, in place; yields a mistake for each missing one."""
    for node in _nodes(document):
        params = node.get("params")
        if isinstance(params, str) and params.strip():
            try:
                params = json.loads(params)
            except (ValueError, RecursionError):
                continue  # The reader of the definition says so.
            node["params"] = params
        if not isinstance(params, dict):
            continue
        place = f"task {_name_of(node)}, params"
        kind = str(node.get("type", "")).upper()
        if kind in ("PYTHON", "PYSPARK"):
            yield from _absolute(params, "file", f"{place}.file", folder, None)
        if kind == "SPARK":
            yield from _resource(params, "mainJar", f"{place}.mainJar", folder, resources)
        listed = params.get("resourceList")
        for index, entry in enumerate(listed if isinstance(listed, list) else ()):
            where = f"{place}.resourceList[{index}]"
            if isinstance(entry, dict):
                yield from _resource({"": entry}, "", where, folder, resources)


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
    # hdfs:, s3a: and their kin are Spark's own to fetch; what begins with a parameter may be one.
    if _REMOTE.match(name) or name.startswith("$"):
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


def _nodes(document: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    tasks = document.get("tasks")
    for node in tasks if isinstance(tasks, list) else ():
        if isinstance(node, dict):
            yield node


def _name_of(node: Mapping[str, Any]) -> str:
    return f"{str(node.get('name', ''))[:80]!r}"


def _first(entry: Mapping[str, Any], keys: Sequence[str]) -> Any:
    return next((entry[key] for key in keys if entry.get(key) is not None), None)


def _refuse(mistake: str) -> NoReturn:
    raise InvalidDefinitionError((mistake,))
