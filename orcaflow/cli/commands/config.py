"""`orcaflow config`: the settings in force, and where each came from."""

from __future__ import annotations

from typing import Annotated

import typer

from orcaflow.cli.output import Format, FormatOption, print_rows, say, write

app = typer.Typer(
    help="Show the settings in force.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)


@app.command(epilog="Example: orcaflow config show --origin")
def show(
    *,
    origin: Annotated[
        bool, typer.Option("--origin", help="Also where each value came from.")
    ] = False,
    form: FormatOption = Format.TABLE,
) -> None:
    """Print every setting with its value; passwords are masked. Fields: key, value, origin.

    A note on standard error names ports in use that differ from the settings.
    """
    from dataclasses import asdict

    from operations.settings import notes_on_ports, settings_in_force

    rows = [asdict(each) for each in settings_in_force()]
    columns = ("key", "value", "origin") if origin else ("key", "value")
    print_rows(rows, form=form, columns=columns)
    for note in notes_on_ports().values():
        say(note)


@app.command(
    epilog=(
        "\b\n"
        "Examples:\n"
        '  psql "$(orcaflow config get database.dsn)"\n'
        "  orcaflow config get zookeeper.hosts\n"
        "  orcaflow config get master.port\n"
    )
)
def get(
    key: Annotated[str, typer.Argument(help="As printed by `orcaflow config show`.")],
) -> None:
    """Print one value as it is, for scripts: passwords included.

    database.dsn (for psql and psycopg2), database.url (for SQLAlchemy) and zookeeper.hosts are
    those of the embedded servers if none are configured. A port is printed as configured; a note on
    standard error names the port in use if it differs. api.url has the port in use.
    """
    from operations.settings import notes_on_ports, setting_value

    write(setting_value(key))
    if key.endswith(".port") and (note := notes_on_ports().get(key)):
        say(note)
