"""The simulated cluster: daemons made of the real loops, stepped one at a time in an order drawn.

Nothing here knows what is right; `checkers` do. A world is a function of its seed: the same seed
gives the same history, whatever the machine.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from datetime import timedelta
from random import Random
from typing import Literal
from zoneinfo import ZoneInfo

from common.config import MasterConfig, WorkerConfig
from common.errors import ServiceUnreachableError
from common.model.cluster import Heartbeat
from common.model.instances import Ownership
from common.model.states import TaskState
from common.runtime.outages import OutageTolerant
from common.runtime.service import Loop
from common.store.listen import Channel, Notification
from common.store.worker.ports import AttemptFolders
from master.assembly import Master, Stores
from master.engine.task_run import ImpossibleError
from master.loops.heartbeat import HeartbeatLoop
from master.loops.hint_targets import HintTargets
from master.loops.notice_loop import NoticeLoop
from master.loops.run_worker import RunWorker
from tests.memory.registry import MemoryZooKeeper
from tests.memory.store import (
    MemoryDatabase,
    MemoryRetentionStore,
    MemoryRunStore,
)
from tests.simulation import faults
from tests.simulation.complements import is_moving
from tests.simulation.computer import Computer, SimAttempts
from tests.simulation.connections import Connections
from tests.simulation.daemons import Daemon, DaemonDiedError, Mailbox, Step
from tests.simulation.definitions import draw_definitions
from tests.simulation.disabled_times import DisabledTimes, FailoverCheck
from tests.simulation.fingerprint import differences
from tests.simulation.parts import Parts
from tests.simulation.people import People
from tests.simulation.schedules import draw_schedules
from tests.simulation.virtual_clock import START, VirtualClock
from worker.assembly import Worker
from worker.attempts import Ended, Started
from worker.loops.hint_loop import HintLoop

_UTC = ZoneInfo("UTC")
_FAULTY = timedelta(seconds=40)
_HOUR = timedelta(hours=1)
_HEALED = timedelta(minutes=40)
_QUIET = timedelta(seconds=12)
_LONG = timedelta(minutes=5)
_NEVER = timedelta(days=10_000)
_BUSY = timedelta(milliseconds=1)
_IDLE = timedelta(milliseconds=250)
_BEAT = timedelta(seconds=1)
_AGING = timedelta(seconds=25)
_LISTENING = (NoticeLoop.name, HintLoop.name)
_RESTART = (0.0, 0.5, 3.0, 15.0)


class World:
    """Two masters, two workers, a handful of commands, and the faults of one seed."""

    def __init__(
        self,
        seed: int,
        *,
        parts: Parts | None = None,
        options: faults.Options | None = None,
        rest_within: timedelta = _HEALED,
    ) -> None:
        """`rest_within` is the longest that all may take to come to rest after the faults."""
        self._rest_within = rest_within
        self.random = Random(seed)
        drawn = faults.draw(self.random)
        self.options = options or drawn
        self.parts = parts or Parts()
        self.clock = VirtualClock()
        self.database = MemoryDatabase()
        self.database.now = self.clock.now
        self.database.commit_hook = self._around_commit
        self.database.begin_hook = self._before_transaction
        self.database.read_hook = self._before_read
        self.zookeeper = MemoryZooKeeper(clock=self.clock, session_timeout=timedelta(seconds=6))
        self.daemons: dict[str, Daemon] = {}
        self.computers = {
            f"w{index}:1": Computer(
                f"w{index}:1", self.random, self.clock, fails=self.options.failing_tasks
            )
            for index in (1, 2)
        }
        self.log: list[str] = []
        self.violations: list[str] = []
        self._to_restart: dict[str, timedelta] = {}
        self._current: Daemon | None = None
        self._paused: Daemon | None = None
        self._healed = False
        self._away = timedelta()
        self._outages: deque[timedelta] = deque()
        self._disabled = DisabledTimes(self.clock)
        self._failovers = FailoverCheck(self.database, self.computers, self._disabled)
        self._jumps: deque[timedelta] = deque()
        self._misfire_threshold = 60.0
        self._room = 10
        self._task_limit = 0
        self._retention_days = 0
        self.healed_at = _FAULTY
        self._quiet_since = (0, timedelta())
        self._connections = Connections(
            self.random,
            self.options,
            self.clock,
            self.zookeeper,
            self.daemons,
            log=lambda line: self.log.append(f"{self.clock.elapsed} {line}"),
        )
        self._plan()

    # The plan

    def _plan(self) -> None:
        random = self.random
        self.definitions = draw_definitions(random, self.options, self.database)
        draw_schedules(random, self.options, self.database, self.definitions, last=_FAULTY)
        self.people = People(
            random,
            self.options,
            self.database,
            self.clock,
            definitions=self.definitions,
            log=lambda line: self.log.append(f"{self.clock.elapsed} {line}"),
            last=_FAULTY,
        )
        if self.options.outage:
            self._outages.append(timedelta(seconds=random.uniform(5, 30)))
        jumps = (random.uniform(3, 35) for _ in range(self.options.clock_jumps))
        self._jumps.extend(timedelta(seconds=seconds) for seconds in sorted(jumps))
        self._misfire_threshold = random.choice((5.0, 60.0))
        self._room = random.choice((1, 2, 10, 10))
        self._task_limit = random.choice((0, 0, 1, 2))
        self.start()

    def start(self) -> None:
        """Start the daemons."""
        for name in ("m1:1", "m2:1", *self.computers):
            self._start(name)

    # Running

    def run(self) -> None:
        """Run with faults, heal, and continue until all is at rest or time is up."""
        while self._lived < _FAULTY and not self._at_rest():
            self._turn()
        self.heal()
        while self._lived < _FAULTY + self._rest_within and (
            not self._at_rest() or self.people.resume_once() or self.people.resume_discarded()
        ):
            self._turn()
            self._close()

    @property
    def _lived(self) -> timedelta:
        """The time with daemons, without the outages."""
        return self.clock.elapsed - self._away

    @property
    def misfire_threshold(self) -> timedelta:
        """The greatest delay of a fire that is no misfire."""
        return timedelta(seconds=self._misfire_threshold)

    def heal(self) -> None:
        """Let nothing fail from now on."""
        self._healed = True
        self._outages.clear()
        self._jumps.clear()
        if self.options.clock_jumps:
            # Nobody acts until then, so that rows written in the future are in the past by now.
            self.clock.wrong_by = timedelta()
            self.skip(2 * _HOUR)
            self.log.append(f"{self.clock.elapsed} the clock is right again")
        self.healed_at = self.clock.elapsed
        self.people.stop_acting()
        self._connections.heal()
        for daemon in self.daemons.values():
            daemon.frozen_until = timedelta()
        for name in list(self._to_restart):
            self._to_restart[name] = self.clock.elapsed

    def _close(self) -> None:
        """End runs that wait for something that will never happen, and resume paused ones."""
        if self._lived > _FAULTY + _LONG:
            self.people.cancel_long_complements()
        changes, since = self._quiet_since
        if len(self.database.changes) != changes:
            self._quiet_since = len(self.database.changes), self.clock.elapsed
        elif self.clock.elapsed - since <= _QUIET:
            return
        elif not any(process.is_live for process in self.database.processes):
            self._quiet_since = changes, self.clock.elapsed
            self.people.resume_again()
        elif self._waits_for_others():
            self._quiet_since = changes, self.clock.elapsed
            works = any(computer.alive() for computer in self.computers.values())
            if len(self.database.commands) and not works and not self.options.minutes:
                self.violations.append("commands wait for room that nothing uses (T67)")
            self.people.stop_everything()

    def _waits_for_others(self) -> bool:
        """True if a DEPENDENT waits: for a run that nobody begins, or that waits itself."""
        return any(
            task.task_type == "DEPENDENT" and task.state == TaskState.RUNNING
            for task in self.database.tasks
        )

    def _at_rest(self) -> bool:
        return (
            self.people.are_done
            and not self._to_restart
            and not len(self.database.commands)
            and not any(process.is_live for process in self.database.processes)
            and not any(computer.alive() for computer in self.computers.values())
            and all(
                process.reported or process.ends <= self.clock.true_now()
                for computer in self.computers.values()
                for process in computer.processes.values()
            )
            and not any(is_moving(self.database, row) for row in self.database.complements)
            and not any(row.fires and row.counted_from for row in self.database.schedules)
            and not any(row.fires and row.next_fire_time for row in self.database.schedules)
        )

    def _turn(self) -> None:
        """Step a loop that is due, or advance time until one is."""
        now = self.clock.elapsed
        before, self._current = self._current, None
        self.people.act_when_due(self._lived)
        self._current = before
        self._outage_or_jump()
        if self._to_restart:
            self._deaths_and_births(now)
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

    def skip(self, time: timedelta) -> None:
        """Advance time in which no daemon does anything, as while a computer sleeps."""
        self._away += time
        for name in self.daemons:
            self._disabled.note(name, time)
        self.clock.move_to(self.clock.elapsed + time)
        self.zookeeper.tick(self.clock.monotonic())

    def age(self, days: int, *, kept: int) -> None:
        """Let days go by, and then the faults of this world again, with a retention of `kept`."""
        for name in list(self.daemons):
            self.kill(name)
        self._retention_days = kept
        self.skip(timedelta(days=days))
        self._healed = False
        self.live_for(_AGING)
        self.heal()
        self.live_for(_AGING)

    def _outage_or_jump(self) -> None:
        if self._paused is not None:
            return
        self._connections.pass_time(self._lived)
        if self._outages and self._outages[0] <= self._lived:
            self._outages.popleft()
            self.power_cut(self.options.outage)
        if self._jumps and self._jumps[0] <= self._lived:
            self._jumps.popleft()
            # Never more than an hour off, so that it ends after a while.
            self.clock.wrong_by = (
                timedelta() if self.clock.wrong_by else self.random.choice((_HOUR, -_HOUR))
            )
            self.log.append(f"{self.clock.elapsed} the clock is wrong by {self.clock.wrong_by}")

    def power_cut(self, time: timedelta) -> None:
        """Kill all daemons and restart them after this time; processes of tasks continue."""
        self.log.append(f"{self.clock.elapsed} all daemons are away for {time}")
        for name in list(self.daemons):
            self.kill(name)
        self.skip(time)
        for name in self._to_restart:
            self._to_restart[name] = self.clock.elapsed + timedelta(
                seconds=self.random.choice(_RESTART)
            )

    def kill(self, name: str, *, restarts_after: timedelta = timedelta()) -> None:
        """Kill a daemon between two of its steps, if it lives, and restart it after this time."""
        daemon = self.daemons.pop(name, None)
        if daemon is not None:
            daemon.registry.crash()
            self._disabled.note_death(name)
            self._to_restart[name] = self.clock.elapsed + restarts_after

    def live_for(self, time: timedelta) -> None:
        """Continue for this long."""
        until = self.clock.elapsed + time
        while self.clock.elapsed < until:
            self._turn()

    def _pass_time(self, now: timedelta) -> None:
        latest = now + timedelta(seconds=1)
        for daemon in self.daemons.values():
            is_frozen = daemon.frozen_until > now
            for step in daemon.steps:
                due = max(step.due, daemon.frozen_until) if is_frozen else step.due
                if now < due < latest:
                    latest = due
        for computer in self.computers.values():
            end = computer.next_end()
            if end is not None and now < end - START < latest:
                latest = end - START
        self.clock.move_to(latest)
        self.zookeeper.tick(self.clock.monotonic())
        for daemon in list(self.daemons.values()):
            if daemon.frozen_until <= latest and daemon is not self._paused:
                self._act(daemon, daemon.tick_host)

    def _step(self, daemon: Daemon, step: Step) -> None:
        if self._happens(self.options.freeze):
            time = timedelta(seconds=self.random.choice((2.0, 5.0, 20.0)))
            daemon.frozen_until = self.clock.elapsed + time
            self._disabled.note(daemon.name, time)
            self.log.append(f"{self.clock.elapsed} {daemon.name} freezes")
            return
        is_isolated = self._happens(self.options.isolate)
        if is_isolated or self._happens(self.options.cut_off):
            self._connections.lose(daemon, isolated=is_isolated)
        if self._happens(self.options.expire):
            self.zookeeper.expire(daemon.registry)
        if self._happens(self.options.wipe_registry):
            self.log.append(f"{self.clock.elapsed} the registry is wiped")
            self.zookeeper.wipe()

        def once() -> None:
            # A wake during the pass brings the next one forward again.
            step.due = _NEVER
            changes = len(self.database.changes)
            rest = step.loop.run_once()
            if step.loop.name not in _LISTENING:
                # A pass without changes waits for something, never for less than this.
                is_idle = changes == len(self.database.changes)
                rest = max(rest, step.idle if is_idle else _BUSY)
                step.due = min(step.due, self.clock.elapsed + rest)

        self._act(daemon, once)
        if daemon.after_step is not None:
            self._act(daemon, daemon.after_step)
        if daemon.runs is not None and step.loop.name == RunWorker.name:
            self._compare(daemon, daemon.runs)
        if self.daemons.get(daemon.name) is daemon:
            self._disabled.note_return(daemon)
        self._deliver()

    def _compare(self, daemon: Daemon, runs: RunWorker) -> None:
        """Compare a daemon's memory with a fresh load, after each of its passes."""
        if daemon.compared != len(self.database.changes):
            daemon.compared = len(self.database.changes)
            self.violations += differences(runs, MemoryRunStore(self.database))

    def _act(self, daemon: Daemon, act: Callable[[], None]) -> None:
        """Let a daemon do something that it may not survive."""
        if daemon.name not in self.daemons or self.daemons[daemon.name] is not daemon:
            return
        before, self._current = self._current, daemon
        try:
            act()
        except DaemonDiedError as death:
            self.log.append(f"{self.clock.elapsed} {daemon.name} dies {death}")
            del self.daemons[daemon.name]
            self._disabled.note_death(daemon.name)
            self._to_restart[daemon.name] = self.clock.elapsed + timedelta(
                seconds=self.random.choice(_RESTART)
            )
        finally:
            self._current = before

    def _deliver(self) -> None:
        self.zookeeper.deliver()
        for channel, payload in self.database.drain_notifications():
            for daemon in self.daemons.values():
                if not daemon.listens_to(channel) or self._happens(self.options.lose_notice):
                    continue
                times = 2 if self._happens(self.options.repeat_notice) else 1
                daemon.source.extend([Notification(channel=channel, payload=payload)] * times)
                for name in _LISTENING:
                    daemon.wake(name, self.clock.elapsed)
            if channel == Channel.TASK and not self._healed:
                before, self._current = self._current, None
                self.people.react_to_end()
                self._current = before

    # Faults

    def _happens(self, chance: float) -> bool:
        return not self._healed and chance > 0 and self.random.random() < chance

    def _before_transaction(self, name: str) -> None:
        """Suspend a daemon in the midst of a pass while the others continue: its reads go stale.

        This is the pause between a read and a write that only fencing makes safe.
        """
        self._before_read(name)
        self.hold_up(name)

    def hold_up(self, name: str) -> None:
        """Suspend the daemon that acts for a while, if its plan says so."""
        daemon = self._current
        if (
            daemon is None
            or self._paused is not None
            or name not in self.options.pause_before
            or not self._happens(self.options.pause)
        ):
            return
        time = timedelta(seconds=self.random.choice((1.0, 5.0, 15.0)))
        until = self.clock.elapsed + time
        self._disabled.note(daemon.name, time)
        self.log.append(f"{self.clock.elapsed} {daemon.name} is held up before {name}")
        self._paused = daemon
        while self.clock.elapsed < until and not self._healed:
            self._turn()
        self._paused = None
        self._current = daemon

    def _before_read(self, name: str) -> None:
        if self._current is not None and self._current.is_isolated:
            raise ServiceUnreachableError(f"PostgreSQL is out of reach for {name}")

    def _around_commit(self, name: str, moment: Literal["before", "after"]) -> None:
        if (name, moment) == ("fail_tasks_over", "after"):
            self.violations += self._failovers.findings(self.clock)
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
        # Of a claim that is not waited for, each half of the daemons shows the other order.
        registry.claims_late = registry.session % 2 == 0
        daemon = Daemon(name=name, registry=registry)
        self.daemons[name] = daemon
        if name.startswith("m"):
            self._act(daemon, lambda: self._make_master(daemon))
        else:
            self._act(daemon, lambda: self._make_worker(daemon))

    def _make_master(self, daemon: Daemon) -> None:
        host, _, port = daemon.name.partition(":")
        hints = HintTargets(daemon.registry.membership)
        commands = self.parts.command_store(self.database)
        runs = self.parts.run_store(self.database, self)
        commands.hint_to = runs.hint_to = hints.target
        master = Master(
            MasterConfig(
                host=host,
                port=int(port),
                exec_threads=self._room,
                exec_task_num=self._task_limit,
                hold_interval_seconds=self.parts.hold_interval.total_seconds(),
                misfire_threshold_seconds=self._misfire_threshold,
                retention_days=self._retention_days,
            ),
            zone=_UTC,
            clock=self.clock,
            registry=daemon.registry,
            stores=Stores(
                commands=commands,
                runs=runs,
                failover=self.parts.failover_store(self.database, self),
                holds=self.parts.hold_store(self.database),
                timeouts=self.parts.timeout_store(self.database),
                dependents=self.parts.dependent_store(self.database),
                schedules=self.parts.schedule_store(self.database),
                complements=self.parts.complement_store(self.database),
                retention=MemoryRetentionStore(self.database),
            ),
            heartbeat_text=lambda: self.heartbeat(host),
            return_grace=self.zookeeper.session_timeout,
            hints=hints,
        )
        daemon.runs = watched(master.runs, self.database, self.violations)
        self.parts.run_worker(master.runs)
        notice = NoticeLoop(
            Mailbox(daemon.source),
            runs=master.runs,
            command_waiting=master.commands.heard,
            attempt_ended=master.queue.forget,
            upstream_changed=master.dependents.on_end,
            hold_changed=lambda: master.wakes.wake(master.holds.name),
            schedule_changed=lambda: master.wakes.wake(master.schedules.name),
            complement_changed=lambda: master.wakes.wake(master.complements.name),
        )
        for loop in (*master.loops, notice):
            self.add(daemon, loop, master.wakes.by_name)
        self.parts.with_master(daemon, master)

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
            heartbeat_text=lambda _: lambda: self.heartbeat(host),
        )
        self.parts.with_worker(daemon, worker)
        hints = HintLoop(
            Mailbox(daemon.source),
            hinted=worker.claims.hinted,
            ordered=lambda: daemon.ordered(),  # noqa: PLW0108  # It is set later.
        )
        for loop in (*worker.loops, hints):
            self.add(daemon, loop, worker.wakes.by_name)
        daemon.after_step = attempts[0].report_ends
        daemon.joined = lambda: worker.identity.node is not None

    def add(self, daemon: Daemon, loop: Loop, wakes: dict[str, Callable[[], None]]) -> None:
        """Add a loop to a daemon, and its wake to `wakes`."""
        # Sessions last for seconds; checking them more often costs a quarter of all steps.
        idle = _BEAT if loop.name == HeartbeatLoop.name else _IDLE
        step = Step(OutageTolerant(loop), self.clock.elapsed, idle)
        daemon.steps.append(step)

        def wake() -> None:
            step.due = min(step.due, self.clock.elapsed)

        wakes[loop.name] = wake

    def heartbeat(self, host: str) -> str:
        now = self.clock.now()
        return Heartbeat(
            host=host, pid=1, cpu=0.0, memory=0.0, load=0.0, created=now, beaten=now
        ).text()


def watched(runs: RunWorker, database: MemoryDatabase, violations: list[str]) -> RunWorker:
    """Record what the engine holds to be impossible, since the loop survives it.

    A run that has been taken over may read its new owner's writes; it is about to be lost.
    """
    suspect = runs._suspect

    def record(ownership: Ownership, error: Exception) -> bool:
        process = database.processes.the(ownership.process_instance_id)
        is_stale = process.owner_epoch != ownership.epoch
        if not (is_stale and isinstance(error, ImpossibleError)):
            violations.append(f"process instance {process.id}: {error!r}")
        return suspect(ownership, error)

    runs._suspect = record  # type: ignore[method-assign]  # The loop offers no hook.
    return runs
