"""A route of Druid's API, as the tables of the modules beside this one have it, and its call."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from fastapi import Request

from api.policy import Who
from common.model.intervals import Interval, IntervalError, read_interval
from common.model.rights import Action
from operations.errors import UsageError
from operations.session import Session

_MOST_DIGITS: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One call: who asks, the id of the path, the parameters of the query, and the body."""

    session: Session
    request: Request
    id: str
    query: Mapping[str, str]
    body: bytes

    def number(self, name: str, *, negative: bool = False) -> int | None:
        """Return a parameter as a whole number; `UsageError` for anything else."""
        given = self.query.get(name)
        if given is None:
            return None
        digits = given.removeprefix("-") if negative else given
        if not (digits.isascii() and digits.isdigit() and len(digits) < _MOST_DIGITS):
            raise UsageError(name, f"{given:.40} is no number")
        return int(given)

    def interval(self, name: str) -> Interval | None:
        """Return a parameter as an interval, whose slash may be an underscore, as in Druid."""
        given = self.query.get(name)
        if given is None:
            return None
        try:
            return read_interval(given.replace("_", "/"))
        except IntervalError as error:
            raise UsageError(name, str(error)) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A route with the right that it takes, which `operations` checks.

    `thing`: what the id of the path is; a route without one is about all that its caller may see.
    """

    method: str
    path: str
    serve: Callable[[Call], Any]
    takes: Who | Action
    thing: str | None = None


class RefusedError(Exception):
    """The answer is this document, with a status other than 200."""

    def __init__(self, status: int, document: Any) -> None:
        super().__init__(str(document))
        self.status = status
        self.document = document


def refused(status: int, text: str) -> RefusedError:
    """Build the answer that names an error."""
    return RefusedError(status, {"error": text})


def moment(at: datetime | None) -> str | None:
    """Write a time as Druid does: in UTC, to the millisecond."""
    if at is None:
        return None
    return at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def period(length: timedelta) -> str:
    """Write a length as Joda-Time does: PT5M, PT1H30M, PT0.250S."""
    seconds, rest = divmod(length, timedelta(seconds=1))
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    fraction = f".{rest // timedelta(milliseconds=1):03}" if rest else ""
    parts = [f"{number}{unit}" for number, unit in ((hours, "H"), (minutes, "M")) if number]
    if seconds or rest or not parts:
        parts.append(f"{seconds}{fraction}S")
    return f"PT{''.join(parts)}"


def moment_in(text: str | None) -> str | None:
    """Write a time that stands in a document as a text likewise."""
    return None if text is None else moment(datetime.fromisoformat(text))
