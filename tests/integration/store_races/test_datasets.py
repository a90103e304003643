"""Locks on datasets and publications into them, one after the other and at the same moment."""

from __future__ import annotations

import uuid
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import Engine, delete, func, insert, text, update

from common.model.locks import (
    Busy,
    Impossible,
    Lock,
    LockType,
    Revoked,
)
from common.model.segments import (
    AlreadyPublished,
    Conflict,
    LockLost,
    Outcome,
    Publication,
    Published,
    Segment,
    SegmentId,
)
from common.model.states import TaskState
from common.store import tables as t
from common.store.streams.locks import (
    locked_intervals,
    release_locks,
    request_locks,
)
from common.store.streams.publication import publish
from common.store.streams.segments import allocate
from common.store.worker.datasets import PostgresDatasetStore
from tests.builders import NOON
from tests.integration.store_races.dataset_stage import (
    APPEND,
    REPLACE,
    SHARED,
    a_publication,
    a_range,
    a_segment,
    ask,
    attempts,
    end,
    granted,
    held,
    held_up,
    hours,
    request,
    stored,
    used,
)
from tests.integration.store_races.racing import until_blocked


@pytest.fixture
def ds() -> str:
    return f"ds-{uuid.uuid4().hex[:8]}"


def test_a_lock_is_shared_by_its_group_and_kept_from_others(here: Engine, ds: str) -> None:
    first, second, third = attempts(here, 3)
    lock = granted(here, first, ask(ds))
    assert granted(here, second, ask(ds)) == lock
    assert request(here, third, ask(ds, group_id="b")) == Busy(by=(lock,))
    assert held(here, first) == held(here, second) == [lock]
    assert held(here, third) == []


def test_a_lock_is_free_once_all_its_holders_have_released_it(here: Engine, ds: str) -> None:
    first, second, third = attempts(here, 3)
    for task_id in (first, second):
        granted(here, task_id, ask(ds))
    with here.begin() as db:
        assert release_locks(db, first) == 0
    assert isinstance(request(here, third, ask(ds, group_id="b")), Busy)
    with here.begin() as db:
        assert release_locks(db, second) == 1
        assert release_locks(db, second) == 0
    granted(here, third, ask(ds, group_id="b"))


@pytest.mark.parametrize("state", [TaskState.SUCCESS, TaskState.FAILURE, TaskState.KILL])
def test_a_lock_is_free_once_its_attempt_has_ended(here: Engine, ds: str, state: TaskState) -> None:
    first, second = attempts(here, 2)
    former = granted(here, first, ask(ds))
    end(here, first, state)
    latter = granted(here, second, ask(ds, group_id="b"))
    assert latter.id != former.id
    assert held(here, first) == []


def test_an_attempt_that_was_failed_over_holds_and_gets_no_lock(here: Engine, ds: str) -> None:
    first, second = attempts(here, 2)
    granted(here, first, ask(ds))
    fail_over(here, first)
    granted(here, second, ask(ds, group_id="b"))
    refused = request(here, first, ask(ds, first=5, last=6))
    assert isinstance(refused, Impossible)
    assert "is over" in refused.reason


def fail_over(made: Engine, task_id: int) -> None:
    with made.begin() as db:
        changed = db.execute(
            update(t.task_instance)
            .where(t.task_instance.c.id == task_id)
            .where(t.task_instance.c.state == TaskState.RUNNING)
            .values(state=int(TaskState.NEED_FAULT_TOLERANCE), end_time=NOON)
        )
        assert changed.rowcount == 1


def test_an_attempt_gets_all_of_its_locks_or_none(here: Engine, ds: str) -> None:
    first, second = attempts(here, 2)
    taken = granted(here, first, ask(ds, first=5, last=6))
    wanted = [ask(ds, group_id="b", first=hour, last=hour + 1) for hour in (4, 5)]
    wanted.append(ask(f"{ds}-other", group_id="b"))
    assert request(here, second, *wanted) == Busy(by=(taken,))
    assert held(here, second) == []
    end(here, first, TaskState.SUCCESS)
    assert [lock.interval for lock in request(here, second, *wanted)] == [
        one.interval for one in wanted
    ]


def test_an_attempt_that_asks_twice_has_one_lock(here: Engine, ds: str) -> None:
    (task_id,) = attempts(here, 1)
    one, other = request(here, task_id, ask(ds), ask(ds))
    assert one == other
    assert held(here, task_id) == [one]


