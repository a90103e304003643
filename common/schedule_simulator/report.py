"""What came out of a simulation, and what of it is a problem. Pure.

Every fire is accounted for once: `fires` is the sum of `outcomes` and `undecided`; what was fired
is the sum of `ended`, `going_on`, `stopped`, `discarded` and `waiting`.
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
    """What may be wrong with a set of schedules."""

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
    """A run wants more slots than there are, and will take longer than it is thought to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Something that somebody should look at. `schedule_id` None: it is the cluster's."""

    kind: ProblemKind
    text: str
    schedule_id: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleReport:
    """What one schedule came to.

    A *wait* is from when a fire is carried out to when its run begins, or to the end of the
    simulation. `waited` counts the runs with any. `late` counts fires that happened, but later than
    a misfire's threshold. `overlaps` counts runs that began while another of the same definition
    went on; `most_at_once` is how many went on then. `backlog_grows`: ever more of its runs wait.
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
        """How many fires were to become a run: what waits, was discarded or stopped included."""
        return self.outcomes[FireOutcome.FIRED]


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolReport:
    """The slots of a pool; `size` None: nobody knows a pool of that name."""

    name: str
    size: int | None
    peak: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterReport:
    """What all schedules together came to.

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
    """What comes of a stage, from `begin` up to `end`."""

    begin: datetime
    end: datetime
    schedules: tuple[ScheduleReport, ...]
    cluster: ClusterReport
    problems: tuple[Problem, ...]
