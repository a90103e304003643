"""The computers on which workers run: processes that outlive the daemon which started them.

The acts of a process are recorded here and never by the daemons, so that checkers need not believe
what a daemon says of itself.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from random import Random

from common.model.failures import FailureReason
from common.model.retry_policy import reason_from
from common.model.states import TaskState
from common.store.worker.ports import AttemptEnd, ClaimedTask
from tests.simulation.definitions import FAILURES, GOOD_VALUE, OTHER_VALUES, PARAMETER
from tests.simulation.virtual_clock import VirtualClock
from worker.attempts import Ended

_GRACES = tuple(timedelta(seconds=seconds) for seconds in (0, 0, 1, 1, 5, 5))
_DEATHS = tuple(timedelta(seconds=seconds) for seconds in (0.0, 0.2, 1.0))
# The further life of a process that ignores signals, like one in a disk wait.
_STUCK = timedelta(seconds=30)
_LENGTHS = (0.0, 0.2, 0.2, 1.0, 1.0, 4.0, 4.0, 15.0)
_LONG = 90.0
_DECLARED = f'\\"prop\\": \\"{PARAMETER}\\"'


@dataclass(slots=True, kw_only=True)
class SimProcess:
    """One process of an attempt, and its end unless it is killed; in true time."""

    task_instance_id: int
    process_instance_id: int
    name: str
    attempt: int
    started: datetime
    ends: datetime
    outcome: TaskState
    grace: timedelta = timedelta()
    is_stuck: bool = False
    dies_in: timedelta = timedelta()
    """The time that it takes to die of a kill without a grace."""
    yields: bool = False
    var_pool: str | None = None
    failure: FailureReason | None = None
    reported: bool = False


@dataclass(slots=True)
class Computer:
    """A host. `started` is the record of side effects: one entry each time a process began."""

    address: str
    random: Random
    clock: VirtualClock
    fails: float = 0.15
    processes: dict[int, SimProcess] = field(default_factory=dict)
    started: list[SimProcess] = field(default_factory=list)

    def spawn(self, task: ClaimedTask) -> None:
        """Begin a process; its duration, end and outputs are drawn from the seed."""
        random, now = self.random, self.clock.true_now()
        process = SimProcess(
            task_instance_id=task.id,
            process_instance_id=task.process_instance_id,
            name=task.name,
            attempt=task.attempt,
            started=now,
            ends=now + timedelta(seconds=random.choice(_LENGTHS)),
            outcome=TaskState.FAILURE if random.random() < self.fails else TaskState.SUCCESS,
            grace=random.choice(_GRACES),
            is_stuck=random.random() < 0.1,
            dies_in=random.choice(_DEATHS),
            yields=task.complement,
        )
        if process.outcome is TaskState.FAILURE:
            process.failure = reason_from(random.choice(FAILURES))
        if task.timeout is not None:
            if random.random() < 0.3:
                process.ends = now + timedelta(seconds=_LONG)
            if process.ends > now + task.timeout:
                process.ends, process.outcome = now + task.timeout, TaskState.FAILURE
                process.failure = FailureReason.TIMED_OUT
        if _DECLARED in task.task_json:
            process.var_pool = json.dumps(
                [
                    {
                        "prop": PARAMETER,
                        "direct": "OUT",
                        "type": "VARCHAR",
                        "value": random.choice((GOOD_VALUE, *OTHER_VALUES)),
                    }
                ]
            )
        self.processes[task.id] = process
        self.started.append(process)

    def end(self, task_instance_id: int, state: TaskState, *, after: timedelta) -> None:
        """Kill a process that runs; one that has ended stays as it ended."""
        process = self.processes[task_instance_id]
        if process.ends > self.clock.true_now():
            process.ends = min(process.ends, self.clock.true_now() + after)
            process.outcome = state

    def kill(self, task_instance_id: int) -> None:
        """Ask a process to end, which takes it some time, and a stuck one much."""
        process = self.processes[task_instance_id]
        if process.ends > self.clock.true_now() and process.is_stuck:
            process.is_stuck, process.outcome = False, TaskState.KILL
            process.grace = _STUCK
            process.ends = self.clock.true_now() + _STUCK
        self.end(task_instance_id, TaskState.KILL, after=process.grace)

    def next_end(self) -> datetime | None:
        """The end of the next process to end."""
        return min((p.ends for p in self.alive()), default=None)

    def alive(self) -> list[SimProcess]:
        """The processes that run now."""
        now = self.clock.true_now()
        return [p for p in self.processes.values() if p.ends > now]


class SimAttempts:
    """The `LocalAttempts` of one start of a worker daemon; forgotten when the daemon dies.

    An ended process stays on the computer until its end is in the tables, like an exit file.
    """

    def __init__(self, computer: Computer, ended: Ended) -> None:
        self._computer = computer
        self._ended = ended
        self._mine: dict[int, None] = {}
        self._kill_first: set[int] = set()

    def start(self, task: ClaimedTask) -> None:
        self._computer.spawn(task)
        self._mine[task.id] = None
        if task.id in self._kill_first:
            self.kill(task.id)

    def kill(self, task_instance_id: int) -> None:
        if task_instance_id in self._mine:
            self._computer.kill(task_instance_id)
        else:
            self._kill_first.add(task_instance_id)

    def abandon(self, task_instance_id: int) -> None:
        if task_instance_id in self._mine:
            self._computer.end(
                task_instance_id,
                TaskState.NEED_FAULT_TOLERANCE,
                after=self._computer.processes[task_instance_id].dies_in,
            )

    def kill_all(self) -> None:
        for task_instance_id in self._mine:
            self.abandon(task_instance_id)

    def running(self) -> frozenset[int]:
        return frozenset(self._mine)

    def yielding(self) -> frozenset[int]:
        return frozenset(i for i in self._mine if self._computer.processes[i].yields)

    def waiting(self) -> int:
        return 0

    def facts_files(self) -> Mapping[int, Path]:
        return {}

    def leftovers(self) -> tuple[int, ...]:
        return tuple(
            p.task_instance_id for p in self._computer.processes.values() if not p.reported
        )

    def adopt(self, adopted: Collection[int]) -> None:
        for task_instance_id in self.leftovers():
            if task_instance_id in adopted:
                self._mine[task_instance_id] = None
            else:
                self._computer.end(task_instance_id, TaskState.KILL, after=timedelta())
                self._computer.processes[task_instance_id].reported = True

    def forget(self, ends: Iterable[AttemptEnd]) -> None:
        for end in ends:
            process = self._computer.processes.get(end.task_instance_id)
            if process is not None:
                process.reported = True

    def report_ends(self) -> None:
        """Report ended processes, as the supervisor's thread does."""
        if not self._mine:
            return
        now = self._computer.clock.true_now()
        for task_instance_id in list(self._mine):
            process = self._computer.processes[task_instance_id]
            if process.ends <= now:
                del self._mine[task_instance_id]
                self._ended(
                    AttemptEnd(
                        task_instance_id=task_instance_id,
                        state=process.outcome,
                        end_time=process.ends + self._computer.clock.wrong_by,
                        exit_code=0 if process.outcome is TaskState.SUCCESS else 1,
                        pid=1000 + task_instance_id,
                        var_pool=process.var_pool if process.outcome is TaskState.SUCCESS else None,
                        failure=process.failure if process.outcome is TaskState.FAILURE else None,
                    )
                )
