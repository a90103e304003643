"""Streams in both stores: supervisors, their tasks, datasets, and what people do with them.

A chunk of a dataset is a number here, an hour of 2013, and each part of a publication one file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol

from sqlalchemy import delete, insert, select, update
from sqlalchemy.dialects.postgresql import insert as upsert

from common.model.locks import Busy, Impossible, Lock, LockType, Revoked
from common.model.segments import Outcome, StreamRange
from common.model.streams.requests import RequestKind
from common.store import tables as t
from common.store.master.supervisor_ports import Standing, SupervisorStore
from common.store.master.supervisors import PostgresSupervisorStore
from common.store.people.supervisors import (
    add_version,
    make_supervisor,
    put_request,
    supervisor_named,
    versions,
)
from common.store.streams.segments import used_segments
from common.store.worker.datasets import Part, PostgresDatasetStore
from common.store.worker.stream_tasks import PostgresStreamTasks
from tests.conformance.store_tables import MemoryTables, PostgresTables, Tables
from tests.memory import streams as memory
from tests.memory.datasets import MemoryDatasets, MemoryPart, hour
from tests.memory.stream_rows import OffsetRecord, RuntimeRecord, SpecRecord
from worker.datasets.orders import StreamTasks

STREAM = "events"


class Streams(Protocol):
    """One database's streams. `supervisors` and `tasks` are the ports of masters and workers."""

    supervisors: SupervisorStore
    tasks: StreamTasks

    def make(self, name: str, document: Mapping[str, Any]) -> None:
        """Submit a supervisor for the first time."""

    def add_version(
        self,
        name: str,
        version: int,
        document: Mapping[str, Any] | None,
        *,
        suspended: bool = False,
    ) -> None: ...

    def request(self, name: str, kind: RequestKind, body: Mapping[str, Any]) -> int: ...

    def documents(self, name: str) -> list[Mapping[str, Any] | None]:
        """The documents of all versions, the newest first."""

    def standing(self, name: str) -> tuple[bool, str | None, Standing]:
        """True if somebody has to look after it, who does, and its state for people."""

    def event_times(self, name: str) -> dict[int, datetime | None]: ...

    def set_offset(self, name: str, partition: int, offset: int, latest: datetime | None) -> None:
        """Insert the offset of a partition, or change it, as nobody but a test does."""

    def lock(
        self, task_id: int, dataset: str, chunk: int, kind: LockType, **more: Any
    ) -> Lock | Busy | Revoked | Impossible: ...

    def publish(
        self, task_id: int, dataset: str, parts: Mapping[int, str], **more: Any
    ) -> Outcome: ...

    def paths(self, task_id: int, dataset: str, chunk: int) -> list[str]:
        """The files of a chunk that an attempt reads."""

    def replace(self, task_id: int, dataset: str, chunk: int, paths: Sequence[str]) -> Outcome: ...


def streams_of(db: Tables) -> Streams:
    """Return the streams of a database, without any."""
    if isinstance(db, MemoryTables):
        return MemoryStreams(db)
    assert isinstance(db, PostgresTables)
    return PostgresStreams(db)


class MemoryStreams:
    def __init__(self, db: MemoryTables) -> None:
        self.tables = memory.StreamTables(db.database)
        self.supervisors: SupervisorStore = memory.MemorySupervisorStore(self.tables)
        self.tasks: StreamTasks = memory.MemoryStreamTasks(self.tables)
        self._datasets = MemoryDatasets(self.tables)
        self._db = db.database

    def make(self, name: str, document: Mapping[str, Any]) -> None:
        with self._db.transaction("submit") as tx:
            tx.insert(self.tables.specs, SpecRecord(name=name, version=1, document=document))
            tx.insert(self.tables.runtimes, RuntimeRecord(name=name, version=1, definition_id=1))

    def add_version(
        self,
        name: str,
        version: int,
        document: Mapping[str, Any] | None,
        *,
        suspended: bool = False,
    ) -> None:
        row = self.tables.runtime(name)
        assert row is not None
        assert row.version + 1 == version
        with self._db.transaction("person") as tx:
            memory.put_version(tx, self.tables, row, document, suspended=suspended)

    def request(self, name: str, kind: RequestKind, body: Mapping[str, Any]) -> int:
        return memory.put_request(self.tables, name, kind, body)

    def documents(self, name: str) -> list[Mapping[str, Any] | None]:
        return [row.document for row in reversed(list(self.tables.specs)) if row.name == name]

    def standing(self, name: str) -> tuple[bool, str | None, Standing]:
        row = self.tables.runtime(name)
        assert row is not None
        return row.active, None if row.owner is None else row.owner.address, row.standing

    def event_times(self, name: str) -> dict[int, datetime | None]:
        return {each: row.latest_event for each, row in self.tables.stored(name).items()}

    def set_offset(self, name: str, partition: int, offset: int, latest: datetime | None) -> None:
        former = self.tables.stored(name).get(partition)
        row = OffsetRecord(
            dataset=name,
            stream=STREAM,
            partition=partition,
            position=offset,
            latest_event=latest,
        )
        with self._db.transaction("test") as tx:
            if former is not None:
                tx.delete(self.tables.offsets, former.id)
            tx.insert(self.tables.offsets, row)

    def lock(
        self, task_id: int, dataset: str, chunk: int, kind: LockType, **more: Any
    ) -> Lock | Busy | Revoked | Impossible:
        return self._datasets.lock(task_id, dataset, chunk, kind=kind, **more)

    def publish(self, task_id: int, dataset: str, parts: Mapping[int, str], **more: Any) -> Outcome:
        made = [MemoryPart(chunk=chunk, path=path) for chunk, path in parts.items()]
        return self._datasets.publish(task_id, dataset, made, **more)

    def paths(self, task_id: int, dataset: str, chunk: int) -> list[str]:
        return self._datasets.paths(task_id, dataset, chunk)

    def replace(self, task_id: int, dataset: str, chunk: int, paths: Sequence[str]) -> Outcome:
        return self._datasets.replace(task_id, dataset, chunk, paths)


