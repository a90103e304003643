"""The process that has a port of this computer, for errors that an operator has to resolve.

Only root can see which process of another account has a socket. Others see the account.
"""

from __future__ import annotations

import os
import platform
import pwd
import re
import socket
from collections.abc import Collection, Iterator
from contextlib import ExitStack, suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from common.port_sockets import sockets_at
from common.ports import Listener, listener_of

if TYPE_CHECKING:
    from ctypes import CDLL

_PIDFD_OPEN: Final = 434
_PIDFD_GETFD: Final = 438
_PIDFD_THREAD: Final = os.O_EXCL
_IS_X86: Final = platform.machine() == "x86_64"
_KCMP: Final = 312 if _IS_X86 else 272
_ACCEPT: Final = frozenset(("43", "288") if _IS_X86 else ("202", "242"))
_KCMP_FILES: Final = 2
_SO_NETNS_COOKIE: Final = 71
_ACCOUNT: Final = re.compile(r"^Uid:\s*([0-9]+)", re.MULTILINE)
_HELD: Final = re.compile(r"^(scm_fds|UserFiles):\s*[1-9]", re.MULTILINE)
"""In the kernel's description of a socket and of an io_uring: it holds descriptors."""
_MAPPED: Final = re.compile(r"socket:\[([0-9]+)\]$", re.MULTILINE)
_TASK: Final = re.compile(rb"ORCAFLOW_TASK_INSTANCE_ID=([0-9]{1,18})")


def holder(port: int) -> str:
    """Return what is known of the program at a port, as " (process 7 of root: `kill 7` ends it)".

    Returns "" if no program is found.
    """
    found = listener_of(port) or next(iter(sockets_at(port)), None)
    pid = (None if found is None else process_of(found)) or min(_bound_to(port), default=None)
    if pid is None:
        return "" if found is None else f" ({_hidden(found.uid)})"
    # A process can change its environment, so the run is only a hint.
    task = _task(pid)
    of_run = "" if task is None else f", by its environment of task run {task}"
    return f" (process {pid} of account {account_name(_uid(pid))}{of_run}: `kill {pid}` ends it)"


def processes_at(port: int) -> list[int]:
    """Return the pids of the programs that keep a port and that this account may see.

    Most of them listen there. A socket that is bound and does not listen keeps its port too. If no
    process has a descriptor of the socket, these are the processes of its account that keep
    sockets in other ways. Kernels before 6.8 do not show the account of a socket that is only
    bound; then these are processes of all accounts.
    """
    sockets = sockets_at(port)
    found = {process_of(each) for each in sockets}
    holders = {pid for pid in found if pid is not None}
    if not sockets or None in found:
        holders |= _bound_to(port)
    if not sockets and os.geteuid() != 0:
        return sorted(holders)  # The socket may belong to a process that only root sees.
    return sorted(holders or _without_descriptors(sockets))


def hidden_accounts(port: int) -> set[int]:
    """Return the accounts of sockets that have a port and are shown by no process.

    A system call that blocks keeps its socket while another thread closes the descriptor. Empty if
    a process shows a socket at the port, or if this account may not see all processes.
    """
    if os.geteuid() != 0 or _bound_to(port):
        return set()
    return {each.uid for each in sockets_at(port) if process_of(each) is None}


def process_of(listener: Listener) -> int | None:
    """Return a process that has this socket; None if this account sees none."""
    wanted = f"socket:[{listener.inode}]"
    for pid in _pids():
        if any(target == wanted for _, target in _descriptors(pid)):
            return pid
    return None


def holders_of(sockets: Collection[Listener]) -> dict[int, set[int]]:
    """Return the processes that have descriptors of these sockets, by the inode of the socket.

    A socket is only looked for among the processes of its account. Another account's process may
    have received the descriptor without its consent.
    """
    wanted = {f"socket:[{each.inode}]": each for each in sockets}
    uids = {each.uid for each in sockets}
    found: dict[int, set[int]] = {}
    for pid in _pids():
        uid = _uid(pid)
        for thread in _with_own_descriptors(pid) if uid in uids else ():
            for _, target in _descriptors(thread):
                held = wanted.get(target)
                if held is not None and held.uid == uid:
                    found.setdefault(held.inode, set()).add(pid)
    return found


def account_name(uid: int | None) -> str:
    """Return the name of an account, or its number if it has none."""
    if uid is None:
        return "unknown"
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _hidden(uid: int) -> str:
    account = account_name(uid)
    if os.geteuid() != 0:
        return f"a program of account {account}"
    return (
        f"a program of account {account} that hides its socket: end the programs of {account}, one"
        " by one"
    )


def _bound_to(port: int) -> set[int]:
    """Return the processes with a socket that has this port of the computer, in any state."""
    return {
        pid
        for pid in _pids()
        for thread in _with_own_descriptors(pid)
        for descriptor, target in _descriptors(thread)
        if target.startswith("socket:") and _local_port(pid, thread, descriptor) == port
    }


