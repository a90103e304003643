"""`orcaflow context`: the api-servers that commands are sent to."""

from __future__ import annotations

from typing import Annotated

import typer

from orcaflow.cli.output import Format, FormatOption, escaped, print_rows, write

app = typer.Typer(
    help="Name api-servers, and choose the one that commands are sent to.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)

COLUMNS = ("name", "current", "url", "project", "token_file")

_Project = Annotated[
    str | None,
    typer.Option("--project", metavar="NAME", help="Project of its commands; '' removes it."),
]
_Name = Annotated[str, typer.Argument(help="Name of the context.")]


@app.command(
    epilog=(
        "Example: orcaflow context add team --server https://orcaflow.example.org --token-file"
        " ~/.orcaflow/team.token"
    )
)
def add(
    name: _Name,
    *,
    server: Annotated[str, typer.Option("--server", metavar="URL", help="Its address.")],
    token_file: Annotated[
        str,
        typer.Option("--token-file", metavar="FILE", help="Holds its token; yours alone (0600)."),
    ],
    ca_file: Annotated[
        str | None,
        typer.Option(
            "--ca-file", metavar="FILE", help="Certificates to check the server's by, in PEM."
        ),
    ] = None,
    project: _Project = None,
) -> None:
    """Add a context, or change the one of this name. The token stays in its file.

    The server is not asked. Exit code 78 if others may read the file.
    """
    from pathlib import Path

    from orcaflow.remote.client import Client
    from orcaflow.remote.contexts import Server, add_context

    wanted = Server(
        url=server,
        token_file=str(Path(token_file).expanduser().absolute()),
        ca_file=str(Path(ca_file).expanduser().absolute()) if ca_file else "",
    )
    Client(wanted)  # Refuses what no command could use.
    add_context(name, wanted, project=project)
    write(escaped(f"context {name} is there; take it: orcaflow context use {name}"))


@app.command(epilog="Example: orcaflow context use team --project sales")
def use(name: _Name, *, project: _Project = None) -> None:
    """Send commands to this server from now on; `local` sends them to the database again.

    With --project, the commands of this context name and list only objects of that project. A
    command's own --project and the variable ORCAFLOW_PROJECT take precedence. Without --project,
    the context keeps its project.
    """
    from orcaflow.remote.contexts import LOCAL, use_context

    use_context(name, project=project)
    where = "the database of the settings" if name == LOCAL else f"the server of context {name}"
    write(escaped(f"commands go to {where} from now on"))


@app.command(name="list", epilog="Example: orcaflow context list -o json")
def list_(form: FormatOption = Format.TABLE) -> None:
    """List the contexts. Fields: name, current, url, project, token_file."""
    from orcaflow.remote.contexts import LOCAL, read_contexts

    known = read_contexts()
    rows: list[dict[str, object]] = [
        {
            "name": name,
            "current": name == known.current,
            "url": each.url,
            "project": known.projects.get(name),
            "token_file": each.token_file,
        }
        for name, each in known.servers.items()
    ]
    if LOCAL in known.projects:
        rows.append(
            {
                "name": LOCAL,
                "current": known.current is None,
                "url": None,
                "project": known.projects[LOCAL],
                "token_file": None,
            }
        )
    print_rows(
        rows,
        form=form,
        columns=COLUMNS,
        none="There are no contexts: commands go to the database of the settings.",
    )


@app.command(epilog="Example: orcaflow context remove team")
def remove(name: _Name) -> None:
    """Remove a context; its token's file stays. If it was in use, the database is then."""
    from orcaflow.remote.contexts import remove_context

    remove_context(name)
    write(escaped(f"context {name} is removed"))
