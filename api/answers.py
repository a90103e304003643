"""The shapes of answers and requests, as the OpenAPI document describes them.

The fields are those of `operations.documents`, which the command line prints too; a state has its
number beside its name. Times are RFC 3339 in UTC, durations are seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import date, datetime, timedelta
from functools import cache
from typing import Annotated, Any, Literal, TypeAlias, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    TypeAdapter,
)

from common.masking import mask_value

_Row = Mapping[str, object]
Value: TypeAlias = Annotated[Any, AfterValidator(mask_value)]
"""A JSON value that a user or a program wrote. Its secrets are masked in every answer."""
Document: TypeAlias = Annotated[dict[str, Any], AfterValidator(mask_value)]
"""An object that a user or a program wrote. Its secrets are masked in every answer."""
Figures: TypeAlias = dict[str, Any]
"""Numbers with their names as daemons measured them, without a text of a user."""
Rows: TypeAlias = list[list[Any]]
"""Rows of a dataset. They are data without settings, so they are not masked."""
Model = TypeVar("Model", bound="Shape")
Text = Annotated[str, StringConstraints(max_length=100_000)]


class Shape(BaseModel):
    """The base of all shapes: unknown fields of a request are mistakes."""

    model_config = ConfigDict(extra="forbid", ser_json_timedelta="float", frozen=True)


class Answer(Shape):
    """The base of answers: taken from rows, which may have more fields."""

    model_config = ConfigDict(
        extra="ignore", ser_json_timedelta="float", frozen=True, defer_build=True
    )


def writer(answer: Any) -> Callable[[object], bytes]:
    """Return what checks a document against the shape of an answer, and writes it as JSON."""

    @cache
    def shape() -> TypeAdapter[Any]:
        # At its first use: all of them together take half a second of the server's start.
        return TypeAdapter(answer)

    def write(found: object) -> bytes:
        kept = shape()
        return kept.dump_json(kept.validate_python(found))

    return write


class State(Answer):
    """A code of the tables with its name; the name of an unknown code is its number."""

    code: int
    name: str


def state_of(row: _Row, name: str = "state") -> dict[str, object] | None:
    """Return a state from a row's name and code; None if the row has none."""
    code = row.get(f"{name}_code")
    return None if code is None else {"code": code, "name": row[name]}


class Definition(Answer):
    """A definition without its tasks."""

    id: int
    name: str
    version: int
    release_state: str
    usable: bool
    project_id: int
    project: str | None
    description: str | None
    create_time: datetime
    update_time: datetime


class Node(Answer):
    """A task of a definition."""

    name: str
    type: str
    upstream: list[str]
    max_retry_times: int
    priority: str
    forbidden: bool
    worker_group_id: int


class Schedule(Answer):
    """A schedule of a definition, and whether that may run."""

    id: int
    definition: str | None
    project: str | None
    process_definition_id: int
    release_state: str | None
    definition_online: bool
    crontab: str
    description: str | None
    timezone_id: str
    missing_time: str
    repeated_time: str
    start_time: datetime
    end_time: datetime | None
    next_fire_time: datetime | None
    fault: str | None
    misfire_policy: str
    misfire_limit: int
    deadline: timedelta | None
    execution_type: str | None
    failure_strategy: str | None
    priority: str | None
    worker_group: str
    environment: str | None
    warning_type: str | None
    params: Document
    create_time: datetime
    update_time: datetime


class DefinitionDetail(Definition):
    """A definition with its tasks in the order of the DAG, its schedules and its mistakes."""

    execution_type: str
    complement_date_rule: str | None
    tasks: list[Node]
    schedules: list[Schedule]
    mistakes: list[str]


class Instance(Answer):
    """A run of a definition.

    `version` numbers the run's copy of the definition; null if it is unknown. `latest_version`
    numbers the current definition; null if the definition was deleted. `duration` counts from
    `duration_from`: it leaves out the time between an end and a restart, and the wait for a turn.
    `command_type` is the last command, `first_command_type` the one that started the run.
    """

    id: int
    name: str
    definition: str | None
    project: str | None
    version: int | None
    latest_version: int | None
    process_definition_id: int
    state: State
    wanted_state: str | None
    reason: str | None
    command_type: str | None
    first_command_type: str | None
    run_times: int
    schedule_time: datetime | None
    start_time: datetime
    end_time: datetime | None
    duration: timedelta | None
    duration_from: datetime
    host: str | None
    failure_strategy: str | None
    priority: str | None
    owner_epoch: int
    root_id: int | None
    parent_task_instance_id: int | None
    wanted_deadline: datetime | None


