"""The shapes of answers and requests about schedules, but for those that definitions have too."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from api.answers import Answer, Id, Ids, Schedule, Shape, Text

_ShortText = Annotated[str, StringConstraints(max_length=255)]
_Cron = Annotated[str, StringConstraints(min_length=1, max_length=1000)]


class Fire(Answer):
    """A fire of a schedule in the ledger, with the zone that the schedule has now."""

    schedule_id: int
    definition: str | None
    fire_time: datetime
    outcome: str
    process_instance_id: int | None
    instance_state: str | None
    command_id: int | None
    reason: str | None
    decided_at: datetime
    timezone_id: str


class ComingFire(Answer):
    """A fire to come, on the schedule's own clock too, and what a clock change does to it."""

    schedule_id: int | None
    fire_time: datetime
    local: str
    meant: str
    clock: str | None
    clock_effect: str | None


class ScheduleDetail(Schedule):
    """A schedule with its next fires and the number of its fires by outcome."""

    next_fires: list[ComingFire]
    fires: dict[str, int]


class ScheduleChange(Shape):
    """Settings of a schedule; what is left out stays as it is.

    `first` and `last` are dates or times in the zone of the schedule, `now` or `never`. `deadline`
    is in seconds, 0 for none; `params` replaces all start-up parameters; `none` is no environment.
    With `online` the schedule may be ONLINE when it is changed, and is ONLINE afterwards.
    """

    cron: _Cron | None = None
    zone: _ShortText | None = None
    first: _ShortText | None = None
    last: _ShortText | None = None
    misfire_policy: Literal["skip", "fire_once", "fire_all"] | None = None
    misfire_limit: Annotated[int, Field(ge=1, le=10_000)] | None = None
    deadline: Annotated[int, Field(ge=0, le=31_536_000)] | None = None
    missing_time: Literal["shift", "skip"] | None = None
    repeated_time: Literal["first", "second", "both"] | None = None
    execution_type: (
        Literal["PARALLEL", "SERIAL_WAIT", "SERIAL_DISCARD", "SERIAL_PRIORITY", "definition"] | None
    ) = None
    failure_strategy: Literal["END", "CONTINUE"] | None = None
    worker_group: _ShortText | None = None
    environment: _ShortText | None = None
    priority: Literal["HIGHEST", "HIGH", "MEDIUM", "LOW", "LOWEST"] | None = None
    params: Annotated[dict[Text, Text], Field(max_length=10_000)] | None = None
    warning_type: Literal["NONE", "SUCCESS", "FAILURE", "ALL"] | None = None
    online: bool = False


class NewSchedule(ScheduleChange):
    """A schedule to make; it is OFFLINE unless it is to be `online` at once."""

    definition_id: Id
    cron: _Cron


class SavedSchedule(Schedule):
    """A schedule that was made or changed, its next fire, and others of a new one's definition."""

    next_fire: ComingFire | None
    other_schedules: list[int]


class SchedulesRequest(Shape):
    """Schedules, all or none."""

    ids: Ids


class ScheduleRelease(SchedulesRequest):
    """Schedules to bring ONLINE or OFFLINE, all or none."""

    release_state: Literal["ONLINE", "OFFLINE"]


class ReleasedSchedule(Answer):
    """A release state after a request."""

    id: int
    definition: str | None
    release_state: str
    changed: bool


class ReleasedSchedules(Answer):
    """Schedules after a request."""

    items: list[ReleasedSchedule]


class DeletedSchedule(Answer):
    """A schedule that is gone; its fires stay in the ledger."""

    id: int
    definition: str | None
    deleted: bool


class DeletedSchedules(Answer):
    """Schedules that are gone."""

    items: list[DeletedSchedule]


class SchedulePage(Answer):
    """A page of schedules."""

    items: list[Schedule]
    next: str | None


class FirePage(Answer):
    """A page of fires, the newest first."""

    items: list[Fire]
    next: str | None


class PreviewedSchedule(Answer):
    """A schedule that is previewed, or a mere cron line; `blocker` keeps it from firing."""

    id: int | None
    definition: str | None
    release_state: str | None
    crontab: str
    description: str | None
    timezone_id: str
    missing_time: str
    repeated_time: str
    start_time: datetime | None
    end_time: datetime | None
    blocker: str | None


class ClockChange(Answer):
    """A jump of the clock, and what it does to fires; offsets are in seconds."""

    schedule_id: int | None
    at: datetime
    local: str
    before: timedelta
    after: timedelta
    wall_times: list[str]
    number: int
    effect: str


class OverdueFires(Answer):
    """Fires that are due, by the outcomes that a master would give them now."""

    schedule_id: int
    since: datetime
    number: int
    outcomes: dict[str, int]


class Preview(Answer):
    """The next fires of schedules, exactly as they will happen."""

    schedules: list[PreviewedSchedule]
    fires: list[ComingFire]
    clock_changes: list[ClockChange]
    overdue: list[OverdueFires]


class SimulationRequest(Shape):
    """Schedules to play on a virtual clock: all that you see, or those of a definition.

    `assume` and the spans of `outages` are as 90s, 10m, 2h or 1d; times are read in the cluster's
    zone.
    """

    definition_id: Id | None = None
    days: Annotated[float, Field(ge=0.01, le=3660, allow_inf_nan=False)] = 30
    first: _ShortText | None = None
    offline_too: bool = False
    pessimistic: bool = False
    assume: _ShortText = "60s"
    slots: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    outages: Annotated[list[_ShortText], Field(max_length=100)] = Field(default_factory=list)
    max_fires: Annotated[int, Field(ge=1, le=50_000)] = 50_000


class PoolUse(Answer):
    """The slots of a pool that are in use at most."""

    name: str
    size: int | None
    peak: int


class ClusterUse(Answer):
    """The use of all workers together."""

    slots: int | None
    slots_known_by: str
    peak: int
    peak_at: datetime | None
    peak_wanted: int
    busiest_hour: datetime | None
    busiest_slots: float
    backlog: int
    most_backlog: int
    never_catches_up: bool
    pools: list[PoolUse]


class ClockChangeDay(Answer):
    """A day on which a clock change meets fires."""

    day: str
    kind: str
    fires: int


class SimulatedSchedule(Answer):
    """A schedule that was played: its fires and its runs."""

    id: int
    definition: str | None
    crontab: str
    timezone_id: str
    execution_type: str
    priority: str
    takes: timedelta
    takes_slots: int
    takes_of_pools: dict[str, int]
    history: int
    fires: int
    outcomes: dict[str, int]
    not_fired: int
    undecided: int
    late: int
    runs: int
    ended: int
    going_on: int
    stopped: int
    discarded: int
    waiting: int
    overlaps: int
    at_once: int
    waited: int
    median_wait: timedelta
    longest_wait: timedelta
    never_catches_up: bool
    oddities: list[ClockChangeDay]
    fault: str | None


class SimulationProblem(Answer):
    """A problem that a simulation has found."""

    kind: str
    schedule_id: int | None
    text: str


class Simulation(Answer):
    """The outcome of schedules on a virtual clock."""

    begin: datetime
    end: datetime
    zone: str
    assumed: list[str | None]
    cluster: ClusterUse
    schedules: list[SimulatedSchedule]
    problems: list[SimulationProblem]
