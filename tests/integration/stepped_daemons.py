"""A master and a worker on real servers, whose loops one thread steps: their work can be counted.

A loop passes when it is woken, as its thread would have it pass, but in a fixed order, and all the
attempts that a pass has started end before anything else happens. So the batches are the same on
every computer, however busy. The monotonic clock stands, so that nothing is done because time has
passed: only a rest of less than `SOON` belongs to the work, and is slept through at once.

Not counted is what other threads do: kazoo's, which keep the sessions alive and set watches again,
and the watches on the queue, in whose place `_Rung` wakes the worker.
"""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import psycopg2
import pytest
from kazoo.client import KazooClient
from sqlalchemy import make_url

from common.clock import Clock, SystemClock
from common.config import MasterConfig, WorkerConfig
from common.model.cluster import QueueEntry
from common.registry.config import RegistryConfig
from common.registry.connect import connect as connect_registry
from common.registry.protocol import KillQueue, Membership, Mutex, Registry, Standing, TaskQueue
from common.store.connect import engine
from common.store.listen import Notification, Notifications, hint_channel, read_hint
from common.store.master.commands import PostgresCommandStore
from common.store.master.complement_progress import PostgresComplementStore
from common.store.master.dependents import PostgresDependentStore
from common.store.master.failover import PostgresFailoverStore
from common.store.master.holds import PostgresHoldStore
from common.store.master.runs import PostgresRunStore
from common.store.master.schedules import PostgresScheduleStore
from common.store.master.timeouts import PostgresTimeoutStore
from common.store.retention import PostgresRetentionStore
from common.store.worker.tasks import PostgresTaskStore
from master.assembly import Master, Stores
from master.loops.database_loop import DatabaseLoop
from master.loops.hint_targets import HintTargets
from master.loops.notice_loop import CHANNELS, NoticeLoop
from tests.conftest import ZookeeperRoot
from tests.integration.postgres_wire import PostgresWire, postgres_wire
from tests.system.cluster import until
from worker.assembly import Worker
from worker.attempts import Ended, Started
from worker.launcher import Launcher, seen_by_tasks
from worker.launching.base import TaskSettings
from worker.processes import spawning
from worker.processes.log_cutting import LogCutter
from worker.processes.shim_link import Shim
from worker.processes.supervising import Supervisor
from worker.workspace import attempt_folders, remove_directory

SOON = timedelta(milliseconds=100)
_PATIENCE = timedelta(minutes=5)
_MOST_PASSES = 2_000
_SESSION = timedelta(seconds=30)
_END_OF_NEWS = "orcaflow_schedule", "all that was notified before has been read"
_WRITES = frozenset({1, 2, 5, 7, 14, 15, 16})
"""Create, delete, set data, set rights, a transaction, create with its state, reconfigure."""
_HINTS = hint_channel(f"{WorkerConfig().host}:{WorkerConfig().port}")
_PING, _CLOSE = 11, -11


class StandingClock:
    """A clock of which only the wall-clock time moves by itself."""

    def __init__(self) -> None:
        self._monotonic = 0.0

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return self._monotonic

    def move_to(self, moment: float) -> None:
        self._monotonic = max(self._monotonic, moment)


@dataclass(frozen=True, slots=True)
class _Registry:
    """A registry with another task queue."""

    membership: Membership
    mutex: Mutex
    kill_queue: KillQueue
    task_queue: TaskQueue
    close: Callable[[], None]


def _nothing(work: Callable[[], object]) -> None:
    pass


class _Rung:
    """A task queue that calls who watches it when it is told to, once the entries are there."""

    def __init__(self, queue: TaskQueue, watching: list[Callable[[], None]]) -> None:
        self._queue = queue
        self._watching = watching
        self.uncounted: Callable[[Callable[[], object]], None] = _nothing
        self.rung = False

    def offer(self, entries: Sequence[QueueEntry]) -> None:
        self._queue.offer(entries)
        if entries:
            self._ring()

    def offer_soon(self, entries: Sequence[QueueEntry], *, done: Callable[[bool], None]) -> None:
        """Wait for the answer all the same, so that it comes in this thread and at this time."""
        answers: list[bool] = []
        answered = threading.Event()

        def note(is_in: bool) -> None:
            answers.append(is_in)
            answered.set()

        self._queue.offer_soon(entries, done=note)
        assert answered.wait(60)
        if answers[0]:
            self._ring()
        done(answers[0])

    def _ring(self) -> None:
        # Answered after all that this session has asked for before.
        self.uncounted(self._queue.claimed)
        self.rung = True

    def pass_on(self) -> bool:
        """Call who watches if entries were offered; True if so."""
        rung, self.rung = self.rung, False
        if rung:
            for changed in self._watching:
                changed()
        return rung

    def withdraw(self, entries: Sequence[QueueEntry]) -> None:
        self._queue.withdraw(entries)

    def entries(self) -> tuple[QueueEntry, ...]:
        return self._queue.entries()

    def claim(self, entries: Sequence[QueueEntry], node: Any) -> tuple[QueueEntry, ...]:
        return self._queue.claim(entries, node)

    def take_soon(
        self, entries: Sequence[QueueEntry], node: Any
    ) -> Callable[[], tuple[QueueEntry, ...]] | None:
        return self._queue.take_soon(entries, node)

    def claimed(self) -> frozenset[int]:
        return self._queue.claimed()

    def release(self, entries: Sequence[QueueEntry]) -> None:
        self._queue.release(entries)

    def take_out_soon(self, entries: Sequence[QueueEntry]) -> None:
        self._queue.take_out_soon(entries)

    def watch(self, changed: Callable[[], None]) -> None:
        self._watching.append(changed)


