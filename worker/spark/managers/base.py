"""The port to a *manager*, which rules the applications of a cluster.

Pure. An inconclusive answer is an error, so an application never counts as gone because its manager
did not answer. A kill is a request; its effect is seen by asking for the application again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, ClassVar, Protocol

from common.errors import SchedulerError


class ManagerError(SchedulerError):
    """A manager gave no sure answer. Say so, believe nothing, and ask again."""


class ManagerUnreachableError(ManagerError):
    """It could not be reached, took too long, or gave an answer that is none."""


class ManagerRefusedError(ManagerError):
    """It answered that this may not be asked or done: 401 or 403."""


class AppState(StrEnum):
    """The state of an application, in the same words for every manager."""

    WAITING = "WAITING"
    RUNNING = "RUNNING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    KILLED = "KILLED"

    @property
    def is_final(self) -> bool:
        return self not in (AppState.WAITING, AppState.RUNNING)


@dataclass(frozen=True, slots=True, kw_only=True)
class Application:
    """An application as its manager shows it."""

    id: str
    tags: tuple[str, ...]
    name: str
    state: AppState
    user: str = ""
    ui: str = ""
    """A link for people; "" while there is none."""
    history: str = ""
    """A link for people that still works when it is over."""
    diagnostics: str = ""
    """The cause of its end, in the manager's words."""
    place: str = ""
    """The manager's own reference to it: a page, a pod. Nothing for people."""
    is_driver: bool = False
    """True for a driver that the manager lists apart from its application."""


Ask = Callable[[str, Mapping[str, str]], Any]
"""Reads JSON of an application's own REST API, by the path below `api/v1` and parameters."""


class ApplicationManager(Protocol):
    """A manager of applications. Every method may raise `ManagerError`."""

    name: ClassVar[str]
    """For people: `YARN`, …"""

    def with_tag(self, tag: str) -> list[Application]:
        """All that carry this tag, live or over, as far as the manager remembers them."""
        ...

    def with_prefix(self, prefix: str) -> list[Application]:
        """All with a tag that begins so."""
        ...

    def nameless(self) -> Sequence[Application]:
        """Drivers, live or over, that had not shown their tag at the last look.

        `name` is the class of the program, and all that is known of them.
        """
        ...

    def kill(self, application: Application) -> None:
        """Ask for its end. That the request was taken says nothing about the end."""
        ...

    def log(self, application: Application) -> str:
        """The end of its driver's log; "" if this manager has none."""
        ...

    def ask(self, application: Application) -> Ask | None:
        """Return a reader of its driver's own REST API; None while there is none."""
        ...
