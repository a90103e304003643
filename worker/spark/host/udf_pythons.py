"""The Pythons that servers start for UDFs: what `python -m pyspark.daemon` is elsewhere.

A server starts one for each session that has UDFs, by calling a task proxy by a name that tells the
session. Here it is forked off the Spark host, which has imported all that it needs; or it is
another interpreter, if the session's task has one of its own. It ends with its session: a server
itself would keep it until its own end.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import pyspark.daemon

from worker.spark.host.forking import end_children_with_me
from worker.spark.host.forks import Forks, signal_fork
from worker.spark.host.proxy_protocol import Link, Request


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
            # It makes a group of its own, which the leader of a session may not.
            work = _work(arguments, interpreter)
            python.pid = self._forks.fork(
                link, request, work, ended, session=False, limited_as=limited_as
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
    """`arguments` are those of an interpreter: `-m pyspark.daemon MODULE`."""

    def forked() -> int:
        sys.argv[:] = arguments[1:]
        end_children_with_me()
        pyspark.daemon.manager()
        return 0

    def another() -> int:
        os.execv(interpreter, [interpreter, *arguments])  # noqa: S606

    return another if interpreter else forked
