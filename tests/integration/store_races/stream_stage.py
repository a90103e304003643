"""A supervisor at a real database, with the masters that may keep it; the test is its worker."""

from __future__ import annotations

import copy
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from sqlalchemy import Engine, func, select, update
from sqlalchemy.dialects.postgresql import insert as pg_insert

from common.model.cluster import NodeKind
from common.model.instances import Ownership
from common.model.segments import Publication, StreamRange
from common.model.states import TaskState
from common.model.streams.spec import SupervisorSpec
from common.model.streams.tasks import Orders, Sequence, TaskReport, TaskStatus
from common.store import tables as t
from common.store.master.supervisors import PostgresSupervisorStore
from common.store.people.supervisors import (
    StreamTaskView,
    SupervisorView,
    add_version,
    make_supervisor,
    open_tasks,
    supervisor_named,
)
from common.store.streams.publication import publish
from common.store.worker.ports import AttemptEnd
from common.store.worker.stream_tasks import PostgresStreamTasks
from common.store.worker.tasks import PostgresTaskStore
from master.identity import Identity
from master.loops.supervisor_loop import SupervisorConfig, SupervisorLoop
from master.supervisors.view import StreamFailure, StreamSnapshot
from tests.builders import NOON
from tests.integration.store_races.racing import MASTER, WORKER, claim, submit, take
from tests.memory.registry import MemoryZooKeeper
from tests.simulation.virtual_clock import VirtualClock
from tests.unit.stream_specs import SMALL

CONFIG = SupervisorConfig(
    claim_interval=timedelta(), lease=timedelta(hours=1), claimed_at_once=1000
)


@dataclass
class FixedStreams:
    """Streams that say what the test has set; of any other supervisor nothing is known."""

    answers: dict[str, StreamSnapshot | StreamFailure] = field(default_factory=dict)

    def look(
        self, spec: SupervisorSpec, *, project_id: int
    ) -> StreamSnapshot | StreamFailure | None:
        return self.answers.get(spec.id)

    def forget(self, supervisor: str) -> None:
        pass


class Stage:
    """One supervisor, the masters that may keep it, and a worker that does as the test says."""

    def __init__(self, made: Engine, **io: Any) -> None:
        self.made = made
        self.clock = VirtualClock()
        self.zookeeper = MemoryZooKeeper(clock=self.clock, session_timeout=timedelta(days=1))
        self.begun = self.clock.now()
        self._taken: dict[int, Ownership | None] = {}
        self.name = f"ds-{uuid.uuid4().hex[:8]}"
        self.document = copy.deepcopy(SMALL)
        self.document["spec"]["dataSchema"]["dataSource"] = self.name
        self.document["spec"]["ioConfig"] |= {"useEarliestOffset": True, "startDelay": "PT0S"} | io
        self.streams = FixedStreams()
        self.offsets({0: 100, 1: 100})
        with made.begin() as db:
            assert make_supervisor(db, self.name, project_id=1, process_definition_id=1)
        self.submit(version=1)

    def submit(self, *, version: int, document: Mapping[str, Any] | None = None) -> None:
        with self.made.begin() as db:
            add_version(
                db,
                self.name,
                version=version,
                document=document or self.document,
                suspended=False,
                user_id=1,
            )

    def offsets(self, latest: dict[int, int]) -> None:
        self.streams.answers[self.name] = StreamSnapshot(
            earliest=dict.fromkeys(latest, 0), latest=latest
        )

    def store(self, offsets: Mapping[int, int]) -> None:
        """Have these offsets stored, whatever was, as a publication does."""
        rows = [
            {"dataset": self.name, "stream": "events", "partition": each, "offset": offset}
            for each, offset in offsets.items()
        ]
        statement = pg_insert(t.dataset_offsets).values(rows)
        with self.made.begin() as db:
            db.execute(
                statement.on_conflict_do_update(
                    index_elements=["dataset", "partition"],
                    set_={"offset": statement.excluded.offset},
                )
            )

    def master(self, number: int = 1, store: Any = None) -> SupervisorLoop:
        registry = self.zookeeper.registry()
        identity = Identity(registry.membership)
        identity.become(registry.membership.join(NodeKind.MASTER, f"m{number}:5678", ""))
        return SupervisorLoop(
            store or PostgresSupervisorStore(self.made),
            streams=self.streams,
            identity=identity,
            clock=self.clock,
            config=CONFIG,
        )

    def passes(self, loop: SupervisorLoop, *, after: float = 2, times: int = 1) -> None:
        for _ in range(times):
            self.clock.move_to(self.clock.elapsed + timedelta(seconds=after))
            loop.run_once()

    def lose_lease(self) -> None:
        with self.made.begin() as db:
            db.execute(
                update(t.supervisor_runtime)
                .where(t.supervisor_runtime.c.id == self.name)
                .values(lease_until=func.now())
            )

    @property
    def tasks(self) -> list[StreamTaskView]:
        with self.made.connect() as db:
            return open_tasks(db, self.name)

    @property
    def view(self) -> SupervisorView:
        with self.made.connect() as db:
            found = supervisor_named(db, self.name)
        assert found is not None
        return found

    def run(self, task: StreamTaskView) -> int:
        """Have a worker run a task that was started; returns its attempt."""
        with self.made.connect() as db:
            command_id = db.scalar(
                select(t.stream_task.c.command_id).where(t.stream_task.c.name == task.name)
            )
        self._taken.update(take(self.made, MASTER))
        owned = self._taken[command_id]
        assert owned is not None
        (attempt,) = ids = submit(self.made, owned, "read")
        assert claim(self.made, WORKER, ids) == ids
        with self.made.begin() as db:
            # The clock of this test is not that of the claims.
            db.execute(
                update(t.task_instance)
                .where(t.task_instance.c.id == attempt)
                .values(start_time=self.clock.now())
            )
        self.begun = self.clock.now()
        return attempt

    def report(
        self,
        attempt: int,
        state: TaskStatus,
        current: Mapping[int, int],
        *,
        obeyed: int = 0,
        **more: Any,
    ) -> None:
        report = TaskReport(
            state=state,
            began=self.begun,
            obeyed=obeyed,
            current=current,
            sequences=(Sequence(id=0, start=dict.fromkeys(current, 0)),),
        )
        report = TaskReport(**{**{f: getattr(report, f) for f in report.__slots__}, **more})
        assert PostgresStreamTasks(self.made).report(WORKER, attempt, report)

    def orders(self, attempt: int) -> Orders:
        return PostgresStreamTasks(self.made).orders(WORKER, [attempt])[attempt]

    def publish(self, attempt: int, starts: Mapping[int, int], ends: Mapping[int, int]) -> Any:
        return publish(
            self.made,
            Publication(
                dataset=self.name,
                task_id=attempt,
                segments=(),
                sequence=f"{self.name}_{sorted(starts.items())}",
                range=StreamRange(
                    stream="events",
                    starts=starts,
                    ends=ends,
                    max_event_times=dict.fromkeys(starts, NOON),
                ),
            ),
        )

    def end(self, attempt: int, state: TaskState) -> None:
        ended = AttemptEnd(
            task_instance_id=attempt, state=state, end_time=NOON, exit_code=0, reason=None
        )
        assert PostgresTaskStore(self.made).report(WORKER, [ended]) == {attempt}

    @property
    def stored(self) -> dict[int, int]:
        with self.made.connect() as db:
            rows = db.execute(
                select(t.dataset_offsets.c.partition, t.dataset_offsets.c.offset).where(
                    t.dataset_offsets.c.dataset == self.name
                )
            )
            return {row.partition: row.offset for row in rows}
