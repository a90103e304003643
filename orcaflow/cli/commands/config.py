"""`orcaflow config`: which settings are in force, and where each came from."""

from __future__ import annotations

from typing import Annotated

import typer

from orcaflow.cli.output import Format, FormatOption, print_rows, write

app = typer.Typer(help="Show the settings in force.", no_args_is_help=True, rich_markup_mode=None)


@app.command(epilog="Example: orcaflow config show --origin")
def show(
    *,
    origin: Annotated[
        bool, typer.Option("--origin", help="Also where each value came from.")
    ] = False,
    form: FormatOption = Format.TABLE,
) -> None:
    """Print every setting with its value; passwords are masked. Fields: key, value, origin."""
    from common.config import effective, load

    rows = [
        {"key": key, "value": value, "origin": came_from}
        for key, value, came_from in effective(load())
    ]
    columns = ("key", "value", "origin") if origin else ("key", "value")
    print_rows(rows, form=form, columns=columns)


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
    those of the embedded servers if none are configured.
    """
    import difflib

    from common.config import DERIVED_KEYS, effective, load
    from common.config import get as value_of
    from common.errors import NotFoundError

    config = load()
    try:
        value = value_of(config, key)
    except KeyError:
        known = sorted({name for name, _, _ in effective(config)} | set(DERIVED_KEYS))
        near = difflib.get_close_matches(key, known, n=1)
        perhaps = f"; did you mean {near[0]}?" if near else "; see `orcaflow config show`"
        raise NotFoundError(f"there is no setting {key!r}{perhaps}") from None
    write(value)
