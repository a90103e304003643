"""A route of Druid's API, as the tables of the modules beside this one have it, and its call."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from fastapi import Request

from api.policy import Who
from common.model.rights import Action
from operations.session import Session


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One call: who asks, the id of the path, the parameters of the query, and the body."""

    session: Session
    request: Request
    id: str
    query: Mapping[str, str]
    body: bytes


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


def moment_in(text: str | None) -> str | None:
    """Write a time that stands in a document as a text likewise."""
    return None if text is None else moment(datetime.fromisoformat(text))