def _without_descriptors(sockets: Collection[Listener]) -> set[int]:
    """Return the processes that may keep these sockets without a descriptor; empty for any."""
    uids = {each.uid for each in sockets}
    inodes = {each.inode for each in sockets}
    return {
        pid
        for pid in _pids()
        if (not uids or _uid(pid) in uids)
        and (_maps(pid, inodes) or _accepts_without_descriptor(pid) or _holds_descriptors(pid))
    }


def _maps(pid: int, inodes: Collection[int]) -> bool:
    """Return whether a socket is mapped into the memory of a process."""
    mapped = {int(inode) for inode in _MAPPED.findall(_text(f"/proc/{pid}/maps"))}
    return bool(mapped.intersection(inodes) if inodes else mapped)


def _accepts_without_descriptor(pid: int) -> bool:
    """Return whether a thread waits for a connection to a socket with a closed descriptor."""
    for thread in _names(f"/proc/{pid}/task"):
        call = _text(f"/proc/{thread}/syscall").split()
        if len(call) > 1 and call[0] in _ACCEPT:
            try:
                # Another file may have got the number.
                target = os.readlink(f"/proc/{thread}/fd/{int(call[1], 16)}")  # noqa: PTH115
            except FileNotFoundError:
                return True
            except OSError:
                continue
            if not target.startswith("socket:"):
                return True
    return False


def _holds_descriptors(pid: int) -> bool:
    """Return whether a process has descriptors in the buffers of its sockets or in its rings.

    Neither the process nor the kernel's tables show such descriptors.
    """
    return any(
        target.startswith(("socket:", "anon_inode:[io_uring]"))
        and _HELD.search(_text(f"/proc/{thread}/fdinfo/{descriptor}")) is not None
        for thread in _with_own_descriptors(pid)
        for descriptor, target in _descriptors(thread)
    )


def _pids() -> list[int]:
    return [int(name) for name in _names("/proc") if name.isdecimal()]


def _with_own_descriptors(pid: int) -> list[int]:
    """Return the first thread of a process, and each that does not share its descriptors."""
    threads = [int(name) for name in _names(f"/proc/{pid}/task")]
    return [
        thread
        for thread in threads
        if thread == pid or _syscall(_KCMP, pid, thread, _KCMP_FILES, 0, 0) != 0
    ]


def _descriptors(thread: int) -> Iterator[tuple[int, str]]:
    """Yield the descriptors of a thread and what they point to."""
    folder = f"/proc/{thread}/fd"
    for name in _names(folder):
        with suppress(OSError):
            # A Spark server has hundreds, and `Path` takes longer than the kernel.
            yield int(name), os.readlink(f"{folder}/{name}")  # noqa: PTH115


def _local_port(pid: int, thread: int, descriptor: int) -> int | None:
    """Return the port of another process's TCP socket; None without the right to look.

    Also None for a socket of another network namespace, which has separate ports.
    """
    with ExitStack() as stack:
        # Kernels before 6.9 return a descriptor only for the first thread.
        process = _syscall(_PIDFD_OPEN, thread, 0 if thread == pid else _PIDFD_THREAD)
        if process < 0:
            return None
        stack.callback(os.close, process)
        copy = _syscall(_PIDFD_GETFD, process, descriptor, 0)
        if copy < 0:
            return None
        stack.callback(os.close, copy)
        with suppress(OSError):
            found = socket.socket(fileno=copy)
            stack.callback(found.detach)
            is_tcp = (
                found.family in (socket.AF_INET, socket.AF_INET6)
                and found.type == socket.SOCK_STREAM
            )
            if is_tcp and _namespace(found) == _own_namespace():
                return int(found.getsockname()[1])
    return None


def _syscall(number: int, *arguments: int) -> int:
    """Call the kernel; a negative number is an error."""
    return int(_libc().syscall(number, *arguments))


@cache
def _libc() -> CDLL:
    # Imported here because commands need it only for a port that is in use.
    import ctypes

    return ctypes.CDLL(None)


def _namespace(of: socket.socket) -> bytes:
    return of.getsockopt(socket.SOL_SOCKET, _SO_NETNS_COOKIE, 8)


@cache
def _own_namespace() -> bytes:
    with socket.socket() as own:
        return _namespace(own)


def _uid(pid: int) -> int | None:
    """Return the account of a process; None if it has ended."""
    # The owner of the folder in /proc is root for a process that refuses core dumps.
    found = _ACCOUNT.search(_text(f"/proc/{pid}/status"))
    return None if found is None else int(found.group(1))


def _names(folder: str) -> list[str]:
    # A process can end meanwhile, and only root can look into processes of other accounts.
    with suppress(OSError):
        return os.listdir(folder)  # noqa: PTH208
    return []


def _text(file: str) -> str:
    with suppress(OSError):
        return Path(file).read_text(encoding="utf-8", errors="replace")
    return ""


def _task(pid: int) -> int | None:
    try:
        variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return None
    found = (_TASK.fullmatch(each) for each in variables)
    return next((int(match.group(1)) for match in found if match is not None), None)
