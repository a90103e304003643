"""The CPU time and memory of daemons, read from `/proc`."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import psutil

_NANOSECONDS = 1e9


def cpu_seconds(pid: int) -> float:
    """The CPU time of all threads of a process, to the nanosecond and not to the tick."""
    total = 0
    for thread in Path("/proc", str(pid), "task").iterdir():
        total += int((thread / "schedstat").read_text().split()[0])
    return total / _NANOSECONDS


def resident_mb(pid: int) -> float:
    """The resident memory at the moment."""
    return _status_mb(pid, "VmRSS")


def shared_mb(pid: int, *, below: bool = True) -> float:
    """The memory (PSS) of a process and all below it, in MiB; a shared page counts in parts."""
    root = psutil.Process(pid)
    total = 0
    for process in (root, *(root.children(recursive=True) if below else ())):
        with suppress(psutil.NoSuchProcess):
            total += process.memory_full_info().pss
    return total / 2**20


def peak_mb(pid: int) -> float:
    """The peak of the resident memory, since the start or since `forget_peak`."""
    return _status_mb(pid, "VmHWM")


def forget_peak(pid: int) -> None:
    """Reset the peak."""
    Path("/proc", str(pid), "clear_refs").write_text("5")


def _status_mb(pid: int, field: str) -> float:
    for line in Path("/proc", str(pid), "status").read_text().splitlines():
        name, _, rest = line.partition(":")
        if name == field:
            return int(rest.split()[0]) / 1024
    raise LookupError(f"process {pid} has no {field}")
