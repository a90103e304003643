"""A worker with its store and registry in memory, and attempts that a test ends by hand."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Literal

from common.config import WorkerConfig
from common.errors import ServiceUnreachableError
from common.model.cluster import Node, QueueEntry
from common.model.states import TaskState
from common.store.worker.ports import AttemptEnd, AttemptFolders, ClaimedTask
from tests.memory.registry import MemoryRegistry, MemoryZooKeeper
from tests.memory.store import MemoryDatabase, MemoryTaskStore
from tests.simulation.virtual_clock import VirtualClock
from worker.assembly import Worker
from worker.attempts import Ended

ADDRESS = "w:1"


@dataclass
class HandAttempts:
    """Attempts whose processes run until the test ends them."""

    ended: Ended
    clock: VirtualClock
    started: list[int] = field(default_factory=list)
    tasks: dict[int, ClaimedTask] = field(default_factory=dict)
    live: dict[int, None] = field(default_factory=dict)
    killed: list[int] = field(default_factory=list)
    adopted: list[int] = field(default_factory=list)
    left: tuple[int, ...] = ()
    forgotten: list[int] = field(default_factory=list)
    abandoned: list[int] = field(default_factory=list)
    complements: set[int] = field(default_factory=set)
    waits: int = 0

    def start(self, task: ClaimedTask) -> None:
        self.started.append(task.id)
        if task.complement:
            self.complements.add(task.id)
        self.tasks[task.id] = task
        self.live[task.id] = None

    def kill(self, task_instance_id: int) -> None:
        self.killed.append(task_instance_id)

    def abandon(self, task_instance_id: int) -> None:
        self.abandoned.append(task_instance_id)

    def kill_all(self) -> None:
        for task_instance_id in list(self.live):
            self.end(task_instance_id, TaskState.NEED_FAULT_TOLERANCE)

    def running(self) -> frozenset[int]:
        return frozenset(self.live)

    def yielding(self) -> frozenset[int]:
        return frozenset(task for task in self.live if task in self.complements)

    def waiting(self) -> int:
        return self.waits

    def facts_files(self) -> Mapping[int, Path]:
        return {}

    def leftovers(self) -> tuple[int, ...]:
        return self.left

    def adopt(self, adopted: Collection[int]) -> None:
        for task_instance_id in sorted(adopted):
            self.adopted.append(task_instance_id)
            self.live[task_instance_id] = None

    def forget(self, ends: Iterable[AttemptEnd]) -> None:
        self.forgotten += [end.task_instance_id for end in ends]

    def end(self, task_instance_id: int, state: TaskState = TaskState.SUCCESS) -> None:
        del self.live[task_instance_id]
        self.ended(
            AttemptEnd(
                task_instance_id=task_instance_id,
                state=state,
                end_time=self.clock.now(),
                exit_code=0 if state is TaskState.SUCCESS else 1,
            )
        )


class Place:
    """One worker with its store, registry and attempts."""

    def __init__(
        self,
        *,
        slots: int = 4,
        batch: int = 4,
        group_ids: tuple[int, ...] = (),
        complement_slots: int = 0,
        reserved: bool = False,
    ) -> None:
        self.clock = VirtualClock()
        self.database = MemoryDatabase()
        self.zookeeper = MemoryZooKeeper(clock=self.clock, session_timeout=timedelta(seconds=6))
        self.registry: MemoryRegistry = self.zookeeper.registry()
        self.store = MemoryTaskStore(self.database)
        self.attempts: HandAttempts
        self.worker = Worker(
            WorkerConfig(
                host="w",
                port=1,
                exec_threads=slots,
                complement_threads=complement_slots,
                fetch_task_num=batch,
                reserved=reserved,
            ),
            clock=self.clock,
            registry=self.registry,
            store=self.store,
            make_attempts=self._make_attempts,
            folders=AttemptFolders(work="/t", logs="/t/logs"),
            heartbeat_text=lambda _: lambda: "w,1,0,0,0,2026-01-01 00:00:00,2026-01-01 00:00:00",
            group_ids=lambda: group_ids,
        )
        definition = self.database.insert(
            self.database.definitions, name="d", process_definition_json="{}"
        )
        self.process = self._run(definition)
        self.complement = self._run(definition, history_cmd="COMPLEMENT_DATA")

    def _run(self, definition: int, **columns: object) -> int:
        return self.database.insert(
            self.database.processes,
            name="run",
            process_definition_id=definition,
            state=1,
            host="m:1",
            owner_incarnation=1,
            command_type=0,
            process_instance_json="{}",
            executor_id=1,
            **columns,
        )

    def _make_attempts(self, ended: Ended, _started: object) -> HandAttempts:
        self.attempts = HandAttempts(ended, self.clock)
        return self.attempts

    def join(self) -> Node:
        """The worker's first pass."""
        self.worker.heartbeat.run_once()
        self.zookeeper.deliver()
        return self.node

    @property
    def node(self) -> Node:
        node = self.worker.identity.node
        assert node is not None
        return node

    def row(self, **columns: object) -> int:
        """An attempt in the tables."""
        return self.database.insert(
            self.database.tasks,
            name=f"t{len(self.database.tasks)}",
            task_type="SHELL",
            process_definition_id=1,
            task_json="{}",
            **{"process_instance_id": self.process, **columns},
        )

    def run_of(self, project: int, **columns: object) -> int:
        """A run of another project."""
        return self._run(
            self.database.insert(
                self.database.definitions,
                name=f"d{project}",
                project_id=project,
                process_definition_json="{}",
            ),
            **columns,
        )

    def submit(
        self,
        *,
        group: int = -1,
        priority: int = 2,
        complement: bool = False,
        of: int | None = None,
    ) -> int:
        """A submitted attempt of the run `of`, in the tables and in the queue."""
        run = of or (self.complement if complement else self.process)
        task = self.row(process_instance_id=run, worker_group_id=group)
        entry = replace(self.entry(task, group=group, priority=priority), yields=complement)
        self.registry.task_queue.offer([replace(entry, process_instance_id=run)])
        self.zookeeper.deliver()
        return task

    def submit_complement(self, count: int) -> list[int]:
        return [self.submit(complement=True) for _ in range(count)]

    def hint(self, *tasks: int, priority: int = 2) -> None:
        """Hint at attempts, as a master does."""
        self.worker.claims.hinted([self.entry(task, priority=priority) for task in tasks])

    def claim(self) -> list[int]:
        """Let the worker claim until it rests; return all attempts started since its start."""
        while self.worker.claims.run_once() < timedelta(seconds=1):
            pass
        return self.attempts.started

    def entry(self, task: int, *, group: int = -1, priority: int = 2) -> QueueEntry:
        return QueueEntry(
            process_priority=priority,
            process_instance_id=self.process,
            task_priority=2,
            task_instance_id=task,
            worker_group_id=group,
        )

    def state(self, task: int) -> TaskState:
        row = self.database.tasks.get(task)
        assert row is not None
        return TaskState(row.state)

    def pass_time(self, seconds: float) -> None:
        self.clock.move_to(self.clock.elapsed + timedelta(seconds=seconds))
        self.registry.pulse()
        self.zookeeper.deliver()

    def no_answer(self, to: str, moment: Literal["before", "after"]) -> None:
        """Lose the connection around the next commit of a store's method."""

        def hook(name: str, when: Literal["before", "after"]) -> None:
            if name == to and when == moment:
                self.database.commit_hook = lambda *_: None
                raise ServiceUnreachableError("no answer")

        self.database.commit_hook = hook