def test_a_higher_priority_revokes_and_the_holder_is_told(here: Engine, ds: str) -> None:
    first, second = attempts(here, 2)
    lower = granted(here, first, ask(ds, priority=25))
    higher = granted(here, second, ask(ds, group_id="b"))
    assert higher.version > lower.version
    revoked = replace(lower, revoked=True)
    assert held(here, first) == [revoked]
    assert request(here, first, ask(ds, priority=25)) == Revoked(lock=revoked)
    with here.connect() as db:
        assert locked_intervals(db, ds, priority=25) == (hours(0, 1),)
        assert locked_intervals(db, ds, priority=75) == ()


def test_versions_rise_above_those_of_segments_though_the_clock_is_behind(
    here: Engine, ds: str
) -> None:
    (task_id,) = attempts(here, 1)
    ahead = "2999-01-01T00:00:00.000Z"
    with here.begin() as db:
        db.execute(insert(t.dataset).values(name=ds, project_id=1))
        db.execute(
            insert(t.segment).values(
                dataset=ds,
                interval=func.tstzrange(hours(0, 1).start, hours(0, 1).end),
                version=ahead,
                partition_num=0,
                files=[],
                rows=0,
                bytes=0,
                origin_version=ahead,
                origin_num=0,
            )
        )
    assert granted(here, task_id, ask(ds)).version == "2999-01-01T00:00:00.001Z"
    assert granted(here, task_id, ask(ds, first=1, last=2)).version < ahead


def test_of_many_that_ask_at_once_one_gets_the_lock(here: Engine, there: Engine, ds: str) -> None:
    ids = attempts(here, 8)
    engines = [here, there] * 4
    with ThreadPoolExecutor(8) as pool:
        answers = list(
            pool.map(
                lambda made, task_id: request(made, task_id, ask(ds, group_id=str(task_id))),
                engines,
                ids,
            )
        )
    winners = [answer for answer in answers if isinstance(answer, tuple)]
    assert len(winners) == 1
    assert all(answer == Busy(by=winners[0]) for answer in answers if answer not in winners)


def test_a_request_waits_for_another_that_is_not_committed(
    here: Engine, there: Engine, ds: str
) -> None:
    first, second = attempts(here, 2)
    with ThreadPoolExecutor(1) as pool, there.connect() as other:
        (lock,) = request_locks(other, first, [ask(ds)])  # type: ignore[misc]
        asking = pool.submit(request, here, second, ask(ds, group_id="b"))
        until_blocked(there, "here")
        other.commit()
        assert asking.result() == Busy(by=(lock,))


def test_a_publication_moves_offsets_and_segments_together(here: Engine, ds: str) -> None:
    (task_id,) = attempts(here, 1)
    lock = granted(here, task_id, ask(ds))
    one = a_segment(lock.interval, lock.version)
    publication = a_publication(ds, task_id, one, range=a_range(0, 100, 0, 1))
    assert publish(here, publication) == Published(ids=(one.id,))
    assert stored(here, ds) == {0: 100, 1: 100}
    assert used(here, ds) == [one]


def test_the_same_publication_again_changes_nothing(here: Engine, ds: str) -> None:
    first, second = attempts(here, 2)
    lock = granted(here, first, ask(ds))
    granted(here, second, ask(ds))
    one = a_segment(lock.interval, lock.version)
    publication = a_publication(ds, first, one, range=a_range(0, 100))
    assert isinstance(publish(here, publication), Published)
    again = AlreadyPublished(files=frozenset(one.files))
    assert publish(here, publication) == again
    # A replica that did the same work wrote other files.
    twin = replace(publication, task_id=second, segments=(a_segment(lock.interval, lock.version),))
    assert publish(here, twin) == again
    # Not knowing the outcome, one may ask when the stream has gone on and the attempt is over.
    on = a_publication(ds, first, sequence="next", range=a_range(100, 200))
    assert publish(here, on) == Published()
    end(here, first, TaskState.FAILURE)
    assert publish(here, publication) == again
    assert (stored(here, ds), used(here, ds)) == ({0: 200}, [one])


def test_a_stale_range_is_refused_whole(here: Engine, ds: str) -> None:
    (task_id,) = attempts(here, 1)
    lock = granted(here, task_id, ask(ds))
    assert publish(here, a_publication(ds, task_id, range=a_range(0, 100))) == Published()
    one = a_segment(lock.interval, lock.version)
    stale = a_publication(ds, task_id, one, sequence="stale", range=a_range(50, 150, 0, 1))
    assert publish(here, stale) == Conflict(
        reason="the range is stale: partition 0 is at 100, not at 50"
    )
    assert (stored(here, ds), used(here, ds)) == ({0: 100}, [])


