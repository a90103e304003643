"""A master's loops, wired to each other, without the threads that run them.

The daemon gives each loop a thread; the simulator steps the same loops itself. Whatever touches the
computer (load, the pid in the heartbeat) is handed in.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from zoneinfo import ZoneInfo

from common.clock import Clock
from common.config import MasterConfig
from common.model.cluster import Node
from common.model.date_rules import DateRule
from common.registry.protocol import Registry
from common.runtime.service import Loop
from common.runtime.wakes import Wakes
from common.store.master.assignment_ports import AssignmentStore
from common.store.master.ports import (
    CommandStore,
    ComplementStore,
    DependentStore,
    FailoverStore,
    HoldStore,
    RunStore,
    Saved,
    ScheduleStore,
    TimeoutStore,
)
from common.store.master.supervisor_ports import SupervisorStore
from common.store.retention import RetentionStore
from master.commands.origin import Origin
from master.graphs import GraphCache
from master.identity import Identity
from master.logic.assignment import AssignmentConfig
from master.logic.worker_choice import BlacklistConfig, ChoiceConfig
from master.loops.assign_loop import AssignLoop
from master.loops.command_loop import CommandConfig, CommandLoop
from master.loops.complement_loop import ComplementConfig, ComplementLoop
from master.loops.database_loop import DatabaseLoop
from master.loops.dependent_loop import DependentConfig, DependentLoop
from master.loops.failover_loop import FailoverConfig, FailoverLoop
from master.loops.heartbeat import HeartbeatLoop
from master.loops.hint_targets import HintTargets
from master.loops.hold_loop import HoldConfig, HoldLoop
from master.loops.queue_loop import QueueConfig, QueueLoop
from master.loops.retention_loop import RetentionConfig, RetentionLoop
from master.loops.run_worker import RunWorker, RunWorkerConfig
from master.loops.schedule_loop import ScheduleConfig, ScheduleLoop
from master.loops.streams import Ask, AskedStreams
from master.loops.supervisor_loop import SupervisorLoop
from master.loops.timeout_loop import TimeoutConfig, TimeoutLoop


@dataclass(frozen=True, slots=True, kw_only=True)
class Stores:
    """The stores that a master's loops use."""

    commands: CommandStore
    runs: RunStore
    failover: FailoverStore
    holds: HoldStore
    timeouts: TimeoutStore
    dependents: DependentStore
    schedules: ScheduleStore
    complements: ComplementStore
    retention: RetentionStore
    supervisors: SupervisorStore | None = None
    assignments: AssignmentStore | None = None


