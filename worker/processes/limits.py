"""Limits the memory and the processes of attempts, as far as the host lets this worker.

Where the worker has been given a cgroup (v2) to divide, each attempt gets one of its own: the
limits hold for all of its processes together, and the kernel kills the whole attempt that takes too
much memory. Elsewhere resource limits hold: on the memory of each process, and on the processes of
an account, which is a limit to a task only if tasks have accounts of their own; the wrapper sets
them before it starts anything. One that is to have a cgroup waits until it has been moved there,
and is told to go on. Nobody waits for the wrapper, which other processes of its account can stop.
Used by the supervisor's thread alone.
"""

from __future__ import annotations

import logging
import os
import re
import resource
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from common.config import WorkerConfig
from common.model.failures import FailureReason
from common.model.states import TaskState
from worker.processes.results import Result, explained, may_not_have_forked

log = logging.getLogger(__name__)

GATE_LINES: Final = """read -r ORCAFLOW_GATE || exit 1
unset ORCAFLOW_GATE
exec <&2 2>&1
"""
"""The lines at which a wrapper waits for its cgroup: for a line or an end of its standard input.

Without a line it ends: its daemon has died. Its standard error is the record until then."""

_SETTINGS: Final = "worker.task_memory_limit_mb, or the task's memoryMax"
_DAEMON: Final = "daemon"
"""The worker's own leaf: a cgroup that is divided may hold no processes itself."""
_TASK: Final = "task-"
_KIB: Final = 1024
_KILL: Final = "cgroup.kill"
_MIB: Final = 1024**2
_TAIL_BYTES: Final = 4096
_SPEAKS_OF_MEMORY: Final = re.compile(
    rb"MemoryError|OutOfMemory|bad_alloc|(?i:out of memory|cannot allocate memory"
    rb"|insufficient memory|can't allocate)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The limits of every attempt; 0 is none. Without `base` they are resource limits."""

    memory_mb: int = 0
    processes: int = 0
    base: Path | None = None
    """The cgroup below which each attempt gets one of its own."""
    by_account: bool = False
    """Tasks have accounts of their own, whose processes a resource limit can count."""

    def __bool__(self) -> bool:
        """Return whether there is any limit."""
        return bool(self.memory_mb or self.processes)

    def lowered(self, memory_mb: int, *, is_forked: bool = False) -> Limits:
        """Return the limits of an attempt that may have no more memory than this; 0 is any.

        `is_forked`: its processes are forked elsewhere, and get its resource limits there. A cgroup
        would only hold who stands for them.
        """
        known = [each for each in (self.memory_mb, memory_mb) if each > 0]
        base = None if is_forked else self.base
        return replace(self, memory_mb=min(known, default=0), base=base)

    def cgroup_of(self, task_instance_id: int) -> Path | None:
        """Return the cgroup of an attempt that is about to start; None if it gets none."""
        if self.base is None or not self:
            return None
        return self.base / f"{_TASK}{task_instance_id:d}"

    def resource_limits(self) -> tuple[tuple[int, int], ...]:
        """Return the resource limits, each by its number; none if the attempt has a cgroup."""
        if self.base is not None:
            return ()
        found = []
        if self.memory_mb:
            most = _allowed(resource.RLIMIT_DATA, self.memory_mb * _MIB)
            found.append((resource.RLIMIT_DATA, most // _KIB * _KIB))
        if self.processes and self.by_account:
            found.append((resource.RLIMIT_NPROC, _allowed(resource.RLIMIT_NPROC, self.processes)))
        return tuple(found)

    def shell_lines(self) -> str:
        """Return the lines by which a wrapper takes the resource limits; "" if it has a cgroup.

        The worker can't do it: for a process of another account, even root needs a capability that
        it mostly has not in a container.
        """
        lines = ""
        for kind, most in self.resource_limits():
            if kind == resource.RLIMIT_DATA:
                lines += f"ulimit -d {most // _KIB} || exit 1\n"
            else:
                # Bash and dash name it differently.
                lines += f"ulimit -u {most} 2>/dev/null || ulimit -p {most} || exit 1\n"
        return lines

    def admit(self, pid: int, cgroup: Path) -> None:
        """Move a wrapper, which waits, into its cgroup. `OSError` if that can't be done.

        The pid must be that of an unreaped child. One that has ended meanwhile is fine.
        """
        with suppress(ProcessLookupError):
            self._enclose(pid, cgroup)

    def kept_from_forking(self, cgroup: Path | None) -> bool:
        """Return whether an attempt that could start no process may have met its own limit."""
        if cgroup is None:
            return self.by_account and self.processes > 0
        return _event(cgroup / "pids.events", "max")

    def explain(
        self, result: Result, cgroup: Path | None, log_file: int, *, memory_mb: int
    ) -> None:
        """Tell the result of an attempt that failed by itself about the limit that it met.

        `memory_mb` is the attempt's own limit; 0 is none.
        """
        if result.state is not TaskState.FAILURE or result.failure is not None:
            return
        if cgroup is None:
            if may_not_have_forked(result.exit_code) and self.kept_from_forking(cgroup):
                result.reason = (
                    f"{explained(result)}, as of a shell that can start no process; its account"
                    f" may have {self.processes:,} processes and threads in all its tasks on this"
                    " host (worker.task_process_limit)"
                )
            elif memory_mb:
                _explain_by_log(result, log_file, memory_mb)
            return
        if _event(cgroup / "memory.events", "oom_kill"):
            limit_mb = _number(cgroup / "memory.max") // _MIB
            result.failure = FailureReason.OUT_OF_MEMORY
            result.reason = (
                f"killed: it took more than the {limit_mb:,} MB of memory that it may have"
                f" ({_SETTINGS})"
            )
        elif _event(cgroup / "pids.events", "max"):
            most = _number(cgroup / "pids.max")
            result.reason = (
                f"{explained(result)}; it was refused more than the {most:,} processes that a task"
                " may have (worker.task_process_limit)"
            )

    def holds_any(self, cgroup: Path | None) -> bool:
        """Return whether processes are in the cgroup of an attempt, which `kill` would end."""
        if cgroup is None or not (cgroup / _KILL).exists():
            return False
        return _event(cgroup / "cgroup.events", "populated")

    def kill(self, cgroup: Path | None) -> None:
        """Kill whatever is in the cgroup of an attempt, where the kernel (5.14) can do that.

        None gets away by forking, nor by what it changes of itself.
        """
        if cgroup is not None and (cgroup / _KILL).exists():
            with suppress(OSError):
                (cgroup / _KILL).write_text("1")

    def clear(self, cgroup: Path | None) -> None:
        """Remove the cgroup of an attempt that has ended; one with processes stays."""
        if cgroup is not None:
            _remove(cgroup)

    def _enclose(self, pid: int, cgroup: Path) -> None:
        cgroup.mkdir(exist_ok=True)
        if self.memory_mb:
            (cgroup / "memory.max").write_text(str(self.memory_mb * _MIB))
            # Half a task is worth nothing: all of it is killed, its wrapper too.
            (cgroup / "memory.oom.group").write_text("1")
            swap = cgroup / "memory.swap.max"
            if swap.exists():
                swap.write_text("0")
        if self.processes:
            # The wrapper is one of them.
            (cgroup / "pids.max").write_text(str(self.processes + 1))
        (cgroup / "cgroup.procs").write_text(str(pid))


NO_LIMITS: Final = Limits()


class Gate:
    """The pipe by which a wrapper is told that it is in its cgroup."""

    def __init__(self) -> None:
        self.reading, self._writing = os.pipe()

    def open(self) -> None:
        """Let the wrapper go on. It may have ended, and be nobody who reads."""
        os.write(self._writing, b"\n")

    def close(self) -> None:
        """Close both ends here; a wrapper that was not let through ends."""
        os.close(self.reading)
        os.close(self._writing)


def limits_of(settings: WorkerConfig) -> Limits:
    """Return the limits of attempts, in cgroups if this worker may create them, and log them."""
    limits = Limits(
        memory_mb=settings.task_memory_limit_mb,
        processes=settings.task_process_limit,
        by_account=settings.tenant_mode == "tenant",
    )
    if not limits:
        return limits
    found = divided_cgroup(("memory", "pids"))
    if isinstance(found, Path):
        log.info("tasks are limited by cgroups", extra={"cgroup": str(found)})
        return replace(limits, base=found)
    holds = ["memory of each process"] if limits.memory_mb else []
    if limits.processes and limits.by_account:
        holds.append("processes of each tenant's account")
    log.warning(
        "tasks are limited by resource limits alone",
        extra={"cause": found, "holds": ", ".join(holds) or "nothing"},
    )
    return limits


def divided_cgroup(controllers: Iterable[str], *, about: Path = Path("/proc/self")) -> Path | str:
    """Return the cgroup that this process may divide, ready for attempts; or the reason for none.

    The process moves into a leaf of it. That works if the cgroup was delegated to this process
    alone, as by `Delegate=yes` of a systemd unit.
    """
    wanted = sorted(controllers)
    try:
        base = _own_cgroup(about)
        if base is None:
            return "this host has no cgroup v2"
        base = base.parent if base.name == _DAEMON else base
        there = (base / "cgroup.controllers").read_text("utf-8").split()
        missing = [each for each in wanted if each not in there]
        if missing:
            return f"{base} has no controller {', '.join(missing)}"
        leaf = base / _DAEMON
        leaf.mkdir(exist_ok=True)
        (leaf / "cgroup.procs").write_text(str(os.getpid()))
        try:
            (base / "cgroup.subtree_control").write_text(" ".join(f"+{each}" for each in wanted))
        except OSError:
            # Others are in it, which this worker has no business to move.
            (base / "cgroup.procs").write_text(str(os.getpid()))
            _remove(leaf)
            raise
    except OSError as error:
        return f"{error.filename or 'its cgroup'}: {error.strerror}"
    for left in base.glob(f"{_TASK}*"):
        _remove(left)
    return base


def _own_cgroup(about: Path) -> Path | None:
    """Return the folder of this process's cgroup in the hierarchy of version 2."""
    lines = (about / "cgroup").read_text("utf-8").splitlines()
    own = next((line[3:] for line in lines if line.startswith("0::")), None)
    if own is None:
        return None
    for line in (about / "mountinfo").read_text("utf-8").splitlines():
        mount, _, kind = line.partition(" - ")
        if kind.startswith("cgroup2 "):
            root, place = mount.split()[3:5]
            if own == root or own.startswith(root.rstrip("/") + "/"):
                return Path(place) / own[len(root.rstrip("/")) :].lstrip("/")
    return None


def _allowed(kind: int, limit: int) -> int:
    """Return a limit that any process may set: none above the one that it has got already."""
    _, hard = resource.getrlimit(kind)
    return limit if hard == resource.RLIM_INFINITY else min(limit, hard)


def _explain_by_log(result: Result, log_file: int, memory_mb: int) -> None:
    """Guess by the log: nobody is killed by resource limits, but refused memory."""
    if result.facts and result.facts.failure:
        return
    size = os.fstat(log_file).st_size
    tail = os.pread(log_file, _TAIL_BYTES, max(0, size - _TAIL_BYTES))
    if _SPEAKS_OF_MEMORY.search(tail):
        result.failure = FailureReason.OUT_OF_MEMORY
        result.reason = (
            f"{explained(result)}; its log speaks of memory, of which each of its processes may"
            f" have {memory_mb:,} MB ({_SETTINGS})"
        )


def _event(file: Path, name: str) -> bool:
    """Return whether an event has happened, by a file with lines of names and numbers."""
    try:
        lines = file.read_text("utf-8").splitlines()
    except OSError:
        return False
    return any(line.split()[:1] == [name] and line.split()[-1] != "0" for line in lines)


def _number(file: Path) -> int:
    try:
        return int(file.read_text("utf-8"))
    except (OSError, ValueError):
        return 0


def _remove(cgroup: Path) -> None:
    try:
        cgroup.rmdir()
    except OSError as error:
        log.debug("cgroup could not be removed", extra={"path": str(cgroup), "cause": str(error)})
