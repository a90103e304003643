"""Two keepers, workers and people in any order at a real database: every record is published once.

A *history* is drawn from a seed. Keepers lose their leases at any moment, tasks read, obey, publish,
die, or are never heard of again; then all goes well for a while, and everything must be there.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from random import Random
from typing import Any

import pytest
from sqlalchemy import Engine, select, update

from common.model.segments import AlreadyPublished, Published
from common.model.states import ProcessState, TaskState
from common.model.streams.requests import RequestKind
from common.model.streams.tasks import Assignment, OrderKind, Sequence, TaskStatus
from common.store import tables as t
from common.store.people.supervisors import put_request
from common.store.worker.stream_tasks import PostgresStreamTasks
from tests.integration.store_races.racing import MASTER, WORKER, claim, submit, take
from tests.integration.store_races.stream_stage import Stage

SEEDS = range(6)
STEPS = 40
SETTLING = 40


@dataclass
class Running:
    """A task as its process knows it."""

    attempt: int
    work: Assignment
    at: dict[int, int]
    sequences: list[Sequence]
    began: datetime
    obeyed: int = 0
    state: TaskStatus = TaskStatus.READING

    def begin(self, work: Assignment, began: datetime) -> None:
        self.work, self.began = work, began
        self.state = TaskStatus.STANDBY if work.is_standby else TaskStatus.READING
        numbers = sorted(work.checkpoints)
        self.at = dict(work.checkpoints[numbers[0]]) if numbers else {}
        self.sequences = [
            Sequence(id=each, start=work.checkpoints[each], end=None) for each in numbers
        ]


@dataclass
class History:
    """One supervisor and all around it."""

    stage: Stage
    random: Random
    produced: dict[int, int]
    running: list[Running] = field(default_factory=list)
    published: list[tuple[int, int, int]] = field(default_factory=list)

    def play(self) -> None:
        loops = [self.stage.master(1), self.stage.master(2)]
        for _ in range(STEPS):
            self.step(loops)
        self.settle(loops[0])
        for partition, count in self.produced.items():
            reached = 0
            for _, start, end in sorted(each for each in self.published if each[0] == partition):
                assert start == reached, self.published
                reached = end
            assert reached == count, self.published

    def step(self, loops: list[Any]) -> None:
        choice = self.random.randrange(12)
        if choice < 4:
            after = self.random.choice((1, 2, 30, 90, 700))
            self.stage.passes(self.random.choice(loops), after=after)
        elif choice == 4:
            self.stage.lose_lease()
        elif choice == 5:
            self.produce()
        elif choice == 6:
            self.begin()
        elif choice == 7 and self.random.random() < 0.4:
            self.ask()
        elif self.running:
            task = self.random.choice(self.running)
            if choice == 8:
                self.read(task, self.random.randint(0, 20))
            elif choice == 9:
                self.publish(task)
            elif choice == 10 and self.random.random() < 0.3:
                self.end(task, TaskState.FAILURE)
            else:
                self.obey(task)

    def settle(self, loop: Any) -> None:
        self.stage.lose_lease()
        for _ in range(SETTLING):
            self.stage.passes(loop, after=2, times=2)
            self.begin()
            for task in tuple(self.running):
                self.obey(task)
            for task in self.running:
                self.read(task, 1000)
            for task in tuple(self.running):
                self.publish(task)
            if self.stage.stored == self.produced:
                return
            self.ask()

    def produce(self) -> None:
        for partition in self.produced:
            self.produced[partition] += self.random.randint(0, 20)
        self.stage.offsets(dict(self.produced))

    def ask(self) -> None:
        groups = sorted({each.group_id for each in self.stage.tasks})
        with self.stage.made.begin() as db:
            put_request(db, self.stage.name, RequestKind.HAND_OVER, {"groups": groups}, user_id=1)

    def begin(self) -> None:
        """Have a master take what waits, and a worker run it."""
        taken = take(self.stage.made, MASTER)
        with self.stage.made.connect() as db:
            rows = db.execute(
                select(t.stream_task).where(t.stream_task.c.command_id.in_(list(taken)))
            ).all()
        for row in rows:
            owned = taken[row.command_id]
            assert owned is not None
            (attempt,) = ids = submit(self.stage.made, owned, "read")
            assert claim(self.stage.made, WORKER, ids) == ids
            with self.stage.made.begin() as db:
                db.execute(
                    update(t.task_instance)
                    .where(t.task_instance.c.id == attempt)
                    .values(start_time=self.stage.clock.now())
                )
            work = Assignment.of(
                row.assignment,
                name=row.name,
                supervisor=row.supervisor,
                version=row.version,
                group_id=row.group_id,
                base_sequence=row.base_sequence,
            )
            now = self.stage.clock.now()
            task = Running(attempt=attempt, work=work, at={}, sequences=[], began=now)
            task.begin(work, now)
            self.running.append(task)

    def read(self, task: Running, records: int) -> None:
        if task.state is TaskStatus.READING:
            task.at = {
                partition: max(offset, min(offset + records, self.produced[partition]))
                for partition, offset in task.at.items()
            }
            self.report(task)

    def obey(self, task: Running) -> None:
        wanted = self._wanted(task)
        if wanted is not None:
            self.end(task, wanted)
            return
        if task.work.is_standby:
            found = PostgresStreamTasks(self.stage.made).work(WORKER, task.attempt)
            assert found is not None
            task.begin(found.assignment, self.stage.clock.now())
            self.report(task)
        orders = self.stage.orders(task.attempt)
        if orders.version <= task.obeyed:
            return
        task.obeyed = orders.version
        match orders.command:
            case OrderKind.PAUSE:
                task.state = TaskStatus.PAUSED
            case OrderKind.RESUME:
                task.state = TaskStatus.READING
            case OrderKind.STOP:
                self.end(task, TaskState.FAILURE)
                return
            case OrderKind.END:
                assert orders.end is not None
                assert all(orders.end[each] >= offset for each, offset in task.at.items())
                task.at = dict(orders.end)
                last = task.sequences.pop()
                task.sequences.append(Sequence(id=last.id, start=last.start, end=orders.end))
                assert orders.finish
                task.state = TaskStatus.PUBLISHING
        self.report(task)

    def publish(self, task: Running) -> None:
        if task.state is not TaskStatus.PUBLISHING or self._wanted(task) is not None:
            return
        for each in task.sequences:
            assert each.end is not None
            done = self.stage.publish(task.attempt, each.start, each.end)
            if isinstance(done, Published):
                self.published += [
                    (partition, each.start[partition], end)
                    for partition, end in each.end.items()
                    if end > each.start[partition]
                ]
            elif not isinstance(done, AlreadyPublished):
                self.end(task, TaskState.FAILURE)
                return
        if self.random.random() < 0.1:
            # It dies before it can say so.
            self.end(task, TaskState.FAILURE)
        else:
            self.end(task, TaskState.SUCCESS)

    def end(self, task: Running, state: TaskState) -> None:
        self.stage.end(task.attempt, state)
        self.running.remove(task)

    def report(self, task: Running) -> None:
        self.stage.report(
            task.attempt,
            task.state,
            task.at,
            obeyed=task.obeyed,
            sequences=tuple(task.sequences),
            began=None if task.work.is_standby else task.began,
        )

    def _wanted(self, task: Running) -> TaskState | None:
        with self.stage.made.connect() as db:
            wanted = db.scalar(
                select(t.process_instance.c.wanted_state)
                .join(
                    t.task_instance,
                    t.task_instance.c.process_instance_id == t.process_instance.c.id,
                )
                .where(t.task_instance.c.id == task.attempt)
            )
        return TaskState.KILL if wanted == ProcessState.STOP else None


@pytest.mark.parametrize("seed", SEEDS)
def test_two_keepers_publish_every_record_once(here: Engine, seed: int) -> None:
    random = Random(seed)
    stage = Stage(
        here,
        taskCount=random.randint(1, 2),
        replicas=random.randint(1, 2),
        taskDuration="PT10M",
        completionTimeout="PT20M",
    )
    produced = dict.fromkeys(range(random.randint(1, 3)), 30)
    stage.offsets(dict(produced))
    stage.clock.move_to(timedelta(minutes=seed))
    History(stage=stage, random=random, produced=produced).play()
