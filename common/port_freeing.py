"""Frees a port of the cluster that a task run of the cluster holds, before a daemon starts there.

A worker's program does it (`worker.port_pass`): it alone knows which processes are those of a task
run, and it ends nothing else. Used by daemons before they listen, by the commands
that start daemons, and at the start of embedded servers.
"""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path
from typing import Final

from common.port_holders import processes_at
from common.ports import is_port_free

log = logging.getLogger(__name__)

_SECONDS: Final = 60


def make_room(host: str, port: int, *, home: Path, server: str) -> int | None:
    """End the task run of this home that keeps a daemon from listening; return its id.

    None if the daemon can listen, or if no task run was ended.
    """
    if is_port_free(port, host):
        return None
    return free_of_tasks(port, home=home, server=server)


def free_of_tasks(port: int, *, home: Path, server: str) -> int | None:
    """End the task run of this home that listens at a port; return its id.

    None if no task run was ended: the holder is another program, or this account may not end it.
    `server` is the name of what is to start there.
    """
    if not (home / "tasks" / "records").is_dir() or not processes_at(port):
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
    except (OSError, subprocess.TimeoutExpired) as error:
        log.warning("port could not be freed", extra={"port": port, "reason": str(error)})
        return None
    if done.returncode != 0:
        return None
    task_id = int(done.stdout)
    extra = {"task_instance_id": task_id, "port": port, "server": server}
    log.warning("task run was ended, since it held a port", extra=extra)
    return task_id