class InstanceDetail(Instance):
    """A run with its parameters; values of names that sound secret are masked.

    `business_time` is the moment from which its dates are counted, where that is another one than
    `schedule_time`, as by the rule `business_date`.
    """

    business_date: date | None
    date_rule: str | None
    business_time: datetime | None
    command_param: str | None
    global_params: str | None


class Task(Answer):
    """An attempt at a task; `valid` is false once another has taken its place."""

    id: int
    process_instance_id: int
    name: str
    task_type: str
    attempt: int
    state: State
    wanted_state: str | None
    reason: str | None
    failure_reason: str | None
    exit_code: int | None
    valid: bool
    submit_time: datetime | None
    start_time: datetime | None
    end_time: datetime | None
    duration: timedelta | None
    host: str | None
    lost_at: datetime | None
    pid: int | None
    retry_times: int
    max_retry_times: int
    retry_at: datetime | None
    due_at: datetime | None
    log_path: str | None
    execute_path: str | None
    memory_factor: float
    app_link: str | None
    ui_link: str | None
    history_link: str | None
    progress: Figures | None
    usage: Figures | None
    branch: list[str] | None


class LookedAt(Answer):
    """A task above a CONDITIONS: how it had to end, and how it did."""

    task: str
    wanted: str
    state: str | None


class ChildRun(Answer):
    """The run that a SUB_PROCESS has begun."""

    process_instance_id: int
    definition: str | None
    state: State


class Decision(Answer):
    """A decision of a control task, with its grounds; what is of other types is empty."""

    task: Task
    branch: list[str] | None
    looked_at: list[LookedAt]
    evidence: list[Document]
    child: ChildRun | None


class Rendered(Answer):
    """The parameters of an attempt, the source of each, and its texts with these put in."""

    id: int
    name: str
    task_type: str
    moment: datetime
    parameters: dict[str, str]
    origins: dict[str, str]
    params: Document
    put_out: dict[str, str]


class Relative(Answer):
    """A run that is connected with another by a task of the type SUB_PROCESS."""

    process_instance_id: int
    definition: str | None
    state: State
    task: str
    task_instance_id: int
    attempt: int


class Relatives(Answer):
    """The run that has begun another, and the runs that this has begun."""

    parent: Relative | None
    children: list[Relative]


class ExecuteRequest(Shape):
    """Tasks of an ended run to run again; with `depend` also those before or after them."""

    tasks: Annotated[list[Text], Field(min_length=1, max_length=10_000)]
    depend: Literal["TASK_ONLY", "TASK_PRE", "TASK_POST"] = "TASK_ONLY"


class Cause(Answer):
    """A cause why something is not done; those behind it follow, one deeper."""

    cause: str
    subject: str
    since: datetime | None
    next: str | None
    next_at: datetime | None
    text: str
    depth: int


class Command(Answer):
    """A command; its outcome is WAITING, TAKEN, DROPPED or REFUSED."""

    id: int
    command_type: str | None
    command_type_code: int | None
    definition: str | None
    process_definition_id: int | None
    outcome: str
    process_instance_id: int | None
    start_time: datetime | None
    handled_at: datetime | None
    host: str | None
    reason: str | None


class Server(Answer):
    """A living master or worker; a worker reports its groups, slots and version.

    `database_away` is the number of seconds for which a master has not reached PostgreSQL.
    """

    kind: str
    address: str
    incarnation: int
    pid: int | None
    cpu: float | None
    memory: float | None
    load: float | None
    since: datetime | None
    beaten: datetime | None
    health: str
    reason: str | None
    database_away: int | None
    groups: list[str] | None
    reserved: bool | None
    slots: int | None
    version: str | None


class Grant(Answer):
    """A role in a project."""

    project_id: int
    project: str | None
    role: str | None


