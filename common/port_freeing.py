"""Frees a port of the cluster that a task run of the cluster holds, before a daemon starts there.

A worker's program does it (`worker.port_pass`): it alone knows which processes are those of a task
run, and it ends nothing else. Used at the start of daemons and of embedded servers.
"""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path
from typing import Final

from common.port_holders import process_at

log = logging.getLogger(__name__)

_SECONDS: Final = 60


def free_of_tasks(port: int, *, home: Path, server: str) -> int | None:
    """End the task run of this home that listens at a port; return its id.

    None if no task run was ended: the holder is another program, or this account may not end it.
    `server` is the name of what is to start there.
    """
    if not (home / "tasks" / "records").is_dir() or process_at(port) is None:
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
