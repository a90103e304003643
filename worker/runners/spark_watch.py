"""Looks after applications by their tags, and says in the log when that can't be done.

An answer that isn't sure is None, and never an empty list.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Final

from worker.spark.managers.base import Application, ApplicationManager, ManagerError

_AGAIN_SECONDS: Final = 60.0


class Watch:
    """One manager, asked again and again about an attempt's applications."""

    def __init__(
        self,
        manager: ApplicationManager,
        say: Callable[[str], None],
        foreign: frozenset[str] = frozenset(),
        *,
        user: str = "",
    ) -> None:
        """`user` is the user of the attempt's applications where the manager shows one; "": any."""
        self.manager = manager
        self._user = user
        self.foreign = foreign
        """The ids of applications that are none of the attempt's, whatever tag they bear."""
        self.is_sure = False
        """True if the last question was answered."""
        self._say = say
        self._trouble = ""
        self._said_at = 0.0
        self._said: set[str] = set()

    def find(self, tags: Iterable[str]) -> list[Application] | None:
        """The applications with any of these tags, first those of the first; None if not sure."""
        found: dict[str, Application] = {}
        try:
            for tag in tags:
                for each in self.manager.with_tag(tag):
                    if each.id not in self.foreign and self._is_of_user(each):
                        found.setdefault(each.id, each)
        except ManagerError as error:
            self.is_sure = False
            self._complain(f"{self.manager.name} can't be asked: {error}; it is asked again")
            return None
        self.is_sure = True
        if self._trouble:
            self._say(f"{self.manager.name} answers again")
            self._trouble = ""
        return list(found.values())

    def _is_of_user(self, application: Application) -> bool:
        """Return False for a copy of the tag on an application of another account."""
        return not self._user or application.user in ("", self._user)

    def kill(self, application: Application) -> None:
        """Request an application's end; `find` shows if it has come."""
        try:
            self.manager.kill(application)
        except ManagerError as error:
            self._complain(
                f"{self.manager.name} did not take the kill of {application.id}: {error}"
            )
        else:
            self.say_once(f"{self.manager.name} was asked to kill {application.id}")

    def say_once(self, text: str) -> None:
        """Log a text, the first time only."""
        if text not in self._said:
            self._said.add(text)
            self._say(text)

    def _complain(self, text: str) -> None:
        now = time.monotonic()
        if text != self._trouble or now - self._said_at > _AGAIN_SECONDS:
            self._say(text)
            self._trouble, self._said_at = text, now
