"""`orcaflow environment`: variables under a name, which tasks that name it are started with."""

from __future__ import annotations

from typing import Annotated

import typer

from common.model.grants import GrantKind
from orcaflow.cli.granting import ProjectsOption, add_grant_commands, hint_without_grant
from orcaflow.cli.output import (
    Format,
    FormatOption,
    escaped,
    print_fields,
    print_json,
    print_rows,
    write,
)

app = typer.Typer(
    help="Environments: variables that the tasks that name one are started with.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)

_Name = Annotated[str, typer.Argument(help="Name of the environment.")]
_Config = Annotated[
    str | None,
    typer.Option(
        "--config",
        metavar="FILE",
        help="A file of lines export NAME=value; - is standard input.",
    ),
]
_Description = Annotated[str | None, typer.Option("--description", help="What it is for.")]
_Group = Annotated[
    list[str] | None,
    typer.Option(
        "--worker-group", metavar="GROUP", help="A group whose workers have what it names; repeat."
    ),
]


@app.command(name="list", epilog="Example: orcaflow environment list -o json")
def list_(form: FormatOption = Format.TABLE) -> None:
    """List the environments.

    Fields: id, code (by which definitions name it), name, description, worker_groups, config (the
    lines, with a mask in the place of secrets; null for whoever is no administrator), create_time,
    update_time.
    """
    from operations.documents.environments import environment_row
    from operations.environments import list_environments
    from operations.session import opened

    with opened() as session:
        rows = [environment_row(each) for each in list_environments(session)]
    print_rows(
        rows,
        form=form,
        columns=("id", "code", "name", "description", "worker_groups", "update_time"),
        zone=session.zone,
        none="There are no environments; make one: orcaflow environment create NAME --config FILE",
    )


@app.command(epilog="Example: orcaflow environment show java21")
def show(name: _Name, form: FormatOption = Format.TABLE) -> None:
    """Show an environment. Secrets are masked. Fields: as of `list`."""
    from operations.documents.environments import environment_row
    from operations.environments import environment_given
    from operations.session import opened

    with opened() as session:
        row = environment_row(environment_given(session, name))
    if form is Format.JSON:
        print_json(row)
        return
    config = row.pop("config")
    print_fields(row, zone=session.zone)
    for line in str(config or "").splitlines():
        write(f"  {escaped(line)}")


@app.command(
    epilog=(
        "\b\n"
        "Examples:\n"
        "  orcaflow environment create java21 --config java21.env --project default\n"
        "  echo 'export DB_PASSWORD=…' | orcaflow environment create etl --config -\n"
    )
)
def create(
    name: _Name,
    *,
    config: _Config = None,
    description: _Description = None,
    worker_group: _Group = None,
    code: Annotated[
        int | None,
        typer.Option("--code", metavar="N", help="Its code in the system that it comes from."),
    ] = None,
    project: ProjectsOption = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """Make an environment. Exit code 4 if there is one of that name.

    Values of variables whose names sound secret are stored encrypted. Fields: as of `list`.

    A project can use it only by a grant: give --project, or `orcaflow environment grant` later.
    """
    from operations.documents.environments import environment_row
    from operations.environments import create_environment
    from operations.session import opened

    given = _content(config)
    with opened() as session:
        made = create_environment(
            session,
            name,
            config=given or "",
            description=description,
            worker_groups=tuple(worker_group or ()),
            code=code,
            projects=project or (),
        )
    if form is Format.JSON:
        print_json(environment_row(made))
    else:
        write(escaped(f"environment {made.view.name} is made (code {made.view.code})"))
    hint_without_grant(GrantKind.ENVIRONMENT, name, project)


@app.command(
    name="set",
    epilog=(
        "\b\n"
        "Examples:\n"
        "  orcaflow environment set java21 --config java21.env\n"
        "  orcaflow environment set java21 --name java25 --description 'since May'\n"
    ),
)
def set_(
    name: _Name,
    *,
    config: _Config = None,
    new_name: Annotated[str | None, typer.Option("--name", help="Its new name.")] = None,
    description: _Description = None,
    worker_group: _Group = None,
    any_group: Annotated[
        bool, typer.Option("--any-worker-group", help="Name no worker group any more.")
    ] = False,
    form: FormatOption = Format.TABLE,
) -> None:
    """Change an environment. Attempts that begin from now on have its new variables.

    A variable that is given as its mask (******) keeps its value. Fields: as of `list`.
    """
    from operations.documents.environments import environment_row
    from operations.environments import EnvironmentChange, change_environment
    from operations.session import opened

    if any_group and worker_group:
        raise typer.BadParameter("--worker-group and --any-worker-group exclude each other")
    groups = () if any_group else None if worker_group is None else tuple(worker_group)
    change = EnvironmentChange(
        name=new_name, config=_content(config), description=description, worker_groups=groups
    )
    with opened() as session:
        made = change_environment(session, name, change)
    if form is Format.JSON:
        print_json(environment_row(made))
    else:
        write(escaped(f"environment {made.view.name} is changed"))


@app.command(epilog="Example: orcaflow environment delete java21")
def delete(name: _Name, form: FormatOption = Format.TABLE) -> None:
    """Delete an environment that nothing needs.

    Exit code 4, with the command that cures it, while a waiting command, a live run, a schedule, a
    complement that goes on or a task of a definition names it. Fields: name, code, deleted.
    """
    from operations.environments import delete_environment
    from operations.session import opened

    with opened() as session:
        gone = delete_environment(session, name)
    if form is Format.JSON:
        print_json({"name": gone.name, "code": gone.code, "deleted": True})
    else:
        write(escaped(f"environment {gone.name} is deleted"))


def _content(file: str | None) -> str | None:
    """Read the lines: they may hold secrets, and so never stand in an argument."""
    import sys
    from pathlib import Path

    from common.environment_config import MAX_CONFIG_LENGTH

    if file is None:
        return None
    try:
        if file == "-":
            return sys.stdin.read(MAX_CONFIG_LENGTH + 1)
        with Path(file).open(encoding="utf-8") as opened:
            return opened.read(MAX_CONFIG_LENGTH + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text in UTF-8"
        raise typer.BadParameter(
            f"{file!r:.200} can't be read: {reason}", param_hint="--config"
        ) from error


add_grant_commands(app, GrantKind.ENVIRONMENT)
