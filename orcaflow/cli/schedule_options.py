"""The options of `orcaflow schedule`, and the settings of a schedule that they give.

Nothing heavy is imported before an option is read, so that `--help` is there at once.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from orcaflow.cli.commands.run import WARNING_HELP, OnFailure, Urgency, Warn

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo

    from operations.schedule_settings import ScheduleSettings

_MAX_MISFIRES = 1000


class Misfire(StrEnum):
    """The policy for fires that were due while no master was there."""

    SKIP = "skip"
    FIRE_ONCE = "fire_once"
    FIRE_ALL = "fire_all"


class Missing(StrEnum):
    """The policy for a wall time that the clock skips in spring."""

    SHIFT = "shift"
    SKIP = "skip"


class Repeated(StrEnum):
    """The policy for a wall time that the clock shows twice in autumn."""

    FIRST = "first"
    SECOND = "second"
    BOTH = "both"


class Execution(StrEnum):
    """The policy for a fire while another run of the definition goes on."""

    DEFINITION = "definition"
    PARALLEL = "parallel"
    SERIAL_WAIT = "serial-wait"
    SERIAL_DISCARD = "serial-discard"
    SERIAL_PRIORITY = "serial-priority"


ScheduleId = Annotated[int, typer.Argument(metavar="ID", help="Id of a schedule.", min=1)]
CRON_HELP = "Quartz: sec min hour day month weekday [year]."
FROM_HELP = "The first instant at which it may fire, in its zone, or now."
TO_HELP = "The last one; a date alone is included, and never is no end."
MisfireOption = Annotated[
    Misfire | None,
    typer.Option(
        "--misfire",
        help="What becomes of fires that no master carried out in time: none happens, the newest"
        " stands for all, or the newest --misfire-limit happen.",
        show_default=False,
    ),
]
MisfireLimitOption = Annotated[
    int | None,
    typer.Option(
        "--misfire-limit",
        metavar="N",
        min=1,
        max=_MAX_MISFIRES,
        help="How many of them happen with fire_all.",
        show_default=False,
    ),
]
DeadlineOption = Annotated[
    str | None,
    typer.Option(
        "--deadline",
        metavar="TIME",
        help="A fire later than this, as 90s, 10m or 2h, does not happen any more; or none.",
    ),
]
MissingOption = Annotated[
    Missing | None,
    typer.Option(
        "--missing",
        help="A wall time that the clock skips in spring: as much later, or not at all.",
        show_default=False,
    ),
]
RepeatedOption = Annotated[
    Repeated | None,
    typer.Option(
        "--repeated",
        help="Of a wall time that the clock shows twice in autumn, which counts.",
        show_default=False,
    ),
]
ExecutionOption = Annotated[
    Execution | None,
    typer.Option(
        "--execution-type",
        help="What a fire does while another run of the definition goes on; definition is as the"
        " definition itself says.",
        show_default=False,
    ),
]
FailureOption = Annotated[
    OnFailure | None,
    typer.Option(
        "--failure-strategy",
        help="Once a task has failed: end the others, or continue.",
        show_default=False,
    ),
]
GroupOption = Annotated[
    str | None,
    typer.Option("--worker-group", metavar="GROUP", help="For tasks that name no group."),
]
EnvironmentOption = Annotated[
    str | None,
    typer.Option(
        "--environment", metavar="NAME", help="For tasks that name no environment; or none."
    ),
]
PriorityOption = Annotated[
    Urgency | None, typer.Option("--priority", help="Who goes first.", show_default=False)
]
ParamOption = Annotated[
    list[str] | None,
    typer.Option("--param", "-p", metavar="NAME=VALUE", help="A start-up parameter; repeat."),
]
WarningOption = Annotated[
    Warn | None, typer.Option("--warning-type", help=WARNING_HELP, show_default=False)
]
ZoneOption = Annotated[
    str | None,
    typer.Option(
        "--zone", metavar="ZONE", help="Zone of the cron line, --from and --to, as Europe/Berlin."
    ),
]


def settings_of(
    *,
    cron: str | None,
    first: str | None,
    last: str | None,
    misfire: Misfire | None,
    misfire_limit: int | None,
    deadline: str | None,
    missing: Missing | None,
    repeated: Repeated | None,
    execution_type: Execution | None,
    failure_strategy: OnFailure | None,
    worker_group: str | None,
    environment: str | None,
    priority: Urgency | None,
    param: list[str] | None,
    warning_type: Warn | None,
) -> ScheduleSettings:
    """The settings that these options give, but for the zone."""
    from common.cron import MissingTime, RepeatedTime
    from common.model.schedules import MisfirePolicy
    from common.model.states import ExecutionType, FailureStrategy, Priority, WarningType
    from operations.schedule_settings import ScheduleSettings, read_cron, read_deadline
    from operations.start_params import params_of

    kind: ExecutionType | Literal["definition"] | None = None
    if execution_type is Execution.DEFINITION:
        kind = "definition"
    elif execution_type is not None:
        kind = ExecutionType[execution_type.name]
    return ScheduleSettings(
        cron=None if cron is None else read_cron(cron),
        first=first,
        last=last,
        misfire_policy=None if misfire is None else MisfirePolicy(misfire.value),
        misfire_limit=misfire_limit,
        deadline=None if deadline is None else read_deadline(deadline),
        missing_time=None if missing is None else MissingTime(missing.value),
        repeated_time=None if repeated is None else RepeatedTime(repeated.value),
        execution_type=kind,
        failure_strategy=None
        if failure_strategy is None
        else FailureStrategy[failure_strategy.name],
        worker_group=worker_group,
        environment=environment,
        priority=None if priority is None else Priority[priority.name],
        start_params=params_of(param) if param else None,
        warning_type=None if warning_type is None else WarningType[warning_type.name],
    )


def zone_given(name: str | None) -> ZoneInfo | None:
    """The zone of `--zone`; None without the option."""
    from operations.times import read_zone

    return None if name is None else read_zone(name)
