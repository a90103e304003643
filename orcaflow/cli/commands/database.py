"""`orcaflow db`: the schema of the database."""

from __future__ import annotations

from typing import Annotated

import typer

from orcaflow.cli.output import Format, FormatOption, print_json, say, write

app = typer.Typer(
    help="Make, check and print the schema of the database.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)


@app.command(epilog="Example: orcaflow db upgrade")
def upgrade(form: FormatOption = Format.TABLE) -> None:
    """Bring the database to the schema of this version; all of it or nothing, and safe to repeat.

    Fields: revision, applied (the revisions that were missing), database.
    """
    from operations.database import upgrade_database
    from operations.session import opened

    with opened(checked=False) as session:
        found = upgrade_database(session)
    if form is Format.JSON:
        print_json(
            {
                "revision": found.revision,
                "applied": list(found.applied),
                "database": found.database,
            }
        )
    elif found.applied:
        applied = ", ".join(found.applied)
        write(f"{found.database} is at revision {found.revision} now; applied: {applied}")
    else:
        write(f"{found.database} is at revision {found.revision} already")


@app.command(epilog="Example: orcaflow db check && echo fine")
def check(form: FormatOption = Format.TABLE) -> None:
    """Check that daemons of this version can use the database; exit code 78 if not.

    That is its version, encoding, settings, rights and schema, and the pooler before it, if any.

    Fields: revision, database.
    """
    from operations.database import check_database
    from operations.session import opened

    with opened(checked=False) as session:
        found = check_database(session)
    if form is Format.JSON:
        print_json({"revision": found.revision, "database": found.database})
    else:
        write(f"{found.database} is at revision {found.revision}, as this version needs")


@app.command(epilog="Example: orcaflow db schema > schema.sql")
def schema() -> None:
    """Print the whole schema as SQL, to read and compare; `upgrade` is what makes it."""
    from operations.database import schema_text

    say("-- For reading: `orcaflow db upgrade` makes the tables.")
    write(schema_text())


@app.command("reader-sql", epilog="Example: orcaflow db reader-sql --database orcaflow | psql")
def reader_sql(
    database: Annotated[str, typer.Option(help="The database with the tables.")] = "orcaflow",
    schema_name: Annotated[
        str, typer.Option("--schema", help="The schema with the tables.")
    ] = "public",
) -> None:
    """Print the views and rights of the role `orcaflow_reader` as SQL.

    The role reads only these views, which leave out or mask secrets. Run the SQL as the owner of
    the tables; it may be repeated. `db upgrade` does the same if the role exists and the owner may
    create a schema.
    """
    from operations.database import reader_sql as sql_for_reader

    write(sql_for_reader(database=database, schema_name=schema_name))
