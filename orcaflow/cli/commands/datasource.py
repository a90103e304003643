"""`orcaflow datasource`: the databases that SQL and PROCEDURE tasks connect to."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from common.model.grants import GrantKind
from orcaflow.cli.granting import ProjectsOption, add_grant_commands, hint_without_grant
from orcaflow.cli.output import Format, FormatOption, print_json, print_rows, say, write

app = typer.Typer(
    help="Databases that SQL and PROCEDURE tasks connect to.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)

_Name = Annotated[str, typer.Argument(help="Name of the data source.")]


class Type(StrEnum):
    """The kinds of databases that the table has codes for."""

    MYSQL = "mysql"
    POSTGRESQL = "postgresql"
    HIVE = "hive"
    SPARK = "spark"
    CLICKHOUSE = "clickhouse"
    ORACLE = "oracle"
    SQLSERVER = "sqlserver"
    DB2 = "db2"
    KAFKA = "kafka"


@app.command(
    epilog=(
        "\b\n"
        "Examples:\n"
        "  orcaflow datasource create own --project default\n"
        "  orcaflow datasource create dw --address db.local:5432 --database dw --user etl \\\n"
        "      --password-stdin < password.txt\n"
        "  orcaflow datasource create local --url sqlite:///local.db\n"
        "  orcaflow datasource create events --type kafka --properties kafka.json\n"
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
    properties: Annotated[
        str | None,
        typer.Option(
            "--properties", metavar="FILE", help="JSON of a Kafka connection; - is stdin."
        ),
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
    project: ProjectsOption = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """Make a data source. Passwords are never given on a command line, and never printed.

    Without --url and --address it is the cluster's own database, if that is the embedded one, and a
    role that reads and can't write. Give it with --replace to repair the role's password.

    A project can use it only by a grant: give --project, or `orcaflow datasource grant` later.

    With --type kafka it is a connection for supervisors. --properties then names a JSON file with
    all properties of the Kafka clients, including the log-in and the password.

    Exit code 4 if there is one of that name, unless --replace. Fields: those of `list`.
    """
    from operations.datasource_params import TYPES
    from operations.datasources import (
        KafkaConnection,
        PostgresAddress,
        Target,
        create_datasource,
        create_own_datasource,
    )
    from operations.documents.datasources import datasource_row
    from operations.limits import MAX_DATASOURCE_NAME_LENGTH, check_name
    from operations.session import opened

    # Before a password is read from standard input.
    check_name(name, longest=MAX_DATASOURCE_NAME_LENGTH)
    if url is not None and address is not None:
        raise typer.BadParameter("give either --url or --address")
    is_kafka = type_ is Type.KAFKA
    if is_kafka != (properties is not None):
        raise typer.BadParameter("--type kafka and --properties need each other")
    if is_kafka and (url or address or database or user or other or password_stdin or password_env):
        raise typer.BadParameter("--properties of Kafka have all of it, log-in and password too")
    is_own = url is None and address is None and not is_kafka
    if is_own and (password_stdin or password_env or database or user or other or type_):
        raise typer.BadParameter("give either --url or --address; the own database needs neither")
    password = _password(from_stdin=password_stdin, variable=password_env)
    target: Target | None = None
    if properties is not None:
        target = KafkaConnection(properties=_kafka_properties(properties))
    if url is not None:
        if database or user or other:
            raise typer.BadParameter("--database, --user and --other go with --address")
        target = url
    elif address is not None:
        if type_ not in (None, Type.POSTGRESQL):
            raise typer.BadParameter(f"--address is for PostgreSQL; give {type_} by --url")
        if not database or not user:
            raise typer.BadParameter("--address needs --database and --user")
        target = PostgresAddress(
            address=address, database=database, user=user, other=_pairs(other or [])
        )
    with opened() as session:
        if target is None:
            saved = create_own_datasource(
                session, name, note=note, replace=replace, projects=project or ()
            )
        else:
            saved = create_datasource(
                session,
                name,
                target,
                password=password,
                type_=None if type_ is None else TYPES[type_.value],
                note=note,
                replace=replace,
                projects=project or (),
            )
    if form is Format.JSON:
        print_json(datasource_row(saved.view))
    else:
        done = "is made" if saved.is_new else "is changed"
        write(f"data source {name} {done} (id {saved.view.id})")
    if saved.is_new:
        hint_without_grant(GrantKind.DATASOURCE, name, project)


@app.command(name="list", epilog="Example: orcaflow datasource list -o json")
def list_(form: FormatOption = Format.TABLE) -> None:
    """List data sources. Fields: id, name, type, kind, address, database, user, has_password, note,
    problem (the reason for which tasks can't use it), create_time, update_time.
    """
    from operations.datasources import list_datasources
    from operations.documents.datasources import datasource_row
    from operations.session import opened

    with opened() as session:
        found = list_datasources(session)
    rows = [datasource_row(each) for each in found]
    columns = ("id", "name", "kind", "address", "database", "user", "note")
    print_rows(
        rows,
        form=form,
        columns=(*columns, "problem") if any(row["problem"] for row in rows) else columns,
        zone=session.zone,
        none="There are no data sources; make one: orcaflow datasource create",
    )


@app.command(
    epilog=(
        "\b\nExamples:\n  orcaflow datasource encrypt\n  orcaflow datasource encrypt --new-key\n"
    )
)
def encrypt(
    *,
    new_key: Annotated[
        bool, typer.Option("--new-key", help="Make a key, and encrypt all passwords by it.")
    ] = False,
    form: FormatOption = Format.TABLE,
) -> None:
    """Encrypt the passwords of all data sources, as of rows that were typed by hand.

    The key file ($ORCAFLOW_HOME/datasource.key, or datasource_key_file) is made if it is needed.
    Every host with a worker needs a copy of it, after --new-key a new one. Fields: name, id,
    changed.
    """
    from operations.datasources import encrypt_datasources
    from operations.session import opened
    from operations.texts import counted

    with opened() as session:
        done = encrypt_datasources(session, new_key=new_key)
    if form is Format.JSON:
        print_json(
            [{"name": each.view.name, "id": each.view.id, "changed": each.changed} for each in done]
        )
        return
    changed = sum(each.changed for each in done)
    write(f"{counted(len(done), 'data source')}: {changed} changed")
    if new_key:
        say("Copy the key file to every host with a worker now; its older keys still decrypt.")


@app.command(epilog="Example: orcaflow datasource remove dw")
def remove(name: _Name, form: FormatOption = Format.TABLE) -> None:
    """Remove a data source; exit code 4 if a definition names it. Fields: name, id, removed."""
    from operations.datasources import remove_datasource
    from operations.session import opened

    with opened() as session:
        found = remove_datasource(session, name)
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
    from operations.datasources import try_datasource
    from operations.session import opened

    with opened() as session:
        answer = try_datasource(session, name)
    if form is Format.JSON:
        print_json(
            {
                "name": name,
                "id": answer.view.id,
                "server": answer.server,
                "milliseconds": answer.milliseconds,
            }
        )
    else:
        write(f"data source {name} answers: {answer.server}, after {answer.milliseconds} ms")


def _password(*, from_stdin: bool, variable: str | None) -> str | None:
    import os
    import sys

    from operations.limits import MAX_PASSWORD_LENGTH, check_password

    if from_stdin and variable is not None:
        raise typer.BadParameter("--password-stdin and --password-env exclude each other")
    if from_stdin:
        given = sys.stdin.read(MAX_PASSWORD_LENGTH + 1)
        # The line feed of `echo` and of editors is no part of it.
        given = given.removesuffix("\n").removesuffix("\r")
        field = "password_stdin"
    elif variable is not None:
        if variable not in os.environ:
            raise typer.BadParameter(
                f"there is no variable {variable!r:.80} in the environment",
                param_hint="--password-env",
            )
        given = os.environ[variable]
        field = "password_env"
    else:
        return None
    check_password(given, field)
    return given


def _kafka_properties(file: str) -> dict[str, str]:
    import json
    import sys
    from pathlib import Path

    try:
        text = sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
        found = json.loads(text)
    except (OSError, ValueError, RecursionError):
        # Not chained: the decoder's error holds the text with the password.
        found = None
    if not isinstance(found, dict):
        raise typer.BadParameter("must be a file with a JSON object", param_hint="--properties")
    return {
        name: value if isinstance(value, str) else json.dumps(value)
        for name, value in found.items()
    }


def _pairs(given: list[str]) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for pair in given:
        key, equals, value = pair.partition("=")
        if not equals or not key.strip():
            raise typer.BadParameter(f"{pair!r:.100} is not KEY=VALUE", param_hint="--other")
        pairs[key.strip()] = value
    return pairs


add_grant_commands(app, GrantKind.DATASOURCE)
