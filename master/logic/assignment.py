"""Decides which tasks that ask for a worker get which, and what is taken back from slow ones.

Pure. A task is given to one worker, whose claim is the acknowledgement. One that has not claimed it
in time loses it, and counts as having failed; meanwhile it gets no other task of that project. A
task that several have not claimed fails. The rooms of workers are counted by project
(`master.logic.worker_rooms`). Failures count by project too, so failing tasks keep no task of
another project from a worker.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Final

from common.model.assignments import AskingTask, AssignmentFacts, Choices
from common.model.unclaimed import unclaimed_reason
from common.model.worker_strategy import Strategy, StrategyError, read_strategy
from common.model.workers import WorkerMode, WorkerStatus, host_of, mode_of
from master.logic.worker_choice import (
    DISABLED_VERSION,
    Blacklist,
    BlacklistConfig,
    ChoiceConfig,
    TaskNeed,
    WorkerRoom,
    choose,
)
from master.logic.worker_rooms import WorkerRooms

_PATIENCE: Final = timedelta(seconds=5)
"""The time after which a worker that has not claimed a task gets no other one of that project."""
_EMPTY: Final = Blacklist()
MOST_TRIES: Final = 5
"""The most workers that a task is given to, one after the other, before it fails."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignmentConfig:
    """The limits of assignments; `timeout`: the time in which a worker has to claim a task."""

    timeout: timedelta = timedelta(minutes=5)
    choice: ChoiceConfig = field(default_factory=ChoiceConfig)
    blacklist: BlacklistConfig = field(default_factory=BlacklistConfig)


def decide(
    facts: AssignmentFacts,
    *,
    workers: Mapping[str, WorkerStatus],
    config: AssignmentConfig,
) -> Choices:
    """Choose workers for the tasks that have none; `workers` are the living ones, by address."""
    return _Deciding(facts, workers, config).choices()


def strategy_of(document: object) -> Strategy:
    """Return the strategy of a document; the default if there is none, or it can't be read."""
    if document is None:
        return Strategy()
    try:
        return read_strategy(document)
    except StrategyError:
        return Strategy()


