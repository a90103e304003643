"""Locks of tasks on intervals of a dataset: the rules by which they are granted.

Pure. A *dataset* is a named collection of rows by time. A *lock* is a group's right to an interval
of it: to read it undisturbed (SHARED), to write it (EXCLUSIVE), to add to it beside others
(APPEND), or to replace it while others add (REPLACE). A *group* is what may share one lock: all
tasks of a run, or of a stream. The *holders* of a lock are tasks; the store keeps them.

A lock of lower priority is *revoked* by one that can't stand beside it: it is marked, not removed,
and its holder is told at its next request or publication. Used by `common.store.streams`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Final, TypeAlias

from common.model.intervals import Interval, instant_text

STREAM_PRIORITY: Final = 75
BATCH_PRIORITY: Final = 50
COMPACTION_PRIORITY: Final = 25
LOWEST_PRIORITY: Final = 0
HIGHEST_PRIORITY: Final = 100

_VERSION_STEP: Final = timedelta(milliseconds=1)


class LockType(StrEnum):
    """The use that a lock allows; the values are those of `t_ds_task_lock.type`."""

    EXCLUSIVE = "EXCLUSIVE"
    SHARED = "SHARED"
    APPEND = "APPEND"
    REPLACE = "REPLACE"


WRITING_LOCKS: Final = frozenset({LockType.EXCLUSIVE, LockType.APPEND, LockType.REPLACE})
REPLACING_LOCKS: Final = frozenset({LockType.EXCLUSIVE, LockType.REPLACE})


class LockGranularity(StrEnum):
    """The extent of a lock: all of its interval, or one partition number of it."""

    TIME_CHUNK = "TIME_CHUNK"
    SEGMENT = "SEGMENT"


@dataclass(frozen=True, slots=True, kw_only=True)
class LockRequest:
    """A group's need for an interval. `partition_num` belongs to granularity SEGMENT alone."""

    dataset: str
    group_id: str
    interval: Interval
    type: LockType = LockType.EXCLUSIVE
    priority: int = BATCH_PRIORITY
    granularity: LockGranularity = LockGranularity.TIME_CHUNK
    partition_num: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Lock:
    """A lock as it stands. What its group writes under it bears `version`."""

    id: int
    dataset: str
    group_id: str
    interval: Interval
    version: str
    type: LockType = LockType.EXCLUSIVE
    priority: int = BATCH_PRIORITY
    granularity: LockGranularity = LockGranularity.TIME_CHUNK
    partition_num: int | None = None
    revoked: bool = False

    def __str__(self) -> str:
        part = "" if self.partition_num is None else f" partition {self.partition_num} of"
        return (
            f"{self.type}{part} {self.interval} of group {self.group_id} (priority {self.priority})"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """Make a new lock of this version, and revoke those with these ids."""

    version: str
    revoke: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Join:
    """Add the task to the holders of this lock of its group."""

    lock: Lock


@dataclass(frozen=True, slots=True, kw_only=True)
class Revoked:
    """Refuse: this lock of the task's own group has been revoked, and isn't released yet."""

    lock: Lock


@dataclass(frozen=True, slots=True, kw_only=True)
class Busy:
    """Refuse for now: these locks stand in the way, and may not be revoked."""

    by: tuple[Lock, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Impossible:
    """Refuse for good: the request contradicts itself or its group's own locks."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NotShared(Impossible):
    """A final refusal: the dataset belongs to a project that has not shared it."""


def not_shared(dataset: str) -> str:
    """Return the reason why a task may not lock or change a dataset."""
    return (
        f"the project of this task has no dataset {dataset}: another project has one of this name"
        " and has not shared it"
    )


LockDecision: TypeAlias = Grant | Join | Revoked | Busy | Impossible


def decide_lock(
    request: LockRequest, locks: Iterable[Lock], *, now: datetime, newest: str | None = None
) -> LockDecision:
    """Decide a request beside the locks of its dataset; those elsewhere in time may be left out.

    `newest`: the greatest version of the dataset's segments in the interval.
    """
    mistake = _mistake(request)
    if mistake is not None:
        return Impossible(reason=mistake)
    overlapping = [
        lock
        for lock in locks
        if lock.dataset == request.dataset and lock.interval.overlaps(request.interval)
    ]
    bearing = [lock for lock in overlapping if _bears_on(request, lock)]
    own = [lock for lock in bearing if _is_reusable(request, lock)]
    if own:
        return _reuse(request, own)
    in_the_way = [lock for lock in bearing if not lock.revoked and not _may_coexist(request, lock)]
    lasting = tuple(lock for lock in in_the_way if lock.priority >= request.priority)
    if lasting:
        return Busy(by=lasting)
    if request.granularity is LockGranularity.SEGMENT and newest is not None:
        # Beside the other segments of the chunk, not above them.
        version = newest
    else:
        version = next_version((lock.version for lock in overlapping), newest, now=now)
    return Grant(version=version, revoke=tuple(lock.id for lock in in_the_way))


def decide_locks(
    requests: Sequence[LockRequest],
    locks: Iterable[Lock],
    *,
    now: datetime,
    newest: Mapping[LockRequest, str],
) -> tuple[LockDecision, ...]:
    """Decide all requests of one task: all are granted or joined, or the answer is one refusal.

    `newest`: for a request, the greatest version of its dataset's segments in the interval.
    """
    standing = {lock.id: lock for lock in locks}
    decisions: list[LockDecision] = []
    for request in requests:
        decision = decide_lock(request, standing.values(), now=now, newest=newest.get(request))
        match decision:
            case Grant(version=version, revoke=revoke):
                if any(lock_id < 0 for lock_id in revoke):
                    return (_contradiction(request),)
                standing |= {
                    lock_id: replace(standing[lock_id], revoked=True) for lock_id in revoke
                }
                # Locks without a row yet have numbers below all ids.
                granted = _granted(request, version, -1 - len(decisions))
                standing[granted.id] = granted
            case Busy(by=by) if any(lock.id < 0 for lock in by):
                return (_contradiction(request),)
            case Join():
                pass
            case _:
                return (decision,)
        decisions.append(decision)
    return tuple(decisions)


def next_version(versions: Iterable[str], newest: str | None = None, *, now: datetime) -> str:
    """Return the version of now, or one above the greatest of these if a clock went backwards."""
    greatest = max((*versions, newest or ""), default="")
    version = instant_text(now)
    if version > greatest:
        return version
    return instant_text(datetime.fromisoformat(greatest).astimezone(UTC) + _VERSION_STEP)


def _granted(request: LockRequest, version: str, lock_id: int) -> Lock:
    return Lock(
        id=lock_id,
        dataset=request.dataset,
        group_id=request.group_id,
        interval=request.interval,
        version=version,
        type=request.type,
        priority=request.priority,
        granularity=request.granularity,
        partition_num=request.partition_num,
    )


def _contradiction(request: LockRequest) -> Impossible:
    return Impossible(
        reason=f"the locks of the task contradict each other: {request.type} of"
        f" {request.dataset} {request.interval} can't stand beside another that it asks for"
    )


def _mistake(request: LockRequest) -> str | None:
    if not LOWEST_PRIORITY <= request.priority <= HIGHEST_PRIORITY:
        return (
            f"the priority of a lock is a number from {LOWEST_PRIORITY} to {HIGHEST_PRIORITY}, not"
            f" {request.priority}"
        )
    if request.granularity is LockGranularity.SEGMENT:
        if request.type in {LockType.APPEND, LockType.REPLACE}:
            return f"a lock of type {request.type} has granularity TIME_CHUNK"
        if request.partition_num is None or request.partition_num < 0:
            return "a lock of granularity SEGMENT names a partition number, 0 or more"
    elif request.partition_num is not None:
        return "only a lock of granularity SEGMENT names a partition number"
    return None


def _bears_on(request: LockRequest, lock: Lock) -> bool:
    """Return True if the overlapping lock bears on the request, be it as the group's own."""
    same_interval = lock.interval == request.interval
    if lock.granularity is not request.granularity:
        # A group may hold a chunk and segments of it side by side.
        return not (same_interval and lock.group_id == request.group_id)
    if request.granularity is LockGranularity.SEGMENT and same_interval:
        return lock.partition_num == request.partition_num
    return True


def _is_reusable(request: LockRequest, lock: Lock) -> bool:
    return (
        lock.group_id == request.group_id
        and lock.type is request.type
        and lock.granularity is request.granularity
        and lock.partition_num == request.partition_num
        and lock.interval.contains(request.interval)
    )


def _reuse(request: LockRequest, own: Sequence[Lock]) -> LockDecision:
    if len(own) > 1:
        named = " and ".join(str(lock.interval) for lock in own)
        return Impossible(
            reason=f"group {request.group_id} has several locks that hold {request.interval}:"
            f" {named}; tasks of a group have to ask for equal intervals, or for separate ones"
        )
    (lock,) = own
    if lock.revoked:
        return Revoked(lock=lock)
    if lock.priority != request.priority:
        return Impossible(
            reason=f"group {request.group_id} holds {lock.interval} with priority {lock.priority}:"
            f" its tasks have to ask with the same, not with {request.priority}"
        )
    return Join(lock=lock)


def _may_coexist(request: LockRequest, lock: Lock) -> bool:
    match request.type, lock.type:
        case (LockType.SHARED, LockType.SHARED) | (LockType.APPEND, LockType.APPEND):
            return True
        case LockType.APPEND, LockType.REPLACE:
            return lock.interval.contains(request.interval)
        case LockType.REPLACE, LockType.APPEND:
            return request.interval.contains(lock.interval)
        case _:
            return False
