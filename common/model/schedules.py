"""Schedules as values: a cron line with its zone, and the outcome of each of its fire times.

Pure. A *fire* is one instant at which a schedule is due. The *ledger* (`t_ds_schedule_fire`) holds
one row for each fire with its *outcome*, so that none is lost silently and none happens twice (trap
T91). A *misfire* is a fire that no master carried out in time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TypeAlias

from common.model.states import ExecutionType, FailureStrategy, Priority, WarningType


class MisfirePolicy(StrEnum):
    """The policy for fires that were due while no master was there."""

    SKIP = "skip"
    """None of them happens."""
    FIRE_ONCE = "fire_once"
    """The newest happens, and stands for the others."""
    FIRE_ALL = "fire_all"
    """The newest `misfire_limit` of them happen, in order."""


class FireOutcome(StrEnum):
    """The outcome of one fire."""

    FIRED = "fired"
    """A command was put for it."""
    SKIPPED = "skipped"
    """Left out: the misfire policy says so, or the process definition was OFFLINE."""
    COALESCED = "coalesced"
    """A later one happened in its place."""
    MISSED = "missed"
    """Too late: past the schedule's deadline, or more misfires than its limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """A row of `t_ds_schedules` that is ONLINE, with facts of its definition.

    `counted_from` is set while the next fire has to be computed: fires after it count.
    Otherwise `next_fire_time` is the first fire that the ledger does not have; None if there is
    none to come. `timezone_id` None is the cluster's own zone; `execution_type` None is the
    definition's. `start_params` is a JSON object.
    """

    id: int
    process_definition_id: int
    definition_name: str | None
    """None if there is no such definition."""
    definition_is_online: bool
    crontab: str
    timezone_id: str | None
    missing_time: str
    repeated_time: str
    start_time: datetime
    end_time: datetime
    misfire_policy: MisfirePolicy = MisfirePolicy.FIRE_ONCE
    misfire_limit: int = 10
    deadline: timedelta | None = None
    """A fire that is later than this does not happen any more."""
    execution_type: ExecutionType | None = None
    start_params: str | None = None
    failure_strategy: FailureStrategy = FailureStrategy.CONTINUE
    user_id: int = 1
    warning_type: WarningType = WarningType.NONE
    warning_group_id: int = 0
    priority: Priority = Priority.MEDIUM
    worker_group_id: int = -1
    environment_code: int = -1
    counted_from: datetime | None = None
    next_fire_time: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Fire:
    """The outcome of one fire time, with the reason if it does not happen."""

    fire_time: datetime
    outcome: FireOutcome
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FirePlan:
    """The plan for one schedule: its due fires in order, and the time when it is due again.

    `command_param` is that of all its commands. With a `fault` the row can't be read: nothing fires
    until a person has changed it.
    """

    fires: tuple[Fire, ...] = ()
    next_fire_time: datetime | None = None
    command_param: str | None = None
    fault: str | None = None


FirePlanner: TypeAlias = Callable[[Schedule], FirePlan]
