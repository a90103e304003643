"""`orcaflow datasource`: the databases that SQL and PROCEDURE tasks connect to."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from orcaflow.cli.output import Format, FormatOption, print_json, print_rows, write

if TYPE_CHECKING:
    from common.store.connect import Connection
    from common.store.people.views import DatasourceView

app = typer.Typer(
    help="Databases that SQL and PROCEDURE tasks connect to.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

_MAX_NAME_LENGTH = 64
_MAX_PASSWORD_LENGTH = 10_000

_Name = Annotated[str, typer.Argument(help="Name of the data source.")]


class Type(StrEnum):
    """What kind of database it is."""

    MYSQL = "mysql"
    POSTGRESQL = "postgresql"
    HIVE = "hive"
    SPARK = "spark"
    CLICKHOUSE = "clickhouse"
    ORACLE = "oracle"
    SQLSERVER = "sqlserver"
    DB2 = "db2"


@app.command(
    epilog=(
        "\b\n"
        "Examples:\n"
        "  orcaflow datasource create dw --address db.local:5432 --database dw --user etl \\\n"
        "      --password-stdin < password.txt\n"
        "  orcaflow datasource create local --url sqlite:////srv/local.db\n"
        "  orcaflow datasource create shop --url mysql+pymysql://etl@db/shop --password-env PW\n"
    )
)
def create(
    name: _Name,
    *,
    url: Annotated[
        str | None, typer.Option("--url", help="An SQLAlchemy URL, without a password.")
    ] = None,
    address: Annotated[
        str | None,
        typer.Option("--address", metavar="HOST:PORT", help="PostgreSQL, instead of --url."),
    ] = None,
    database: Annotated[str | None, typer.Option("--database", help="With --address.")] = None,
    user: Annotated[str | None, typer.Option("--user", help="With --address.")] = None,
    other: Annotated[
        list[str] | None,
        typer.Option("--other", metavar="KEY=VALUE", help="As sslmode=require; repeat."),
    ] = None,
    type_: Annotated[
        Type | None, typer.Option("--type", help="Needed only if the URL does not tell it.")
    ] = None,
    password_stdin: Annotated[
        bool, typer.Option("--password-stdin", help="Read the password from standard input.")
    ] = False,
    password_env: Annotated[
        str | None,
        typer.Option("--password-env", metavar="VARIABLE", help="Take it from the environment."),
    ] = None,
    note: Annotated[str | None, typer.Option("--note", help="What it is for.")] = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="Change the one that has this name.")
    ] = False,
    form: FormatOption = Format.TABLE,
) -> None:
    """Make a data source. Passwords are never given on a command line, and never printed.

    Exit code 4 if there is one of that name, unless --replace. Fields: those of `list`.
    """
    from common.clock import SystemClock
    from common.errors import NotAllowedError
    from common.store.people.datasources import save_datasource
    from operations.datasources import (
        POSTGRESQL,
        TYPES,
        DatasourceError,
        postgresql_params,
        url_params,
    )
    from operations.session import opened

    _check_name(name)
    if (url is None) == (address is None):
        raise typer.BadParameter("give either --url or --address")
    password = _password(from_stdin=password_stdin, variable=password_env)
    try:
        if url is not None:
            if database or user or other:
                raise typer.BadParameter("--database, --user and --other go with --address")
            kind, params = url_params(url, password=password)
        else:
            if type_ not in (None, Type.POSTGRESQL):
                raise typer.BadParameter(f"--address is for PostgreSQL; give {type_} by --url")
            if not database or not user:
                raise typer.BadParameter("--address needs --database and --user")
            kind = POSTGRESQL
            params = postgresql_params(
                address=address or "",
                database=database,
                user=user,
                password=password,
                other=_pairs(other or []),
            )
    except DatasourceError as error:
        raise typer.BadParameter(str(error)) from error
    if type_ is not None:
        kind = TYPES[type_.value]
    with opened() as session, session.engine.begin() as db:
        saved = save_datasource(
            db,
            name=name,
            type_=kind,
            connection_params=params,
            note=note,
            replace=replace,
            at=SystemClock().now(),
        )
        if saved is None:
            raise NotAllowedError(
                f"there is a data source {name!r} already; --replace brings it to this"
            )
        found = _found(db, name)
    if form is Format.JSON:
        print_json(_row(found))
    else:
        write(f"data source {name} {'is made' if saved[1] else 'is changed'} (id {saved[0]})")


@app.command(name="list", epilog="Example: orcaflow datasource list -o json")
def list_(form: FormatOption = Format.TABLE) -> None:
    """List data sources. Fields: id, name, type, kind, address, database, user, has_password, note,
    create_time, update_time.
    """
    from common.store.people.views import datasources
    from operations.session import opened

    with opened() as session, session.engine.connect() as db:
        found = datasources(db)
    print_rows(
        [_row(each) for each in found],
        form=form,
        columns=("id", "name", "kind", "address", "database", "user", "note"),
        zone=session.zone,
        none="There are no data sources; make one: orcaflow datasource create",
    )


@app.command(epilog="Example: orcaflow datasource remove dw")
def remove(name: _Name, form: FormatOption = Format.TABLE) -> None:
    """Remove a data source; exit code 4 if a definition names it. Fields: name, id, removed."""
    from common.errors import NotAllowedError
    from common.store.people.datasources import remove_datasource
    from common.store.people.definitions import definitions
    from operations.session import opened

    with opened() as session, session.engine.begin() as db:
        found = _found(db, name)
        users = [
            each.name
            for each in definitions(db)
            if _refers(each.process_definition_json, found.id, name)
        ]
        if users:
            raise NotAllowedError(
                f"data source {name!r} is used by {', '.join(map(repr, users[:10]))}"
                + (f" and {len(users) - 10} more" if len(users) > 10 else "")
            )
        remove_datasource(db, found.id)
    if form is Format.JSON:
        print_json({"name": name, "id": found.id, "removed": True})
    else:
        write(f"data source {name} is removed")


@app.command(name="test", epilog="Example: orcaflow datasource test dw")
def try_(name: _Name, form: FormatOption = Format.TABLE) -> None:
    """Connect to a data source from this computer and ask for one row; exit code 5 if that fails.

    Workers connect from their own computers, which may see more or less of the network. Fields:
    name, id, server, milliseconds.
    """
    from pathlib import Path

    from common.clock import SystemClock
    from common.errors import ServiceUnreachableError
    from common.store.people.datasources import try_database
    from operations.datasources import connection_url
    from operations.session import opened

    with opened() as session, session.engine.connect() as db:
        found = _found(db, name)
    url = connection_url(found.type, found.connection_params)
    scheme, _, path = url.partition(":///")
    if scheme.startswith("sqlite") and path and not path.startswith(":memory:"):
        name_of_file, mark, options = path.partition("?")
        # As the worker does: a relative one is looked for among what tasks share.
        config = session.config
        file = Path(config.worker.data_dir or config.home / "data", name_of_file)
        # SQLite makes a file that is not there, and would find nothing wrong with it.
        if not file.is_file():
            raise ServiceUnreachableError(f"there is no file {str(file)!r:.300} on this computer")
        url = f"{scheme}:///{file}{mark}{options}"
    clock = SystemClock()
    begun = clock.monotonic()
    server = try_database(url)
    passed = round((clock.monotonic() - begun) * 1000)
    if form is Format.JSON:
        print_json({"name": name, "id": found.id, "server": server, "milliseconds": passed})
    else:
        write(f"data source {name} answers: {server}, after {passed} ms")


def _password(*, from_stdin: bool, variable: str | None) -> str | None:
    import os
    import sys

    if from_stdin and variable is not None:
        raise typer.BadParameter("--password-stdin and --password-env exclude each other")
    if from_stdin:
        given = sys.stdin.read(_MAX_PASSWORD_LENGTH + 1)
        # The line feed of `echo` and of editors is no part of it.
        given = given.removesuffix("\n").removesuffix("\r")
        hint = "--password-stdin"
    elif variable is not None:
        if variable not in os.environ:
            raise typer.BadParameter(
                f"there is no variable {variable!r:.80} in the environment",
                param_hint="--password-env",
            )
        given = os.environ[variable]
        hint = "--password-env"
    else:
        return None
    if not given or len(given) > _MAX_PASSWORD_LENGTH or "\0" in given:
        raise typer.BadParameter("the password is empty, too long or has a NUL", param_hint=hint)
    return given


def _pairs(given: list[str]) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for pair in given:
        key, equals, value = pair.partition("=")
        if not equals or not key.strip():
            raise typer.BadParameter(f"{pair!r:.100} is not KEY=VALUE", param_hint="--other")
        pairs[key.strip()] = value
    return pairs


def _check_name(name: str) -> None:
    if not name.strip() or name != name.strip() or not name.isprintable():
        raise typer.BadParameter(
            "a name is printable text that neither begins nor ends with white space",
            param_hint="NAME",
        )
    if len(name) > _MAX_NAME_LENGTH:
        raise typer.BadParameter(
            f"has {len(name)} characters; at most {_MAX_NAME_LENGTH} are allowed", param_hint="NAME"
        )


def _found(db: Connection, name: str) -> DatasourceView:
    import difflib

    from common.errors import NotAllowedError, NotFoundError
    from common.store.people.views import datasources

    found = datasources(db, name=name) if "\0" not in name else []
    if len(found) == 1:
        return found[0]
    if found:
        ids = ", ".join(str(each.id) for each in found)
        raise NotAllowedError(f"{name!r:.100} is ambiguous: data sources {ids}")
    near = difflib.get_close_matches(name, [each.name for each in datasources(db)], n=1)
    perhaps = f"; did you mean {near[0]!r}?" if near else "; see `orcaflow datasource list`"
    raise NotFoundError(f"there is no data source {name!r:.100}{perhaps}")


def _refers(text: str | None, datasource_id: int, name: str) -> bool:
    import json

    from operations.references import wanted

    try:
        document = json.loads(text or "{}")
    except (ValueError, RecursionError):
        return False
    if not isinstance(document, dict):
        return False
    found = wanted(document)
    return datasource_id in found.datasource_ids or name in found.datasource_names


def _row(found: DatasourceView) -> dict[str, object]:
    from operations.datasources import TYPES, shown

    names = {code: name for name, code in TYPES.items()}
    return {
        "id": found.id,
        "name": found.name,
        "type": names.get(found.type, str(found.type)).upper(),
        **shown(found.connection_params),
        "note": found.note,
        "create_time": found.create_time,
        "update_time": found.update_time,
    }
