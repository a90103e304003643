"""A call as a route is given it: who asks, in which dialect, and the parameters, read strictly.

Parameters stand in the query, in a form or in a JSON object, as DolphinScheduler takes them. Names
that nobody reads are passed over, as there: every release has others.
"""

from __future__ import annotations

import email.parser
import email.policy
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import IntEnum
from functools import cached_property
from typing import Any, Final, TypeVar
from urllib.parse import parse_qsl
from zoneinfo import ZoneInfo

from api.dolphinscheduler.dialects import Dialect
from common.config import cluster_zone
from common.store.people.projects import ProjectName
from common.strict_json import strict_json
from operations.errors import UsageError
from operations.projects import named_project
from operations.session import Session
from operations.times import read_moment

_MOST_FIELDS: Final = 1000
_MOST_BORDERS: Final = 3 * _MOST_FIELDS
_LARGEST_NUMBER: Final = 2**63 - 1
_FORM: Final = "application/x-www-form-urlencoded"
_JSON: Final = "application/json"
_FILE: Final = "multipart/form-data"
_Member = TypeVar("_Member", bound=IntEnum)


@dataclass(frozen=True, kw_only=True)
class Call:
    """One call. `path` are the parts of the path, `address` is where it comes from."""

    session: Session
    dialect: Dialect
    path: Mapping[str, str]
    parameters: Mapping[str, str]
    address: str | None = None
    session_text: str | None = field(default=None, repr=False)
    is_encrypted: bool = False
    files: Mapping[str, bytes] = field(default_factory=dict)

    @cached_property
    def zone(self) -> ZoneInfo:
        """The zone of times in parameters and answers."""
        return cluster_zone(self.session.config)

    @cached_property
    def project(self) -> ProjectName:
        """The project of the path, which the caller may see."""
        given = self.path.get("project") or self.needed("projectName")
        if self.dialect.is_classic:
            return named_project(self.session, name=given)
        return named_project(self.session, code=_whole(given) or 0)

    def text(self, *names: str) -> str | None:
        """Return the first of these parameters that is there and not empty."""
        for name in names:
            found = self.path.get(name) or self.parameters.get(name)
            if found:
                return found
        return None

    def needed(self, *names: str) -> str:
        """Return the first of these parameters; `UsageError` without any."""
        found = self.text(*names)
        if found is None:
            raise UsageError(names[0], "is missing")
        return found

    def number(self, *names: str, default: int | None = None) -> int | None:
        """Return the first of these parameters as a whole number."""
        given = self.text(*names)
        if given is None:
            return default
        found = _whole(given)
        if found is None:
            raise UsageError(names[0], f"{given!r:.60} is no whole number")
        return found

    def needed_number(self, *names: str) -> int:
        """Return the first of these parameters as a whole number; `UsageError` without any."""
        self.needed(*names)
        return self.number(*names) or 0

    def numbers(self, *names: str) -> list[int]:
        """Return the whole numbers of a list joined by commas."""
        found = [_whole(each) for each in self.needed(*names).split(",") if each.strip()]
        if not found or None in found or len(found) > _MOST_FIELDS:
            raise UsageError(names[0], f"is a list of 1 to {_MOST_FIELDS} whole numbers")
        return [each for each in found if each is not None]

    def worded(self, end: str) -> tuple[str, ...]:
        """Return the names of a parameter in the words of all dialects."""
        return tuple(f"{word}{end}" for word in ("process", "workflow"))

    def choice(self, kind: type[_Member], *names: str, default: _Member) -> _Member:
        """Return a member of an enum by its name."""
        given = self.text(*names)
        if given is None:
            return default
        if given.upper() not in kind.__members__:
            known = ", ".join(kind.__members__)
            raise UsageError(names[0], f"{given!r:.60} is none of {known}")
        return kind[given.upper()]

    def moment(self, name: str, *, ends_day: bool = False) -> datetime | None:
        """Return a time on the wall of the cluster's zone."""
        given = self.text(name)
        if given is None:
            return None
        return read_moment(given, self.zone, field=name, ends_day=ends_day)

    def document(self, name: str) -> Any:
        """Return the JSON that a parameter holds; None without it."""
        given = self.text(name)
        return None if given is None else strict_json(given.encode("utf-8", "replace"))

    @property
    def page_number(self) -> int:
        return self.number("pageNo", default=1) or 0

    @property
    def page_size(self) -> int:
        return self.number("pageSize", default=10) or 0


def _whole(text: str) -> int | None:
    given = text.strip()
    digits = given.removeprefix("-")
    if not digits.isascii() or not digits.isdigit() or len(digits) > len(str(_LARGEST_NUMBER)):
        return None
    found = int(given)
    return found if abs(found) <= _LARGEST_NUMBER else None


def read_parameters(
    query: str, body: bytes, media_type: str
) -> tuple[dict[str, str], dict[str, bytes]]:
    """Return the parameters of a request and its files; of a repeated name the first."""
    found: dict[str, str] = {}
    files: dict[str, bytes] = {}
    _take(found, query)
    kind = media_type.partition(";")[0].strip().lower()
    if kind == _FORM:
        _take(found, body.decode("utf-8", "replace"))
    elif kind == _JSON and body:
        document = strict_json(body)
        if not isinstance(document, dict):
            raise UsageError("body", "is no JSON object")
        for name, value in document.items():
            if value is not None:
                found.setdefault(name, value if isinstance(value, str) else json.dumps(value))
    elif kind == _FILE:
        _take_parts(found, files, body, media_type)
    return found, files


def _take(found: dict[str, str], text: str) -> None:
    try:
        pairs = parse_qsl(text, keep_blank_values=True, max_num_fields=_MOST_FIELDS)
    except ValueError:
        raise UsageError(None, f"more than {_MOST_FIELDS} parameters") from None
    for name, value in pairs:
        found.setdefault(name, value)


def _take_parts(
    found: dict[str, str], files: dict[str, bytes], body: bytes, media_type: str
) -> None:
    # The parser takes each line with two hyphens for the border of a part, also of nested parts.
    if body.count(b"\n--") + body.count(b"\r--") > _MOST_BORDERS:
        raise UsageError(None, f"more than {_MOST_FIELDS} parameters")
    head = f"Content-Type: {media_type}\r\n\r\n".encode("latin-1", "replace")
    message = email.parser.BytesParser(policy=email.policy.HTTP).parsebytes(head + body)
    if not message.is_multipart():
        raise UsageError("body", "is no form with parts")
    for index, part in enumerate(message.iter_parts()):
        if index >= _MOST_FIELDS:
            raise UsageError(None, f"more than {_MOST_FIELDS} parameters")
        name = part.get_param("name", header="content-disposition")
        content = part.get_payload(decode=True)
        if not isinstance(name, str) or not isinstance(content, bytes):
            continue
        if part.get_filename() is not None:
            files.setdefault(name, content)
        else:
            found.setdefault(name, content.decode("utf-8", "replace"))
