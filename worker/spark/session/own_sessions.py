"""Gives a script a session of its task's own, in whatever way it asks for one.

In the forked process of a warm task. `SparkSession.builder…getOrCreate()` gives the session that
the script has been given, with the settings that it names, as in a driver of its own; after
`spark.stop()` it gives a new one. `newSession`, `cloneSession` and `create` make further ones. No
way leads to another server or to a Java machine in this process. Each further session is told to
the Spark host, which closes it too if this process dies.
"""

from __future__ import annotations

import contextlib
import os
import uuid
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import SparkSession as AnySession
from pyspark.sql.connect.session import SparkSession as Session

from worker.spark.session import own_paths
from worker.spark.session.prototype import guard, open_clone
from worker.spark.session.sessions import Place, operates

if TYPE_CHECKING:
    from collections.abc import Callable

CLOSED = "closed"
INTERPRETER = "python"
DRIVER = "driver"
"""The words of a process to its host: all its sessions are closed; it is another Python now; its
sessions are classic."""


class OwnSessions:
    """The sessions of one task, of which `first` is open from the start."""

    def __init__(self, place: Place, *, reports: int) -> None:
        """`reports`: a descriptor that tells the host of further sessions and the end, in lines."""
        self._place = place
        # The host listens only when the task has ended: there may be no room for more words, and
        # no word is worth waiting for that.
        os.set_blocking(reports, False)
        self._reports = reports
        self._pid = os.getpid()
        self._further: list[Session] = []
        self._are_closed = True
        self.first = open_clone(place)
        self._equip(self.first)
        self._take_over()
        if place.prototype:
            guard()

    def close(self) -> None:
        """Close them all, and report to the host if that has worked for sure.

        A process that the script has forked leaves the sessions of its parent alone.
        """
        if os.getpid() != self._pid:
            return
        for each in (*self._further, self.first):
            each.stop()
        if self._are_closed:
            self._report(CLOSED)

    def _take_over(self) -> None:
        own = self
        new_session, clone_session = Session.newSession, Session.cloneSession
        stop_session = Session.stop

        def create(_builder: Any) -> Session:
            return own._another(lambda: open_clone(own._fresh()))

        def get_or_create(builder: Any) -> Session:
            if Session.getActiveSession() is None and Session._get_default_session() is None:  # noqa: SLF001
                create(builder)
            wanted = dict(builder._options)  # noqa: SLF001
            session: Session = Session.builder.config(map=wanted).getOrCreate()
            return session

        def new(session: Session) -> Session:
            return own._another(lambda: new_session(session))

        def clone(session: Session, new_session_id: str | None = None) -> Session:
            return own._another(lambda: clone_session(session, new_session_id))

        def stop(session: Session) -> None:
            if not session.is_stopped and not _released(session):
                own._are_closed = False  # The host sees to it then.
            stop_session(session)

        AnySession.Builder.getOrCreate = get_or_create  # type: ignore[method-assign,assignment]
        AnySession.Builder.create = create  # type: ignore[method-assign,assignment]
        Session.newSession = new  # type: ignore[method-assign, assignment]
        Session.stop = stop  # type: ignore[method-assign, assignment]
        Session.cloneSession = clone  # type: ignore[method-assign, assignment]
        folder = partial(own_paths.folder_of, Session.getActiveSession, Path.cwd())
        own_paths.take_over(cache(folder))

    def _another(self, make: Callable[[], Session]) -> Session:
        session = make()
        self._further.append(session)
        self._report(session.session_id)
        self._equip(session)
        return session

    def _fresh(self) -> Place:
        return self._place.beside(str(uuid.uuid4()))

    def _equip(self, session: Session) -> None:
        if self._place.python:
            session.conf.set("spark.sql.execution.pyspark.python", self._place.python)

    def _report(self, word: str) -> None:
        # A script may have closed what it didn't open, or have more sessions than can be told;
        # those that aren't end with the server.
        with contextlib.suppress(OSError):
            os.write(self._reports, f"{word}\n".encode())


def _released(session: Session) -> bool:
    """Release a session; return True if that worked, where `stop` would hide a failure.

    A session that still runs something, in a thread of the script's, is left to the host, which
    ends that too.
    """
    session.release_session_on_close = False
    try:
        if operates(session):
            return False
        session.client.release_session()
    except Exception:  # noqa: BLE001  # Whatever it was.
        return False
    return True