class _News:
    """The notifications, of which `wait` returns all that the master is sent, and does not wait."""

    def __init__(self, url: str, dsn: str) -> None:
        self._source = Notifications(url, (*CHANNELS, _HINTS))
        self.hinted: Callable[[Sequence[QueueEntry]], None] = lambda _: None
        self._asking = psycopg2.connect(dsn)
        self._asking.autocommit = True
        self.waiting: list[Notification] = []
        assert self._source.wait(_PATIENCE), "the first notification is a reminder"

    def read(self) -> tuple[int, int]:
        """Take all that was sent to the master and to the worker until now, and count it.

        Notifications come in the order of their commits.
        """
        end = Notification(channel=_END_OF_NEWS[0], payload=_END_OF_NEWS[1])
        with self._asking.cursor() as cursor:
            cursor.execute("SELECT pg_notify(%s, %s)", _END_OF_NEWS)
        found: list[Notification] = []
        while end not in found:
            news = self._source.wait(_PATIENCE)
            assert news, "nothing was notified in time"
            found += news
        found.remove(end)
        hints = [each for each in found if each.channel == _HINTS]
        for hint in hints:
            self.hinted(read_hint(hint.payload))
        self.waiting += [each for each in found if each not in hints]
        return len(found) - len(hints), len(hints)

    def wait(self, timeout: timedelta) -> list[Notification]:
        taken, self.waiting = self.waiting, []
        return taken

    def wake(self) -> None:
        pass

    def close(self) -> None:
        self._source.close()
        self._asking.close()


@dataclass(slots=True)
class _Loop:
    """A loop of a daemon; `due` is the end of its rest if that is soon."""

    daemon: str
    step: Callable[[], timedelta]
    # A thread begins with a pass.
    woken: bool = True
    due: float | None = None


@dataclass(slots=True)
class SteppedDaemons:
    """The daemons. `counted` holds what they have done so far, by `<daemon>: <kind of work>`."""

    clock: StandingClock
    worker: Worker
    supervisor: Supervisor
    registries: Mapping[str, Registry]
    wires: Mapping[str, PostgresWire]
    news: _News
    notices: NoticeLoop
    rung: Sequence[_Rung]
    sql: Callable[..., list[tuple[Any, ...]]]
    loops: dict[str, _Loop] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    turn: str = ""
    """The daemon whose loop passes; "" while none does."""

    def counted(self) -> Counter[str]:
        """The sums so far, of both daemons."""
        found = Counter(self.counts)
        for daemon, wire in self.wires.items():
            for what in wire.passed.__slots__:
                found[f"{daemon}: {what}"] = getattr(wire.passed, what)
        return found

    def work(self) -> None:
        """Step the loops until all of them rest and nothing runs."""
        passes: Counter[str] = Counter()
        while passes.total() < _MOST_PASSES:
            self._read_news()
            name = next((name for name, loop in self.loops.items() if loop.woken), None)
            if name is not None:
                passes[name] += 1
                self._pass(self.loops[name])
            elif sum(each.pass_on() for each in self.rung):
                # After the hint of the same attempts, as PostgreSQL is faster with that.
                continue
            elif self.supervisor.running():
                self._end_attempts()
            elif not self._rest_a_little():
                return
        raise AssertionError(f"the loops don't come to rest: {passes}")

    def count(self, what: str, number: int = 1) -> None:
        """Count work of the daemon whose turn it is."""
        if self.turn:
            self.counts[f"{self.turn}: {what}"] += number

    def uncounted(self, work: Callable[[], object]) -> None:
        turn, self.turn = self.turn, ""
        work()
        self.turn = turn

    def _read_news(self) -> None:
        news, hints = self.news.read()
        self.counts["master: notifications"] += news
        self.counts["worker: notifications"] += hints
        if self.news.waiting:
            # It rests in `wait` alone.
            self.notices.run_once()

    def _pass(self, loop: _Loop) -> None:
        # A computer that stands still for seconds makes a session doubtful for a moment.
        membership = self.registries[loop.daemon].membership
        until(lambda: membership.standing() is Standing.TRUSTED)
        loop.woken = False
        self.turn = loop.daemon
        rest = loop.step()
        self.turn = ""
        loop.woken = loop.woken or rest <= timedelta()
        loop.due = self.clock.monotonic() + rest.total_seconds() if rest < SOON else None

    def _end_attempts(self) -> None:
        """Start what is to be started, and let it all end: there are no other batches."""
        self.turn = "worker"
        deadline = time.monotonic() + _PATIENCE.total_seconds()
        while self.supervisor.running():
            assert time.monotonic() < deadline, "the attempts have not ended in time"
            self.supervisor.run_once()
        self.turn = ""

    def _rest_a_little(self) -> bool:
        due = [loop for loop in self.loops.values() if loop.due is not None]
        if due:
            self.clock.move_to(min(loop.due for loop in due if loop.due is not None))
        for loop in due:
            loop.woken = loop.due is not None and loop.due <= self.clock.monotonic()
        return bool(due)


