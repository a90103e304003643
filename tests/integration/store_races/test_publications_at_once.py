"""Two concurrent publications of one range: its rows are published once."""

from __future__ import annotations

import uuid
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from sqlalchemy import Engine

from common.model.segments import AlreadyPublished, Conflict, Published
from common.model.streams.partitions import Partition, TopicPartition
from common.store.streams.offsets import drop_offsets, offsets_of_dataset, put_offsets
from common.store.streams.publication import publish
from tests.integration.store_races.dataset_stage import (
    a_publication,
    a_range,
    a_segment,
    ask,
    attempts,
    granted,
    held_up,
    stored,
    used,
)
from tests.integration.store_races.racing import until_blocked


def test_of_two_publications_that_start_at_one_offset_one_is_refused(
    here: Engine, there: Engine
) -> None:
    ds = f"ds-{uuid.uuid4().hex[:8]}"
    first, second = attempts(here, 2)
    lock = granted(here, first, ask(ds))
    granted(here, second, ask(ds))
    publish(here, a_publication(ds, first, sequence="before", range=a_range(0, 100)))
    # The names and the segments differ. Only the range shows that both publish the same rows.
    one, other = (
        a_publication(
            ds,
            task_id,
            a_segment(lock.interval, lock.version, number, rows=10),
            sequence=f"work of {task_id}",
            range=a_range(100, 110),
        )
        for number, task_id in enumerate((first, second))
    )
    with ThreadPoolExecutor(2) as pool, there.connect() as holding:
        held_up(holding, ds)
        outcomes = [pool.submit(publish, here, one), pool.submit(publish, there, other)]
        # Both wait for the offset's row. Without its lock both would have read the old offset.
        until_blocked(there, "here")
        until_blocked(here, "there")
        holding.commit()
        found = [each.result() for each in outcomes]
    assert sorted(type(each).__name__ for each in found) == [Conflict.__name__, Published.__name__]
    assert stored(here, ds) == {0: 110}
    assert sum(each.rows for each in used(here, ds)) == 10


def test_ranges_of_several_topics_are_compared_by_topic_and_number(here: Engine) -> None:
    ds = f"ds-{uuid.uuid4().hex[:8]}"
    (task_id,) = attempts(here, 1)
    eu, us = TopicPartition("eu", 0), TopicPartition("us", 0)

    def published(sequence: str, start: int, end: int, *partitions: Any) -> Any:
        moved = a_range(start, end, *partitions, stream=".*")
        return publish(here, a_publication(ds, task_id, sequence=sequence, range=moved))

    def by_topic() -> dict[Any, int]:
        with here.connect() as db:
            return {each.key: each.offset for each in offsets_of_dataset(db, ds)}

    assert published("a", 0, 10, eu) == Published()
    assert published("b", 0, 10, us) == Published()
    # One of the two has a row, the other does not.
    assert published("c", 10, 20, eu, TopicPartition("eu", 1)) == Published()
    assert by_topic() == {eu: 20, TopicPartition("eu", 1): 20, us: 10}
    stale = published("d", 10, 30, eu, us)
    assert isinstance(stale, Conflict)
    assert stale.reason == "the range is stale: partition eu:0 is at 20, not at 10"
    mixed = published("e", 20, 30, eu, 0)
    assert isinstance(mixed, Conflict)
    assert "one topic, or of several" in mixed.reason
    assert by_topic() == {eu: 20, TopicPartition("eu", 1): 20, us: 10}
    assert published("c", 10, 20, eu, TopicPartition("eu", 1)) == AlreadyPublished()


def test_offsets_of_very_many_partitions_are_stored_and_forgotten(here: Engine) -> None:
    ds = f"ds-{uuid.uuid4().hex[:8]}"
    partitions: list[Partition] = [0, *(TopicPartition("clicks", each) for each in range(15_000))]
    with here.begin() as db:
        put_offsets(db, ds, dict.fromkeys(partitions, 5), stream="clicks", replace=False)
        put_offsets(db, ds, dict.fromkeys(partitions, 6), stream="clicks", replace=False)
        put_offsets(db, ds, dict.fromkeys(partitions[:2], 7), stream="clicks", replace=True)
        assert {each.key: each.offset for each in offsets_of_dataset(db, ds)} == {
            **dict.fromkeys(partitions, 5),
            **dict.fromkeys(partitions[:2], 7),
        }
        # One offset is not stored as expected.
        expected = dict.fromkeys(partitions, 5) | {partitions[1]: 7}
        assert drop_offsets(db, ds, partitions, expected=expected) == len(partitions) - 1
        assert drop_offsets(db, ds, partitions) == 1
