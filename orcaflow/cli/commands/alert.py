"""`orcaflow alert`: the alerts that masters have raised."""

from __future__ import annotations

from typing import Annotated

import typer

from orcaflow.cli.output import Format, FormatOption, print_rows

app = typer.Typer(
    help="Look at alerts: ends of runs, time-outs, lost daemons and their tasks.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)


COLUMNS = ("id", "create_time", "title", "status", "alertgroup_id", "content")


@app.callback()
def _group() -> None: ...  # Has Typer make a group of the only command.


@app.command(
    name="list",
    epilog=(
        "\b\n"
        "Examples:\n"
        "  orcaflow alert list\n"
        "  orcaflow alert list --status waiting --limit 100 -o json\n"
        "A run raises one at its end if it was begun so:\n"
        "  orcaflow run flights --warning-type failure\n"
    ),
)
def list_(
    *,
    status: Annotated[
        list[str] | None,
        typer.Option(
            "--status", metavar="STATUS", help="Only with this: waiting, sent or failed; repeat."
        ),
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="No more than so many.")] = 20,
    form: FormatOption = Format.TABLE,
) -> None:
    """List alerts, the newest first. Orcaflow writes them and sends none: they wait in t_ds_alert.

    A program may send them, and set alert_status to 1 (sent) or 2 (failed) there. Fields: id,
    title, status (WAIT_EXECUTION, EXECUTION_SUCCESS, EXECUTION_FAILURE), show_type, alert_type,
    alertgroup_id, alertgroup, receivers, receivers_cc, create_time, update_time, content, log.
    """
    from operations.alerts import list_alerts
    from operations.documents.alerts import alert_row
    from operations.session import opened

    with opened() as session:
        found = list_alerts(session, statuses=status or (), limit=limit)
    print_rows(
        [alert_row(view) for view in found],
        form=form,
        columns=COLUMNS,
        zone=session.zone,
        none="There are no such alerts.",
    )
