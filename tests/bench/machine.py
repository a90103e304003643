"""The costs in which machines differ, measured before anything is started; they explain the figures.

A hand-over is that of a turn between two threads of one interpreter. A wake-up is the answer of another
process that sleeps in a read; `busy` while a thread of this one computes, which has to give up the
interpreter lock before the answer can be taken: a mean, since that costs nothing or far too much. All
others are medians, all in microseconds and without targets.
"""

from __future__ import annotations

import os
import queue
import select
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from statistics import fmean

from tests.bench.figures import Figure, percentile

_CALLS = 20_000
_TURNS = 300
_SYNCS = 30
_SPAWNS = 30
_BLOCK = b"\0" * 4096
_ECHO = "import os\nwhile os.read(0, 1):\n    os.write(1, b'.')\n"


def measure(folder: Path | None = None) -> list[Figure]:
    """Measure for a second or two; files are made in `folder`, or where temporary ones are."""
    return [
        _figure("system_call", [_system_call_us() for _ in range(5)]),
        _figure("hand_over", _hand_overs_us()),
        _figure("wake_up", _wake_ups_us()),
        _figure("wake_up_busy", [fmean(_busy(_wake_ups_us))]),
        _figure("sync", _syncs_us(folder)),
        _figure("shell", _shells_us()),
    ]


def _figure(name: str, samples: list[float]) -> Figure:
    return Figure(name=f"machine.{name}", unit="µs", values=(percentile(samples, 50),))


def _system_call_us() -> float:
    zero = os.open("/dev/zero", os.O_RDONLY | os.O_CLOEXEC)
    try:
        began = time.perf_counter()
        for _ in range(_CALLS):
            os.read(zero, 1)
        return (time.perf_counter() - began) / _CALLS * 1e6
    finally:
        os.close(zero)


def _hand_overs_us() -> list[float]:
    """There and back between two threads, halved."""
    there: queue.SimpleQueue[bool] = queue.SimpleQueue()
    back: queue.SimpleQueue[bool] = queue.SimpleQueue()

    def answer() -> None:
        while there.get():
            back.put(True)

    other = threading.Thread(target=answer)
    other.start()

    def turn() -> None:
        there.put(True)
        back.get()

    found = _timed(_TURNS, turn)
    there.put(False)
    other.join()
    return [each / 2 for each in found]


def _busy(work: Callable[[], list[float]]) -> list[float]:
    """Do it beside a thread that computes, at the switch interval of the daemons."""
    over = threading.Event()

    def compute() -> None:
        while not over.is_set():
            sum(range(1_000))

    other = threading.Thread(target=compute)
    before = sys.getswitchinterval()
    sys.setswitchinterval(0.0005)
    other.start()
    try:
        return work()
    finally:
        over.set()
        other.join()
        sys.setswitchinterval(before)


def _wake_ups_us() -> list[float]:
    """There and back between two processes, halved."""
    with subprocess.Popen(
        [sys.executable, "-S", "-c", _ECHO], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdin is not None
        assert other.stdout is not None
        to, back = other.stdin.fileno(), other.stdout.fileno()

        def turn() -> None:
            os.write(to, b".")
            select.select([back], [], [])
            os.read(back, 1)

        turn()
        return [each / 2 for each in _timed(_TURNS, turn)]


def _syncs_us(folder: Path | None) -> list[float]:
    with tempfile.TemporaryFile(dir=folder) as file:

        def sync() -> None:
            os.write(file.fileno(), _BLOCK)
            os.fdatasync(file.fileno())

        return _timed(_SYNCS, sync)


def _shells_us() -> list[float]:
    """From before the start of a shell to after its end."""
    return _timed(_SPAWNS, lambda: subprocess.run(["/bin/sh", "-c", ":"], check=True))


def _timed(times: int, work: Callable[[], object]) -> list[float]:
    found: list[float] = []
    for _ in range(times):
        began = time.perf_counter()
        work()
        found.append((time.perf_counter() - began) * 1e6)
    return found
