"""The simulated cluster with a stream: a supervisor, its tasks, and others who write its dataset.

The daemons are those of any world, with the real keeper and the real book of orders; processes of
stream tasks outlive them. Nothing here knows what is right; `check_streams` does.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from random import Random
from typing import Any, Literal

from common.errors import ServiceUnreachableError
from common.model.locks import Lock, LockType
from common.model.states import TaskState
from common.model.streams.requests import RequestKind
from common.model.streams.spec import SupervisorSpec
from common.model.streams.tasks import TASK_NAME, TASK_TYPE, Orders, TaskReport
from common.store.listen import Notification
from common.store.worker.ports import ClaimedTask
from common.store.worker.stream_tasks import StreamWork
from master.assembly import Master
from master.loops.supervisor_loop import SupervisorConfig, SupervisorLoop
from master.supervisors.view import StreamFailure, StreamSnapshot
from tests.memory.datasets import MemoryDatasets
from tests.memory.stream_rows import RuntimeRecord, SpecRecord
from tests.memory.streams import (
    MemoryStreamTasks,
    MemorySupervisorStore,
    StreamTables,
    put_request,
    put_suspended,
)
from tests.simulation.computer import Computer, SimProcess
from tests.simulation.daemons import Daemon, DaemonDiedError
from tests.simulation.faults import Options
from tests.simulation.parts import Parts
from tests.simulation.stream_process import (
    AwayError,
    FailedError,
    FakeStream,
    StreamProcess,
    Warehouse,
)
from tests.simulation.world import _LISTENING, World
from tests.unit.stream_specs import SMALL
from worker.assembly import Worker
from worker.datasets.orders import OrderBook
from worker.loops.order_loop import OrderLoop

NAME = "flights"
_FAULTY = timedelta(seconds=60)
_SETTLED_WITHIN = timedelta(minutes=15)
# Shorter than masters are held up for, so that they lose leases without knowing it.
_LEASE = timedelta(seconds=6)
_AFTERWARDS = timedelta(seconds=10)
_SUSPENDED = timedelta(seconds=20)
_FOREVER = timedelta(days=1000)


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamOptions:
    """The events of a stream beside the faults of daemons: chances a second."""

    replicas: int = 1
    task_count: int = 1
    produced: int = 6
    full_at: int | None = None
    kills: float = 0.0
    at_commits: float = 0.0
    """The chance at each commit of a publication, before it and after it; of a step a tenth of it."""
    broker_away: float = 0.0
    added: float = 0.0
    expired: float = 0.0
    resets: bool = True
    batches: float = 0.0
    people: float = 0.0
    restarts: float = 0.0
    """The chance that PostgreSQL is restarted, for all; at each commit a twentieth of it."""

    @classmethod
    def draw(cls, random: Random) -> StreamOptions:
        def sometimes(*chances: float) -> float:
            return random.choice((0.0, *chances))

        return cls(
            replicas=random.choice((1, 2)),
            task_count=random.choice((1, 2)),
            full_at=random.choice((None, 25)),
            kills=sometimes(0.03, 0.15),
            at_commits=sometimes(0.2, 0.5),
            broker_away=sometimes(0.03),
            added=sometimes(0.02),
            expired=random.choice((0.0, 0.0, 0.03)),
            resets=random.choice((True, False)),
            batches=sometimes(0.2, 0.9),
            people=sometimes(0.04, 0.15),
            restarts=sometimes(0.03),
        )


def faults_of(random: Random) -> Options:
    """Draw the faults of daemons."""

    def sometimes(*chances: float) -> float:
        return random.choice((0.0, *chances))

    return Options(
        crash_at_commit=sometimes(0.01),
        crash_at_registry=sometimes(0.005),
        no_answer=sometimes(0.02),
        freeze=sometimes(0.002),
        pause=sometimes(0.02, 0.1),
        expire=sometimes(0.001),
        lose_notice=sometimes(0.3, 1.0),
        cut_off=sometimes(0.001),
        isolate=sometimes(0.001),
        pause_before=(
            "apply_step",
            "publish",
            "stream_report",
            "replace",
            "lock",
            "save",
            "report",
        ),
        starts=(0, 0),
        shapes=("a",),
    )


@dataclass(kw_only=True)
class _Desk:
    """The parts of a worker's daemon that answer its tasks."""

    book: OrderBook
    datasets: MemoryDatasets
    running: Callable[[], frozenset[int]]


