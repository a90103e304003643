"""`orcaflow complement run`: past dates of a definition, begun as one object or only planned."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from common.model.complement_states import Downstream, OnFailure, Reprocess, RunOrder
from common.model.date_rules import DateRule
from orcaflow.cli.commands.run import WARNING_HELP, Urgency, Warn
from orcaflow.cli.commands.run import OnFailure as OnTaskFailure
from orcaflow.cli.output import Format, FormatOption, escaped, print_json, write

if TYPE_CHECKING:
    from common.model.states import TaskDependType
    from common.store.people.complement_views import ComplementView

PARALLELISM_LIMIT = 1000
"""As `common.complementing` has it, which takes too long to import for `--help`."""
EXAMPLES = (
    "\b\n"
    "Examples:\n"
    "  orcaflow complement flights --from 2013-01-01 --to 2013-01-31 --plan\n"
    "  orcaflow complement flights --from 2013-01-01 --to 2013-01-31 --parallel 2 --wait\n"
    "  orcaflow complement flights --dates 2013-01-05,2013-02-05 --reprocess failed\n"
    "  orcaflow complement run list --from '2013-01-01 06:00:00' --to 2013-01-31\n"
)


def _parallelism(given: int) -> int:
    if not 1 <= given <= PARALLELISM_LIMIT:
        raise typer.BadParameter(
            f"from 1 to {PARALLELISM_LIMIT} dates may run at the same time, not {given}"
        )
    return given


def run(
    name: Annotated[str, typer.Argument(help="Name of a definition that is ONLINE.")],
    *,
    first: Annotated[
        str | None, typer.Option("--from", metavar="DATE", help="The first date of the range.")
    ] = None,
    last: Annotated[
        str | None,
        typer.Option("--to", metavar="DATE", help="Its last; a date alone is all of that day."),
    ] = None,
    date: Annotated[
        list[str] | None,
        typer.Option("--date", metavar="DATE", help="Instead of a range: a date; repeat."),
    ] = None,
    dates: Annotated[
        str | None,
        typer.Option("--dates", metavar="DATE,DATE", help="Instead of a range: a list of dates."),
    ] = None,
    zone: Annotated[
        str | None,
        typer.Option(
            "--zone",
            metavar="ZONE",
            help="Whose clock dates are read on; else the schedule's, else the cluster's.",
        ),
    ] = None,
    parallel: Annotated[
        int,
        typer.Option(
            "--parallel",
            metavar="N",
            callback=_parallelism,
            help="How many dates run at the same time, 1 to 1000.",
        ),
    ] = 1,
    order: Annotated[
        RunOrder, typer.Option(help="Whether the earliest or the latest date comes first.")
    ] = RunOrder.ASCENDING,
    on_failure: Annotated[
        OnFailure,
        typer.Option(help="Once a date has failed: one fewer at the same time, or go on."),
    ] = OnFailure.STOP,
    reprocess: Annotated[
        Reprocess,
        typer.Option(help="Of dates with a run: none, those whose newest one failed, or all."),
    ] = Reprocess.ALL,
    date_rule: Annotated[
        DateRule | None,
        typer.Option(help="What a date is: its run's schedule time, or its business date."),
    ] = None,
    param: Annotated[
        list[str] | None,
        typer.Option("--param", "-p", metavar="NAME=VALUE", help="A start-up parameter; repeat."),
    ] = None,
    start_node: Annotated[
        list[str] | None,
        typer.Option(
            "--start-node",
            "--start-nodes",
            metavar="A,B",
            help="Tasks to start from, and what is after them; without it all.",
        ),
    ] = None,
    only: Annotated[bool, typer.Option("--only", help="The start nodes alone.")] = False,
    pre: Annotated[
        bool, typer.Option("--pre", help="The start nodes and all before them.")
    ] = False,
    downstream: Annotated[
        bool,
        typer.Option(
            "--downstream", help="Then also definitions whose DEPENDENT tasks wait for this one."
        ),
    ] = False,
    downstream_all: Annotated[
        bool, typer.Option("--downstream-all", help="And those that wait for these, and so on.")
    ] = False,
    priority: Annotated[
        Urgency, typer.Option(help="Who goes first; of equal ones a live run does.")
    ] = Urgency.MEDIUM,
    worker_group: Annotated[
        str | None, typer.Option(metavar="GROUP", help="For tasks that name no group themselves.")
    ] = None,
    environment: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="For tasks that name no environment themselves."),
    ] = None,
    failure_strategy: Annotated[
        OnTaskFailure,
        typer.Option(help="Within a run, once a task has failed: end the others, or continue."),
    ] = OnTaskFailure.CONTINUE,
    warning_type: Annotated[Warn, typer.Option("--warning-type", help=WARNING_HELP)] = Warn.NONE,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="More than 10,000 dates are really meant.")
    ] = False,
    plan: Annotated[
        bool, typer.Option("--plan", help="Write nothing; show what would run, and until when.")
    ] = False,
    wait: Annotated[
        bool, typer.Option("--wait", "-w", help="Watch it to its end; exit code 0 on success.")
    ] = False,
    timeout: Annotated[
        str | None,
        typer.Option("--timeout", metavar="TIME", help="Watch no longer, as 90s, 10m or 2h."),
    ] = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """Run past dates of a definition: a range, both ends included, or a list.

    The dates of a range are the fire times of the definition's online schedules; without any, each
    day at the time of day of --from. A date alone is its midnight, in --to the end of that day.
    Without --date-rule the definition's rule applies, else the cluster's. All or nothing is made.
    Ctrl-C ends the watching and not the complement. Exit code 2 for dates that can't be read, 4 if
    the definition is OFFLINE, with --wait 1 if it did not succeed. Fields: complements (as in
    `list`); with --plan complements (with dates, date_rule, to_run, to_skip, typical_duration,
    estimated_duration, estimated_end).
    """
    from common.clock import SystemClock
    from common.model.states import FailureStrategy, Priority, WarningType
    from operations import complementing
    from operations.errors import UsageError
    from operations.session import opened
    from operations.start_params import params_of
    from orcaflow.cli.options import patience_of
    from orcaflow.cli.screens.complement_plan import print_plan
    from orcaflow.cli.screens.complement_watch import watch_to_exit_code

    if plan and wait:
        raise typer.BadParameter("--plan begins nothing that could be waited for; leave out one")
    patience = patience_of(timeout, wait=wait)
    options = complementing.ComplementOptions(
        first=first,
        last=last,
        dates=(*(date or ()), *(() if dates is None else dates.split(","))),
        zone=zone,
        parallelism=parallel,
        order=order,
        on_failure=on_failure,
        reprocess=reprocess,
        date_rule=date_rule,
        downstream=_downstream(downstream, downstream_all),
        confirmed=yes,
        start_nodes=tuple(start_node or ()),
        task_depend_type=_mode(start_node or (), only=only, pre=pre),
        failure_strategy=FailureStrategy[failure_strategy.name],
        priority=Priority[priority.name],
        worker_group=worker_group,
        environment=environment,
        start_params=params_of(param or ()),
        warning_type=WarningType[warning_type.name],
    )
    with opened() as session:
        try:
            if plan:
                plans = complementing.plan(session, name, options)
                print_plan(plans, form=form, zone=session.zone)
                return
            made = complementing.create(session, name, options, now=SystemClock().now())
        except UsageError as error:
            if error.field == "dates":
                raise typer.BadParameter(error.message, param_hint="--date/--dates") from error
            raise
        if wait:
            raise typer.Exit(
                watch_to_exit_code(session, [view.id for view in made], patience, form)
            )
        _print_made(made, form)


def _mode(start_nodes: Sequence[str], *, only: bool, pre: bool) -> TaskDependType:
    from common.model.states import TaskDependType

    if only and pre:
        raise typer.BadParameter("--only and --pre exclude each other")
    if (only or pre) and not start_nodes:
        raise typer.BadParameter(f"{'--only' if only else '--pre'} needs --start-node")
    if only:
        return TaskDependType.TASK_ONLY
    return TaskDependType.TASK_PRE if pre else TaskDependType.TASK_POST


def _downstream(direct: bool, all_levels: bool) -> Downstream:
    if all_levels:
        return Downstream.ALL
    return Downstream.DIRECT if direct else Downstream.NONE


def _print_made(made: Sequence[ComplementView], form: Format) -> None:
    from common.clock import SystemClock
    from operations.documents.complements import complement_row
    from orcaflow.cli.screens.complement_display import counts, how_to_watch

    if form is Format.JSON:
        now = SystemClock().now()
        print_json({"complements": [complement_row(view, now=now) for view in made]})
        return
    for view in made:
        name = escaped(view.definition_name or "?")
        begins = f" after complement {view.after_id}" if view.after_id else ""
        write(
            f"complement {view.id} of {name} begins{begins}: {counts(view)},"
            f" {view.parallelism} at a time"
        )
    write(how_to_watch([view.id for view in made]))
