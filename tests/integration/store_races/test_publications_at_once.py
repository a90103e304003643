"""Two concurrent publications of one range: its rows are published once."""

from __future__ import annotations

import uuid
from concurrent.futures import ThreadPoolExecutor

from sqlalchemy import Engine

from common.model.segments import Conflict, Published
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
