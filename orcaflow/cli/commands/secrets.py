"""`orcaflow secrets`: the encryption of secret parameters in the tables."""

from __future__ import annotations

import typer

from orcaflow.cli.output import Format, FormatOption, print_json, say, write

app = typer.Typer(
    help="Encrypt secret parameters in the tables.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)


@app.callback()
def secrets() -> None:
    """Encrypt secret parameters in the tables."""


@app.command(epilog="Example: orcaflow secrets encrypt")
def encrypt(form: FormatOption = Format.TABLE) -> None:
    """Encrypt secrets that rows hold in clear text, from older versions or written by hand.

    Run it once all hosts run this version: older versions can't decrypt secret parameters. It is
    safe to repeat, and to run while daemons run. Exit code 1 if this host lacks a key for some
    rows: copy the key file from a host that has it. Fields: column, changed, unreadable.
    """
    from operations.secrets import encrypt_secrets
    from operations.session import opened

    with opened() as session:
        done = encrypt_secrets(session)
    if form is Format.JSON:
        print_json(
            [
                {"column": each.name, "changed": each.changed, "unreadable": each.unreadable}
                for each in done
            ]
        )
    else:
        for each in done:
            write(f"{each.name}: {each.changed} changed")
        write(f"{sum(each.changed for each in done)} rows changed")
    unreadable = sum(each.unreadable for each in done)
    if unreadable:
        say(f"{unreadable} rows are encrypted by a key that this host lacks: copy its key file")
        raise typer.Exit(1)
