"""Attempts, locks and publications of one dataset, for tests on two connections."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import Engine, select

from common.model.intervals import Interval
from common.model.locks import (
    Lock,
    LockRequest,
    LockType,
)
from common.model.segments import (
    Publication,
    Segment,
    SegmentId,
    StreamRange,
)
from common.model.states import TaskState
from common.store import tables as t
from common.store.streams.locks import (
    locks_of,
    request_locks,
)
from common.store.streams.offsets import offsets_of_dataset as offsets
from common.store.streams.segments import used_segments
from common.store.worker.ports import AttemptEnd
from common.store.worker.tasks import PostgresTaskStore
from tests.builders import NOON
from tests.integration.store_races.racing import WORKER, a_run, claim, submit

EXCLUSIVE, SHARED, APPEND, REPLACE = LockType
MIDNIGHT = datetime(2026, 11, 20, tzinfo=UTC)


def hours(first: int, last: int) -> Interval:
    return Interval(MIDNIGHT + timedelta(hours=first), MIDNIGHT + timedelta(hours=last))


def attempts(made: Engine, count: int) -> list[int]:
    """Return running attempts of one run."""
    ids = submit(made, a_run(made), *(f"t{number}" for number in range(count)))
    assert claim(made, WORKER, ids) == ids
    return ids


def ask(
    ds: str, kind: LockType = EXCLUSIVE, first: int = 0, last: int = 1, **more: Any
) -> LockRequest:
    values: dict[str, Any] = {"group_id": "a"} | more
    return LockRequest(dataset=ds, type=kind, interval=hours(first, last), **values)


def request(made: Engine, task_id: int, *requests: LockRequest) -> Any:
    with made.begin() as db:
        return request_locks(db, task_id, requests)


def granted(made: Engine, task_id: int, one: LockRequest) -> Lock:
    (lock,) = request(made, task_id, one)
    assert isinstance(lock, Lock)
    return lock


def held(made: Engine, task_id: int) -> list[Lock]:
    with made.connect() as db:
        return list(locks_of(db, task_id))


def end(made: Engine, task_id: int, state: TaskState) -> None:
    ended = AttemptEnd(
        task_instance_id=task_id, state=state, end_time=NOON, exit_code=1, reason=None
    )
    assert PostgresTaskStore(made).report(WORKER, [ended]) == {task_id}


def a_segment(interval: Interval, version: str, number: int = 0, **more: Any) -> Segment:
    values: dict[str, Any] = {"files": (f"f-{uuid.uuid4().hex}",), "rows": 10, "bytes": 100} | more
    name = SegmentId(interval=interval, version=version, partition_num=number)
    return Segment(id=name, **values)


def a_range(start: int, end_: int, *partitions: int, stream: str = "flights") -> StreamRange:
    parts = partitions or (0,)
    return StreamRange(
        stream=stream,
        starts=dict.fromkeys(parts, start),
        ends=dict.fromkeys(parts, end_),
        max_event_times=dict.fromkeys(parts, NOON),
    )


def a_publication(ds: str, task_id: int, *segments: Segment, **more: Any) -> Publication:
    values: dict[str, Any] = {"sequence": "work"} | more
    return Publication(dataset=ds, task_id=task_id, segments=segments, **values)


def stored(made: Engine, ds: str) -> dict[int, int]:
    with made.connect() as db:
        return {one.partition: one.offset for one in offsets(db, ds)}


def used(made: Engine, ds: str) -> list[Segment]:
    with made.connect() as db:
        return list(used_segments(db, ds))


def held_up(db: Any, ds: str, partition: int = 0) -> None:
    """Block publications of this partition until the transaction ends."""
    db.execute(
        select(t.dataset_offsets.c.offset)
        .where(t.dataset_offsets.c.dataset == ds)
        .where(t.dataset_offsets.c.partition == partition)
        .with_for_update()
    )
