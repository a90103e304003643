"""Finds the processes that belong to an attempt, and signals exactly those.

An attempt's processes are those that bear its mark (`marks`), those of its session, and every other
that carries its marker in its environment, however far it moved away. Marks and markers can be
copied, so another tenant's process that has them is none of its. A pid is only a pid with the time
that its process started: no single process is signalled before it has been seen again behind a
pidfd, and a group only by callers that know its leader to be unreaped. Reads `/proc` itself,
because one look at all processes must cost milliseconds.
"""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from worker.processes.marks import mark_of, mark_seen

MARKER = "ORCAFLOW_EXECUTE_PATH"
"""Holds the attempt's own directory. An id would not do: every cluster on the host has a task 1."""

log = logging.getLogger(__name__)

_PROC = Path("/proc")
_MARKER_BYTES = MARKER.encode() + b"="


@dataclass(frozen=True, slots=True)
class Seen:
    """A process as one look at `/proc` found it. `started` is in clock ticks since the boot."""

    pid: int
    session: int
    started: int
    execute_path: str | None
    mark: int | None = None


def scan() -> Iterator[Seen]:
    """Yield every live process but this one; zombies are left out. Reads all environments."""
    for pid in _pids():
        seen = seen_now(pid)
        if seen is not None:
            yield seen


def seen_now(pid: int) -> Seen | None:
    """Return the process with this pid; None if there is none, or only a zombie."""
    fields = _fields(pid)
    if fields is None:
        return None
    return Seen(pid, int(fields[3]), int(fields[19]), _marker(pid), mark_seen(pid))


def scan_marked(execute_paths: Collection[str]) -> Iterator[Seen]:
    """Yield the live processes that bear these attempts' marks: a look that opens no other files.

    It takes a twentieth of the time that `scan` takes.
    """
    marks = frozenset(map(mark_of, execute_paths))
    for pid in _pids():
        mark = mark_seen(pid)
        if mark in marks:
            fields = _fields(pid)
            if fields is not None:
                yield Seen(pid, int(fields[3]), int(fields[19]), None, mark)


def is_zombie(pid: int) -> bool:
    """True if a process has ended and is not reaped; also if it is gone."""
    return _fields(pid) is None


def lives(seen: Seen) -> bool:
    """True if this very process has not ended."""
    fields = _fields(seen.pid)
    return fields is not None and int(fields[19]) == seen.started


def parent_of(pid: int) -> int | None:
    """Return the pid of the parent of a process; None if the process has ended."""
    fields = _fields(pid)
    return None if fields is None else int(fields[1])


def named(processes: Iterable[Seen]) -> str:
    """Return the pids and names of processes, as far as they still live."""
    return ", ".join(f"{each.pid} ({_name(each.pid)})" for each in processes)


def seen_with_marker(pid: int, execute_path: str) -> Seen | None:
    """Return the process with this pid if it belongs to this attempt: pids are reused."""
    seen = seen_now(pid)
    if seen is None or seen.execute_path != execute_path or not may_belong(pid, execute_path):
        return None
    return seen


def may_belong(pid: int, execute_path: str) -> bool:
    """Return whether a process runs as the account of the attempt with this directory.

    Root and the worker's own account are as good, and any if the attempt has no account of its own.
    Compared is the account that started the process, which no set-uid program changes.
    """
    own = os.geteuid()
    try:
        account = os.lstat(execute_path).st_uid
    except OSError:
        return True  # Nobody can tell; no tenant can remove its attempt's directory itself.
    return account == own or real_uid(pid) in (account, own, 0)


def real_uid(pid: int) -> int | None:
    """Return the account that started a process; None if it has ended."""
    try:
        status = (_PROC / str(pid) / "status").read_bytes()
    except OSError:
        return None
    return int(status.partition(b"\nUid:")[2].split(None, 1)[0])


def pin(seen: Seen) -> int | None:
    """Open a pidfd of this very process; None if it is gone. The caller closes it."""
    try:
        pidfd = os.pidfd_open(seen.pid)
    except ProcessLookupError:
        return None
    # The pid may have been reused before the descriptor pinned it.
    again = seen_now(seen.pid)
    if again is None or again.started != seen.started:
        os.close(pidfd)
        return None
    return pidfd


