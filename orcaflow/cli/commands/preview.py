"""`orcaflow schedule preview`: the next fires, before they happen."""

from __future__ import annotations

from typing import Annotated

import typer

from orcaflow.cli.output import Format, FormatOption, print_json, say
from orcaflow.cli.schedule_options import (
    Missing,
    MissingOption,
    Repeated,
    RepeatedOption,
    ZoneOption,
    zone_given,
)

EXAMPLES = (
    "\b\n"
    "Examples:\n"
    "  orcaflow schedule preview flights\n"
    "  orcaflow schedule preview 3 --count 20 --after 2026-10-30\n"
    "  orcaflow schedule preview --cron '0 30 2 * * ?' --zone America/New_York \\\n"
    "      --after 2026-03-06 --count 5 -o json\n"
    "  orcaflow schedule preview --cron '0 0 6 ? * 6L' --missing skip --repeated both\n"
)


def preview(
    target: Annotated[
        str | None,
        typer.Argument(
            metavar="ID|NAME", help="A schedule, or a definition with all its schedules."
        ),
    ] = None,
    *,
    cron: Annotated[
        str | None, typer.Option("--cron", metavar="LINE", help="Instead: any cron line.")
    ] = None,
    zone: ZoneOption = None,
    missing: MissingOption = None,
    repeated: RepeatedOption = None,
    count: Annotated[int, typer.Option(min=1, max=10_000, help="How many fires.")] = 10,
    after: Annotated[
        str,
        typer.Option("--after", metavar="TIME", help="Fires after this, in the schedule's zone."),
    ] = "now",
    form: FormatOption = Format.TABLE,
) -> None:
    """List the next fires, exactly as they will fire, with what the clock of the zone does to them.

    Fields: schedules (id, definition, release_state, crontab, description, timezone_id,
    missing_time, repeated_time, start_time, end_time, hindrance: why none of it happens), fires
    (schedule_id, fire_time, local, meant: the wall time of the cron line, clock: null, shifted,
    first or second, clock_effect),
    clock_changes (schedule_id, at, local, before and after: seconds ahead of UTC, wall_times: no
    more than five, number, effect), overdue (fires of ONLINE schedules that are due and that no
    master has carried out yet: schedule_id, since, number, outcomes).
    """
    from common.clock import SystemClock
    from common.cron import MissingTime, RepeatedTime
    from operations import previewing
    from operations.documents.schedules import preview_document
    from operations.schedule_settings import read_cron
    from operations.session import opened
    from orcaflow.cli.screens.preview import print_preview

    if (target is None) == (cron is None):
        raise typer.BadParameter("give the ID of a schedule, the NAME of a definition, or --cron")
    if cron is None and (zone or missing or repeated):
        raise typer.BadParameter("--zone, --missing and --repeated go with --cron")
    now = SystemClock().now()
    if cron is not None:
        with opened() as session:
            own = zone_given(zone) or session.zone
        previewed = previewing.of_line(
            read_cron(cron),
            zone=own,
            missing=MissingTime((missing or Missing.SHIFT).value),
            repeated=RepeatedTime((repeated or Repeated.FIRST).value),
        )
    else:
        with opened() as session:
            previewed = previewing.of_target(session, target or "")
    for number, fault in previewed.faults.items():
        say(f"schedule {number} can't fire: {fault}")
    since = None if after == "now" else after
    found = previewing.preview(previewed, after=since, count=count, now=now)
    document = preview_document(previewed, found)
    if form is Format.JSON:
        print_json(document)
    else:
        print_preview(document, previewed.timetables, count=count)
