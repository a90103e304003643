"""Datasets in both stores: locks of chunks, publications of a stream, replacements by others."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from common.model.locks import Busy, Impossible, Lock, LockType, Revoked
from common.model.segments import AlreadyPublished, Conflict, LockLost, Outcome, Published
from common.model.states import TaskState
from common.store.listen import Channel
from tests.builders import NOON
from tests.conformance.store_tables import LATER, Tables, a_run, an_end, claim, end, submit
from tests.conformance.streams import STREAM, Streams, streams_of

EXCLUSIVE, SHARED, APPEND, REPLACE = LockType


@pytest.fixture
def streams(db: Tables) -> Streams:
    return streams_of(db)


@pytest.fixture
def ds() -> str:
    return f"ds-{uuid.uuid4().hex[:8]}"


def attempts(db: Tables, count: int = 2) -> list[int]:
    """Running attempts, each of a run of its own."""
    ids = [submit(db, a_run(db), "a")[0] for _ in range(count)]
    assert claim(db, ids) == ids
    return ids


def granted(
    streams: Streams, task_id: int, ds: str, chunk: int, kind: LockType, **more: Any
) -> Lock:
    lock = streams.lock(task_id, ds, chunk, kind, **more)
    assert isinstance(lock, Lock), lock
    return lock


def of_stream(streams: Streams, task_id: int, ds: str, *chunks: int) -> None:
    for chunk in chunks:
        granted(streams, task_id, ds, chunk, APPEND, priority=75, of_stream=True)


def publish(streams: Streams, task_id: int, ds: str, parts: dict[int, str], **more: Any) -> Outcome:
    """Publish records of partition 0, from `start` up to `end`."""
    start = more.pop("start", 0)
    values: dict[str, Any] = {
        "sequence": f"s{start}",
        "stream": STREAM,
        "starts": {0: start},
        "ends": {0: more.pop("end", 5)},
    }
    return streams.publish(task_id, ds, parts, **values | more)


def files(streams: Streams, ds: str, chunk: int, task_id: int = 0) -> list[str]:
    return sorted(streams.paths(task_id, ds, chunk))


def test_a_lock_is_joined_by_its_group_and_kept_from_others(
    db: Tables, streams: Streams, ds: str
) -> None:
    first, second = attempts(db)
    lock = granted(streams, first, ds, 1, EXCLUSIVE)
    assert streams.lock(second, ds, 1, EXCLUSIVE) == Busy(by=(lock,))
    granted(streams, second, ds, 2, EXCLUSIVE)
    end(db, an_end(first))
    assert granted(streams, second, ds, 1, EXCLUSIVE).id != lock.id
    assert isinstance(streams.lock(first, ds, 7, EXCLUSIVE), Impossible)


def test_tasks_of_a_stream_share_the_lock_of_a_chunk(db: Tables, streams: Streams, ds: str) -> None:
    first, second = attempts(db)
    of_stream(streams, first, ds, 1)
    of_stream(streams, second, ds, 1)
    end(db, an_end(first, TaskState.FAILURE))
    assert isinstance(publish(streams, second, ds, {1: "a"}), Published)


def test_a_higher_priority_revokes_and_the_holder_is_told(
    db: Tables, streams: Streams, ds: str
) -> None:
    first, second = attempts(db)
    lower = granted(streams, first, ds, 1, EXCLUSIVE, priority=25)
    higher = granted(streams, second, ds, 1, EXCLUSIVE)
    assert higher.version > lower.version
    assert isinstance(streams.lock(first, ds, 1, EXCLUSIVE, priority=25), Revoked)
    assert isinstance(publish(streams, first, ds, {1: "a"}), LockLost)
    assert isinstance(streams.replace(first, ds, 1, ["a"]), LockLost)
    assert (files(streams, ds, 1), streams.event_times(ds)) == ([], {})


def test_offsets_and_segments_move_together(db: Tables, streams: Streams, ds: str) -> None:
    (task_id,) = attempts(db, 1)
    of_stream(streams, task_id, ds, 1, 2)
    db.notifications()
    outcome = publish(streams, task_id, ds, {1: "a", 2: "b"}, times={0: LATER})
    assert isinstance(outcome, Published)
    assert db.notifications() == [(Channel.DATASET, ds)]
    assert (files(streams, ds, 1), files(streams, ds, 2)) == (["a"], ["b"])
    assert streams.event_times(ds) == {0: LATER}
    assert isinstance(
        publish(streams, task_id, ds, {1: "c"}, start=5, end=9, times={0: NOON}), Published
    )
    assert (files(streams, ds, 1), streams.event_times(ds)) == (["a", "c"], {0: LATER})


def test_the_same_publication_again_names_the_files_that_count(
    db: Tables, streams: Streams, ds: str
) -> None:
    first, second = attempts(db)
    for task_id in (first, second):
        of_stream(streams, task_id, ds, 1)
    assert isinstance(publish(streams, first, ds, {1: "a"}), Published)
    for task_id in (first, second):
        again = publish(streams, task_id, ds, {1: "b"})
        assert again == AlreadyPublished(files=frozenset({"a"}))
    assert files(streams, ds, 1) == ["a"]


def test_a_stale_range_is_refused_whole(db: Tables, streams: Streams, ds: str) -> None:
    (task_id,) = attempts(db, 1)
    of_stream(streams, task_id, ds, 1)
    publish(streams, task_id, ds, {1: "a"})
    for start in (0, 4, 6):
        stale = publish(streams, task_id, ds, {1: "b"}, start=start, end=9, sequence="other")
        assert isinstance(stale, Conflict)
        assert f"partition 0 is at 5, not at {start}" in stale.reason
    other = publish(streams, task_id, ds, {1: "b"}, start=5, end=9, stream="others")
    assert isinstance(other, Conflict)
    assert "is fed by stream" in other.reason
    assert files(streams, ds, 1) == ["a"]
    # A partition that is new may begin anywhere.
    new = publish(
        streams, task_id, ds, {1: "c"}, start=0, end=0, starts={1: 70}, ends={1: 80}, sequence="n"
    )
    assert isinstance(new, Published)


def test_a_range_without_rows_moves_offsets_alone(db: Tables, streams: Streams, ds: str) -> None:
    (task_id,) = attempts(db, 1)
    assert isinstance(publish(streams, task_id, ds, {}), Published)
    assert publish(streams, task_id, ds, {}) == AlreadyPublished()
    assert isinstance(publish(streams, task_id, ds, {}, start=0, end=6), Conflict)
    assert isinstance(publish(streams, task_id, ds, {}, start=5, end=6), Published)


def test_nothing_is_published_without_a_lock_or_by_an_attempt_that_does_not_run(
    db: Tables, streams: Streams, ds: str
) -> None:
    first, second = attempts(db)
    of_stream(streams, first, ds, 1)
    assert isinstance(publish(streams, first, ds, {2: "a"}), Conflict)
    assert isinstance(publish(streams, second, ds, {1: "a"}), Conflict)
    assert isinstance(streams.replace(first, ds, 1, ["a"]), Conflict)
    end(db, an_end(first))
    assert isinstance(publish(streams, first, ds, {1: "a"}), Conflict)
    assert isinstance(publish(streams, first, ds, {}), Conflict)
    assert streams.event_times(ds) == {}


def test_what_is_added_while_a_chunk_is_replaced_stays_and_is_not_read(
    db: Tables, streams: Streams, ds: str
) -> None:
    stream, batch, later = attempts(db, 3)
    of_stream(streams, stream, ds, 1)
    publish(streams, stream, ds, {1: "before"})
    granted(streams, batch, ds, 1, REPLACE)
    publish(streams, stream, ds, {1: "beside"}, start=5, end=9)
    assert files(streams, ds, 1, batch) == ["before"]
    assert files(streams, ds, 1, stream) == ["before", "beside"]
    assert isinstance(streams.replace(batch, ds, 1, ["new"]), Published)
    assert files(streams, ds, 1, stream) == ["beside", "new"]
    # The next to replace has seen all of them.
    end(db, an_end(batch))
    granted(streams, later, ds, 1, REPLACE)
    assert isinstance(streams.replace(later, ds, 1, []), Published)
    assert files(streams, ds, 1, stream) == []
