"""The Pythons that servers start: what `python -m pyspark.daemon` is elsewhere, and the like.

A server starts a daemon for each session that has UDFs, by calling a task proxy by a name that
tells the session, and others for data sources and streaming queries, whose names tell none. Here
they are forked off the Spark host, which has imported all that they need; or they are another
interpreter, if the session's task or the server's profile has one. Those of a session end with it:
a server itself would keep them until its own end. It takes the others for granted, and keeps them.
"""

from __future__ import annotations

import os
import runpy
import signal
import sys
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import pyspark.daemon

from worker.spark.host.forking import end_children_with_me
from worker.spark.host.forks import Forks, signal_fork
from worker.spark.host.proxy_protocol import Link, Request

_DAEMON = "pyspark.daemon"


@dataclass(slots=True, kw_only=True)
class _Python:
    session_id: str
    pid: int = 0
    """While it runs."""


class UdfPythons:
    """All that a host has forked."""

    def __init__(self, forks: Forks) -> None:
        self._forks = forks
        self._by_link: dict[Link, _Python] = {}

    def __contains__(self, link: Link) -> bool:
        return link in self._by_link

    def start(
        self,
        link: Link,
        request: Request,
        *,
        session_id: str,
        arguments: Sequence[str],
        interpreter: str,
        limited_as: int,
    ) -> None:
        """Start one for this task proxy. `interpreter` is another than the host's, or "".

        `limited_as` is the task proxy of the session's task, whose limits it gets.
        """
        python = _Python(session_id=session_id)

        def ended(code: int) -> None:
            python.pid = 0
            link.exit(code)

        try:
            python.pid = self._forks.fork(
                link,
                request,
                _work(arguments, interpreter),
                ended,
                # A daemon makes a group of its own, which the leader of a session may not.
                session=_DAEMON not in arguments,
                limited_as=limited_as,
            )
        except OSError as error:
            link.error("SUBMIT_FAILED", f"no process could be made: {error.strerror}")
            return
        finally:
            request.close()
        self._by_link[link] = python

    def signal(self, link: Link, number: int) -> None:
        """Pass a signal on."""
        signal_fork(self._by_link[link].pid, number)

    def on_disconnect(self, link: Link) -> None:
        """Kill the Python of a task proxy that is gone."""
        signal_fork(self._by_link.pop(link).pid, signal.SIGKILL)

    def end(self, sessions: Collection[str]) -> None:
        """End those of sessions that are over, and all that they have started."""
        for python in self._by_link.values():
            if python.session_id in sessions:
                signal_fork(python.pid, signal.SIGKILL)


def _work(arguments: Sequence[str], interpreter: str) -> Callable[[], int]:
    """`arguments` are those of an interpreter: `-m pyspark.daemon MODULE`, or `-m MODULE`."""

    def forked() -> int:
        sys.argv[:] = arguments[1:]
        if arguments[1] == _DAEMON:
            end_children_with_me()
            pyspark.daemon.manager()
        else:
            runpy.run_module(arguments[1], run_name="__main__")
        return 0

    def another() -> int:
        os.execv(interpreter, [interpreter, *arguments])  # noqa: S606

    return another if interpreter else forked
