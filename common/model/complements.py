"""Complements as values: past dates of a process definition as one object (contract §8.6).

Pure. A complement (backfill) holds its dates, computed once; a *date* becomes one process instance.
It runs in as many *chains* as its parallelism says: whenever a chain is free, the next date in
order begins. Its state follows from its dates and from the requests of people.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import TypeAlias

from common.model.complement_states import (
    ComplementState,
    Downstream,
    OnFailure,
    Reprocess,
    RunOrder,
)
from common.model.date_rules import DateRule
from common.model.states import FailureStrategy, Priority, TaskDependType, WarningType


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSettings:
    """The settings with which each run of a complement begins."""

    task_depend_type: TaskDependType = TaskDependType.TASK_POST
    failure_strategy: FailureStrategy = FailureStrategy.CONTINUE
    warning_type: WarningType = WarningType.NONE
    warning_group_id: int = 0
    executor_id: int = 1
    priority: Priority = Priority.MEDIUM
    worker_group_id: int = -1
    environment_code: int = -1
    start_node_names: tuple[str, ...] = ()
    start_params: str | None = None
    """A JSON object."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComplementRequest:
    """A request for a complement: a range, both ends included, or a list of dates.

    `timezone_id` None: the cluster's own zone. `confirmed`: more dates than the limit are meant.
    """

    process_definition_id: int
    first: datetime | None = None
    last: datetime | None = None
    dates: tuple[datetime, ...] = ()
    timezone_id: str | None = None
    parallelism: int = 1
    order: RunOrder = RunOrder.ASCENDING
    on_failure: OnFailure = OnFailure.STOP
    reprocess: Reprocess = Reprocess.ALL
    downstream: Downstream = Downstream.NONE
    confirmed: bool = False
    date_rule: DateRule | None = None
    """The meaning of its dates; None leaves that to the definition."""
    settings: RunSettings = field(default_factory=RunSettings)


@dataclass(frozen=True, slots=True, kw_only=True)
class NewComplement:
    """A complement to be written, with its dates in the order in which they are to run.

    `after` is the place in the same list of the one that has to succeed first.
    """

    process_definition_id: int
    dates: tuple[datetime, ...]
    timezone_id: str
    parallelism: int
    order: RunOrder
    on_failure: OnFailure
    reprocess: Reprocess
    settings: RunSettings
    after: int | None = None
    date_rule: DateRule = DateRule.SCHEDULE_TIME
    at_most_daily: bool = False
    """True if the definition has one run a day at most, as far as its schedules say it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComplementSnapshot:
    """A complement with the counts of its dates."""

    id: int
    state: ComplementState
    parallelism: int
    on_failure: OnFailure
    pending: int
    live: int
    """Dates with a waiting command, or with a process instance that has not ended for good."""
    failed: int
    cancelled: int = 0
    """Dates that the cancellation of the complement has ended."""
    after_id: int = 0
    after_state: ComplementState | None = None
    """None if it waits for no other, or for one that is gone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComplementStep:
    """The decision on a complement: its state, and the number of pending dates that begin now."""

    state: ComplementState
    begin: int = 0
    reason: str | None = None


ComplementDecider: TypeAlias = Callable[[ComplementSnapshot], ComplementStep]
