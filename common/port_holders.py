"""The process that listens at a port of this computer, for errors that an operator has to resolve.

Only root can see which process of another account has a socket. Others see the account.
"""

from __future__ import annotations

import pwd
import re
from contextlib import suppress
from pathlib import Path
from typing import Final

from common.ports import Listener, listener_of, listeners_at

_TASK: Final = re.compile(rb"ORCAFLOW_TASK_INSTANCE_ID=([0-9]{1,18})")


def holder(port: int) -> str:
    """Return what is known of the program at a port, as " (process 7 of root: `kill 7` ends it)".

    Returns "" if nothing listens there.
    """
    found = listener_of(port)
    if found is None:
        return ""
    account = _account(found.uid)
    pid = _process(found)
    if pid is None:
        return f" (a program of account {account})"
    # A process can change its environment, so the run is only a hint.
    task = _task(pid)
    of_run = "" if task is None else f", by its environment of task run {task}"
    return f" (process {pid} of account {account}{of_run}: `kill {pid}` ends it)"


def processes_at(port: int) -> list[int]:
    """Return the pids of the listeners at a port of any address that this account may see."""
    found = [_process(listener) for listener in listeners_at(port)]
    return [pid for pid in found if pid is not None]


def _account(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _process(listener: Listener) -> int | None:
    wanted = f"socket:[{listener.inode}]"
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal():
            continue
        # A process can end meanwhile, and only root can look into processes of other accounts.
        with suppress(OSError):
            for descriptor in (entry / "fd").iterdir():
                with suppress(OSError):
                    if str(descriptor.readlink()) == wanted:
                        return int(entry.name)
    return None


def _task(pid: int) -> int | None:
    try:
        variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return None
    found = (_TASK.fullmatch(each) for each in variables)
    return next((int(match.group(1)) for match in found if match is not None), None)
