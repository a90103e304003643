"""Waits at the worker until people want something else of a topology, and has its task ask.

As in Storm, the watch only schedules: what is to be done is read by the task, which asks now and
then by itself too. So a change that the watch misses is late, and not lost.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Event, Thread
from types import TracebackType
from typing import Final, Self

_REST_SECONDS: Final = 1.0


class Watch:
    """A thread that asks the worker; it ends with the process, at the latest."""

    def __init__(
        self,
        watch: Callable[[int], int | None],
        number: int,
        changed: Callable[[], None],
    ) -> None:
        """`number`: that of what the task knows to be wanted. `changed` is called by the thread.

        `watch` waits, given a number, and returns the present one; None if nobody answers just now.
        """
        self._number = number
        self._changed = changed
        self._watch = watch
        self._is_over = Event()
        self._thread = Thread(target=self._follow, name="topology-watch", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        # A question that waits is left to wait: it is of no use to anybody, and in nobody's way.
        self._is_over.set()

    def join(self) -> None:
        """Wait for the end of the thread, which a question that waits puts off."""
        self._thread.join()

    def _follow(self) -> None:
        while not self._is_over.is_set():
            try:
                number = self._watch(self._number)
            except Exception:  # noqa: BLE001  # The task, which asks for the same, hears why.
                self._changed()
                return
            if number is None:
                self._is_over.wait(_REST_SECONDS)
            elif number != self._number:
                self._number = number
                self._changed()
