"""What a daemon uses of the computer, read from `/proc`."""

from __future__ import annotations

from pathlib import Path

_NANOSECONDS = 1e9


def cpu_seconds(pid: int) -> float:
    """What all threads of a process have computed so far; to the nanosecond, not to the tick."""
    total = 0
    for thread in Path("/proc", str(pid), "task").iterdir():
        total += int((thread / "schedstat").read_text().split()[0])
    return total / _NANOSECONDS


def resident_mb(pid: int) -> float:
    """Its memory at the moment."""
    return _status_mb(pid, "VmRSS")


def peak_mb(pid: int) -> float:
    """The most memory that it ever had, or has had since `forget_peak`."""
    return _status_mb(pid, "VmHWM")


def forget_peak(pid: int) -> None:
    """Count the peak anew."""
    Path("/proc", str(pid), "clear_refs").write_text("5")


def _status_mb(pid: int, field: str) -> float:
    for line in Path("/proc", str(pid), "status").read_text().splitlines():
        name, _, rest = line.partition(":")
        if name == field:
            return int(rest.split()[0]) / 1024
    raise LookupError(f"process {pid} has no {field}")
