"""The identity of processes of this computer: a pid with the time that the process started.

A pid alone is reused sooner or later. Nothing here starts or ends a process.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

_TICKS_PER_SECOND: Final = os.sysconf("SC_CLK_TCK")


def process_start_time(pid: int) -> float | None:
    """Return the start of the process in seconds since boot; None if it does not run.

    Counted from the boot and not as wall-clock time, because setting the clock would change the
    latter. A zombie has ended: it is None too.
    """
    fields = _stat_fields(pid)
    if fields is None:
        return None
    # The fields count from the state, the third of /proc/<pid>/stat.
    state, threads, start_ticks = fields[0], int(fields[17]), int(fields[19])
    # While other threads are still ending, they hold the files and ports of the process.
    if state in ("Z", "X") and threads <= 1:
        return None
    return start_ticks / _TICKS_PER_SECOND


def is_alive(pid: int, start_time: float) -> bool:
    """True if the very process that had this pid and start time still runs."""
    return process_start_time(pid) == start_time


def command_line(pid: int) -> tuple[str, ...]:
    """The arguments that the process was started with; empty if there is none or it has ended."""
    try:
        text = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return ()
    return tuple(part.decode(errors="replace") for part in text.split(b"\0") if part)


def processes_started_with(*arguments: str) -> list[int]:
    """The pids of living processes that have all these arguments in their command line."""
    pids = sorted(int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit())
    return [pid for pid in pids if set(arguments) <= set(command_line(pid))]


def _stat_fields(pid: int) -> list[str] | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return None
    # The second field is the name in brackets, and a name may hold blanks and brackets itself.
    return text.rpartition(")")[2].split()
