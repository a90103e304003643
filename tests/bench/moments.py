"""The begin and end of tasks, reported by the tasks themselves.

A probed script writes one line to a FIFO as its first act and one as its very last; a thread here
notes the time at which each arrives. The writes are builtins of the shell, so that probing starts
no process, and all times come from one clock. The gap between the end of one task and the start
of another therefore includes, besides all that Orcaflow does, the exit of the first script's shell
and the start of the second's. The thread is woken some hundredths of a millisecond late at both
ends of a gap alike.
"""

from __future__ import annotations

import os
import shlex
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.bench.figures import gaps

_AT_ONCE = 65_536
_STOP = b"stop\n"


@dataclass(frozen=True, slots=True)
class Moment:
    """`what` is `begin` or `end`; `at` is the monotonic clock's, in seconds."""

    what: str
    task: str
    at: float


class Moments:
    """Collects moments while its context is open."""

    def __init__(self, path: Path) -> None:
        self._path = path
        os.mkfifo(path)
        # Open for both: the FIFO never reads as ended, and no writer waits for a reader.
        self._fifo = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        self._changed = threading.Condition()
        self._seen: list[Moment] = []
        self._thread = threading.Thread(target=self._read, name="moments", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        os.write(self._fifo, _STOP)
        self._thread.join()
        os.close(self._fifo)

    def probed(self, body: str = "true", name: str = "$ORCAFLOW_TASK_NAME") -> str:
        """A script that reports its first and its last moment."""
        fifo = shlex.quote(str(self._path))
        return f'echo "begin {name}" >{fifo}\n{body}\necho "end {name}" >{fifo}\n'

    def python_line(self, what: str, name: str) -> str:
        """A line of Python that reports a moment; `name` is an expression."""
        path = repr(str(self._path))
        return f"open({path}, 'w').write('{what} ' + {name} + '\\n')\n"

    def forget(self) -> None:
        """Forget the moments seen so far; they belong to another run."""
        with self._changed:
            self._seen = []

    def until(self, enough: Callable[[list[Moment]], bool], *, within: float) -> list[Moment]:
        """Wait until the moments seen are `enough`, and return them."""
        with self._changed:
            if not self._changed.wait_for(lambda: enough(self._seen), timeout=within):
                raise TimeoutError(f"{len(self._seen)} moments in {within:g} s are not enough")
            return list(self._seen)

    def _read(self) -> None:
        rest = b""
        while True:
            text = rest + os.read(self._fifo, _AT_ONCE)
            at = time.monotonic()
            if text.endswith(_STOP):
                return
            *lines, rest = text.split(b"\n")
            moments = [_moment(line.decode(), at) for line in lines]
            with self._changed:
                self._seen += moments
                self._changed.notify_all()


def of(moments: list[Moment], what: str) -> dict[str, float]:
    """The moments of one kind by task; for runs in which each task name runs once."""
    return {moment.task: moment.at for moment in moments if moment.what == what}


def chain_gaps_ms(moments: list[Moment], length: int) -> list[float]:
    """The gaps of one run of a chain whose tasks are `t0`, `t1`, …."""
    begins, ends = of(moments, "begin"), of(moments, "end")
    names = [f"t{n}" for n in range(length)]
    found = gaps([ends[name] for name in names], [begins[name] for name in names])
    return [gap * 1000 for gap in found]


def count(moments: list[Moment], what: str) -> int:
    return sum(moment.what == what for moment in moments)


def _moment(line: str, at: float) -> Moment:
    what, _, task = line.partition(" ")
    return Moment(what, task, at)