@contextmanager
def stepped_daemons(url: str, zookeeper: ZookeeperRoot, home: Path) -> Iterator[SteppedDaemons]:
    """Join a master and a worker, and leave when the context ends."""
    address = make_url(url)
    assert address.host is not None
    assert address.port is not None
    clock = StandingClock()
    with ExitStack() as stack:
        wires = {
            daemon: stack.enter_context(postgres_wire(address.host, address.port))
            for daemon in ("master", "worker")
        }
        engines = {}
        for daemon, wire in wires.items():
            through = address.set(host="127.0.0.1", port=wire.port).update_query_dict(
                {"sslmode": "disable", "gssencmode": "disable"}
            )
            engines[daemon] = engine(through.render_as_string(hide_password=False))
            stack.callback(engines[daemon].dispose)
        watching: list[Callable[[], None]] = []
        registries: dict[str, Registry] = {}
        rung: list[_Rung] = []
        for daemon in wires:
            registry = connect_registry(
                RegistryConfig(
                    hosts=zookeeper.hosts, root=zookeeper.root, session_timeout=_SESSION
                ),
                clock=SystemClock(),
            )
            stack.callback(registry.close)
            rung.append(_Rung(registry.task_queue, watching))
            registries[daemon] = _Registry(
                registry.membership, registry.mutex, registry.kill_queue, rung[-1], registry.close
            )
        dsn = address.set(drivername="postgresql").render_as_string(hide_password=False)
        connection = psycopg2.connect(dsn)
        stack.callback(connection.close)
        connection.autocommit = True
        news = _News(url, dsn)
        stack.callback(news.close)
        master = a_master(registries["master"], engines["master"], clock)
        notices = _notices(master, news)
        worker, supervisor = _worker(registries["worker"], engines["worker"], home, clock)
        stack.callback(supervisor.close)
        stepped = SteppedDaemons(
            clock,
            worker,
            supervisor,
            registries,
            wires,
            news,
            notices,
            rung,
            _executing(connection),
        )
        news.hinted = worker.claims.hinted
        for each in rung:
            each.uncounted = stepped.uncounted
        master.heartbeat.join()
        worker.heartbeat.run_once()
        for loop in master.loops:
            _add(stepped, "master", loop, master.wakes.by_name)
        for own in worker.loops:
            _add(stepped, "worker", own, worker.wakes.by_name)
        with _watched(stepped):
            yield stepped


def _add(stepped: SteppedDaemons, daemon: str, loop: Any, wakes: dict[str, Any]) -> None:
    # Both daemons have a heartbeat; neither does anything while the clock stands.
    name = loop.name if loop.name not in stepped.loops else f"{daemon} {loop.name}"
    made = stepped.loops[name] = _Loop(daemon, loop.run_once)

    def wake() -> None:
        made.woken = True

    wakes[loop.name] = wake


def a_master(
    registry: Registry,
    db: Any,
    clock: Clock,
    *,
    config: MasterConfig | None = None,
    heartbeat_text: Callable[[], str] = str,
    database: DatabaseLoop | None = None,
) -> Master:
    """Make a master on these servers, without threads for its loops."""
    hints = HintTargets(registry.membership)
    return Master(
        config or MasterConfig(),
        zone=ZoneInfo("UTC"),
        clock=clock,
        registry=registry,
        stores=Stores(
            commands=PostgresCommandStore(db, hint_to=hints.target),
            runs=PostgresRunStore(db, hint_to=hints.target),
            failover=PostgresFailoverStore(db),
            holds=PostgresHoldStore(db),
            timeouts=PostgresTimeoutStore(db),
            dependents=PostgresDependentStore(db),
            schedules=PostgresScheduleStore(db),
            complements=PostgresComplementStore(db),
            retention=PostgresRetentionStore(db),
        ),
        heartbeat_text=heartbeat_text,
        return_grace=_SESSION,
        hints=hints,
        database=database,
    )