@dataclass(kw_only=True)
class _Batch:
    """Somebody who replaces a chunk by the rows that it has."""

    holder: int
    chunk: int
    due: timedelta
    rows: tuple[tuple[int, int], ...] | None = None


class _Computer(Computer):
    """A host on which stream tasks run as processes of their own."""

    streams: Callable[[Computer, ClaimedTask], None]

    def spawn(self, task: ClaimedTask) -> None:
        super().spawn(task)
        if task.task_type == TASK_TYPE:
            process = self.processes[task.id]
            process.ends = self.clock.true_now() + _FOREVER
            process.outcome, process.failure = TaskState.FAILURE, None
            process.is_stuck = False
            self.streams(self, task)


@dataclass
class _Socket:
    """The worker of a process, as the process reaches it."""

    world: StreamWorld
    address: str
    task_id: int

    def work(self) -> StreamWork | None:
        return self._call(lambda desk: desk.book.work(self.task_id))

    def orders(self, report: TaskReport | None) -> Orders | None:
        return self._call(lambda desk: desk.book.orders(self.task_id, report))

    def ask(self, what: Callable[[MemoryDatasets], object]) -> object:
        return self._call(lambda desk: what(desk.datasets))

    def _call(self, what: Callable[[_Desk], Any]) -> Any:
        return self.world.called(self.address, self.task_id, what)


