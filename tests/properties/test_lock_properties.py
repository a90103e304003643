"""Locks on intervals, whatever is asked and released in whatever order."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from common.model.intervals import Interval
from common.model.locks import (
    Busy,
    Grant,
    Impossible,
    Join,
    Lock,
    LockGranularity,
    LockRequest,
    LockType,
    Revoked,
    decide_lock,
)

MIDNIGHT = datetime(2026, 11, 20, tzinfo=UTC)
NUMBERS = st.integers(0, 5)


@st.composite
def intervals(draw: st.DrawFn) -> Interval:
    start = draw(NUMBERS)
    return Interval(
        MIDNIGHT + timedelta(hours=start),
        MIDNIGHT + timedelta(hours=start + draw(st.integers(1, 3))),
    )


@st.composite
def requests(draw: st.DrawFn) -> LockRequest:
    kind = draw(st.sampled_from(LockType))
    by_segment = kind in {LockType.EXCLUSIVE, LockType.SHARED} and draw(st.booleans())
    return LockRequest(
        dataset="ds",
        group_id=draw(st.sampled_from("abc")),
        interval=draw(intervals()),
        type=kind,
        priority=draw(st.sampled_from([0, 25, 50, 75])),
        granularity=LockGranularity.SEGMENT if by_segment else LockGranularity.TIME_CHUNK,
        partition_num=draw(st.integers(0, 1)) if by_segment else None,
    )


# A request, or the release of one of the locks, and by how much the clock moves, be it backwards.
STEPS = st.lists(
    st.tuples(st.one_of(requests(), st.integers(0, 20)), st.integers(-5, 60)), max_size=25
)


def may_be_valid_together(one: Lock, other: Lock) -> bool:
    """The table of the rules, written anew."""
    if one.interval.end <= other.interval.start or other.interval.end <= one.interval.start:
        return True
    same = one.interval == other.interval
    if same and one.partition_num is not None and other.partition_num is not None:
        if one.partition_num != other.partition_num:
            return True
    elif same and one.group_id == other.group_id and one.granularity is not other.granularity:
        return True
    if {one.type, other.type} == {LockType.APPEND, LockType.REPLACE}:
        replacing, adding = (one, other) if one.type is LockType.REPLACE else (other, one)
        return (
            replacing.interval.start <= adding.interval.start
            and adding.interval.end <= replacing.interval.end
        )
    return one.type is other.type and one.type in {LockType.SHARED, LockType.APPEND}


@settings(max_examples=200)
@given(steps=STEPS)
def test_valid_locks_may_stand_together_and_only_lower_ones_are_revoked(
    steps: list[tuple[LockRequest | int, int]],
) -> None:
    locks: dict[int, Lock] = {}
    now = MIDNIGHT
    for number, (step, seconds) in enumerate(steps):
        now += timedelta(seconds=seconds)
        if isinstance(step, int):
            locks.pop(step, None)
            continue
        before = dict(locks)
        decision = decide_lock(step, locks.values(), now=now)
        match decision:
            case Grant(version=version, revoke=revoke):
                for lock_id in revoke:
                    assert not locks[lock_id].revoked
                    assert locks[lock_id].priority < step.priority
                    locks[lock_id] = replace(locks[lock_id], revoked=True)
                made = Lock(
                    id=number,
                    dataset=step.dataset,
                    group_id=step.group_id,
                    interval=step.interval,
                    version=version,
                    type=step.type,
                    priority=step.priority,
                    granularity=step.granularity,
                    partition_num=step.partition_num,
                )
                for lock in before.values():
                    if lock.interval.overlaps(step.interval):
                        assert lock.version < version
                # Nothing was revoked without need.
                assert not any(may_be_valid_together(before[one], made) for one in revoke)
                locks[number] = made
                if _serving(step, locks) == [made]:
                    assert decide_lock(step, locks.values(), now=now) == Join(lock=made)
            case Join(lock=lock):
                assert not lock.revoked
                assert lock.interval.contains(step.interval)
                assert (lock.group_id, lock.type) == (step.group_id, step.type)
            case Revoked(lock=lock):
                assert lock.revoked
                assert lock.group_id == step.group_id
            case Busy(by=by):
                assert by
                assert all(lock.priority >= step.priority and not lock.revoked for lock in by)
            case Impossible():
                assert _serving(step, locks)
        valid = [lock for lock in locks.values() if not lock.revoked]
        for index, one in enumerate(valid):
            assert all(may_be_valid_together(one, other) for other in valid[index + 1 :])


def _serving(request: LockRequest, locks: dict[int, Lock]) -> list[Lock]:
    return [
        lock
        for lock in locks.values()
        if (lock.group_id, lock.type, lock.granularity, lock.partition_num)
        == (request.group_id, request.type, request.granularity, request.partition_num)
        and lock.interval.contains(request.interval)
    ]
