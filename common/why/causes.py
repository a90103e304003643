"""A cause: what blocks something, since when, and the next check. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum


class CauseKind(StrEnum):
    """The kind of a cause, as programs read it; a value never changes its meaning."""

    ENDED = "ended"
    SUPERSEDED = "superseded"
    RUNNING = "running"
    FAILED = "failed"
    ZOOKEEPER = "zookeeper_unreachable"
    NO_MASTER = "no_master"
    MASTERS_FULL = "masters_full"
    PROJECT_SHARE = "project_share"
    OWNER_GONE = "owner_gone"
    COMMAND = "command_waits"
    COMMAND_REFUSED = "command_refused"
    COMMAND_TAKEN = "command_taken"
    OFFLINE = "definition_offline"
    NO_DEFINITION = "definition_missing"
    SERIAL = "serial_wait"
    THREAD = "waiting_thread"
    STOPPING = "being_stopped"
    PAUSING = "being_paused"
    UPSTREAM = "upstream"
    UPSTREAM_FAILED = "upstream_failed"
    LEFT_OUT = "left_out"
    FORBIDDEN = "forbidden"
    OUT_OF_SCOPE = "out_of_scope"
    ENDING = "run_is_ending"
    RETRY = "retry"
    DELAY = "delay"
    POOL = "pool"
    POOL_UNKNOWN = "pool_unknown"
    LOCK = "lock"
    LOCK_IMPOSSIBLE = "lock_impossible"
    QUEUED = "queued"
    NO_WORKER = "no_worker"
    NO_WORKER_IN_GROUP = "no_worker_in_group"
    ALL_RESERVED = "all_reserved"
    WORKER_GONE = "worker_gone"
    WORKER_UNFIT = "worker_unfit"
    WORKER_DISABLED = "worker_disabled"
    PROCESSES_LEFT = "processes_left"
    SUB_PROCESS = "sub_process"
    DEPENDENT = "dependent"
    NEXT = "about_to_begin"
    UNREADABLE = "unreadable"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """One cause; `because` are the causes behind it. `next` is the next check or step."""

    cause: CauseKind
    subject: str
    text: str
    since: datetime | None = None
    next: str | None = None
    next_at: datetime | None = None
    because: tuple[Cause, ...] = ()

    def flat(self, depth: int = 0) -> Iterator[tuple[int, Cause]]:
        """It and everything behind it, each with its depth."""
        yield depth, self
        for each in self.because:
            yield from each.flat(depth + 1)
