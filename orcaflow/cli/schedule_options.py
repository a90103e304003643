"""What the options of `orcaflow schedule` are, and which columns of a schedule they mean.

Nothing heavy is imported before an option is read, so that `--help` is there at once.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from orcaflow.cli.commands.run import OnFailure, Urgency

if TYPE_CHECKING:
    from datetime import datetime
    from zoneinfo import ZoneInfo

    from common.model.schedules import Schedule
    from common.store.connect import Connection
    from common.store.people.schedule_views import ScheduleView
    from operations.session import Session

_MAX_MISFIRES = 1000


class Misfire(StrEnum):
    """What becomes of fires that were due while no master was there."""

    SKIP = "skip"
    FIRE_ONCE = "fire_once"
    FIRE_ALL = "fire_all"


class Missing(StrEnum):
    """What becomes of a wall time that the clock skips in spring."""

    SHIFT = "shift"
    SKIP = "skip"


class Repeated(StrEnum):
    """Which of the two counts when the clock shows a wall time twice in autumn."""

    FIRST = "first"
    SECOND = "second"
    BOTH = "both"


class Rivals(StrEnum):
    """What a fire does while another run of the definition goes on."""

    DEFINITION = "definition"
    PARALLEL = "parallel"
    SERIAL_WAIT = "serial-wait"
    SERIAL_DISCARD = "serial-discard"
    SERIAL_PRIORITY = "serial-priority"


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
RivalsOption = Annotated[
    Rivals | None,
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
PriorityOption = Annotated[
    Urgency | None, typer.Option("--priority", help="Who goes first.", show_default=False)
]
ParamOption = Annotated[
    list[str] | None,
    typer.Option("--param", "-p", metavar="NAME=VALUE", help="A start-up parameter; repeat."),
]
ZoneOption = Annotated[
    str | None,
    typer.Option(
        "--zone", metavar="ZONE", help="Zone of the cron line, --from and --to, as Europe/Berlin."
    ),
]


def settings_of(
    *,
    misfire: Misfire | None,
    misfire_limit: int | None,
    deadline: str | None,
    missing: Missing | None,
    repeated: Repeated | None,
    execution_type: Rivals | None,
    failure_strategy: OnFailure | None,
    priority: Urgency | None,
    param: list[str] | None,
) -> dict[str, Any]:
    """The columns that these options mean; what is not given is left out."""
    import json

    from common.model.states import ExecutionType, FailureStrategy, Priority
    from operations.scheduling import params_of, seconds_of

    values: dict[str, Any] = {}
    if misfire is not None:
        values["misfire_policy"] = misfire.value
    if misfire_limit is not None:
        values["misfire_limit"] = misfire_limit
    if deadline is not None:
        try:
            values["deadline"] = 0 if deadline == "none" else seconds_of(deadline)
        except ValueError as error:
            raise typer.BadParameter(str(error), param_hint="--deadline") from error
    if missing is not None:
        values["missing_time"] = missing.value
    if repeated is not None:
        values["repeated_time"] = repeated.value
    if execution_type is not None:
        own = execution_type is Rivals.DEFINITION
        values["execution_type"] = None if own else int(ExecutionType[execution_type.name])
    if failure_strategy is not None:
        values["failure_strategy"] = int(FailureStrategy[failure_strategy.name])
    if priority is not None:
        values["process_instance_priority"] = int(Priority[priority.name])
    if param:
        values["start_params"] = json.dumps(params_of(param), ensure_ascii=False)
    return values


def cron_of(text: str) -> str:
    """The line with single blanks between its fields, if it can be read."""
    from common.cron import Cron, CronError

    try:
        Cron.parse(text)
    except CronError as error:
        raise typer.BadParameter(str(error), param_hint="--cron") from error
    return " ".join(text.split())


def zone_given(name: str | None) -> ZoneInfo | None:
    from operations.scheduling import zone_asked

    return None if name is None else zone_asked(name)


def start_of(text: str, zone: ZoneInfo, now: datetime) -> datetime:
    from operations.scheduling import moment_option

    if text.strip() == "now":
        return now.replace(microsecond=0)
    return moment_option(text, zone, option="--from")


def end_of(text: str, zone: ZoneInfo) -> datetime:
    from operations.scheduling import NO_END, moment_option

    if text.strip() == "never":
        return NO_END
    return min(moment_option(text, zone, option="--to", ends_day=True), NO_END)


def group_of(db: Connection, name: str | None) -> dict[str, Any]:
    from operations.lookup import worker_group_named

    if name is None:
        return {}
    return {"worker_group_id": worker_group_named(db, name)}


def check_columns(session: Session, values: dict[str, Any], zone: ZoneInfo) -> None:
    """Refuse columns that would never fire as they stand."""
    from operations.scheduling import check_schedule, check_window

    check_window(values["start_time"], values["end_time"], zone=zone)
    made = _of_columns(values)
    check_schedule(made, zone=zone, limit_bytes=session.config.command.param_limit_bytes)


def _of_columns(values: dict[str, Any]) -> Schedule:
    from common.model.schedules import Schedule
    from common.model.states import ExecutionType

    kind = values.get("execution_type")
    return Schedule(
        id=0,
        process_definition_id=0,
        definition_name=None,
        definition_is_online=False,
        crontab=values["crontab"],
        timezone_id=values["timezone_id"],
        missing_time=values["missing_time"],
        repeated_time=values["repeated_time"],
        start_time=values["start_time"],
        end_time=values["end_time"],
        execution_type=None if kind is None else ExecutionType(kind),
        start_params=values.get("start_params"),
    )


def columns_of(view: ScheduleView) -> dict[str, Any]:
    """What `_check` looks at, as it is stored."""
    return {
        "crontab": view.crontab,
        "timezone_id": view.timezone_id,
        "missing_time": view.missing_time,
        "repeated_time": view.repeated_time,
        "start_time": view.start_time,
        "end_time": view.end_time,
        "execution_type": view.execution_type,
        "start_params": view.start_params,
    }


def schedule_of_line(
    cron: str, zone: ZoneInfo, missing: Missing | None, repeated: Repeated | None
) -> Schedule:
    """A schedule without a definition, for a look at a cron line."""
    from datetime import UTC, datetime

    from operations.scheduling import NO_END, stored_name

    return _of_columns(
        {
            "crontab": cron,
            "timezone_id": stored_name(zone),
            "missing_time": (missing or Missing.SHIFT).value,
            "repeated_time": (repeated or Repeated.FIRST).value,
            "start_time": datetime(1970, 1, 1, tzinfo=UTC),
            "end_time": NO_END,
        }
    )
