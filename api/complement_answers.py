"""The shapes of answers and requests about complements."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated, Literal, TypeAlias

from pydantic import AwareDatetime, Field, StringConstraints

from api.answers import Answer, Id, Shape, State, Text, Value

Moment: TypeAlias = AwareDatetime
_ShortText = Annotated[str, StringConstraints(max_length=255)]


class ComplementRequest(Shape):
    """Past dates of a definition to run: from `first` to `last`, or a list of `dates`.

    They are read in `zone`, else in that of the definition's schedules, else in the cluster's.
    More than 10,000 of them are to be `confirmed`. `downstream` adds complements of definitions
    that wait for this one.
    """

    definition_id: Id
    first: _ShortText | None = None
    last: _ShortText | None = None
    dates: Annotated[list[_ShortText], Field(max_length=10_000)] = Field(default_factory=list)
    zone: _ShortText | None = None
    parallelism: Annotated[int, Field(ge=1, le=1000)] = 1
    order: Literal["ascending", "descending"] = "ascending"
    on_failure: Literal["stop", "continue"] = "stop"
    reprocess: Literal["missing", "failed", "all"] = "all"
    date_rule: Literal["schedule_time", "business_date"] | None = None
    downstream: Literal["none", "direct", "all"] = "none"
    confirmed: bool = False
    start_nodes: Annotated[list[Text], Field(max_length=10_000)] = Field(default_factory=list)
    depend: Literal["TASK_ONLY", "TASK_PRE", "TASK_POST"] = "TASK_POST"
    failure_strategy: Literal["END", "CONTINUE"] = "CONTINUE"
    priority: Literal["HIGHEST", "HIGH", "MEDIUM", "LOW", "LOWEST"] = "MEDIUM"
    worker_group: _ShortText | None = None
    environment: _ShortText | None = None
    params: Annotated[dict[Text, Text], Field(max_length=10_000)] = Field(default_factory=dict)
    warning_type: Literal["NONE", "SUCCESS", "FAILURE", "ALL"] = "NONE"


class Complement(Answer):
    """A complement; its dates are counted: all, those that have ended (`done`), and by state."""

    id: int
    definition: str | None
    project: str | None
    process_definition_id: int
    state: State
    reason: str | None
    dates: int
    done: int
    pending: int
    submitted: int
    running: int
    success: int
    failure: int
    skipped: int
    cancelled: int
    parallelism: int
    order: str
    on_failure: str
    reprocess: str
    date_rule: str
    timezone: str
    after_id: int | None
    command_id: int | None
    task_depend_type: str | None
    failure_strategy: str | None
    priority: str | None
    worker_group_id: int
    environment: str | None
    start_nodes: list[str]
    start_params: Value
    create_time: datetime
    end_time: datetime | None
    duration: timedelta


class ComplementDetail(Complement):
    """A complement, those that wait for it, and what a run of its definition usually takes."""

    followers: list[int]
    typical_duration: timedelta | None


class RetriedComplement(Complement):
    """A complement that runs so many dates again, and those that wait for it again."""

    retried: int
    followers: list[int]


class ComplementPage(Answer):
    """A page of complements."""

    items: list[Complement]
    next: str | None


class ComplementList(Answer):
    """Complements that were made; each waits for the one before it."""

    items: list[Complement]


class ComplementDate(Answer):
    """A date of a complement, with its run."""

    id: int
    position: int
    date: str
    business_date: str | None
    schedule_time: datetime
    state: str
    process_instance_id: int | None
    instance_state: str | None
    start_time: datetime | None
    end_time: datetime | None
    duration: timedelta | None
    duration_from: datetime | None
    reason: str | None
    update_time: datetime


class DatePage(Answer):
    """Dates of a complement; `next` is there in the order of positions alone."""

    items: list[ComplementDate]
    next: str | None


class PlannedDate(Answer):
    """A date that would run, or be skipped because of the run that it has."""

    date: str
    business_date: str | None
    schedule_time: datetime
    process_instance_id: int | None
    instance_state: str | None
    becomes: str
    reason: str | None


class Plan(Answer):
    """A complement that would be made; `after` is the place of the one that it would wait for."""

    definition: str
    process_definition_id: int
    timezone: str
    parallelism: int
    order: str
    on_failure: str
    reprocess: str
    date_rule: str
    dates: list[PlannedDate]
    to_run: int
    to_skip: int
    typical_duration: timedelta | None
    runs_known: int
    estimated_duration: timedelta | None
    after: int | None


class PlanList(Answer):
    """Complements that would be made."""

    items: list[Plan]
