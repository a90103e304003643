"""Locks on datasets and publications into them, by one client, in a database of the bench's own.

- `lock`: a running attempt asks for an hour of a dataset, beside the locks of others on other hours.
- `lock_of_many`: the same of a dataset that has 60,000 segments, among ten such.
- `publish`: an attempt publishes a segment for each of 100 hours, and moves the offsets of ten
  partitions.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg2

from common.model.intervals import Interval
from common.model.locks import Lock, LockRequest, LockType
from common.model.segments import Publication, Published, Segment, SegmentId, StreamRange
from common.store.connect import Engine
from common.store.streams.locks import request_locks
from common.store.streams.publication import publish
from common.store.streams.segments import allocate
from common.store.worker.tasks import PostgresTaskStore
from tests.bench.figures import Figure, Target, percentile
from tests.bench.stage import Stage
from tests.bench.store import FOLDERS, RUNS, WORKER, fill, own_database

_LOCKS, _PUBLICATIONS = 100, 20
_SEGMENTS, _PARTITIONS, _RECORDS = 100, 10, 1_000
_LONG_KEPT = "long-kept"
_BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


def measure(stage: Stage, runs: int) -> list[Figure]:
    locks, of_many, publications = [], [], []
    with own_database(stage) as (store, dsn), closing(psycopg2.connect(dsn)) as connection:
        for run in range(runs):
            fill(connection)
            attempts = iter(_claimed(store))
            locks.append(_locks(store, attempts.__next__, f"locks-{run}"))
            publications.append(_publications(store, next(attempts), f"rows-{run}"))
        _write_history(connection)
        for _ in range(runs):
            fill(connection)
            of_many.append(_locks(store, iter(_claimed(store)).__next__, _LONG_KEPT))
    return [
        Figure(name="datasets.lock_p50", unit="ms", values=tuple(locks), target=Target(limit=2)),
        Figure(
            name="datasets.lock_of_many_p50",
            unit="ms",
            values=tuple(of_many),
            target=Target(limit=2),
        ),
        Figure(
            name="datasets.publish_p50",
            unit="ms",
            values=tuple(publications),
            target=Target(limit=50),
        ),
    ]


def _write_history(connection: Any) -> None:
    """Write segments of ten datasets, three for each of 20,000 hours that go on beyond the bench's.

    Each has been allocated, and keeps the row of that.
    """
    with connection, connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO t_ds_dataset (name, project_id) SELECT concat(%s, nullif(dataset, 0)), 1"
            " FROM generate_series(0, 9) dataset",
            [_LONG_KEPT],
        )
        for table, columns, values in (
            ("t_ds_segment", "files, rows, bytes, origin_version, origin_num", "'[]', 1, 1, '', 0"),
            ("t_ds_pending_segment", "previous", "''"),
        ):
            cursor.execute(
                f"INSERT INTO {table} (dataset, interval, version, partition_num, sequence,"
                f" {columns}) SELECT concat(%(name)s, nullif(dataset, 0)), tstzrange(hour,"
                f" hour + interval '1 hour'), '2025', number, 'kept-' || number, {values}"
                " FROM generate_series(0, 9) dataset, generate_series(0, 2) number,"
                " generate_series(%(begin)s - interval '19000 hours', %(begin)s + interval '999"
                " hours', '1 hour') hour",
                {"name": _LONG_KEPT, "begin": _BEGIN},
            )
    connection.autocommit = True
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE")
    connection.autocommit = False


def _claimed(store: Engine) -> list[int]:
    """Have the first attempts of all runs claimed; return their ids."""
    ids = range(1, RUNS + 1)
    won = PostgresTaskStore(store).claim(WORKER, ids, folders=FOLDERS, now=datetime.now(UTC))
    return sorted(each.id for each in won)


def _locks(store: Engine, attempt: Callable[[], int], dataset: str) -> float:
    taken = []
    for number in range(_LOCKS):
        task_id = attempt()
        wanted = LockRequest(
            dataset=dataset,
            type=LockType.EXCLUSIVE,
            interval=_hours(number, number + 1),
            group_id=f"run-{task_id}",
        )
        began = time.monotonic()
        with store.begin() as db:
            found = request_locks(db, task_id, [wanted])
        taken.append((time.monotonic() - began) * 1000)
        assert isinstance(found, list | tuple), found
        assert isinstance(found[0], Lock)
    return percentile(taken, 50)


def _publications(store: Engine, task_id: int, dataset: str) -> float:
    lock = LockRequest(
        dataset=dataset,
        type=LockType.APPEND,
        interval=_hours(0, _SEGMENTS),
        group_id=f"run-{task_id}",
    )
    with store.begin() as db:
        request_locks(db, task_id, [lock])
    taken = []
    for number in range(_PUBLICATIONS):
        publication = _publication(store, task_id, dataset, number)
        began = time.monotonic()
        outcome = publish(store, publication)
        taken.append((time.monotonic() - began) * 1000)
        assert isinstance(outcome, Published), outcome
    return percentile(taken, 50)


def _publication(store: Engine, task_id: int, dataset: str, number: int) -> Publication:
    sequence = f"sequence-{number}"
    segments = []
    for hour in range(_SEGMENTS):
        with store.begin() as db:
            name = allocate(db, task_id, dataset, _hours(hour, hour + 1), sequence=sequence)
        assert isinstance(name, SegmentId), name
        file = f"{dataset}/{number}-{hour}.parquet"
        segments.append(Segment(id=name, files=(file,), rows=10, bytes=100))
    partitions = range(_PARTITIONS)
    return Publication(
        dataset=dataset,
        task_id=task_id,
        sequence=sequence,
        segments=tuple(segments),
        range=StreamRange(
            stream="events",
            starts=dict.fromkeys(partitions, number * _RECORDS),
            ends=dict.fromkeys(partitions, (number + 1) * _RECORDS),
            max_event_times=dict.fromkeys(partitions, _BEGIN),
        ),
    )


def _hours(first: int, last: int) -> Interval:
    return Interval(_BEGIN + timedelta(hours=first), _BEGIN + timedelta(hours=last))
