"""The simulated cluster: daemons made of the real loops, stepped one at a time in an order drawn.

Nothing here knows what is right; `checkers` do. A world is a function of its seed: the same seed
gives the same history, whatever the machine.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from random import Random
from typing import Literal
from zoneinfo import ZoneInfo

from common.config import MasterConfig, WorkerConfig
from common.errors import ServiceUnreachableError
from common.model.cluster import Heartbeat, Node
from common.model.commands import CommandType
from common.model.instances import Ownership
from common.patience import Patient
from common.service import Loop
from common.store.listen import Notification
from common.store.protocol import AttemptFolders, TaskReport
from master.assembly import Master, Stores
from master.engine.run import ProcessRun
from master.notice_loop import NoticeLoop
from master.run_worker import RunWorker
from tests.builders import a_definition_json
from tests.memory.registry import MemoryRegistry, MemoryZooKeeper
from tests.memory.store import (
    MemoryCommandStore,
    MemoryDatabase,
    MemoryFailoverStore,
    MemoryRunStore,
    MemoryTaskStore,
)
from tests.simulation import faults
from tests.simulation.computer import Computer, SimAttempts
from tests.simulation.virtual_clock import START, VirtualClock
from worker.assembly import Worker
from worker.attempts import Ended, Started

_UTC = ZoneInfo("UTC")
_SHAPES = (
    "a",
    "a >> b",
    "a b >> c",
    "a >> b c >> d",
    "a >> b; c >> d; b d >> e",
    "a >> f >> b; c >> f",
)
_FAULTY = timedelta(seconds=40)
_HEALED = timedelta(seconds=100)
_NEVER = timedelta(days=1)
_RESTART = (0.0, 0.5, 3.0, 15.0)


class DaemonDiedError(BaseException):
    """The daemon whose loop is being stepped has died. Not an `Exception`: nothing may catch it."""


@dataclass(slots=True)
class Step:
    """One loop of one daemon, and when it wants to be stepped."""

    loop: Loop
    due: timedelta


@dataclass(slots=True)
class Daemon:
    """A running daemon. `frozen_until` is in the clock's time; `source` is what it hears."""

    name: str
    registry: MemoryRegistry
    steps: list[Step] = field(default_factory=list)
    frozen_until: timedelta = timedelta()
    source: deque[Notification] = field(default_factory=deque)
    after_step: Callable[[], None] = lambda: None
    runs: RunWorker | None = None

    def wake(self, name: str, now: timedelta) -> None:
        for step in self.steps:
            if step.loop.name == name:
                step.due = now


class Mailbox:
    """The notification source of a simulated master."""

    def __init__(self, queue: deque[Notification]) -> None:
        self._queue = queue

    def wait(self, timeout: timedelta) -> list[Notification]:
        heard = list(self._queue)
        self._queue.clear()
        return heard

    def wake(self) -> None:
        """Nobody waits here."""


