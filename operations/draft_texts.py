"""The texts of drafts: JSON or YAML, read and linted, however wrong they are; and told in one line.

Nothing here asks a database.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from common.definition_diff import Difference
from common.definition_merge import is_mergeable
from common.errors import InvalidDefinitionError
from common.strict_json import MAX_BYTES, strict_json
from common.strict_yaml import strict_yaml, yaml_text
from operations.definition_files import InvalidFilesError, Mistake, Place
from operations.definition_versions import LEFT_OUT
from operations.errors import UsageError
from operations.findings import Finding, Severity
from operations.linting import read_content
from operations.secret_references import with_references

if TYPE_CHECKING:
    from operations.session import Session

PLACE: Final = Path("draft")
JSON_KEY: Final = "processDefinitionJson"
_MOST_NAMED: Final = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Looked:
    """A text as it was read: its document if it is one, and what is wrong with it."""

    document: dict[str, Any] | None
    mistakes: tuple[Mistake, ...]
    findings: tuple[Finding, ...]


def summary(found: Difference) -> str:
    """The parts that a difference is about, in one line."""
    told = [
        *(f"task {each!r} added" for each in found.added),
        *(f"task {each!r} removed" for each in found.removed),
        *(
            f"task {each.name!r} changed ({', '.join(one.key for one in each.changes[:3])})"
            for each in found.changed
        ),
        *(f"{each.key} changed" for each in found.settings),
    ]
    if not told and (found.edges_added or found.edges_removed):
        told = ["edges changed"]
    more = len(told) - _MOST_NAMED
    shown = ", ".join(told[:_MOST_NAMED])
    return f"{shown} and {more} more" if more > 0 else shown or "nothing that a document shows"


def versioned(document: Mapping[str, Any]) -> dict[str, Any]:
    """A document with the parts that versions have, and references in the place of secrets."""
    kept = {key: value for key, value in document.items() if key not in LEFT_OUT}
    return with_references({"executionType": "PARALLEL", **kept}).document


def look_at(session: Session, content: str, name: str | None) -> Looked:
    """Read a text and lint it as far as that needs no database; `name` is its definition's."""
    place = Place(file=PLACE, definition=name)
    try:
        document = parsed(content)
    except InvalidDefinitionError as error:
        found = tuple(Mistake(place=place, text=each) for each in error.mistakes)
        return Looked(document=None, mistakes=found, findings=())
    if not isinstance(document, dict) or not isinstance(document.get(JSON_KEY), dict):
        text = f"{JSON_KEY}: is no object; a draft has the form of `orcaflow definition export`"
        return Looked(document=None, mistakes=(Mistake(place=place, text=text),), findings=())
    mistakes: list[Mistake] = []
    if name is not None and document.setdefault("name", name) != name:
        text = f"name: it is {name!r}, and a draft does not change it"
        mistakes.append(Mistake(place=place, text=text))
    findings = [
        Finding(
            severity=Severity.WARNING,
            key=key,
            problem="it is no part of a draft, and is left out",
        )
        for key in LEFT_OUT
        if key in document
    ]
    try:
        (read,) = read_content(
            json.dumps(
                {key: each for key, each in document.items() if key not in LEFT_OUT}
            ).encode(),
            resources=session.config.data_dir / "resources",
        )
        findings.extend(read.findings)
    except InvalidFilesError as error:
        mistakes += [replace(each, place=replace(each.place, file=PLACE)) for each in error.found]
    return Looked(document=document, mistakes=tuple(mistakes), findings=tuple(findings))


def is_yaml(content: str) -> bool:
    """Return True for a text that is read as YAML: JSON begins with a bracket."""
    return not content.lstrip("\ufeff \t\r\n").startswith(("{", "["))


def parsed(content: str) -> Any:
    """The document of a text; `InvalidDefinitionError` if it is none."""
    return (strict_yaml if is_yaml(content) else strict_json)(content.encode())


def written(document: object, *, like: str) -> str:
    """Write a document in the form of a text."""
    if is_yaml(like) and like.strip():
        return yaml_text(document)
    return json.dumps(document, ensure_ascii=False, indent=2) + "\n"


def text_of(content: bytes) -> str:
    """The text of a body, which the database can hold; else `UsageError`."""
    if len(content) > MAX_BYTES:
        raise UsageError(None, f"a draft has at most {MAX_BYTES // 1_000_000} MB")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(None, f"byte {error.start} of the draft is not UTF-8") from None
    if "\0" in text:
        raise UsageError(None, "the draft holds a NUL, which no text of the database has")
    return text


def mergeable(content: str) -> dict[str, Any] | None:
    """The document of a text that can be merged task by task; None for any other."""
    try:
        document = parsed(content)
    except InvalidDefinitionError:
        return None
    return document if is_mergeable(document) else None


def named(parts: Sequence[str]) -> str:
    """Some of the parts of a definition, in one line."""
    return ", ".join(f"{each:.100}" for each in parts[:_MOST_NAMED])
