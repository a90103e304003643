"""The facts by which workers are chosen for tasks that ask for it, and the choices. Pure.

The store reads the first in a transaction and writes the second in the same; `master/logic` makes
the one of the other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TypeAlias

from common.model.worker_needs import WorkerNeed
from common.model.workers import WorkerMode

OfProject: TypeAlias = tuple[int, str]
"""The id of a project and the address of a worker."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AskingTask:
    """A submitted attempt that asks for a worker, not claimed yet.

    `worker` is the one that was chosen, at `since`; None if none is. `excluded` were chosen before
    and did not claim it. A task of a worker group has the group's id and the hosts in its row.
    The attempt is charged to `project`. An attempt of a complement `yields`.
    """

    id: int
    task_type: str
    need: WorkerNeed
    worker: str | None = None
    since: datetime | None = None
    excluded: tuple[str, ...] = ()
    tries: int = 0
    group_id: int = -1
    group_hosts: tuple[str, ...] = ()
    project: int = 0
    yields: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningTasks:
    """Attempts that run on one worker and are charged to one project.

    `slots` is their number. `capacity` is the sum of the slots that they count for in the choices
    of this project.
    """

    worker: str
    project: int = 0
    yields: bool = False
    slots: int = 1
    capacity: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedEnd:
    """The end of an attempt that had asked; None if it says nothing about its worker."""

    worker: str
    succeeded: bool | None
    project: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignmentFacts:
    """The facts of one moment, by the clock of the database; tasks in the order of the queue.

    `groups` has the projects and names of the availability groups that run on each worker.
    `several_projects` is False if one project alone has definitions. `granted` has the projects
    that may use a worker group, by the group's id. `strategy` is the document of the newest
    strategy, or None. `failures` are the consecutive failures of a project's attempts on a worker,
    which gets no attempt of this project before `until`.
    """

    now: datetime
    tasks: tuple[AskingTask, ...] = ()
    ends: tuple[AskedEnd, ...] = ()
    running: tuple[RunningTasks, ...] = ()
    groups: Mapping[str, frozenset[tuple[int, str]]] = field(default_factory=dict)
    several_projects: bool = False
    granted: Mapping[int, frozenset[int]] = field(default_factory=dict)
    modes: Mapping[str, WorkerMode] = field(default_factory=dict)
    strategy: object = None
    failures: Mapping[OfProject, int] = field(default_factory=dict)
    until: Mapping[OfProject, datetime] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Choices:
    """The choices: a worker for each of some tasks, and what is taken back.

    `assigned` are tasks with their workers, also of those that were another's. `taken_back` have no
    worker now. `excluded` has the workers that a task is not given to, where that has changed.
    `failed` end with a reason. `failures` and `until` are as of then.
    """

    assigned: Mapping[int, str] = field(default_factory=dict)
    taken_back: tuple[int, ...] = ()
    excluded: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    failed: Mapping[int, str] = field(default_factory=dict)
    failures: Mapping[OfProject, int] = field(default_factory=dict)
    until: Mapping[OfProject, datetime] = field(default_factory=dict)


Decide: TypeAlias = Callable[[AssignmentFacts], Choices]