class RepeatingRunStore(MemoryRunStore):
    """Reports that were read before come again: late ones, repeated ones."""

    def __init__(self, database: MemoryDatabase, world: World) -> None:
        super().__init__(database)
        self._world = world
        self._told: list[TaskReport] = []

    def reports(self, node: Node) -> tuple[TaskReport, ...]:
        reports = super().reports(node)
        again = tuple(
            report
            for report in self._told
            if self._world.random.random() < self._world.options.repeat_report / 4
        )
        self._told = [*self._told, *reports][-20:]
        return again + reports


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What a world is built of; a planted mistake replaces one of them."""

    run_store: Callable[[MemoryDatabase, World], MemoryRunStore] = RepeatingRunStore
    task_store: Callable[[MemoryDatabase], MemoryTaskStore] = MemoryTaskStore
    failover_store: Callable[[MemoryDatabase, World], MemoryFailoverStore] = (
        lambda database, _world: MemoryFailoverStore(database)
    )
    run_worker: Callable[[RunWorker], None] = lambda _: None


class World:
    """Two masters, two workers, a handful of commands, and the faults of one seed."""

    def __init__(
        self, seed: int, *, parts: Parts | None = None, options: faults.Options | None = None
    ) -> None:
        self.random = Random(seed)
        drawn = faults.draw(self.random)
        self.options = options or drawn
        self.parts = parts or Parts()
        self.clock = VirtualClock()
        self.database = MemoryDatabase()
        self.database.commit_hook = self._around_commit
        self.database.begin_hook = self._before_transaction
        self.zookeeper = MemoryZooKeeper(clock=self.clock, session_timeout=timedelta(seconds=6))
        self.daemons: dict[str, Daemon] = {}
        self.computers = {
            f"w{index}:1": Computer(
                f"w{index}:1", self.random, self.clock, fails=self.options.failing_tasks
            )
            for index in (1, 2)
        }
        self.starts = 0
        self.log: list[str] = []
        self.surprises: list[str] = []
        self._to_restart: dict[str, timedelta] = {}
        self._current: Daemon | None = None
        self._paused: Daemon | None = None
        self._healed = False
        self._plan()

    # The plan

    def _plan(self) -> None:
        random = self.random
        self._commands: deque[tuple[timedelta, int, int]] = deque()
        for index in range(random.randint(2, 4)):
            shape = random.choice(_SHAPES)
            retry = {"maxRetryTimes": random.choice((0, 0, 1, 2)), "retryInterval": 0}
            off = {"runFlag": "FORBIDDEN"}
            text = a_definition_json(shape, a=retry, b=retry, f=off)
            definition = self.database.insert(
                self.database.definitions,
                name=f"d{index}",
                release_state=1,
                process_definition_json=text,
            )
            at = timedelta(seconds=random.uniform(0, 15))
            self._commands.append((at, definition, random.choice((0, 1))))
        self._commands = deque(sorted(self._commands))
        for name in ("m1:1", "m2:1", *self.computers):
            self._start(name)

    # Running

    def run(self) -> None:
        """Live through the faults, heal, and go on until all is at rest or time is up."""
        while self.clock.elapsed < _FAULTY:
            self._turn()
        self.heal()
        while self.clock.elapsed < _FAULTY + _HEALED and not self._at_rest():
            self._turn()

    def heal(self) -> None:
        """From now on nothing fails."""
        self._healed = True
        for daemon in self.daemons.values():
            daemon.frozen_until = timedelta()
        for name in list(self._to_restart):
            self._to_restart[name] = self.clock.elapsed

    def _at_rest(self) -> bool:
        return (
            not self._commands
            and not self._to_restart
            and not len(self.database.commands)
            and not any(process.is_live for process in self.database.processes)
            and not any(computer.alive() for computer in self.computers.values())
            and all(
                process.told or process.ends <= self.clock.now()
                for computer in self.computers.values()
                for process in computer.processes.values()
            )
        )

    def _turn(self) -> None:
        """Step something that is due, or let time pass until something is."""
        now = self.clock.elapsed
        before, self._current = self._current, None
        self._people(now)
        self._current = before
        self._deaths_and_births(now)
        self.zookeeper.tick(self.clock.monotonic())
        due = [
            (daemon, step)
            for daemon in self.daemons.values()
            if daemon.frozen_until <= now and daemon is not self._paused
            for step in daemon.steps
            if step.due <= now
        ]
        if due:
            self._step(*self.random.choice(due))
        else:
            self._pass_time(now)

    def _pass_time(self, now: timedelta) -> None:
        moments = [now + timedelta(seconds=1)]
        for daemon in self.daemons.values():
            moments += [max(step.due, daemon.frozen_until) for step in daemon.steps]
        for computer in self.computers.values():
            end = computer.next_end()
            if end is not None:
                moments.append(end - START)
        later = [moment for moment in moments if moment > now]
        self.clock.move_to(min(later, default=now + timedelta(milliseconds=100)))
        for daemon in list(self.daemons.values()):
            if daemon.frozen_until <= self.clock.elapsed and daemon is not self._paused:
                self._act(daemon, daemon.registry.pulse)
                self._act(daemon, daemon.after_step)

    def _step(self, daemon: Daemon, step: Step) -> None:
        if self._happens(self.options.freeze):
            daemon.frozen_until = self.clock.elapsed + timedelta(
                seconds=self.random.choice((2.0, 5.0, 20.0))
            )
            self.log.append(f"{self.clock.elapsed} {daemon.name} freezes")
            return
        if self._happens(self.options.expire):
            self.zookeeper.expire(daemon.registry)
        if self._happens(self.options.wipe_registry):
            self.log.append(f"{self.clock.elapsed} the registry is wiped")
            self.zookeeper.wipe()

        def once() -> None:
            # A wake that comes during the pass brings the next one forward again.
            step.due = _NEVER
            rest = step.loop.run_once()
            if step.loop.name != NoticeLoop.name:
                rest = max(rest, timedelta(milliseconds=1))
                step.due = min(step.due, self.clock.elapsed + rest)

        self._act(daemon, once)
        self._act(daemon, daemon.after_step)
        if daemon.runs is not None and step.loop.name == RunWorker.name:
            self.surprises += differences(daemon.runs, MemoryRunStore(self.database))
        self._deliver()

    def _act(self, daemon: Daemon, act: Callable[[], None]) -> None:
        """Have a daemon do something, which it may not survive."""
        if daemon.name not in self.daemons or self.daemons[daemon.name] is not daemon:
            return
        before, self._current = self._current, daemon
        try:
            act()
        except DaemonDiedError as death:
            self.log.append(f"{self.clock.elapsed} {daemon.name} dies {death}")
            del self.daemons[daemon.name]
            self._to_restart[daemon.name] = self.clock.elapsed + timedelta(
                seconds=self.random.choice(_RESTART)
            )
        finally:
            self._current = before

    def _deliver(self) -> None:
        self.zookeeper.deliver()
        for channel, payload in self.database.drain_notifications():
            for daemon in self.daemons.values():
                if self._happens(self.options.lose_notice):
                    continue
                times = 2 if self._happens(self.options.repeat_notice) else 1
                daemon.source.extend([Notification(channel=channel, payload=payload)] * times)
                daemon.wake(NoticeLoop.name, self.clock.elapsed)

    # People and their commands

    def _people(self, now: timedelta) -> None:
        while self._commands and self._commands[0][0] <= now:
            _, definition, strategy = self._commands.popleft()
            self.database.insert(
                self.database.commands,
                command_type=int(CommandType.START_PROCESS),
                process_definition_id=definition,
                failure_strategy=strategy,
                start_time=self.clock.now(),
                update_time=self.clock.now(),
            )
            self.starts += 1
        live = [process.id for process in self.database.processes if process.is_live]
        if live and self._happens(self.options.stop / 200):
            self.database.insert(
                self.database.commands,
                command_type=int(CommandType.STOP),
                command_param=f'{{"ProcessInstanceId":{self.random.choice(live)}}}',
                start_time=self.clock.now(),
                update_time=self.clock.now(),
            )

    # Faults

    def _happens(self, chance: float) -> bool:
        return not self._healed and chance > 0 and self.random.random() < chance

    def _before_transaction(self, name: str) -> None:
        """Hold a daemon up in the midst of a pass, while the others go on: what it has read is old.

        This is the pause between a look and a write that only a fence answers.
        """
        daemon = self._current
        if (
            daemon is None
            or self._paused is not None
            or name not in self.options.pause_before
            or not self._happens(self.options.pause)
        ):
            return
        until = self.clock.elapsed + timedelta(seconds=self.random.choice((1.0, 5.0, 15.0)))
        self.log.append(f"{self.clock.elapsed} {daemon.name} is held up before {name}")
        self._paused = daemon
        while self.clock.elapsed < until and not self._healed:
            self._turn()
        self._paused = None
        self._current = daemon

    def _around_commit(self, name: str, moment: Literal["before", "after"]) -> None:
        daemon = self._current
        if daemon is None:
            return
        if self._happens(self.options.crash_at_commit / 2):
            daemon.registry.crash()
            raise DaemonDiedError(f"{moment} the commit of {name}")
        if self._happens(self.options.no_answer / 2):
            raise ServiceUnreachableError(f"no answer {moment} the commit of {name}")

    def _around_registry(self, operation: str) -> None:
        daemon = self._current
        if daemon is not None and self._happens(self.options.crash_at_registry / 2):
            daemon.registry.crash()
            raise DaemonDiedError(operation)

    def _deaths_and_births(self, now: timedelta) -> None:
        for name, at in list(self._to_restart.items()):
            if at <= now:
                del self._to_restart[name]
                self._start(name)

    # Daemons

    def _start(self, name: str) -> None:
        registry = self.zookeeper.registry(before_operation=self._around_registry)
        daemon = Daemon(name=name, registry=registry)
        self.daemons[name] = daemon
        if name.startswith("m"):
            self._act(daemon, lambda: self._make_master(daemon))
        else:
            self._act(daemon, lambda: self._make_worker(daemon))

    def _make_master(self, daemon: Daemon) -> None:
        host, _, port = daemon.name.partition(":")
        master = Master(
            MasterConfig(host=host, port=int(port), exec_threads=10),
            zone=_UTC,
            clock=self.clock,
            registry=daemon.registry,
            stores=Stores(
                commands=MemoryCommandStore(self.database),
                runs=self.parts.run_store(self.database, self),
                failover=self.parts.failover_store(self.database, self),
            ),
            heartbeat_text=lambda: self.heartbeat(host),
        )
        daemon.runs = watched(master.runs, self.surprises)
        self.parts.run_worker(master.runs)
        notice = NoticeLoop(
            Mailbox(daemon.source),
            runs=master.runs,
            command_waiting=lambda: master.wakes.wake(master.commands.name),
        )
        for loop in (*master.loops, notice):
            self.add(daemon, loop, master.wakes.by_name)

    def _make_worker(self, daemon: Daemon) -> None:
        host, _, port = daemon.name.partition(":")
        attempts: list[SimAttempts] = []

        def make_attempts(ended: Ended, _: Started) -> SimAttempts:
            attempts.append(SimAttempts(self.computers[daemon.name], ended))
            return attempts[0]

        worker = Worker(
            WorkerConfig(host=host, port=int(port), exec_threads=4, fetch_task_num=3),
            clock=self.clock,
            registry=daemon.registry,
            store=self.parts.task_store(self.database),
            make_attempts=make_attempts,
            folders=AttemptFolders(work="/t", logs="/t/logs"),
            heartbeat_text=lambda: self.heartbeat(host),
        )
        for loop in worker.loops:
            self.add(daemon, loop, worker.wakes.by_name)
        daemon.after_step = attempts[0].tell

    def add(self, daemon: Daemon, loop: Loop, wakes: dict[str, Callable[[], None]]) -> None:
        """Give a daemon a loop, and `wakes` the means to wake it."""
        step = Step(Patient(loop), self.clock.elapsed)
        daemon.steps.append(step)

        def wake() -> None:
            step.due = min(step.due, self.clock.elapsed)

        wakes[loop.name] = wake

    def heartbeat(self, host: str) -> str:
        now = self.clock.now()
        return Heartbeat(
            host=host, pid=1, cpu=0.0, memory=0.0, load=0.0, created=now, beaten=now
        ).text()


def watched(runs: RunWorker, surprises: list[str]) -> RunWorker:
    """Have what the engine holds to be impossible written down, since the loop survives it."""
    suspect = runs._suspect

    def tell(ownership: Ownership, error: Exception) -> None:
        surprises.append(f"process instance {ownership.process_instance_id}: {error!r}")
        suspect(ownership, error)

    runs._suspect = tell  # type: ignore[method-assign]  # A test's ear at a closed door.
    return runs


def differences(runs: RunWorker, store: MemoryRunStore) -> list[str]:
    """Where a run in memory is not what loading it would give."""
    found = []
    for run in runs._runs.values():
        for loaded in store.load([run.ownership]):
            fresh = runs._build(loaded)
            if fresh is None or fingerprint(fresh) != fingerprint(run):
                found.append(
                    f"process instance {run.ownership.process_instance_id}: memory has"
                    f" {fingerprint(run)}, the tables {fresh and fingerprint(fresh)}"
                )
    return found


def fingerprint(run: ProcessRun) -> tuple[object, ...]:
    """All that the engine's decisions depend on."""
    tasks = tuple(
        (name, t.phase, t.attempt, t.retry_times, t.retry_at, t.missing, t.kill_requested)
        for name, t in run.tasks.items()
    )
    return run.state, tuple(run.ready), sorted(run.live), sorted(run.failed), run.unfinished, tasks
