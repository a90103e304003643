"""Pid files: `$ORCAFLOW_HOME/run/<name>-<port>.pid`, whose word is never taken alone.

The first line is the pid, as everybody expects; the second is the start time of that process,
without which a pid is anybody's. A file whose process is gone is stale and may be overwritten.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from common.errors import NotAllowedError
from common.process_identity import is_alive, process_start_time


def pid_file(home: Path, name: str, port: int) -> Path:
    """Return the path of a daemon's pid file."""
    return home / "run" / f"{name}-{port}.pid"


def running_pid(path: Path) -> int | None:
    """The pid of the very process that wrote the file, if it still runs."""
    try:
        pid, start_time = path.read_text(encoding="ascii").split()
        return int(pid) if is_alive(int(pid), float(start_time)) else None
    except (OSError, ValueError):
        return None


def running_ports(home: Path, name: str) -> list[int]:
    """Return the ports of the daemons with this name that run in a home, in order."""
    folder, ports = home / "run", []
    for path in folder.glob(f"{name}-*.pid") if folder.is_dir() else ():
        number = path.stem.removeprefix(f"{name}-")
        if number.isdecimal() and running_pid(path) is not None:
            ports.append(int(number))
    return sorted(ports)


@contextmanager
def holding(path: Path) -> Iterator[None]:
    """Write the file for this process and take it away at the end.

    Raises `NotAllowedError` if the daemon runs already.
    """
    other = running_pid(path)
    if other is not None and other != os.getpid():
        raise NotAllowedError(f"{path.stem} runs already, as process {other}")
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_suffix(f".{os.getpid()}")
    beside.write_text(f"{os.getpid()}\n{process_start_time(os.getpid())}\n", encoding="ascii")
    beside.replace(path)
    try:
        yield
    finally:
        if running_pid(path) == os.getpid():
            with suppress(OSError):
                path.unlink()
