"""`orcaflow command`: the commands that were put, and the outcome of each."""

from __future__ import annotations

from typing import Annotated

import typer

from orcaflow.cli.output import Format, FormatOption, print_fields, print_json, print_rows

app = typer.Typer(
    help="Look at commands: those that wait, and the outcomes of those that are gone.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)

COLUMNS = (
    "id",
    "command_type",
    "definition",
    "outcome",
    "process_instance_id",
    "handled_at",
    "reason",
)


@app.command(
    name="list",
    epilog=(
        "\b\n"
        "Examples:\n"
        "  orcaflow command list --outcome dropped --outcome refused\n"
        "  orcaflow command list --definition flights --limit 5 -o json\n"
    ),
)
def list_(
    *,
    definition: Annotated[
        str | None, typer.Option("--definition", metavar="NAME", help="Only of this definition.")
    ] = None,
    outcome: Annotated[
        list[str] | None,
        typer.Option(
            "--outcome",
            metavar="OUTCOME",
            help="Only with this one: waiting, taken, dropped or refused; repeat.",
        ),
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="No more than so many.")] = 20,
    form: FormatOption = Format.TABLE,
) -> None:
    """List commands with their outcomes, the newest first.

    Those that only wait are listed in the order in which masters take them. Dropped: gone without
    effect, for the reason given. Refused: moved to t_ds_error_command. Fields: id, command_type,
    command_type_code, definition, process_definition_id, outcome, process_instance_id, start_time
    (when it was put), handled_at, host (of the master), reason.
    """
    from operations.commands import list_commands
    from operations.documents.commands import command_row
    from operations.session import opened

    with opened() as session:
        found = list_commands(session, outcomes=outcome or (), definition=definition, limit=limit)
    print_rows(
        [command_row(view) for view in found],
        form=form,
        columns=COLUMNS,
        zone=session.zone,
        none="There are no such commands.",
    )


@app.command(epilog="Example: orcaflow command show 12")
def show(
    command_id: Annotated[int, typer.Argument(metavar="ID", help="Id of a command.", min=1)],
    form: FormatOption = Format.TABLE,
) -> None:
    """Show a command with its outcome; exit code 3 if none of this id is on record.

    Fields: those of `list`.
    """
    from operations.commands import command_with_id
    from operations.documents.commands import command_row
    from operations.session import opened

    with opened() as session:
        row = command_row(command_with_id(session, command_id))
    if form is Format.JSON:
        print_json(row)
    else:
        print_fields(row, zone=session.zone)