class _Deciding:
    def __init__(
        self,
        facts: AssignmentFacts,
        workers: Mapping[str, WorkerStatus],
        config: AssignmentConfig,
    ) -> None:
        self._facts = facts
        self._workers = workers
        self._config = config
        projects = {project for project, _ in (*facts.failures, *facts.until)}
        self._blacklists = {project: self._stored_blacklist(project) for project in projects}
        self._assigned: dict[int, str] = {}
        self._taken_back: list[int] = []
        self._excluded: dict[int, tuple[str, ...]] = {}
        self._failed: dict[int, str] = {}

    def choices(self) -> Choices:
        self._count_ends()
        waiting, kept = self._sort_out()
        rooms = self._rooms(kept)
        strategy = strategy_of(self._facts.strategy)
        for task in waiting:
            chosen = self._choose(strategy, rooms, task)
            if chosen is None:
                if task.worker is not None:
                    self._taken_back.append(task.id)
                continue
            self._assigned[task.id] = chosen
            rooms.give(chosen, task)
        return Choices(
            assigned=self._assigned,
            taken_back=tuple(self._taken_back),
            excluded=self._excluded,
            failed=self._failed,
            failures={
                (project, worker): count
                for project, each in self._blacklists.items()
                for worker, count in each.failures.items()
            },
            until={
                (project, worker): end
                for project, each in self._blacklists.items()
                for worker, end in each.until.items()
            },
        )

    def _stored_blacklist(self, project: int) -> Blacklist:
        stored = Blacklist(
            failures={
                worker: n for (of, worker), n in self._facts.failures.items() if of == project
            },
            until={worker: end for (of, worker), end in self._facts.until.items() if of == project},
        )
        return stored.cleaned(self._facts.now)

    def _blacklist(self, project: int) -> Blacklist:
        return self._blacklists.get(project, _EMPTY)

    def _count_ends(self) -> None:
        for end in self._facts.ends:
            if end.succeeded is None:
                continue
            if end.succeeded:
                blacklist = self._blacklist(end.project).after_success(end.worker)
                self._blacklists[end.project] = blacklist
            else:
                self._count_failure(end.project, end.worker)

    def _count_failure(self, project: int, worker: str) -> None:
        self._blacklists[project] = self._blacklist(project).after_failure(
            worker,
            workers=len(self._counted()),
            config=self._config.blacklist,
            now=self._facts.now,
        )

    def _counted(self) -> list[str]:
        """The living workers but lazy ones, which are not counted on."""
        return [each for each in self._workers if self._mode(each) is not WorkerMode.LAZY]

    def _mode(self, address: str) -> WorkerMode:
        return mode_of(address, self._facts.modes)

    def _sort_out(self) -> tuple[list[AskingTask], list[AskingTask]]:
        """The tasks to choose a worker for, and those that wait for the claim of theirs."""
        waiting: list[AskingTask] = []
        kept: list[AskingTask] = []
        for task in self._facts.tasks:
            if task.worker is None:
                waiting.append(task)
                continue
            is_gone = task.worker not in self._workers
            is_out = self._mode(task.worker) is not WorkerMode.ENABLED
            is_slow = self._age(task) >= self._config.timeout
            if not (is_gone or is_out or is_slow):
                kept.append(task)
            elif is_slow and not is_gone:
                self._lost_patience(task, waiting)
            else:
                waiting.append(task)
        return waiting, kept

    def _lost_patience(self, task: AskingTask, waiting: list[AskingTask]) -> None:
        assert task.worker is not None
        self._count_failure(task.project, task.worker)
        excluded = (*task.excluded, task.worker)
        if task.tries >= MOST_TRIES:
            self._failed[task.id] = unclaimed_reason(excluded, self._config.timeout)
            return
        self._excluded[task.id] = excluded
        waiting.append(replace(task, excluded=excluded))

    def _age(self, task: AskingTask) -> timedelta:
        return timedelta() if task.since is None else self._facts.now - task.since

    def _rooms(self, kept: list[AskingTask]) -> WorkerRooms:
        facts = self._facts
        rooms = WorkerRooms(
            [self._empty_room(address) for address in sorted(self._workers)],
            workers=self._workers,
            groups=facts.groups,
            several_projects=facts.several_projects,
            granted=facts.granted,
        )
        for running in facts.running:
            rooms.count(running)
        for task in kept:
            assert task.worker is not None
            rooms.give(task.worker, task, is_late=self._age(task) >= _PATIENCE)
        return rooms

    def _empty_room(self, address: str) -> WorkerRoom:
        status = self._workers[address]
        mode = self._mode(address)
        return WorkerRoom(
            address=address,
            version=DISABLED_VERSION if mode is WorkerMode.DISABLED else status.version,
            capacity=status.capacity,
            category=status.category,
            is_lazy=mode is WorkerMode.LAZY,
        )

    def _choose(self, strategy: Strategy, rooms: WorkerRooms, task: AskingTask) -> str | None:
        serving = [room for room in rooms.seen_by(task) if self._serves(room.address, task)]
        blacklist = self._blacklist(task.project)
        if blacklist.until:
            listed = blacklist.passed_over(
                [room.address for room in serving], config=self._config.blacklist
            )
            serving = [replace(room, is_blacklisted=room.address in listed) for room in serving]
        fresh = [room for room in serving if room.address not in task.excluded]
        need = TaskNeed(
            type=task.task_type,
            dataset=task.need.dataset,
            capacity=task.need.capacity,
            availability_group=task.need.availability_group,
        )
        # Those that were too slow are asked again once there is nobody else at all.
        return choose(strategy, fresh or serving, need, self._config.choice)

    def _serves(self, address: str, task: AskingTask) -> bool:
        if task.group_id <= 0:
            return not self._workers[address].is_reserved
        return (
            task.group_id in self._workers[address].group_ids
            or host_of(address) in task.group_hosts
        )
