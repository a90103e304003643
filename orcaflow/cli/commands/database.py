"""`orcaflow db`: the schema of the database."""

from __future__ import annotations

import typer

from orcaflow.cli.output import Format, FormatOption, print_json, say, write

app = typer.Typer(
    help="Make, check and print the schema of the database.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@app.command(epilog="Example: orcaflow db upgrade")
def upgrade(form: FormatOption = Format.TABLE) -> None:
    """Bring the database to the schema of this version; all of it or nothing, and safe to repeat.

    Fields: revision, applied (the revisions that were missing), database.
    """
    import getpass

    from common.store.connect import place_of
    from common.store.schema import REVISION
    from common.store.schema import upgrade as upgrade_schema
    from operations.session import opened

    with opened(checked=False) as session:
        applied = upgrade_schema(session.engine, os_user=getpass.getuser())
        place = place_of(session.url)
    if form is Format.JSON:
        print_json({"revision": REVISION, "applied": applied, "database": place})
    elif applied:
        write(f"{place} is at revision {REVISION} now; applied: {', '.join(applied)}")
    else:
        write(f"{place} is at revision {REVISION} already")


@app.command(epilog="Example: orcaflow db check && echo fine")
def check(form: FormatOption = Format.TABLE) -> None:
    """Say whether the database has the schema of this version; exit code 78 if not.

    Fields: revision, database.
    """
    from common.store.connect import place_of
    from common.store.schema import REVISION
    from operations.session import opened

    with opened() as session:
        place = place_of(session.url)
    if form is Format.JSON:
        print_json({"revision": REVISION, "database": place})
    else:
        write(f"{place} is at revision {REVISION}, as this version needs")


@app.command(epilog="Example: orcaflow db schema > schema.sql")
def schema() -> None:
    """Print the whole schema as SQL, to read and compare; `upgrade` is what makes it."""
    from common.store.schema import schema_sql

    say("-- For reading: `orcaflow db upgrade` makes the tables.")
    write(schema_sql().rstrip("\n"))
