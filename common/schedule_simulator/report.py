"""The outcome of a simulation: reports of schedules, pools and the cluster, and problems. Pure.

Every fire is accounted for once: `fires` is the sum of `outcomes` and `undecided`; the fired ones
are the sum of `ended`, `going_on`, `stopped`, `discarded` and `waiting`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from common.model.schedules import FireOutcome, Schedule
from common.model.states import ExecutionType
from common.schedule_simulator.clock_changes import ClockChange
from common.schedule_simulator.run_cost import RunCost


class ProblemKind(StrEnum):
    """A kind of problem of a set of schedules."""

    NEVER_CATCHES_UP = "never_catches_up"
    """More and more runs wait: there is more to do than can be done."""
    FAULT = "fault"
    """A schedule can't be understood, and so never fires."""
    LEFT_OUT = "left_out"
    """Fires that never become a run."""
    UNDECIDED = "undecided"
    """Fires in an outage that goes on at the end."""
    DISCARDED = "discarded"
    STOPPED = "stopped"
    """Runs that a later one has stopped before their end."""
    OVERLAP = "overlap"
    LATE = "late"
    """Runs that have to wait longer than a misfire would."""
    TOO_BIG = "too_big"
    """A run needs more slots than there are, and will take longer than simulated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """A problem in words. `schedule_id` None: it is one of the cluster."""

    kind: ProblemKind
    text: str
    schedule_id: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleReport:
    """The counts of one schedule.

    A *wait* lasts from the carrying out of a fire to the beginning of its run, or to the end of the
    simulation. `waited` counts the runs with any. `late` counts fires that happened, but later than
    a misfire's threshold. `overlaps` counts runs that began while another of the same definition
    went on, and `most_at_once` those going on then. `backlog_grows`: ever more of its runs wait.
    """

    schedule: Schedule
    execution_type: ExecutionType
    run_cost: RunCost
    fires: int
    outcomes: Mapping[FireOutcome, int]
    undecided: int
    late: int
    ended: int
    going_on: int
    stopped: int
    discarded: int
    waiting: int
    overlaps: int
    most_at_once: int
    waited: int
    longest_wait: timedelta
    median_wait: timedelta
    backlog_grows: bool
    clock_changes: tuple[ClockChange, ...] = ()
    fault: str | None = None

    @property
    def runs(self) -> int:
        """The number of fires that became a run, those waiting, discarded and stopped included."""
        return self.outcomes[FireOutcome.FIRED]


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolReport:
    """The slots of a pool; `size` None: there is no pool of that name."""

    name: str
    size: int | None
    peak: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterReport:
    """The counts of all schedules together.

    `slots` None: unlimited. `peak_wanted` also counts the slots of runs that wait for some.
    `busiest_hour` begins then, and `busiest_slots` are in use on average in it.
    """

    slots: int | None
    peak: int
    peak_at: datetime | None
    peak_wanted: int
    busiest_hour: datetime | None
    busiest_slots: float
    backlog: int
    most_backlog: int
    backlog_grows: bool
    pools: tuple[PoolReport, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulation:
    """The outcome of a stage, from `begin` up to `end`."""

    begin: datetime
    end: datetime
    schedules: tuple[ScheduleReport, ...]
    cluster: ClusterReport
    problems: tuple[Problem, ...]
