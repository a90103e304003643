"""A master's run worker on tables in memory; the test plays the worker, the other loops and people."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from itertools import count
from typing import Any
from zoneinfo import ZoneInfo

from common.errors import ServiceUnreachableError
from common.model.cluster import Node
from common.model.commands import Command, CommandType
from common.model.failures import FailureReason
from common.model.instances import Ownership, TaskReport
from common.model.plans import Complement, Handled, Plan, Snapshot
from common.model.states import FailureStrategy, ProcessState, TaskState
from common.store.listen import Channel, read_task_report
from common.store.master.ports import Intent, LoadedRun, Saved
from common.store.worker.ports import AttemptEnd, AttemptFolders
from master.commands import plan
from master.commands.origin import Origin
from master.graphs import GraphCache
from master.identity import Identity
from master.logic.complement import step
from master.loops.run_worker import RunWorker, RunWorkerConfig
from tests.builders import a_definition_json
from tests.memory.registry import MemoryZooKeeper
from tests.memory.store import (
    MemoryCommandStore,
    MemoryComplementStore,
    MemoryDatabase,
    MemoryFailoverStore,
    MemoryRunStore,
    MemoryTaskStore,
    MemoryTimeoutStore,
    ProcessRecord,
    TaskRecord,
)
from tests.simulation.virtual_clock import VirtualClock

MASTER = Node(address="m1:5678", incarnation=7)


OTHER_MASTER = Node(address="m2:5678", incarnation=8)


WORKER = Node(address="w1:1234", incarnation=9)


UTC_ZONE = ZoneInfo("UTC")


MINUTE = timedelta(minutes=1)


class LineThatBreaks(MemoryRunStore):
    """Tables that can be unreachable: `broken` names the queries that get no answer."""

    def __init__(self, database: MemoryDatabase) -> None:
        super().__init__(database)
        self.broken: tuple[str, ...] = ()
        self.asked: list[str] = []
        self.loads: list[int] = []

    def load(self, ownerships: Sequence[Ownership]) -> tuple[LoadedRun, ...]:
        self._answers("load")
        self.loads.append(len(ownerships))
        return super().load(ownerships)

    def owned(self, node: Node, **page: Any) -> frozenset[Ownership]:
        self._answers("owned")
        return super().owned(node, **page)

    def reports(self, node: Node, **page: Any) -> tuple[TaskReport, ...]:
        self._answers("reports")
        return super().reports(node, **page)

    def wanted(self, node: Node) -> dict[Ownership, Intent]:
        self._answers("wanted")
        return super().wanted(node)

    def propagate_intents(self, node: Node) -> int:
        self._answers("propagate_intents")
        return super().propagate_intents(node)

    def _answers(self, question: str) -> None:
        self.asked.append(question)
        if question in self.broken:
            raise ServiceUnreachableError(f"no answer to {question}")


class OneMaster:
    """A master's run worker; the test plays the worker on the tables."""

    def __init__(
        self,
        *,
        config: RunWorkerConfig | None = None,
        store: Callable[[MemoryDatabase], LineThatBreaks] = LineThatBreaks,
    ) -> None:
        self.config = config
        self.clock = VirtualClock()
        self.database = MemoryDatabase()
        self.store = store(self.database)
        self.database.now = self.clock.now
        self.tasks = MemoryTaskStore(self.database)
        self.timeouts = MemoryTimeoutStore(self.database)
        self.failover = MemoryFailoverStore(self.database)
        self.graphs = GraphCache()
        registry = MemoryZooKeeper(
            clock=self.clock, session_timeout=timedelta(seconds=6)
        ).registry()
        self.identity = Identity(registry.membership)
        self.identity.become(MASTER)
        self.saved: list[Saved] = []
        self.ends = 0
        self.wakes = 0
        self._numbers = count(1)
        self.runs = self.start()

    def start(self) -> RunWorker:
        """A run worker with an empty memory, as after a restart."""
        self.runs = RunWorker(
            self.store,
            identity=self.identity,
            graphs=self.graphs,
            clock=self.clock,
            saved=self.saved.append,
            ended=self._ended,
            wake=self._woken,
            config=self.config,
        )
        return self.runs

    def command(self, command_type: CommandType, **columns: Any) -> Ownership | None:
        """Insert a command and take it; return the run if it is this master's now."""
        self.database.insert(
            self.database.commands,
            command_type=int(command_type),
            **{"start_time": self.clock.now(), "update_time": self.clock.now(), **columns},
        )
        handled = self._take(room=1)
        if isinstance(handled.plan, Complement):
            # Its only date begins by a command of its own.
            MemoryComplementStore(self.database).advance(
                decide=step, now=self.clock.now(), thorough=False
            )
            handled = self._take(room=1)
        return handled.ownership

    def _take(self, *, room: int) -> Handled:
        taken = MemoryCommandStore(self.database).take(
            node=MASTER,
            limit=1,
            room=room,
            spare=room,
            live_masters=lambda: frozenset({MASTER}),
            planner=self._plan,
            now=self.clock.now(),
        )
        (handled,) = taken.handled
        return handled

    def begin(
        self,
        shape: str,
        *,
        strategy: FailureStrategy = FailureStrategy.CONTINUE,
        of_task: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> int:
        """Begin a run of this DAG and open it in the run worker; return its id."""
        definition = self.database.insert(
            self.database.definitions,
            name=f"d{next(self._numbers)}",
            release_state=1,
            process_definition_json=a_definition_json(shape, **(of_task or {})),
        )
        ownership = self.command(
            CommandType.START_PROCESS,
            process_definition_id=definition,
            failure_strategy=int(strategy),
        )
        assert ownership is not None
        self.runs.open([ownership])
        return ownership.process_instance_id

    def stop(self, run_id: int) -> None:
        """Request a stop of a run, as a person does."""
        self.command(CommandType.STOP, command_param=json.dumps({"ProcessInstanceId": run_id}))

    def pause(self, run_id: int) -> None:
        """Request a pause of a run, as a person does."""
        self.command(CommandType.PAUSE, command_param=json.dumps({"ProcessInstanceId": run_id}))

    def take_child(self) -> int:
        """Take the command that a SUB_PROCESS task has put, open its run and return the id."""
        handled = self._take(room=0)
        assert handled.ownership is not None, handled.plan
        self.runs.open([handled.ownership])
        return handled.ownership.process_instance_id

    def claim(self, run_id: int, name: str) -> int:
        """Claim the task as the worker; return the attempt's id."""
        task = self.valid(run_id, name)
        self.tasks.claim(
            WORKER,
            [task.id],
            folders=AttemptFolders(work="/t", logs="/t/logs"),
            now=self.clock.now(),
        )
        return task.id

    def end(
        self,
        run_id: int,
        name: str,
        state: TaskState = TaskState.SUCCESS,
        var_pool: str | None = None,
        failure: FailureReason | None = None,
    ) -> int:
        """Run the task to its end, and notify the master of it; return the attempt's id."""
        task_id = self.claim(run_id, name)
        end = AttemptEnd(
            task_instance_id=task_id,
            state=state,
            end_time=self.clock.now(),
            var_pool=var_pool,
            failure=failure,
        )
        self.tasks.report(WORKER, [end])
        self.deliver_notifications()
        return task_id

    def deliver_notifications(self) -> None:
        """Deliver the notifications of the triggers to the master."""
        for channel, payload in self.database.drain_notifications():
            if channel == Channel.TASK:
                self.runs.reported(read_task_report(payload))

    def step(self) -> timedelta:
        return self.runs.run_once()

    def later(self, passed: timedelta) -> timedelta:
        """Advance the clock, then step."""
        self.clock.move_to(self.clock.elapsed + passed)
        return self.step()

    def process(self, run_id: int) -> ProcessRecord:
        process = self.database.processes.get(run_id)
        assert process is not None
        return process

    def state(self, run_id: int) -> ProcessState:
        return ProcessState(self.process(run_id).state)

    def attempts(self, run_id: int) -> list[TaskRecord]:
        return [task for task in self.database.tasks if task.process_instance_id == run_id]

    def valid(self, run_id: int, name: str) -> TaskRecord:
        (task,) = [one for one in self.attempts(run_id) if one.name == name and one.flag == 1]
        return task

    def names(self, run_id: int) -> list[str]:
        """The names of all attempts, in the order in which they were submitted."""
        return [task.name for task in self.attempts(run_id)]

    def spoil(self, run_id: int) -> None:
        """Change a row behind its owner's back, so that its next step conflicts."""
        self.database.update(
            self.database.tasks, self.attempts(run_id)[0].id, settled=True, retry_at=None
        )

    def amid_the_next_save(self, act: Callable[[], object]) -> None:
        """Have this happen as the next save begins: its rows are no longer those that were read."""

        def hook(name: str) -> None:
            if name == "save":
                self.database.begin_hook = lambda _: None
                act()

        self.database.begin_hook = hook

    def _plan(self, command: Command, snapshot: Snapshot) -> Plan:
        origin = Origin(zone=UTC_ZONE, graph=self.graphs.graph)
        return plan(command, snapshot, now=self.clock.now(), origin=origin)

    def _ended(self) -> None:
        self.ends += 1

    def _woken(self) -> None:
        self.wakes += 1