class StreamWorld(World):
    """A cluster with one supervisor, and the faults of one seed."""

    def __init__(
        self,
        seed: int,
        *,
        stream: StreamOptions | None = None,
        options: Options | None = None,
        supervisors: type[MemorySupervisorStore] = MemorySupervisorStore,
        datasets: type[MemoryDatasets] = MemoryDatasets,
        warehouse: type[Warehouse] = Warehouse,
    ) -> None:
        self._own = Random(f"stream {seed}")
        drawn = faults_of(self._own)
        self.stream_options = stream or StreamOptions.draw(self._own)
        self.stream = FakeStream(latest={}, earliest={})
        self.warehouse = warehouse()
        self.lost: set[tuple[int, int]] = set()
        """Records that the stream has lost before they were published."""
        self.to_tell: set[tuple[int, int]] = set()
        """Those of them that were lost behind an offset that is stored."""
        self.reset_by_people: set[int] = set()
        self._supervisor_store, self._dataset_store = supervisors, datasets
        self._desks: dict[str, _Desk] = {}
        self._processes: dict[int, tuple[Computer, StreamProcess]] = {}
        self._batch: _Batch | None = None
        self._batches = 0
        self._second = timedelta()
        self._back_at = timedelta()
        self._database_back_at: timedelta | None = None
        self.is_healed = False
        parts = Parts(with_master=self._with_master, with_worker=self._with_worker)
        super().__init__(seed, parts=parts, options=options or drawn)

    def _plan(self) -> None:
        self.tables = StreamTables(self.database)
        for address in self.computers:
            made = _Computer(address, self.random, self.clock, fails=0.0)
            made.streams = self._spawned
            self.computers[address] = made
        chosen = self.stream_options
        partitions = self._own.randint(1, 3)
        self.stream.latest = {each: self._own.randint(0, 30) for each in range(partitions)}
        self.stream.earliest = dict.fromkeys(self.stream.latest, 0)
        node = {
            "id": "tasks-1",
            "type": TASK_TYPE,
            "name": TASK_NAME,
            "params": {"supervisor": NAME},
            "preTasks": [],
        }
        definition = self.database.insert(
            self.database.definitions,
            name=f"stream {NAME}",
            release_state=1,
            process_definition_json=json.dumps({"tasks": [node], "globalParams": [], "timeout": 0}),
        )
        document = copy.deepcopy(SMALL)
        document["spec"]["ioConfig"] |= {
            "topic": NAME,
            "useEarliestOffset": True,
            "startDelay": "PT0S",
            "period": "PT2S",
            "taskDuration": "PT6S",
            "completionTimeout": "PT40S",
            "taskCount": chosen.task_count,
            "replicas": chosen.replicas,
        }
        document["spec"]["tuningConfig"] = {
            "type": "kafka",
            "resetOffsetAutomatically": chosen.resets,
            "repartitionTransitionDuration": "PT3S",
        }
        with self.database.transaction("submit") as tx:
            tx.insert(self.tables.specs, SpecRecord(name=NAME, version=1, document=document))
            row = RuntimeRecord(name=NAME, version=1, definition_id=definition)
            tx.insert(self.tables.runtimes, row)
        super()._plan()

    @property
    def stored(self) -> dict[int, int]:
        return {each: row.position for each, row in self.tables.stored(NAME).items()}

    # The course of things

    def run(self) -> None:
        """Run with faults, heal, go on until all is published and for a while; then suspend."""
        while self._lived < _FAULTY:
            self._turn()
        self.heal()
        limit = self._lived + _SETTLED_WITHIN
        while self._lived < limit and self.stored != self.stream.latest:
            self._turn()
        self.live_for(_AFTERWARDS)
        put_suspended(self.tables, NAME, suspended=True)
        self.live_for(_SUSPENDED)

    def heal(self) -> None:
        super().heal()
        self.is_healed = True
        if self._database_back_at is not None:
            self._reach_database()
        row = self.tables.runtime(NAME)
        assert row is not None
        if next(each for each in self.tables.specs if each.version == row.version).suspended:
            put_suspended(self.tables, NAME, suspended=False)

    def _turn(self) -> None:
        # None of this is done by a daemon, not even while one is held up.
        before, self._current = self._current, None
        self._pass_beside_daemons(self.clock.elapsed)
        self._current = before
        super()._turn()

    def _pass_beside_daemons(self, now: timedelta) -> None:
        if self._database_back_at is not None and self._database_back_at <= now:
            self._reach_database()
        if now >= self._second + timedelta(seconds=1):
            self._second = now
            self._pass_second()
        for task_id in list(self._processes):
            computer, process = self._processes.get(task_id, (None, None))
            if process is None or computer is None or process.is_busy or process.due > now:
                continue
            process.due = now + timedelta(seconds=self._own.choice((0.1, 0.2, 0.5)))
            self._step_process(computer, process)
        if self._batch is not None and self._batch.due <= now and self._database_back_at is None:
            self._step_batch(self._batch)

    def _step_process(self, computer: Computer, process: StreamProcess) -> None:
        body = computer.processes[process.task_id]
        if body.ends <= self.clock.true_now():
            del self._processes[process.task_id]
            return
        process.is_busy = True
        try:
            if process.step():
                self._end(body, TaskState.SUCCESS)
        except FailedError as failure:
            self.log.append(f"{self.clock.elapsed} task {process.task_id} fails: {failure}")
            self._end(body, TaskState.FAILURE)
        finally:
            process.is_busy = False

    def _end(self, body: SimProcess, state: TaskState) -> None:
        if body.ends > self.clock.true_now():
            body.ends, body.outcome = self.clock.true_now(), state

    def _spawned(self, computer: Computer, task: ClaimedTask) -> None:
        self._processes[task.id] = (
            computer,
            StreamProcess(
                task_id=task.id,
                dataset=NAME,
                stream=self.stream,
                warehouse=self.warehouse,
                worker=_Socket(self, computer.address, task.id),
                random=self._own,
                now=self.clock.now,
                note=lambda what: self.log.append(f"{self.clock.elapsed} {task.id} {what}"),
                most_rows=15,
                full_at=self.stream_options.full_at,
                due=self.clock.elapsed + timedelta(seconds=self._own.choice((0.2, 1.0))),
            ),
        )

    def called(self, address: str, task_id: int, what: Callable[[_Desk], Any]) -> Any:
        """Have a worker's daemon answer a process; `AwayError` if it does not."""
        daemon, desk = self.daemons.get(address), self._desks.get(address)
        if (
            daemon is None
            or desk is None
            or daemon is self._paused
            or daemon.frozen_until > self.clock.elapsed
            or not daemon.joined()
        ):
            raise AwayError
        if task_id not in desk.running():
            raise FailedError("the attempt does not run here any more")
        answers: list[Any] = []

        def answer() -> None:
            try:
                answers.append(what(desk))
            except ServiceUnreachableError:
                return

        self._act(daemon, answer)
        body = self.computers[address].processes[task_id]
        if answers and self._happens(self.stream_options.at_commits / 20):
            self.log.append(f"{self.clock.elapsed} task {task_id} dies before it hears")
            self._end(body, TaskState.FAILURE)
        if not answers or body.ends <= self.clock.true_now():
            raise AwayError
        return answers[0]

    def _restart_database(self, when: str) -> None:
        """Break all connections, and answer nobody for a while."""
        self._database_back_at = self.clock.elapsed + timedelta(
            seconds=self._own.choice((1.0, 4.0, 12.0, 40.0))
        )
        self.log.append(f"{self.clock.elapsed} PostgreSQL is restarted {when}")

    def _reach_database(self) -> None:
        self._database_back_at = None
        for daemon in self.daemons.values():
            # Who listens again is told that it may have missed anything.
            daemon.source.append(Notification(channel="", payload=""))
            for name in _LISTENING:
                daemon.wake(name, self.clock.elapsed)

    def _deliver(self) -> None:
        if self._database_back_at is not None:
            self.database.notifications.clear()
        super()._deliver()

    def _before_read(self, name: str) -> None:
        if self._current is not None and self._database_back_at is not None:
            raise ServiceUnreachableError(f"PostgreSQL is away for {name}")
        super()._before_read(name)

    def _before_transaction(self, name: str) -> None:
        super()._before_transaction(name)
        # It may have gone away while the daemon was held up.
        self._before_read(name)

    def _around_commit(self, name: str, moment: Literal["before", "after"]) -> None:
        daemon = self._current
        if daemon is not None and self._happens(self.stream_options.restarts / 20):
            self._restart_database(f"{moment} the commit of {name}")
            raise ServiceUnreachableError(f"no answer {moment} the commit of {name}")
        chance = self.stream_options.at_commits * {"publish": 1, "apply_step": 0.1}.get(name, 0)
        if daemon is not None and self._happens(chance):
            if self._own.random() < 0.5:
                daemon.registry.crash()
                raise DaemonDiedError(f"{moment} the commit of {name}")
            raise ServiceUnreachableError(f"no answer {moment} the commit of {name}")
        super()._around_commit(name, moment)

    # What happens around

    def _pass_second(self) -> None:
        chosen, random, stream = self.stream_options, self._own, self.stream
        if stream.is_away and self.clock.elapsed >= self._back_at:
            stream.is_away = False
        if self.is_healed:
            self._reset_expired()
            return
        for partition in stream.latest:
            stream.latest[partition] += random.randint(0, chosen.produced)
        if not stream.is_away and random.random() < chosen.broker_away:
            away = random.choice((2, 10, 30, 60))
            stream.is_away, self._back_at = True, self.clock.elapsed + timedelta(seconds=away)
            self.log.append(f"{self.clock.elapsed} the broker is away for {away} s")
        if random.random() < chosen.added and len(stream.latest) < 6:
            partition = len(stream.latest)
            self.log.append(f"{self.clock.elapsed} partition {partition} is added")
            stream.latest[partition], stream.earliest[partition] = random.randint(0, 20), 0
        if random.random() < chosen.expired:
            self._expire()
        if random.random() < chosen.kills:
            self._kill_some()
        if self._database_back_at is None:
            self._pass_second_of_tables()

    def _pass_second_of_tables(self) -> None:
        """People and batch writers act, and somebody may restart PostgreSQL."""
        chosen, random = self.stream_options, self._own
        if random.random() < chosen.people:
            self._reset_expired()
        if self._batch is None and random.random() < chosen.batches:
            self._begin_batch()
        if random.random() < chosen.people:
            self._ask()
        if random.random() < chosen.restarts:
            self._restart_database("between two statements")

    def _expire(self) -> None:
        partition = self._own.choice(sorted(self.stream.latest))
        first = self._own.randint(self.stream.earliest[partition], self.stream.latest[partition])
        stored = self.stored
        lost = {(partition, offset) for offset in range(stored.get(partition, 0), first)}
        self.lost |= lost
        if partition in stored:
            self.to_tell |= lost
        self.stream.earliest[partition] = first
        self.log.append(f"{self.clock.elapsed} partition {partition} begins at {first} now")

    def _reset_expired(self) -> None:
        """A person skips what is lost, whatever the tasks are doing."""
        stored, earliest = self.stored, self.stream.earliest
        expired = [each for each, offset in stored.items() if offset < earliest[each]]
        if expired and not self.stream_options.resets and not len(self.tables.requests):
            offsets = {str(expired[0]): stored[expired[0]]}
            body = {"offsets": offsets, "seen": offsets}
            put_request(self.tables, NAME, RequestKind.RESET, body)
            self.reset_by_people.add(expired[0])
            self.log.append(f"{self.clock.elapsed} a person resets partition {expired[0]}")

    def _kill_some(self) -> None:
        """Kill a process, or the daemon of a worker or a master, by -9."""
        alive = [
            computer.processes[each]
            for each, (computer, _) in self._processes.items()
            if computer.processes[each].ends > self.clock.true_now()
        ]
        if alive and self._own.random() < 0.5:
            killed = self._own.choice(alive)
            self.log.append(f"{self.clock.elapsed} task {killed.task_instance_id} is killed")
            self._end(killed, TaskState.FAILURE)
        else:
            name = self._own.choice(("m1:1", "m2:1", *self.computers))
            if self._paused is not None and self._paused.name == name:
                # It is in the midst of a pass, which only the hooks of commits can end.
                return
            self.log.append(f"{self.clock.elapsed} {name} is killed")
            self.kill(name, restarts_after=timedelta(seconds=self._own.choice((0.5, 5.0, 20.0))))

    def _ask(self) -> None:
        choice = self._own.randrange(3)
        if choice == 0:
            put_request(self.tables, NAME, RequestKind.HAND_OVER, {"groups": [0, 1]})
        else:
            row = self.tables.runtime(NAME)
            assert row is not None
            spec = next(each for each in self.tables.specs if each.version == row.version)
            put_suspended(self.tables, NAME, suspended=not spec.suspended)

    def _begin_batch(self) -> None:
        chunks = sorted({row.chunk for row in self.tables.segments if row.used})
        if not chunks:
            return
        self._batches += 1
        batch = _Batch(
            holder=-self._batches, chunk=self._own.choice(chunks), due=self.clock.elapsed
        )
        self.tables.batches.add(batch.holder)
        kind, priority = self._own.choice(
            ((LockType.EXCLUSIVE, 80), (LockType.REPLACE, 50), (LockType.REPLACE, 80))
        )
        lock = self._datasets.lock(batch.holder, NAME, batch.chunk, kind=kind, priority=priority)
        if isinstance(lock, Lock):
            self._batch = batch
        else:
            self.tables.batches.discard(batch.holder)

    def _step_batch(self, batch: _Batch) -> None:
        if batch.rows is None:
            paths = self._datasets.paths(batch.holder, NAME, batch.chunk)
            batch.rows = tuple(
                record for path in paths for record in self.warehouse.files.get(path) or ()
            )
            batch.due = self.clock.elapsed + timedelta(seconds=self._own.choice((0.5, 2.0, 6.0)))
            return
        path = f"batch/{batch.holder}"
        self.warehouse.files[path] = batch.rows
        self._batch = None
        self._datasets.replace(batch.holder, NAME, batch.chunk, (path,) if batch.rows else ())
        self.tables.batches.discard(batch.holder)

    @property
    def _datasets(self) -> MemoryDatasets:
        return self._dataset_store(self.tables)

    # Daemons

    def _with_master(self, daemon: Daemon, master: Master) -> None:
        loop = SupervisorLoop(
            self._supervisor_store(self.tables),
            streams=_Streams(self),
            identity=master.identity,
            clock=self.clock,
            config=SupervisorConfig(lease=_LEASE),
        )
        self.add(daemon, loop, master.wakes.by_name)

    def _with_worker(self, daemon: Daemon, worker: Worker) -> None:
        book = OrderBook(
            MemoryStreamTasks(self.tables), node=lambda: worker.identity.node, clock=self.clock
        )
        self.add(daemon, OrderLoop(book), worker.wakes.by_name)
        book.cache.wake = daemon.ordered = worker.wakes.by_name[OrderLoop.name]
        self._desks[daemon.name] = _Desk(
            book=book, datasets=self._datasets, running=worker.attempts.running
        )


@dataclass
class _Streams:
    """The stream as a master has asked for it: some seconds ago."""

    world: StreamWorld
    snapshot: StreamSnapshot | StreamFailure | None = None
    at: timedelta = field(default_factory=lambda: -timedelta(seconds=9))

    def look(self, spec: SupervisorSpec, **_: int) -> StreamSnapshot | StreamFailure | None:
        world = self.world
        if world.clock.elapsed >= self.at + timedelta(seconds=3):
            self.at = world.clock.elapsed
            stream = world.stream
            self.snapshot = StreamSnapshot(
                earliest=dict(stream.earliest), latest=dict(stream.latest)
            )
            if stream.is_away:
                self.snapshot = StreamFailure(reason="no broker answers")
        return self.snapshot

    def forget(self, supervisor: str) -> None:
        self.snapshot, self.at = None, -timedelta(seconds=9)