def test_an_empty_range_moves_the_offsets_alone_and_is_recognised(here: Engine, ds: str) -> None:
    (task_id,) = attempts(here, 1)
    empty = a_publication(ds, task_id, range=a_range(0, 100))
    assert publish(here, empty) == Published()
    assert publish(here, empty) == AlreadyPublished()
    assert stored(here, ds) == {0: 100}


def test_a_dataset_is_fed_by_one_stream(here: Engine, ds: str) -> None:
    (task_id,) = attempts(here, 1)
    assert publish(here, a_publication(ds, task_id, range=a_range(0, 100))) == Published()
    other = a_publication(ds, task_id, range=a_range(100, 200, stream="trains"))
    outcome = publish(here, other)
    assert isinstance(outcome, Conflict)
    assert "is fed by stream flights" in outcome.reason
    assert stored(here, ds) == {0: 100}


def test_an_attempt_that_is_not_running_publishes_nothing(here: Engine, ds: str) -> None:
    (task_id,) = attempts(here, 1)
    lock = granted(here, task_id, ask(ds))
    fail_over(here, task_id)
    one = a_segment(lock.interval, lock.version)
    outcome = publish(here, a_publication(ds, task_id, one, range=a_range(0, 1)))
    assert outcome == Conflict(reason=f"attempt {task_id} is not running any more")
    assert (stored(here, ds), used(here, ds)) == ({}, [])


def test_a_revoked_writer_publishes_nothing(here: Engine, ds: str) -> None:
    first, second = attempts(here, 2)
    lock = granted(here, first, ask(ds, priority=25))
    granted(here, second, ask(ds, group_id="b"))
    one = a_segment(lock.interval, lock.version)
    outcome = publish(here, a_publication(ds, first, one, range=a_range(0, 1)))
    assert outcome == LockLost(lock=replace(lock, revoked=True))
    assert (stored(here, ds), used(here, ds)) == ({}, [])


def test_what_was_made_of_an_interval_that_others_changed_is_not_published(
    here: Engine, ds: str
) -> None:
    first, second = attempts(here, 2)
    source = f"{ds}-source"
    read = granted(here, first, ask(source, SHARED, priority=25))
    lock = granted(here, first, ask(ds, priority=25))
    granted(here, second, ask(source, group_id="b"))
    outcome = publish(here, a_publication(ds, first, a_segment(lock.interval, lock.version)))
    assert outcome == LockLost(lock=replace(read, revoked=True))


@pytest.mark.parametrize("kind", [None, SHARED])
def test_who_holds_no_lock_to_write_publishes_no_segment(
    here: Engine, ds: str, kind: LockType | None
) -> None:
    (task_id,) = attempts(here, 1)
    if kind is not None:
        granted(here, task_id, ask(ds, kind))
    outcome = publish(here, a_publication(ds, task_id, a_segment(hours(0, 1), "v")))
    assert isinstance(outcome, Conflict)
    assert "holds no lock" in outcome.reason


def test_a_revocation_waits_for_a_publication_that_has_begun(
    here: Engine, there: Engine, ds: str
) -> None:
    first, second = attempts(here, 2)
    lock = granted(here, first, ask(ds, priority=25))
    publish(here, a_publication(ds, first, range=a_range(0, 100)))
    one = a_segment(lock.interval, lock.version)
    publication = a_publication(ds, first, one, sequence="next", range=a_range(100, 200))
    with ThreadPoolExecutor(2) as pool, there.connect() as other:
        held_up(other, ds)
        publishing = pool.submit(publish, here, publication)
        until_blocked(there, "here")
        revoking = pool.submit(request, there, second, ask(ds, group_id="b"))
        failing = pool.submit(fail_over, there, first)
        until_blocked(here, "there")
        assert not revoking.done()
        assert not failing.done()
        other.commit()
        assert publishing.result() == Published(ids=(one.id,))
        (higher,) = revoking.result()
        failing.result()
    assert higher.version > one.id.version
    assert stored(here, ds) == {0: 200}


