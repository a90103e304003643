"""The rules by which locks on intervals of datasets are granted."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from common.model.intervals import Interval, instant_text
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
    decide_locks,
    next_version,
)

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
EXCLUSIVE, SHARED, APPEND, REPLACE = LockType
NOW = "2026-11-20T12:00:00.000Z"


def hours(first: int, last: int) -> Interval:
    midnight = datetime(2026, 11, 20, tzinfo=UTC)
    return Interval(midnight + timedelta(hours=first), midnight + timedelta(hours=last))


def ask(kind: LockType = EXCLUSIVE, first: int = 0, last: int = 1, **more: object) -> LockRequest:
    values: dict[str, object] = {"dataset": "ds", "group_id": "b"} | more
    return LockRequest(type=kind, interval=hours(first, last), **values)  # type: ignore[arg-type]


def held(kind: LockType = EXCLUSIVE, first: int = 0, last: int = 1, **more: object) -> Lock:
    values: dict[str, object] = {"id": 1, "dataset": "ds", "group_id": "a"} | more
    values.setdefault("version", "2026-11-19T00:00:00.000Z")
    return Lock(type=kind, interval=hours(first, last), **values)  # type: ignore[arg-type]


def decided(request: LockRequest, *locks: Lock) -> object:
    return decide_lock(request, locks, now=NOON)


FREE = Grant(version=NOW)


def test_without_locks_a_request_is_granted_with_the_version_of_now() -> None:
    assert decided(ask()) == FREE


@pytest.mark.parametrize("lock", [held(first=1, last=2), held(dataset="other")])
def test_locks_elsewhere_do_not_matter(lock: Lock) -> None:
    assert decided(ask(), lock) == FREE


@pytest.mark.parametrize(
    ("kind", "standing", "together"),
    [
        (EXCLUSIVE, EXCLUSIVE, False),
        (EXCLUSIVE, SHARED, False),
        (EXCLUSIVE, APPEND, False),
        (EXCLUSIVE, REPLACE, False),
        (SHARED, EXCLUSIVE, False),
        (SHARED, SHARED, True),
        (SHARED, APPEND, False),
        (SHARED, REPLACE, False),
        (APPEND, EXCLUSIVE, False),
        (APPEND, SHARED, False),
        (APPEND, APPEND, True),
        (APPEND, REPLACE, True),
        (REPLACE, EXCLUSIVE, False),
        (REPLACE, SHARED, False),
        (REPLACE, APPEND, True),
        (REPLACE, REPLACE, False),
    ],
)
@pytest.mark.parametrize("priority", [25, 50, 75])
def test_what_cannot_stand_together_waits_or_revokes_by_priority(
    kind: LockType, standing: LockType, priority: int, *, together: bool
) -> None:
    lock = held(standing)
    decision = decided(ask(kind, priority=priority), lock)
    if together:
        assert decision == FREE
    elif priority > lock.priority:
        assert decision == Grant(version=NOW, revoke=(1,))
    else:
        assert decision == Busy(by=(lock,))


def test_a_revoked_lock_of_another_group_is_in_nobodys_way() -> None:
    assert decided(ask(), held(revoked=True, priority=75)) == FREE


def test_nothing_is_revoked_if_one_of_those_in_the_way_must_stay() -> None:
    lower, equal = held(id=1, priority=25), held(id=2, first=1, last=2)
    assert decided(ask(first=0, last=2), lower, equal) == Busy(by=(equal,))


def test_shared_locks_of_lower_priority_stay_while_exclusive_ones_are_revoked() -> None:
    shared, exclusive = held(SHARED, id=1, priority=25), held(id=2, priority=25, revoked=False)
    decision = decided(ask(SHARED, 0, 2), shared, replace(exclusive, interval=hours(1, 2)))
    assert decision == Grant(version=NOW, revoke=(2,))


def test_an_appending_lock_stands_beside_a_replacing_one_that_encloses_it_alone() -> None:
    assert decided(ask(APPEND, 1, 2), held(REPLACE, 0, 3)) == FREE
    beyond = held(REPLACE, 0, 2)
    assert decided(ask(APPEND, 1, 3), beyond) == Busy(by=(beyond,))


def test_a_replacing_lock_stands_beside_the_appending_ones_that_it_encloses_alone() -> None:
    inside, across = held(APPEND, 0, 1, id=1), held(APPEND, 1, 3, id=2)
    assert decided(ask(REPLACE, 0, 2), inside) == FREE
    assert decided(ask(REPLACE, 0, 2), inside, across) == Busy(by=(across,))


@pytest.mark.parametrize("kind", LockType)
def test_a_group_joins_its_own_lock_of_the_type_that_contains_the_interval(kind: LockType) -> None:
    own = held(kind, 0, 3, group_id="b")
    assert decided(ask(kind, 1, 2), own) == Join(lock=own)


def test_a_groups_narrower_lock_does_not_serve_a_wider_request() -> None:
    narrow = held(first=0, last=1, group_id="b")
    assert decided(ask(first=0, last=2), narrow) == Busy(by=(narrow,))


def test_a_group_is_told_that_its_lock_was_revoked() -> None:
    own = held(group_id="b", revoked=True)
    assert decided(ask(), own) == Revoked(lock=own)


def test_tasks_of_a_group_ask_with_one_priority() -> None:
    decision = decided(ask(priority=75), held(group_id="b"))
    assert isinstance(decision, Impossible)
    assert "with priority 50" in decision.reason


def test_two_own_locks_that_would_serve_are_an_error() -> None:
    wide, narrow = (
        held(SHARED, 0, 2, id=1, group_id="b"),
        held(SHARED, 0, 1, id=2, group_id="b"),
    )
    decision = decided(ask(SHARED), wide, narrow)
    assert isinstance(decision, Impossible)
    assert "several locks" in decision.reason


SEGMENT = LockGranularity.SEGMENT


def test_segments_conflict_by_their_partition_number() -> None:
    third = held(granularity=SEGMENT, partition_num=3)
    assert decided(ask(granularity=SEGMENT, partition_num=4), third) == FREE
    same = ask(granularity=SEGMENT, partition_num=3)
    assert decided(same, third) == Busy(by=(third,))


def test_segments_of_another_overlapping_interval_conflict_whatever_their_number() -> None:
    third = held(first=0, last=2, granularity=SEGMENT, partition_num=3)
    request = ask(granularity=SEGMENT, partition_num=4)
    assert decided(request, third) == Busy(by=(third,))


def test_a_chunk_conflicts_with_segments_of_another_group() -> None:
    third = held(granularity=SEGMENT, partition_num=3)
    assert decided(ask(), third) == Busy(by=(third,))
    chunk = held()
    assert decided(ask(granularity=SEGMENT, partition_num=3), chunk) == Busy(by=(chunk,))


def test_a_group_holds_a_chunk_and_segments_of_the_same_interval_side_by_side() -> None:
    own = held(granularity=SEGMENT, partition_num=3, group_id="b")
    assert decided(ask(), own) == Grant(version=NOW)
    wider = ask(first=0, last=2)
    assert decided(wider, own) == Busy(by=(own,))


def test_a_segment_gets_the_version_of_its_chunk_and_a_chunk_a_higher_one() -> None:
    newest = "2026-11-20T13:00:00.000Z"
    segment = ask(granularity=SEGMENT, partition_num=3)
    assert decide_lock(segment, (), now=NOON, newest=newest) == Grant(version=newest)
    chunk = decide_lock(ask(), (), now=NOON, newest=newest)
    assert chunk == Grant(version="2026-11-20T13:00:00.001Z")


@pytest.mark.parametrize(
    ("request_", "word"),
    [
        (ask(priority=101), "from 0 to 100"),
        (ask(priority=-1), "from 0 to 100"),
        (ask(granularity=SEGMENT), "names a partition number"),
        (ask(granularity=SEGMENT, partition_num=-1), "0 or more"),
        (ask(partition_num=1), "only a lock of granularity SEGMENT"),
        (ask(APPEND, granularity=SEGMENT, partition_num=1), "granularity TIME_CHUNK"),
        (ask(REPLACE, granularity=SEGMENT, partition_num=1), "granularity TIME_CHUNK"),
    ],
)
def test_a_request_that_contradicts_itself_is_impossible(request_: LockRequest, word: str) -> None:
    decision = decided(request_)
    assert isinstance(decision, Impossible)
    assert word in decision.reason


def test_versions_rise_though_the_clock_went_backwards() -> None:
    ahead = "2026-11-20T23:59:59.999Z"
    assert next_version([ahead], now=NOON) == "2026-11-21T00:00:00.000Z"
    assert next_version([NOW], now=NOON) == "2026-11-20T12:00:00.001Z"
    assert next_version([], now=NOON) == instant_text(NOON)


def test_all_locks_of_a_task_are_granted_or_none() -> None:
    taken = held(first=5, last=6)
    wanted = [ask(first=1, last=2), ask(first=5, last=6)]
    assert decide_locks(wanted, [taken], now=NOON, newest={}) == (Busy(by=(taken,)),)
    granted = decide_locks(wanted, [], now=NOON, newest={})
    assert granted == (Grant(version=NOW), Grant(version=NOW))


def test_a_task_that_asks_twice_for_the_same_joins_its_own_lock() -> None:
    first, second = decide_locks([ask(), ask()], [], now=NOON, newest={})
    assert first == Grant(version=NOW)
    assert isinstance(second, Join)
    assert second.lock.id < 0


@pytest.mark.parametrize("priorities", [(50, 50), (25, 50), (50, 25)])
def test_locks_of_one_task_that_contradict_each_other_are_impossible(
    priorities: tuple[int, int],
) -> None:
    low, high = priorities
    wanted = [ask(first=0, last=1, priority=low), ask(first=0, last=2, priority=high)]
    (decision,) = decide_locks(wanted, [], now=NOON, newest={})
    assert isinstance(decision, Impossible)
    assert "contradict each other" in decision.reason


def test_a_lock_that_one_request_has_revoked_is_not_in_the_way_of_the_next() -> None:
    wide = held(first=0, last=2, priority=25)
    decisions = decide_locks(
        [ask(first=0, last=1), ask(first=1, last=2)], [wide], now=NOON, newest={}
    )
    assert decisions == (Grant(version=NOW, revoke=(1,)), Grant(version=NOW))
