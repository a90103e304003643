"""Frees a port of the cluster that a task run of the cluster holds, before a daemon starts there.

A worker's program does it (`worker.port_pass`), because it knows which processes belong to task
runs. It ends nothing else. Used by daemons before they listen, by the commands that start daemons,
and at the start of embedded servers.
"""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from common.port_holders import hidden_accounts, processes_at
from common.ports import is_port_free

log = logging.getLogger(__name__)

_SECONDS: Final = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Freed:
    """The programs that were ended to free a port.

    `task_ids` are the task runs, and `pids` the processes that ended task runs had left.
    """

    task_ids: tuple[int, ...] = ()
    pids: tuple[int, ...] = ()

    @classmethod
    def from_json(cls, text: str) -> Freed:
        """Read what `worker.port_pass` prints. Raises `ValueError`."""
        found = json.loads(text or "{}")
        return cls(task_ids=_numbers(found, "task_ids"), pids=_numbers(found, "pids"))

    def to_json(self) -> str:
        """Return the JSON text that `from_json` reads."""
        return json.dumps(asdict(self))

    def __bool__(self) -> bool:
        """Return whether anything was ended."""
        return bool(self.task_ids or self.pids)

    def __str__(self) -> str:
        named = ((self.task_ids, "task run"), (self.pids, "process left by an ended task run:"))
        return ", ".join(f"{what} {each}" for ids, what in named for each in ids)


def make_room(host: str, port: int, *, home: Path, server: str) -> Freed | None:
    """End the task runs of this home that keep a daemon from listening; return what was ended.

    None if the daemon can listen, or if the port could not be freed.
    """
    if is_port_free(port, host):
        return None
    return free_of_tasks(port, home=home, server=server)


def free_of_tasks(port: int, *, home: Path, server: str) -> Freed | None:
    """End the task runs of this home that hold a port; return what was ended.

    None if the port could not be freed: the holder is another program, or this account may not end
    it. `server` is the name of what is to start there.
    """
    if not (home / "tasks" / "records").is_dir():
        return None
    if not (processes_at(port) or hidden_accounts(port)):
        return None
    command = [sys.executable, "-m", "worker.port_pass", "--home", str(home)]
    command += ["--port", str(port), "--server", server]
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            # Where the packages are, which is what `-m` looks in first.
            cwd=Path(__file__).parents[1],
            timeout=_SECONDS,
            check=False,
        )
        ended = Freed.from_json(done.stdout)
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        log.warning("port could not be freed", extra={"port": port, "reason": str(error)})
        return None
    if ended:
        extra = {"ended": str(ended), "port": port, "server": server}
        log.warning("tasks were ended, since they may have held a port", extra=extra)
    return ended if ended and done.returncode == 0 else None


def _numbers(found: Any, key: str) -> tuple[int, ...]:
    given = found.get(key, ()) if isinstance(found, dict) else ()
    return tuple(each for each in given if isinstance(each, int))