def test_publications_of_other_partitions_do_not_wait_for_each_other(
    here: Engine, there: Engine, ds: str
) -> None:
    first, second = attempts(here, 2)
    for task_id in (first, second):
        granted(here, task_id, ask(ds, APPEND))
    publish(here, a_publication(ds, first, range=a_range(0, 100, 0, 1)))
    with ThreadPoolExecutor(1) as pool, there.connect() as other:
        held_up(other, ds)
        waiting = pool.submit(
            publish, here, a_publication(ds, first, sequence="0", range=a_range(100, 200, 0))
        )
        until_blocked(there, "here")
        assert (
            publish(there, a_publication(ds, second, sequence="1", range=a_range(100, 300, 1)))
            == Published()
        )
        other.commit()
        assert waiting.result() == Published()
    assert stored(here, ds) == {0: 200, 1: 300}


def test_of_replicas_that_publish_at_once_one_does(here: Engine, there: Engine, ds: str) -> None:
    ids = attempts(here, 4)
    lock, *_ = [granted(here, task_id, ask(ds, APPEND)) for task_id in ids]
    publications = [
        a_publication(ds, task_id, a_segment(lock.interval, lock.version), range=a_range(0, 100))
        for task_id in ids
    ]
    with ThreadPoolExecutor(4) as pool:
        outcomes = list(pool.map(publish, [here, there] * 2, publications))
    names = sorted(type(outcome).__name__ for outcome in outcomes)
    assert names == ["AlreadyPublished"] * 3 + ["Published"]
    assert stored(here, ds) == {0: 100}
    assert len(used(here, ds)) == 1


def replacement(ds: str, task_id: int, lock: Lock, *segments: Segment, **more: Any) -> Publication:
    values: dict[str, Any] = {"sequence": f"task-{task_id}", "replaces": lock.interval} | more
    return a_publication(ds, task_id, *segments, **values)


def test_a_replacement_leaves_nothing_else_in_its_interval(here: Engine, ds: str) -> None:
    first, second = attempts(here, 2)
    lock = granted(here, first, ask(ds, first=0, last=2))
    old = [a_segment(hours(hour, hour + 1), lock.version) for hour in (0, 1)]
    assert isinstance(publish(here, a_publication(ds, first, *old)), Published)
    end(here, first, TaskState.SUCCESS)
    lock = granted(here, second, ask(ds, group_id="b", first=1, last=2))
    new = a_segment(lock.interval, lock.version)
    outcome = publish(here, replacement(ds, second, lock, new))
    assert outcome == Published(ids=(new.id,))
    assert used(here, ds) == [old[0], new]
    assert publish(here, replacement(ds, second, lock, new)) == AlreadyPublished(
        files=frozenset(new.files)
    )
    nothing = publish(here, replacement(ds, second, lock, sequence="none"))
    assert nothing == Published()
    assert used(here, ds) == [old[0]]


def test_who_replaces_twice_under_one_lock_leaves_the_second(here: Engine, ds: str) -> None:
    first, second = attempts(here, 2)
    lock = granted(here, first, ask(ds, REPLACE))
    granted(here, second, ask(ds, REPLACE))
    publish(here, replacement(ds, first, lock, a_segment(lock.interval, lock.version)))
    new = a_segment(lock.interval, lock.version)
    (name,) = published(publish(here, replacement(ds, second, lock, new)))
    assert used(here, ds) == [replace(new, id=name)]
    assert name.partition_num == 1


def published(outcome: Outcome) -> tuple[SegmentId, ...]:
    assert isinstance(outcome, Published), outcome
    return outcome.ids


def test_a_part_of_a_segment_is_not_replaced(here: Engine, ds: str) -> None:
    first, second = attempts(here, 2)
    lock = granted(here, first, ask(ds, first=0, last=2))
    old = a_segment(lock.interval, lock.version)
    published(publish(here, a_publication(ds, first, old)))
    end(here, first, TaskState.SUCCESS)
    lock = granted(here, second, ask(ds, group_id="b"))
    outcome = publish(here, replacement(ds, second, lock))
    assert isinstance(outcome, Conflict)
    assert "reaches beyond" in outcome.reason
    assert used(here, ds) == [old]