def is_unreaped(pidfd: int | None) -> bool:
    """Return whether the process behind a pidfd runs, or has ended and is not reaped yet."""
    if pidfd is None:
        return False
    try:
        signal.pidfd_send_signal(pidfd, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def is_ended_and_unreaped(pid: int) -> bool:
    """Return whether the process that has this pid now is a zombie."""
    return (_PROC / str(pid)).exists() and is_zombie(pid)


def signal_exactly(seen: Seen, number: signal.Signals) -> bool:
    """Signal this very process; False if it is gone. `PermissionError` if it changed account."""
    pidfd = pin(seen)
    if pidfd is None:
        return False
    try:
        signal.pidfd_send_signal(pidfd, number)
        return True
    except ProcessLookupError:
        return False
    finally:
        os.close(pidfd)


def kill_exactly(seen: Seen) -> None:
    """Kill this very process; one that changed its account is left alone, and logged."""
    _signal_if_allowed(seen, signal.SIGKILL)


def end_exactly(seen: Seen) -> None:
    """Tell this very process to end; one that changed its account is left alone, and logged."""
    _signal_if_allowed(seen, signal.SIGTERM)


def _signal_if_allowed(seen: Seen, number: signal.Signals) -> None:
    try:
        signal_exactly(seen, number)
    except PermissionError:
        log.warning("process could not be signalled", extra={"pid": seen.pid})


def signal_group(pid: int, number: signal.Signals) -> None:
    """Signal a process group, whose leader must not have been reaped; one that is gone is fine."""
    try:
        os.killpg(pid, number)
    except ProcessLookupError:
        return
    except PermissionError:
        # Every member changed its account, as sudo does.
        log.warning("process group could not be signalled", extra={"pid": pid})


def belonging(
    processes: Iterable[Seen], *, paths: Mapping[str, int], sessions: Mapping[int, int]
) -> dict[int, list[Seen]]:
    """Return the processes by the attempt that they belong to.

    `paths` and `sessions` are the attempts by their directory and by their session, which no other
    process can join.
    """
    found: dict[int, list[Seen]] = {}
    marks = {mark_of(path): path for path in paths}
    for process in processes:
        owner = sessions.get(process.session)
        for path in (process.execute_path, marks.get(process.mark or 0)):
            if owner is None and path is not None and path in paths:
                owner = paths[path] if may_belong(process.pid, path) else None
        if owner is not None:
            found.setdefault(owner, []).append(process)
    return found


def _pids() -> Iterator[int]:
    own = str(os.getpid())
    for name in os.listdir(_PROC):  # noqa: PTH208  # As plain texts, since there are many.
        if name.isdecimal() and name != own:
            yield int(name)


def _name(pid: int) -> str:
    try:
        return (_PROC / str(pid) / "comm").read_text("utf-8", "replace").strip()
    except OSError:
        return "ended"


def _fields(pid: int) -> list[bytes] | None:
    """`/proc/<pid>/stat` from the state on: state, parent, group, session, …; None for a zombie."""
    try:
        text = (_PROC / str(pid) / "stat").read_bytes()
    except OSError:
        return None
    # The second field is the name in brackets, and a name may hold blanks and brackets itself.
    fields = text.rpartition(b")")[2].split()
    if len(fields) < 20 or fields[0] == b"X":
        return None
    # A process whose first thread has ended looks like a zombie while others go on.
    if fields[0] == b"Z" and int(fields[17]) < 2:
        return None
    return fields


def _marker(pid: int) -> str | None:
    try:
        environment = (_PROC / str(pid) / "environ").read_bytes()
    except OSError:
        return None
    position = (
        0 if environment.startswith(_MARKER_BYTES) else environment.find(b"\0" + _MARKER_BYTES)
    )
    if position < 0:
        return None
    value = environment[position:].lstrip(b"\0")[len(_MARKER_BYTES) :].split(b"\0", 1)[0]
    return os.fsdecode(value)
