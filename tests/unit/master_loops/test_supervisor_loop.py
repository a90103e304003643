"""The keeper's metrics and alerts, at supervisors in memory."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest

from common.model.cluster import NodeKind
from common.model.streams.spec import SupervisorSpec
from common.runtime import metrics
from common.store.master.supervisor_ports import Lease, OutdatedStepError, SupervisorRows
from master.identity import Identity
from master.loops.supervisor_loop import SupervisorConfig, SupervisorLoop
from master.supervisors.health import State
from master.supervisors.view import StreamFailure, StreamSnapshot
from tests.memory.database import MemoryDatabase
from tests.memory.registry import MemoryZooKeeper
from tests.memory.stream_rows import RuntimeRecord, SpecRecord
from tests.memory.streams import MemorySupervisorStore, StreamTables, put_version
from tests.simulation.virtual_clock import VirtualClock
from tests.unit.stream_specs import SMALL


@dataclass
class Streams:
    answer: StreamSnapshot | StreamFailure
    forgotten: list[str] = field(default_factory=list)

    def look(
        self, spec: SupervisorSpec, *, project_id: int
    ) -> StreamSnapshot | StreamFailure | None:
        return self.answer

    def forget(self, supervisor: str) -> None:
        self.forgotten.append(supervisor)


class Broken(MemorySupervisorStore):
    """A store that raises an error when a supervisor is loaded, while `error` is set."""

    error: Exception | None = None

    def load(self, lease: Lease) -> SupervisorRows | None:
        if self.error is not None:
            raise self.error
        return super().load(lease)


class Place:
    """One master, one supervisor and its stream, which says what the test has set."""

    def __init__(self, **io: Any) -> None:
        self.clock = VirtualClock()
        database = MemoryDatabase()
        database.now = self.clock.now
        self.tables = StreamTables(database)
        self.document = copy.deepcopy(SMALL)
        self.document["spec"]["ioConfig"] |= {
            "useEarliestOffset": True,
            "startDelay": "PT0S",
            "period": "PT10S",
        } | io
        with database.transaction("submit") as tx:
            spec = SpecRecord(name="flights", version=1, document=self.document)
            tx.insert(self.tables.specs, spec)
            row = RuntimeRecord(name="flights", version=1, definition_id=1)
            tx.insert(self.tables.runtimes, row)
        zookeeper = MemoryZooKeeper(clock=self.clock, session_timeout=timedelta(days=1))
        registry = zookeeper.registry()
        identity = Identity(registry.membership)
        identity.become(registry.membership.join(NodeKind.MASTER, "m1:5678", ""))
        self.streams = Streams(StreamSnapshot(earliest={0: 0}, latest={0: 50}))
        self.store = Broken(self.tables)
        self.loop = SupervisorLoop(
            self.store,
            streams=self.streams,
            identity=identity,
            clock=self.clock,
            config=SupervisorConfig(lease=timedelta(days=1)),
        )

    def passes(self, times: int = 1, *, after: float = 10) -> None:
        for _ in range(times):
            self.clock.move_to(self.clock.elapsed + timedelta(seconds=after))
            self.loop.run_once()

    def fail_a_task(self) -> None:
        """Lose the newest command, so that its task never runs."""
        database = self.tables.db
        (command,) = list(database.commands)[-1:]
        with database.transaction("lose") as tx:
            tx.delete(database.commands, command.id)

    @property
    def told(self) -> list[str]:
        return self.tables.told("flights")


def sample(name: str, **labels: str) -> float:
    return metrics.REGISTRY.get_sample_value(name, labels) or 0


def test_a_master_tells_the_figures_of_its_supervisors() -> None:
    place = Place(taskDuration="PT1H")
    metrics.watch_supervisors(lambda: place.loop.figures, states=[state.value for state in State])
    runs = sample("ds_supervisor_runs_total", outcome="good")
    failed = sample("ds_stream_tasks_total", outcome="failed")
    assert sample("ds_supervisors", state="RUNNING") == 0
    place.passes(2)
    assert sample("ds_supervisors", state="RUNNING") == 1
    assert sample("ds_stream_lag_records") == sample("ds_stream_largest_lag_records") == 50
    place.streams.answer = StreamSnapshot(earliest={0: 0}, latest={0: 80})
    place.passes()
    assert sample("ds_stream_lag_records") == 80
    assert sample("ds_supervisor_runs_total", outcome="good") == runs + 3
    place.fail_a_task()
    place.passes(2)
    assert sample("ds_stream_tasks_total", outcome="failed") == failed + 1
    bad = sample("ds_supervisor_runs_total", outcome="failed")
    place.streams.answer = StreamFailure(reason="no broker answers")
    place.passes(3)
    assert sample("ds_supervisor_runs_total", outcome="failed") == bad + 3
    assert sample("ds_supervisors", state="UNHEALTHY_SUPERVISOR") == 1
    assert sample("ds_supervisors", state="RUNNING") == 0


def test_people_are_told_of_lag_health_and_failing_tasks() -> None:
    place = Place(alertConfig={"lag": 40, "lagPeriod": "PT1M"})
    place.passes(7)
    assert place.told == []
    place.passes()
    assert [text[:35] for text in place.told] == ["it is behind by more than 40 records"[:35]]
    place.streams.answer = StreamFailure(reason="no broker answers")
    place.passes(3)
    assert place.told[1:] == ["it is unhealthy, LOST_CONTACT_WITH_STREAM: no broker answers"]
    place.streams.answer = StreamSnapshot(earliest={0: 0}, latest={0: 40})
    place.passes(3)
    assert place.told[2:] == [
        "its lag is within its limit again: 40 records",
        "it is healthy again: RUNNING",
    ]
    for _ in range(4):
        place.fail_a_task()
        place.passes()
    assert "3 of its tasks in a row have failed" in place.told[4]


def test_a_suspended_supervisor_is_behind_without_an_alert() -> None:
    place = Place(alertConfig={"lag": 40, "lagPeriod": "PT1M"})
    row = place.tables.runtime("flights")
    assert row is not None
    with place.tables.db.transaction("person") as tx:
        put_version(tx, place.tables, row, place.document, suspended=True)
    place.passes(20)
    assert (place.told, sample("ds_stream_lag_records") >= 0) == ([], True)


def test_a_secret_that_the_master_can_not_decrypt_is_named_with_the_cure() -> None:
    place = Place()
    row = place.tables.runtime("flights")
    assert row is not None
    document = place.document | {"context": {"token": "sealed:01234567:AAAA."}}
    with place.tables.db.transaction("person") as tx:
        put_version(tx, place.tables, row, document)
    place.passes(3)
    (text,) = place.told
    assert text.endswith("encrypted with the key 01234567: copy the key file to this master")


def test_people_are_told_once_of_a_version_that_nobody_can_read() -> None:
    place = Place()
    row = place.tables.runtime("flights")
    assert row is not None
    with place.tables.db.transaction("person") as tx:
        put_version(tx, place.tables, row, {"type": "kafka"})
    place.passes(3)
    with place.tables.db.transaction("person") as tx:
        tx.insert(
            place.tables.requests,
            place.tables.requests.record_type(supervisor="flights", kind="RESET"),
        )
    place.passes(3)
    (text,) = place.told
    assert text.startswith("the specification of version 2 can't be read: ")


@pytest.mark.parametrize("error", [ZeroDivisionError("x"), OutdatedStepError("offsets moved")])
def test_a_supervisor_whose_every_step_raises_is_unhealthy_and_people_are_told_once(
    error: Exception,
) -> None:
    place = Place()
    place.passes(3)
    row = place.tables.runtime("flights")
    assert row is not None
    assert row.standing.healthy
    status = row.standing.status
    place.store.error = error
    place.passes()
    assert place.told == []
    place.passes(12)
    row = place.tables.runtime("flights")
    assert row is not None
    assert (row.standing.state, row.standing.healthy) == ("UNHEALTHY_SUPERVISOR", False)
    assert type(error).__name__ in row.standing.recent_errors[-1]["message"]
    assert row.standing.status == status
    (text,) = place.told
    assert "steps in a row have failed" in text
    place.store.error = None
    place.passes(4)
    row = place.tables.runtime("flights")
    assert row is not None
    assert (row.standing.state, row.standing.healthy) == ("RUNNING", True)
    assert place.told[1:] == ["its steps succeed again"]


def test_an_error_that_passes_raises_no_alert() -> None:
    place = Place()
    place.passes(2)
    place.store.error = ZeroDivisionError()
    place.passes()
    place.store.error = None
    place.passes(5)
    row = place.tables.runtime("flights")
    assert row is not None
    assert (row.standing.healthy, place.told) == (True, [])
