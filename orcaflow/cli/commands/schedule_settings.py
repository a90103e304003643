"""`orcaflow schedule create` and `edit`: the settings of a schedule, stored and changed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from operations.texts import counted
from orcaflow.cli.commands.run import OnFailure, Urgency, Warn
from orcaflow.cli.output import Format, FormatOption, escaped, print_json, say, write
from orcaflow.cli.schedule_options import (
    CRON_HELP,
    FROM_HELP,
    TO_HELP,
    DeadlineOption,
    EnvironmentOption,
    Execution,
    ExecutionOption,
    FailureOption,
    GroupOption,
    Misfire,
    MisfireLimitOption,
    MisfireOption,
    Missing,
    MissingOption,
    ParamOption,
    PriorityOption,
    Repeated,
    RepeatedOption,
    ScheduleId,
    WarningOption,
    ZoneOption,
    settings_of,
    zone_given,
)

if TYPE_CHECKING:
    from operations.scheduling import SavedSchedule
    from operations.session import Session

CREATE_EXAMPLES = (
    "\b\n"
    "Examples:\n"
    "  orcaflow schedule create flights --cron '0 0 3 * * ? *' --zone America/New_York\n"
    "  orcaflow schedule create flights --cron '0 0/15 8-18 ? * MON-FRI' --online\n"
    "  orcaflow schedule create report --cron '0 0 6 L * ?' --from 2026-01-01 \\\n"
    "      --to 2026-12-31 --misfire fire_all --misfire-limit 3 --deadline 12h\n"
    "  orcaflow schedule create report --cron '0 30 2 * * ?' --missing skip \\\n"
    "      --execution-type serial-wait --param region=eu --online\n"
    "Look at it first: orcaflow schedule preview --cron '0 30 2 * * ?'\n"
)
EDIT_EXAMPLES = (
    "\b\n"
    "Examples:\n"
    "  orcaflow schedule offline 3\n"
    "  orcaflow schedule edit 3 --cron '0 0 4 * * ? *' --deadline none\n"
    "  orcaflow schedule edit 3 --cron '0 0 5 * * ? *' --online\n"
    "  orcaflow schedule edit 3 --to never --worker-group default --no-params\n"
    "  orcaflow schedule online 3\n"
)


def create(
    name: Annotated[str, typer.Argument(help="Name of the definition that it runs.")],
    *,
    cron: Annotated[str, typer.Option("--cron", metavar="LINE", help=CRON_HELP)],
    zone: ZoneOption = None,
    from_: Annotated[str, typer.Option("--from", metavar="TIME", help=FROM_HELP)] = "now",
    to: Annotated[str, typer.Option("--to", metavar="TIME", help=TO_HELP)] = "never",
    misfire: MisfireOption = Misfire.FIRE_ONCE,
    misfire_limit: MisfireLimitOption = 10,
    deadline: DeadlineOption = None,
    missing: MissingOption = Missing.SHIFT,
    repeated: RepeatedOption = Repeated.FIRST,
    execution_type: ExecutionOption = Execution.DEFINITION,
    failure_strategy: FailureOption = OnFailure.CONTINUE,
    worker_group: GroupOption = None,
    environment: EnvironmentOption = None,
    priority: PriorityOption = Urgency.MEDIUM,
    param: ParamOption = None,
    warning_type: WarningOption = Warn.NONE,
    online: Annotated[bool, typer.Option("--online", help="Bring it ONLINE at once.")] = False,
    form: FormatOption = Format.TABLE,
) -> None:
    """Make a schedule of a definition; it is OFFLINE, and fires once it is brought ONLINE.

    Without an option: misfire fire_once (limit 10), missing shift, repeated first, the cluster's
    zone, which is stored by its name. A definition may have several schedules: each fires by
    itself. --online needs the definition and all its sub processes ONLINE; if anything is wrong,
    nothing is written. Fields: those of `list`.
    """
    from dataclasses import replace

    from common.clock import SystemClock
    from operations import scheduling
    from operations.session import opened
    from orcaflow.cli.screens.schedules import warn_without_master

    settings = settings_of(
        cron=cron,
        first=from_,
        last=to,
        misfire=misfire,
        misfire_limit=misfire_limit,
        deadline=deadline,
        missing=missing,
        repeated=repeated,
        execution_type=execution_type,
        failure_strategy=failure_strategy,
        worker_group=worker_group,
        environment=environment,
        priority=priority,
        param=param,
        warning_type=warning_type,
    )
    with opened() as session:
        settings = replace(settings, zone=zone_given(zone))
        now = SystemClock().now()
        saved = scheduling.create(session, name, settings, online=online, now=now)
        _print_saved(session, saved, "made", form)
        if saved.others:
            say(
                f"{name!r} has {counted(len(saved.others) + 1, 'schedule')} now (also"
                f" {', '.join(map(str, saved.others))}); each fires by itself"
            )
        if online:
            warn_without_master(session)
        else:
            say(f"it does not fire before `orcaflow schedule online {saved.view.id}`")


def edit(
    schedule_id: ScheduleId,
    *,
    cron: Annotated[str | None, typer.Option("--cron", metavar="LINE", help=CRON_HELP)] = None,
    zone: ZoneOption = None,
    from_: Annotated[str | None, typer.Option("--from", metavar="TIME", help=FROM_HELP)] = None,
    to: Annotated[str | None, typer.Option("--to", metavar="TIME", help=TO_HELP)] = None,
    misfire: MisfireOption = None,
    misfire_limit: MisfireLimitOption = None,
    deadline: DeadlineOption = None,
    missing: MissingOption = None,
    repeated: RepeatedOption = None,
    execution_type: ExecutionOption = None,
    failure_strategy: FailureOption = None,
    worker_group: GroupOption = None,
    environment: EnvironmentOption = None,
    priority: PriorityOption = None,
    param: ParamOption = None,
    warning_type: WarningOption = None,
    no_params: Annotated[
        bool, typer.Option("--no-params", help="Take all start-up parameters away.")
    ] = False,
    online: Annotated[
        bool, typer.Option("--online", help="Change it while ONLINE too; it is then ONLINE.")
    ] = False,
    form: FormatOption = Format.TABLE,
) -> None:
    """Change a schedule that is OFFLINE; what is not named stays as it is.

    With --online it may be ONLINE, stays so, and fires by its new settings; it is left as it was if
    anything is wrong.
    --param replaces all parameters. Another --zone leaves the instants of the window as they are.
    Fields: those of `list`.
    """
    from dataclasses import replace

    from common.clock import SystemClock
    from operations import scheduling
    from operations.session import opened

    if param and no_params:
        raise typer.BadParameter("--param and --no-params exclude each other")
    settings = settings_of(
        cron=cron,
        first=from_,
        last=to,
        misfire=misfire,
        misfire_limit=misfire_limit,
        deadline=deadline,
        missing=missing,
        repeated=repeated,
        execution_type=execution_type,
        failure_strategy=failure_strategy,
        worker_group=worker_group,
        environment=environment,
        priority=priority,
        param=param,
        warning_type=warning_type,
    )
    settings = replace(settings, zone=zone_given(zone))
    if no_params:
        settings = replace(settings, start_params={})
    with opened() as session:
        now = SystemClock().now()
        saved = scheduling.edit(session, schedule_id, settings, now=now, online=online)
    _print_saved(session, saved, "changed", form)


def _print_saved(session: Session, saved: SavedSchedule, change: str, form: Format) -> None:
    """Print a schedule as it is now; `change` is the participle of its change."""
    from operations.documents.schedules import schedule_row
    from operations.times import local_text
    from orcaflow.cli.screens.schedules import owner_of

    view, timetable, first = saved.view, saved.timetable, saved.next_fire
    row = schedule_row(view, zone=session.zone)
    if form is Format.JSON:
        print_json(row)
    else:
        write(
            f"schedule {view.id} of {escaped(owner_of(view))} is {change}, {row['release_state']}:"
            f" {row['description']} ({timetable.zone.key})"
        )
        if first is not None:
            write(f"its next fire: {local_text(first.fire_time, timetable.zone)}")
    if first is None:
        say("it never fires from now on: its window, or its cron line, has ended")