def _notices(master: Master, news: _News) -> NoticeLoop:
    wakes = master.wakes
    return NoticeLoop(
        news,
        runs=master.runs,
        command_waiting=master.commands.heard,
        attempt_ended=master.queue.forget,
        upstream_changed=master.dependents.on_end,
        hold_changed=lambda: wakes.wake(master.holds.name),
        schedule_changed=lambda: wakes.wake(master.schedules.name),
        complement_changed=lambda: wakes.wake(master.complements.name),
    )


def _worker(registry: Registry, db: Any, home: Path, clock: Clock) -> tuple[Worker, Supervisor]:
    launcher = Launcher(
        home=home,
        data_dir=home / "data",
        zone=ZoneInfo("UTC"),
        tenant_mode="single",
        settings=TaskSettings(environment=seen_by_tasks(os.environ)),
    )
    made: list[Supervisor] = []
    # By the time that passes: it is a process of its own.
    shim = Shim(environment=seen_by_tasks(os.environ), clock=SystemClock())

    def make_attempts(ended: Ended, started: Started) -> Supervisor:
        made.append(
            Supervisor(
                prepare=launcher.prepare,
                records=home / "tasks" / "records",
                ended=ended,
                started=started,
                clock=clock,
                kill_grace=timedelta(seconds=5),
                cutter=LogCutter(limit_bytes=1_000_000),
                directory_policy="on_success",
                remove_directory=remove_directory,
                adopts_orphans=True,
                shim=shim,
            )
        )
        return made[0]

    worker = Worker(
        WorkerConfig(),
        clock=clock,
        registry=registry,
        store=PostgresTaskStore(db, checks_creators=False),
        make_attempts=make_attempts,
        folders=attempt_folders(home / "tasks"),
        heartbeat_text=lambda _: lambda: "",
    )
    return worker, made[0]


def _executing(connection: Any) -> Callable[..., list[tuple[Any, ...]]]:
    def execute(statement: str, *values: object) -> list[tuple[Any, ...]]:
        with connection.cursor() as cursor:
            cursor.execute(statement, values or None)
            return list(cursor.fetchall()) if cursor.description else []

    return execute


@contextmanager
def _watched(stepped: SteppedDaemons) -> Iterator[None]:
    """Count the requests to ZooKeeper and the processes that are made, where libraries make them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(KazooClient, "_call", _counting_requests(KazooClient._call, stepped))
        patch.setattr(subprocess, "Popen", _counting_processes(stepped))
        library = spawning._LIBRARY
        if library is not None:
            # A wrapper, and the program below it.
            patch.setattr(library, "spawn", _counting_calls(library.spawn, stepped, number=2))
        patch.setattr(Shim, "ask", _counting_asked(Shim.ask, stepped))
        for name in ("fork", "posix_spawn", "posix_spawnp"):
            patch.setattr(os, name, _counting_calls(getattr(os, name), stepped))
        yield


def _counting_requests(call: Callable[..., Any], stepped: SteppedDaemons) -> Callable[..., Any]:
    stepping = threading.get_ident()

    def counted(client: Any, request: Any, pending: Any) -> Any:
        if threading.get_ident() == stepping and request.type not in (_PING, _CLOSE):
            stepped.count("zookeeper_writes" if request.type in _WRITES else "zookeeper_reads")
            stepped.count("zookeeper_bytes", len(request.serialize()))
        return call(client, request, pending)

    return counted


def _counting_processes(stepped: SteppedDaemons) -> type[subprocess.Popen[Any]]:
    class Counted(subprocess.Popen):  # type: ignore[type-arg]  # It is generic to checkers alone.
        def __init__(self, *arguments: Any, **options: Any) -> None:
            stepped.count("processes")
            super().__init__(*arguments, **options)

    return Counted


def _counting_asked(ask: Callable[..., bool], stepped: SteppedDaemons) -> Callable[..., bool]:
    def counted(*arguments: Any, **options: Any) -> bool:
        is_asked = ask(*arguments, **options)
        stepped.count("processes", int(is_asked))
        return is_asked

    return counted


def _counting_calls(
    call: Callable[..., Any], stepped: SteppedDaemons, *, number: int = 1
) -> Callable[..., Any]:
    def counted(*arguments: Any, **options: Any) -> Any:
        stepped.count("processes", number)
        return call(*arguments, **options)

    return counted
