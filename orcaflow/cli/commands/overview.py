"""`orcaflow overview`: what needs a person."""

from __future__ import annotations

from typing import Annotated

import typer

from orcaflow.cli.output import Format, FormatOption, print_json, print_rows

app = typer.Typer(add_completion=False, rich_markup_mode=None)

COLUMNS = ("kind", "id", "name", "definition", "project", "since", "count", "reason")


@app.command(
    epilog=("\b\nExamples:\n  orcaflow overview\n  orcaflow overview -o json | jq .well\n")
)
def overview(
    *,
    limit: Annotated[
        int, typer.Option(min=1, max=1_000, help="Maximum number of rows of each kind.")
    ] = 50,
    form: FormatOption = Format.TABLE,
) -> None:
    """Show what needs a person: failed, paused, refused, missed and unhealthy objects.

    A definition needs a person while its last run, apart from complements, has failed, however old
    that is. Fields: well (true without items), items (kind, id, name,
    process_definition_id, definition, project, since, count, reason). The kinds are no-master,
    missing-worker, failed-run, failed-dates, paused-run, unhealthy-supervisor, troubled-topology,
    refused-command, missed-fires and faulty-schedule.
    """
    from operations.documents.overview import concern_row
    from operations.overview import overview as concerns_of
    from operations.session import opened

    with opened() as session:
        rows = [concern_row(each) for each in concerns_of(session, limit=limit)]
    if form is Format.JSON:
        print_json({"well": not rows, "items": rows})
        return
    print_rows(
        rows,
        form=form,
        columns=COLUMNS,
        zone=session.zone,
        none="All is well: nothing has failed, waits for a person or was missed.",
    )
