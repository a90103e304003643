"""`orcaflow schedule simulate`: schedules played on a virtual clock."""

from __future__ import annotations

from typing import Annotated

import typer

from orcaflow.cli.output import Format, FormatOption, print_json

EXAMPLES = (
    "\b\n"
    "Examples:\n"
    "  orcaflow schedule simulate --days 30\n"
    "  orcaflow schedule simulate --definition flights --all --pessimistic\n"
    "  orcaflow schedule simulate --outage '2026-03-29 01:00/3h' --slots 8\n"
    "  orcaflow schedule simulate --from 2026-10-20 --days 10 --strict -o json\n"
)

MAX_DAYS = 3660
MAX_FIRES = 1_000_000
"""As `common.schedule_simulator` has it, which takes too long to import for `--help`."""


def simulate(
    *,
    days: Annotated[
        float,
        typer.Option(metavar="N", help="How many days, 0.01 to 3660.", min=0.01, max=MAX_DAYS),
    ] = 30,
    first: Annotated[
        str | None, typer.Option("--from", metavar="DATE", help="Where it begins; else now.")
    ] = None,
    definition: Annotated[
        str | None, typer.Option(metavar="NAME", help="Only the schedules of this definition.")
    ] = None,
    offline_too: Annotated[
        bool, typer.Option("--all", help="Also schedules that are OFFLINE, as if they were not.")
    ] = False,
    pessimistic: Annotated[
        bool,
        typer.Option(
            "--pessimistic", help="Runs take the longest of their last 20, not the median."
        ),
    ] = False,
    assume: Annotated[
        str,
        typer.Option(metavar="SPAN", help="How long runs take that have no history, as 60s or 2h."),
    ] = "60s",
    slots: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Slots of all workers; else of those that live."),
    ] = None,
    outages: Annotated[
        list[str] | None,
        typer.Option(
            "--outage",
            metavar="FROM/SPAN",
            help="No master is there, as '2026-03-29 01:00/3h'; repeatable.",
        ),
    ] = None,
    max_fires: Annotated[
        int, typer.Option(min=1, metavar="N", help="Refuse more fires than this.")
    ] = MAX_FIRES,
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit with 1 if there is any problem.")
    ] = False,
    form: FormatOption = Format.TABLE,
) -> None:
    """Play schedules on a virtual clock: overlaps, queueing and misfires before they happen.

    Fires are exactly those that will happen, clock changes included; runs take as long, and as many
    slots, as they did before. Nothing is started or written. It leaves out failures, retries, what
    runs already, and what people start. Exit code 0 whatever comes out, but for --strict.

    Fields: from, to, zone, assumed (definitions without history), cluster (slots, slots_known_by,
    peak, peak_at, peak_wanted, busiest_hour, busiest_slots, backlog, most_backlog,
    never_catches_up, pools), schedules (id, definition, crontab, timezone_id, execution_type,
    priority, takes, takes_slots, takes_of_pools, history, fires, outcomes, not_fired, undecided,
    late, runs, ended, going_on, stopped, discarded, waiting, overlaps, at_once, waited,
    median_wait, longest_wait, never_catches_up, oddities, fault), problems (kind, schedule_id,
    text).
    """
    from common.clock import SystemClock
    from operations import simulating
    from operations.documents.simulations import simulation_document
    from operations.session import opened
    from orcaflow.cli.screens.simulation import print_simulation

    request = simulating.SimulationRequest(
        days=days,
        first=first,
        definition_name=definition,
        offline_too=offline_too,
        pessimistic=pessimistic,
        assumed=simulating.read_assumed(assume),
        slots=slots,
        outages=tuple(outages or ()),
        max_fires=max_fires,
    )
    with opened() as session:
        simulated = simulating.simulate(session, request, now=SystemClock().now())
    if form is Format.JSON:
        print_json(simulation_document(simulated))
    else:
        print_simulation(simulated)
    if strict and simulated.simulation.problems:
        raise typer.Exit(1)