def test_what_is_added_while_an_interval_is_replaced_stays(here: Engine, ds: str) -> None:
    stream, backfill, later = attempts(here, 3)
    adding = granted(here, stream, ask(ds, APPEND, group_id="index_kafka", priority=75))
    before = a_segment(adding.interval, adding.version, 0)
    published(publish(here, a_publication(ds, stream, before, range=a_range(0, 1))))
    replacing = granted(here, backfill, ask(ds, REPLACE, first=0, last=2, group_id="b"))
    during = a_segment(adding.interval, adding.version, 1)
    adds_during = a_publication(ds, stream, during, sequence="2", range=a_range(1, 2))
    published(publish(here, adds_during))
    # It stays anyway, so whoever replaces must not write it again; others see it.
    store = PostgresDatasetStore(here)
    assert store.segments(backfill, ds, hours(0, 1)) == store.segments(backfill, ds, None)
    assert store.segments(backfill, ds, None) == (before,)
    assert store.segments(stream, ds, None) == (before, during)
    new = a_segment(hours(0, 1), replacing.version)
    published(publish(here, replacement(ds, backfill, replacing, new)))
    moved = replace(during, id=replace(new.id, partition_num=1))
    assert used(here, ds) == [new, moved]
    # Allocated before the swap, and published after it.
    after = a_segment(adding.interval, adding.version, 2)
    adds_after = a_publication(ds, stream, after, sequence="3", range=a_range(2, 3))
    (name,) = published(publish(here, adds_after))
    assert name == replace(new.id, partition_num=2)
    assert used(here, ds) == [new, moved, replace(after, id=name)]
    for publication, one in ((adds_during, during), (adds_after, after)):
        assert publish(here, publication) == AlreadyPublished(files=frozenset(one.files))
    assert stored(here, ds) == {0: 3}
    # The next to replace has seen all of them.
    end(here, backfill, TaskState.SUCCESS)
    lock = granted(here, later, ask(ds, REPLACE, first=0, last=2, group_id="c"))
    published(publish(here, replacement(ds, later, lock)))
    assert used(here, ds) == []


def test_equal_work_is_given_equal_segments(here: Engine, there: Engine, ds: str) -> None:
    ids = attempts(here, 6)
    for task_id in ids:
        lock = granted(here, task_id, ask(ds, APPEND))

    def given(made: Engine, task_id: int, sequence: str) -> Any:
        with made.begin() as db:
            return allocate(db, task_id, ds, hours(0, 1), sequence=sequence)

    with ThreadPoolExecutor(6) as pool:
        names = list(pool.map(given, [here, there] * 3, ids, ["a", "b", "c"] * 2))
    assert names[:3] == names[3:]
    assert {name.partition_num for name in names} == {0, 1, 2}
    assert {name.version for name in names} == {lock.version}


def test_a_segment_joins_the_version_of_its_chunk(here: Engine, ds: str) -> None:
    first, second = attempts(here, 2)
    former = granted(here, first, ask(ds))
    one = a_segment(former.interval, former.version)
    published(publish(here, a_publication(ds, first, one)))
    end(here, first, TaskState.SUCCESS)
    latter = granted(here, second, ask(ds, group_id="b", first=0, last=2))
    assert latter.version > former.version
    with here.begin() as db:
        name = allocate(db, second, ds, hours(0, 1), sequence="s")
        assert name == replace(one.id, partition_num=1)
        assert allocate(db, second, ds, hours(0, 1), sequence="s", previous="1") == replace(
            one.id, partition_num=2
        )
        fresh = allocate(db, second, ds, hours(1, 2), sequence="s")
        assert fresh == SegmentId(interval=hours(1, 2), version=latter.version, partition_num=0)
        other = allocate(db, second, ds, hours(0, 2), sequence="s")
    assert isinstance(other, Conflict)
    assert "there are segments of" in other.reason


def test_without_a_valid_lock_no_segment_is_given(here: Engine, ds: str) -> None:
    first, second = attempts(here, 2)
    with here.begin() as db:
        none = allocate(db, first, ds, hours(0, 1), sequence="s")
    assert isinstance(none, Conflict)
    lock = granted(here, first, ask(ds, priority=25))
    granted(here, second, ask(ds, group_id="b"))
    with here.begin() as db:
        lost = allocate(db, first, ds, hours(0, 1), sequence="s")
    assert lost == LockLost(lock=replace(lock, revoked=True))


def test_rows_of_locks_that_nobody_holds_go_with_the_next_request(here: Engine, ds: str) -> None:
    first, second = attempts(here, 2)
    for hour in range(3):
        granted(here, first, ask(ds, first=hour, last=hour + 1))
    with here.begin() as db:
        db.execute(delete(t.task_instance).where(t.task_instance.c.id == first))
    granted(here, second, ask(ds, group_id="b", first=7, last=8))
    with here.connect() as db:
        count = text("SELECT count(*) FROM t_ds_task_lock WHERE dataset = :ds")
        assert db.scalar(count, {"ds": ds}) == 1
