"""A world around one supervisor: a stream, a store, and tasks that do what they are told.

Time moves by hand. `World.run` gives notice and carries the decisions out, as a keeper would; tasks
read, answer and publish when a test says so. `publish` compares and sets offsets as the store does,
and the ranges that it lets through are kept, so that a test can count what was published twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from common.model.streams.sequences import work_of
from common.model.streams.spec import Offsets, SupervisorSpec
from common.model.streams.tasks import TaskStatus
from master.supervisors.deciding import decide
from master.supervisors.decisions import (
    AskPause,
    AssignTask,
    Decision,
    EndSupervisor,
    KillTask,
    RecordEvent,
    RecordStarts,
    Remember,
    RemoveOffsets,
    ResumeTasks,
    SaveTaskCount,
    SetEnds,
    SetOffsets,
    StartStandby,
    StartTask,
    StopTask,
)
from master.supervisors.notices import Notice, Run
from master.supervisors.view import (
    Memory,
    StreamFailure,
    StreamSnapshot,
    StreamTask,
    SupervisorView,
    TaskEnd,
    TaskGroup,
)
from tests.unit.stream_specs import a_spec

NOON = datetime(2013, 1, 1, 12, tzinfo=UTC)


@dataclass
class World:
    """The stream, the store, the tasks, and the memory of their supervisor."""

    spec: SupervisorSpec
    latest: dict[Any, int]
    earliest: dict[Any, int] = field(default_factory=dict)
    stored: dict[Any, int] = field(default_factory=dict)
    tasks: dict[str, StreamTask] = field(default_factory=dict)
    memory: Memory = field(default_factory=Memory)
    now: datetime = NOON
    epoch: int = 1
    failure: str | None = None
    troubles: dict[str, str] = field(default_factory=dict)
    published: list[tuple[Any, int, int]] = field(default_factory=list)
    events: list[str] = field(default_factory=list)
    has_ended: bool = False
    decisions: tuple[Decision, ...] = ()
    _worked: tuple[SupervisorSpec, str] | None = None

    @property
    def work(self) -> str:
        if self._worked is None or self._worked[0] is not self.spec:
            self._worked = (self.spec, work_of(self.spec))
        return self._worked[1]

    def view(self) -> SupervisorView:
        earliest = {partition: self.earliest.get(partition, 0) for partition in self.latest}
        stream: StreamSnapshot | StreamFailure
        stream = StreamSnapshot(
            earliest=earliest, latest=dict(self.latest), troubles=dict(self.troubles)
        )
        if self.failure is not None:
            stream = StreamFailure(reason=self.failure)
        in_groups = {name for group in self.groups for name in group.tasks}
        return SupervisorView(
            spec=self.spec,
            work=self.work,
            epoch=self.epoch,
            memory=self.memory,
            stream=stream,
            stored=dict(self.stored),
            tasks={
                name: task
                for name, task in self.tasks.items()
                if task.end is None or name in in_groups
            },
        )

    def run(self, notice: Notice | None = None, *, after: float = 10) -> tuple[Decision, ...]:
        """Let time pass, give notice, and carry the decisions out."""
        self.now += timedelta(seconds=after)
        self.decisions = decide(self.view(), notice or Run(), now=self.now)
        for decision in self.decisions:
            self._carry_out(decision)
        return self.decisions

    def made(self, kind: type) -> list[Any]:
        return [each for each in self.decisions if isinstance(each, kind)]

    @property
    def groups(self) -> list[TaskGroup]:
        return [*self.memory.reading.values(), *self.memory.publishing]

    @property
    def live(self) -> list[str]:
        return [name for name, task in self.tasks.items() if task.end is None]

    def change(self, name: str, **values: Any) -> None:
        self.tasks[name] = replace(self.tasks[name], **values)

    def begin(self, *names: str) -> None:
        """Have tasks assigned, started and reading."""
        for name in names or tuple(self.live):
            task = self.tasks[name]
            if task.standby_of is not None and task.end is None:
                self.change(name, assigned=True, status=TaskStatus.STANDBY)
            elif task.started is None and task.end is None:
                self.change(
                    name,
                    assigned=True,
                    status=TaskStatus.READING,
                    started=self.now,
                    offsets=dict(task.checkpoints[min(task.checkpoints)]),
                )

    def read(self, name: str, records: int | None = None) -> None:
        """Read so many records of each partition, all by default, up to the ends."""
        task = self.tasks[name]
        if task.end is not None or task.started is None or task.paused:
            return
        offsets = {
            partition: min(
                offset + records if records is not None else self.latest.get(partition, offset),
                self.latest.get(partition, offset),
                (task.ends or self.latest).get(partition, offset),
            )
            for partition, offset in task.offsets.items()
        }
        offsets = {each: max(offset, task.offsets[each]) for each, offset in offsets.items()}
        self.change(name, offsets=offsets)
        if task.ends is not None and offsets == task.ends:
            self.change(name, status=TaskStatus.PUBLISHING)

    def answer(self, *names: str) -> None:
        """Have tasks take note of their orders."""
        for name in names or tuple(self.live):
            task = self.tasks[name]
            if task.end is not None or task.started is None:
                continue
            status = task.status
            if status is not TaskStatus.PUBLISHING:
                status = TaskStatus.PAUSED if task.paused else TaskStatus.READING
            self.change(name, request_seen=task.request, status=status)

    def publish(self, name: str) -> bool:
        """Publish a finished task's sequences in turn; False if it fails for a conflict."""
        task = self.tasks[name]
        if task.end is not None or task.status is not TaskStatus.PUBLISHING:
            return True
        numbers = sorted(task.checkpoints)
        for number in numbers:
            following = task.checkpoints.get(number + 1, task.ends)
            assert following is not None
            if not self._publish(task.checkpoints[number], following):
                self.change(name, end=TaskEnd.FAILURE)
                return False
        self.change(name, end=TaskEnd.SUCCESS)
        return True

    def publish_first(self, name: str) -> None:
        """Publish a reading task's first sequence, which a checkpoint has closed."""
        task = self.tasks[name]
        first = min(task.checkpoints, default=0)
        if task.end is None and first + 1 in task.checkpoints and task.started is not None:
            reached = task.checkpoints[first + 1]
            if all(task.offsets.get(each, 0) >= end for each, end in reached.items()):
                self._publish(task.checkpoints[first], reached)

    def fail(self, name: str) -> None:
        if self.tasks[name].end is None:
            self.change(name, end=TaskEnd.FAILURE)

    def lose_master(self) -> None:
        """Have another master take over, which knows nothing."""
        self.memory = Memory()
        self.epoch += 1

    def _publish(self, starts: Offsets, ends: Offsets) -> bool:
        stored = {partition: self.stored.get(partition, starts[partition]) for partition in starts}
        ranges = [(each, starts[each], ends[each]) for each in sorted(starts)]
        if all(each in self.published or each[1] == each[2] for each in ranges):
            # A replica has published the same before, perhaps with more after it.
            return True
        if stored != dict(starts):
            return False
        self.stored.update(ends)
        self.published += [each for each in ranges if each[2] > each[1]]
        return True

    def _carry_out(self, decision: Decision) -> None:
        match decision:
            case StartTask():
                assert decision.name not in self.tasks
                self.tasks[decision.name] = StreamTask(
                    name=decision.name,
                    base_sequence=decision.base_sequence,
                    starts=decision.starts,
                    checkpoints=decision.checkpoints,
                    min_time=decision.min_time,
                    max_time=decision.max_time,
                    ends=decision.ends,
                )
            case StartStandby():
                assert decision.name not in self.tasks
                self.tasks[decision.name] = StreamTask(
                    name=decision.name,
                    base_sequence=decision.base_sequence,
                    starts={},
                    checkpoints={},
                    standby_of=decision.group_id,
                )
            case AssignTask():
                standby = self.tasks[decision.name]
                assert standby.standby_of is not None, f"{standby.name} has work"
                assert standby.end is None
                assert standby.ending_since is None
                self.change(
                    decision.name,
                    base_sequence=decision.base_sequence,
                    starts=decision.starts,
                    checkpoints=decision.checkpoints,
                    min_time=decision.min_time,
                    max_time=decision.max_time,
                    ends=decision.ends,
                    standby_of=None,
                )
            case AskPause():
                for name in decision.tasks:
                    self._order(name, request=decision.request, paused=True)
            case ResumeTasks():
                for name in decision.tasks:
                    self._order(name, request=decision.request, paused=False)
            case SetEnds():
                for name in decision.tasks:
                    self._set_ends(name, decision)
            case StopTask() | KillTask():
                if self.tasks[decision.task].ending_since is None:
                    self.change(decision.task, ending_since=self.now)
                if isinstance(decision, KillTask):
                    self.change(decision.task, killed=True, end=TaskEnd.FAILURE)
            case RecordStarts():
                for partition, offset in decision.offsets.items():
                    self.stored.setdefault(partition, offset)
            case SetOffsets():
                self.stored.update(decision.offsets)
            case RemoveOffsets():
                for partition in decision.partitions or tuple(self.stored):
                    self.stored.pop(partition, None)
            case SaveTaskCount():
                self.spec = replace(
                    self.spec, io=replace(self.spec.io, task_count=decision.task_count)
                )
            case RecordEvent():
                self.events.append(decision.text)
            case EndSupervisor():
                self.has_ended = True
            case Remember():
                self.memory = decision.memory
            case _:
                pass

    def _order(self, name: str, **orders: Any) -> None:
        assert orders["request"] > self.tasks[name].request
        self.change(name, **orders)

    def _set_ends(self, name: str, decision: SetEnds) -> None:
        task = self.tasks[name]
        assert all(decision.ends[each] >= offset for each, offset in task.offsets.items())
        self._order(name, request=decision.request, paused=False)
        if decision.finish:
            self.change(name, ends=decision.ends, finishing=True, status=TaskStatus.READING)
        else:
            checkpoints = {**task.checkpoints, decision.sequence + 1: decision.ends}
            self.change(name, checkpoints=checkpoints)
        self.read(name, 0)


def a_world(latest: Mapping[int, int] | None = None, **io: Any) -> World:
    """Return a world whose supervisor reads from the earliest offsets."""
    io = {"useEarliestOffset": True} | io
    return World(spec=a_spec(**io), latest=dict(latest or {0: 100, 1: 100}))


def hand_over(world: World) -> None:
    """Bring reading groups from being due to publishing, with all tasks answering at once."""
    world.run()
    world.answer()
    world.run()
    world.answer()
    for name in world.live:
        world.read(name)
    world.run()


def reading_world(**io: Any) -> World:
    """Return a world whose tasks have read all that there is."""
    world = a_world(**io)
    world.run()
    world.begin()
    for name in world.live:
        world.read(name)
    return world


def fail_publication(world: World) -> None:
    """Fail all tasks of the oldest group that publishes."""
    for name in world.memory.publishing[0].tasks:
        world.fail(name)
    world.run()