class Master:
    """One master. Its loops rest until `join` registers it."""

    def __init__(
        self,
        config: MasterConfig,
        *,
        zone: ZoneInfo,
        date_rule: DateRule = DateRule.SCHEDULE_TIME,
        clock: Clock,
        registry: Registry,
        stores: Stores,
        heartbeat_text: Callable[[], str],
        return_grace: timedelta,
        admitted: Callable[[], bool] = lambda: True,
        hints: HintTargets | None = None,
        database: DatabaseLoop | None = None,
        ask_stream: Ask | None = None,
    ) -> None:
        """`return_grace`: the time that workers have to come back, too, once this master has.

        `hints`: what the stores ask for the worker that they tell of new attempts. Without a store
        of supervisors, or `ask_stream`, which asks brokers, the master looks after no streams.
        Without `database` it never leaves because the database is out of reach.
        """
        self.wakes = Wakes()
        self.identity = Identity(registry.membership)
        self._failover_store = stores.failover
        self._clock = clock
        graphs = GraphCache()
        self.queue = QueueLoop(
            stores.runs,
            tasks=registry.task_queue,
            kills=registry.kill_queue,
            identity=self.identity,
            clock=clock,
            wake=lambda: self.wakes.wake(QueueLoop.name),
            config=QueueConfig(repair_interval=timedelta(seconds=config.repair_interval_seconds)),
        )
        self.runs = RunWorker(
            stores.runs,
            identity=self.identity,
            graphs=graphs,
            clock=clock,
            saved=self._saved,
            ended=lambda: self.wakes.wake(CommandLoop.name),
            wake=lambda: self.wakes.wake(RunWorker.name),
            config=RunWorkerConfig(
                check_interval=timedelta(seconds=config.repair_interval_seconds),
                stop_deadline=timedelta(seconds=config.stop_deadline_seconds),
                exec_task_num=config.exec_task_num,
                zone=zone,
            ),
        )
        self.hints = hints
        if hints is not None:
            hints.active = lambda: self.runs.active
            hints.wake = lambda: self.wakes.wake(HintTargets.name)
        self.holds = HoldLoop(
            stores.holds,
            identity=self.identity,
            clock=clock,
            queue=self.queue,
            asks=lambda: self.wakes.wake(AssignLoop.name),
            config=HoldConfig(interval=timedelta(seconds=config.hold_interval_seconds)),
        )
        self.timeouts = TimeoutLoop(
            stores.timeouts,
            identity=self.identity,
            clock=clock,
            config=TimeoutConfig(interval=timedelta(seconds=config.timeout_interval_seconds)),
        )
        self.dependents = DependentLoop(
            stores.dependents,
            identity=self.identity,
            clock=clock,
            zone=zone,
            wake=lambda: self.wakes.wake(DependentLoop.name),
            config=DependentConfig(interval=timedelta(seconds=config.dependent_interval_seconds)),
        )
        self.schedules = ScheduleLoop(
            stores.schedules,
            identity=self.identity,
            clock=clock,
            zone=zone,
            config=ScheduleConfig(
                interval=timedelta(seconds=config.schedule_interval_seconds),
                misfire_threshold=timedelta(seconds=config.misfire_threshold_seconds),
            ),
        )
        self.complements = ComplementLoop(
            stores.complements,
            identity=self.identity,
            clock=clock,
            wake=lambda: self.wakes.wake(ComplementLoop.name),
            config=ComplementConfig(interval=timedelta(seconds=config.complement_interval_seconds)),
        )
        self.commands = CommandLoop(
            stores.commands,
            mutex=registry.mutex,
            membership=registry.membership,
            identity=self.identity,
            runs=self.runs,
            origin=Origin(
                zone=zone,
                graph=graphs.graph,
                date_rule=date_rule,
                sub_process_depth=config.sub_process_depth,
            ),
            clock=clock,
            admitted=admitted,
            waits=lambda: self.wakes.wake(HoldLoop.name),
            taken_over=self.dependents.on_new_wait,
            dates_changed=lambda: self.wakes.wake(ComplementLoop.name),
            recovered=self.complements.recovered,
            wake=lambda: self.wakes.wake(CommandLoop.name),
            config=CommandConfig(
                exec_threads=config.exec_threads,
                project_percent=config.project_share_percent,
                fetch_size=config.fetch_size,
                poll_interval=timedelta(seconds=config.command_poll_seconds),
                kept=timedelta(days=config.ledger_days),
            ),
        )
        self.failover = FailoverLoop(
            stores.failover,
            mutex=registry.mutex,
            membership=registry.membership,
            identity=self.identity,
            clock=clock,
            config=FailoverConfig(
                interval=timedelta(seconds=config.failover_interval_seconds),
                return_grace=return_grace,
            ),
        )
        self.retention: RetentionLoop | None = None
        if config.retention_days:
            self.retention = RetentionLoop(
                stores.retention,
                membership=registry.membership,
                identity=self.identity,
                clock=clock,
                config=RetentionConfig(kept=timedelta(days=config.retention_days)),
            )
        self.supervisors: SupervisorLoop | None = None
        if stores.supervisors is not None and ask_stream is not None:
            self.supervisors = SupervisorLoop(
                stores.supervisors,
                streams=AskedStreams(
                    ask_stream,
                    clock=clock,
                    woken=lambda: self.wakes.wake(SupervisorLoop.name),
                ),
                identity=self.identity,
                clock=clock,
            )
        self.assigner: AssignLoop | None = None
        if stores.assignments is not None:
            self.assigner = AssignLoop(
                stores.assignments,
                membership=registry.membership,
                identity=self.identity,
                clock=clock,
                queue=self.queue,
                config=_assignment_config(config),
            )
        self.database = database
        if database is not None:
            database.answered = lambda: self.wakes.wake(HeartbeatLoop.name)
        self.heartbeat = HeartbeatLoop(
            membership=registry.membership,
            identity=self.identity,
            runs=self.runs,
            address=f"{config.host}:{config.port}",
            text=heartbeat_text,
            is_clean=self._is_clean,
            # They found no trusted node until now, and rest.
            joined=lambda: self.wakes.wake(
                *(loop.name for loop in self.loops if loop is not self.heartbeat)
            ),
            database_away=timedelta if database is None else database.away,
            database_patience=timedelta(seconds=config.database_patience_seconds),
            interval=timedelta(seconds=config.heartbeat_interval_seconds),
        )

    @property
    def loops(self) -> tuple[Loop, ...]:
        """The loops in the order of their start; those that take new work come last."""
        return (
            self.heartbeat,
            *(() if self.database is None else (self.database,)),
            self.runs,
            self.queue,
            *(() if self.hints is None else (self.hints,)),
            self.holds,
            self.timeouts,
            self.dependents,
            self.failover,
            self.complements,
            self.schedules,
            *(() if self.retention is None else (self.retention,)),
            *(() if self.supervisors is None else (self.supervisors,)),
            *(() if self.assigner is None else (self.assigner,)),
            self.commands,
        )

    def _saved(self, saved: Saved) -> None:
        self.queue.add(saved)
        if saved.holds:
            self.wakes.wake(HoldLoop.name)
        if saved.asks:
            self.wakes.wake(AssignLoop.name)
        if saved.dependents:
            self.dependents.on_new_wait()

    def hand_over(self) -> int:
        """Release the runs for other masters, once all loops have stopped; return the number.

        No alert follows, because a planned stop loses nothing.
        """
        node = self.identity.node
        if node is None:
            return 0
        return self._failover_store.hand_over(node, now=self._clock.now())

    def attempt_ended(self, task_instance_id: int) -> None:
        """Note the end of an attempt that a notification tells of; from any thread."""
        self.queue.forget(task_instance_id)
        if self.assigner is not None and self.assigner.is_waiting:
            # There may be room now.
            self.wakes.wake(AssignLoop.name)

    def _is_clean(self, node: Node) -> bool:
        return node not in self._failover_store.run_owners()


def _assignment_config(config: MasterConfig) -> AssignmentConfig:
    return AssignmentConfig(
        timeout=timedelta(seconds=config.task_assignment_timeout_seconds),
        choice=ChoiceConfig(min_version=config.min_worker_version),
        blacklist=BlacklistConfig(
            max_failures=config.blacklist_failures,
            back_off=timedelta(seconds=config.blacklist_seconds),
            max_percentage=config.blacklist_percentage,
        ),
    )