class PostgresStreams:
    def __init__(self, db: PostgresTables) -> None:
        self.supervisors: SupervisorStore = PostgresSupervisorStore(db.engine)
        self.tasks: StreamTasks = PostgresStreamTasks(db.engine)
        self._datasets = PostgresDatasetStore(db.engine)
        self._engine = db.engine
        with db.engine.begin() as rows:
            for table in (t.stream_task, t.supervisor, t.supervisor_runtime):
                rows.execute(delete(table))
            # The definition of the runs. New datasets belong to its project.
            definition = {"id": 1, "name": "flights", "project_id": 1}
            rows.execute(upsert(t.process_definition).values(definition).on_conflict_do_nothing())

    def make(self, name: str, document: Mapping[str, Any]) -> None:
        with self._engine.begin() as db:
            assert make_supervisor(db, name, project_id=1, process_definition_id=1)
        self.add_version(name, 1, document)

    def add_version(
        self,
        name: str,
        version: int,
        document: Mapping[str, Any] | None,
        *,
        suspended: bool = False,
    ) -> None:
        with self._engine.begin() as db:
            add_version(
                db, name, version=version, document=document, suspended=suspended, user_id=1
            )

    def request(self, name: str, kind: RequestKind, body: Mapping[str, Any]) -> int:
        with self._engine.begin() as db:
            return put_request(db, name, kind, body, user_id=1)

    def documents(self, name: str) -> list[Mapping[str, Any] | None]:
        with self._engine.connect() as db:
            return [each.document for each in versions(db, name)]

    def standing(self, name: str) -> tuple[bool, str | None, Standing]:
        with self._engine.connect() as db:
            view = supervisor_named(db, name)
        assert view is not None
        standing = Standing(
            state=view.state,
            detailed_state=view.detailed_state,
            healthy=view.healthy,
            recent_errors=tuple(view.recent_errors),
            status=view.status,
        )
        return view.active, view.owner, standing

    def event_times(self, name: str) -> dict[int, datetime | None]:
        offsets = t.dataset_offsets
        with self._engine.connect() as db:
            rows = db.execute(select(offsets).where(offsets.c.dataset == name)).all()
        return {row.partition: row.max_event_time for row in rows}

    def set_offset(self, name: str, partition: int, offset: int, latest: datetime | None) -> None:
        offsets = t.dataset_offsets
        values = {"stream": STREAM, "offset": offset, "max_event_time": latest}
        with self._engine.begin() as db:
            changed = db.execute(
                update(offsets)
                .where(offsets.c.dataset == name, offsets.c.partition == partition)
                .values(values)
            ).rowcount
            if not changed:
                db.execute(insert(offsets).values(dataset=name, partition=partition, **values))

    def lock(
        self, task_id: int, dataset: str, chunk: int, kind: LockType, **more: Any
    ) -> Lock | Busy | Revoked | Impossible:
        options = {"priority": 50, "of_stream": False} | more
        return self._datasets.lock(task_id, dataset, hour(chunk), kind=kind, **options)

    def publish(self, task_id: int, dataset: str, parts: Mapping[int, str], **more: Any) -> Outcome:
        stream_range = StreamRange(
            stream=more.pop("stream"),
            starts=more.pop("starts"),
            ends=more.pop("ends"),
            max_event_times=more.pop("times", {}),
        )
        made = [_part(chunk, path) for chunk, path in parts.items()]
        return self._datasets.publish(task_id, dataset, made, stream_range=stream_range, **more)

    def paths(self, task_id: int, dataset: str, chunk: int) -> list[str]:
        # 0 stands for a reader without an attempt. Such a reader sees all segments.
        with self._engine.connect() as db:
            segments = used_segments(db, dataset, hour(chunk), task_id=task_id or None)
        return [path for segment in segments for path in segment.files]

    def replace(self, task_id: int, dataset: str, chunk: int, paths: Sequence[str]) -> Outcome:
        return self._datasets.publish(
            task_id,
            dataset,
            [_part(chunk, path) for path in paths],
            sequence=f"b{task_id}",
            replaces=hour(chunk),
        )


def _part(chunk: int, path: str) -> Part:
    return Part(interval=hour(chunk), files=(path,), rows=1, bytes=1)