class LogIn(Shape):
    """A name and a password."""

    name: Annotated[str, StringConstraints(max_length=255)]
    password: Annotated[str, StringConstraints(max_length=1024)] = Field(repr=False)


class LoggedIn(Answer):
    """The user of a session that has begun, with the token that its changes need."""

    id: int
    name: str
    csrf_token: str


class OpenSession(Answer):
    """A session of yours; its id opens nothing."""

    id: str
    current: bool
    address: str | None
    last_used: datetime
    expire_time: datetime


class SessionList(Answer):
    """Your sessions, the last used first."""

    items: list[OpenSession]


class Ended(Answer):
    """A session that has ended."""

    ended: bool


class Me(Answer):
    """The user who asks, with the roles, the limits of the token, or what a cookie's changes need.

    `csrf_token` is None with a token.
    """

    id: int
    name: str
    admin: bool
    projects: list[Grant]
    token_role: str | None
    token_projects: list[int] | None
    csrf_token: str | None
    time_zone: str
    """The zone of the cluster, in which the console and the command line show times."""


class Released(Answer):
    """A release state after a request; `changed` is false if it was so already."""

    id: int
    release_state: str
    changed: bool


Said = Annotated[str, StringConstraints(max_length=1000)]
Id = Annotated[int, Field(ge=1, le=2**31 - 1)]
Ids = Annotated[list[Id], Field(min_length=1, max_length=500)]


class DeleteInstancesRequest(Shape):
    """Runs to delete, all or none; `force` those too of whose tasks processes may still run."""

    ids: Ids
    force: bool = False


class DeletedInstances(Answer):
    """Runs that are gone; `hosts` are those where logs stay."""

    deleted: list[int]
    task_instances: int
    folders: int
    left: list[str]
    hosts: list[str]


class ActionRequest(Shape):
    """An order to several runs, all or none."""

    ids: Ids
    action: Literal["stop", "pause", "resume", "rerun", "recover"]
    version: Literal["latest"] | None = None
    """With `latest` a restart takes the latest version of the definition."""


class Accepted(Answer):
    """A command that was put for a run; a master carries it out.

    The answer to a restart includes the version that the run will use, and the latest version.
    """

    command_id: int
    process_instance_id: int
    version: int | None
    latest_version: int | None


class AcceptedList(Answer):
    """Commands that were put, one for each tree of runs."""

    items: list[Accepted]


class Begun(Answer):
    """A run that was asked for: its command, and the run once it exists."""

    command: Command
    instance: Instance | None


class RunRequest(Shape):
    """A run to begin."""

    definition_id: Annotated[int, Field(ge=1, le=2**31 - 1)]
    params: dict[Text, Text] = Field(default_factory=dict, max_length=10_000)
    date: Annotated[str, StringConstraints(max_length=64)] | None = None
    start_nodes: list[Text] | None = Field(default=None, min_length=1, max_length=10_000)
    depend: Literal["TASK_ONLY", "TASK_PRE", "TASK_POST"] = "TASK_POST"
    failure_strategy: Literal["END", "CONTINUE"] = "CONTINUE"
    priority: Literal["HIGHEST", "HIGH", "MEDIUM", "LOW", "LOWEST"] = "MEDIUM"
    worker_group: Annotated[str, StringConstraints(max_length=255)] | None = None
    environment: Annotated[str, StringConstraints(max_length=255)] | None = None


class Problem(Answer):
    """An error (RFC 9457), with its cure and the places of mistakes."""

    type: str
    title: str
    status: int
    detail: str
    cure: str
    mistakes: list[dict[str, str]]
    request_id: str


class DefinitionPage(Answer):
    """A page of definitions."""

    items: list[Definition]
    next: str | None


class InstancePage(Answer):
    """A page of runs."""

    items: list[Instance]
    next: str | None


class TaskList(Answer):
    """The attempts of a run, oldest first."""

    items: list[Task]


class CauseList(Answer):
    """The causes why something is not done."""

    items: list[Cause]


class CommandList(Answer):
    """The newest commands."""

    items: list[Command]


class ServerList(Answer):
    """The living daemons."""

    items: list[Server]
