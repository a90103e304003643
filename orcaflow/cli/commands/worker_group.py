"""`orcaflow worker-group`: names for the workers that certain tasks run on."""

from __future__ import annotations

from typing import Annotated

import typer

from common.model.grants import GrantKind
from operations.texts import counted
from orcaflow.cli.granting import ProjectsOption, add_grant_commands, hint_without_grant
from orcaflow.cli.output import (
    Format,
    FormatOption,
    escaped,
    print_fields,
    print_json,
    print_rows,
    say,
    write,
)

app = typer.Typer(
    help="Groups of workers: a task or a run that names one runs on its workers alone.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)

_Name = Annotated[str, typer.Argument(help="Name of the worker group.")]


@app.command(name="list", epilog="Example: orcaflow worker-group list -o json")
def list_(form: FormatOption = Format.TABLE) -> None:
    """List the worker groups. Without a group, a task runs on any worker: that is `default`.

    Fields: id, name, addresses (hosts), workers (how many living ones serve it; null if
    ZooKeeper does not answer), create_time, members (address, known_by).
    """
    from operations.documents.worker_groups import group_row
    from operations.session import opened
    from operations.worker_groups import list_groups

    with opened() as session:
        rows = [group_row(each) for each in list_groups(session)]
    print_rows(
        rows,
        form=form,
        columns=("id", "name", "workers", "addresses", "create_time"),
        zone=session.zone,
        none="There are no worker groups; a worker makes those that it is started with:"
        " orcaflow server start worker-server --groups NAME",
    )


@app.command(epilog="Example: orcaflow worker-group show etl")
def show(name: _Name, form: FormatOption = Format.TABLE) -> None:
    """Show a worker group with the living workers that serve it.

    A worker serves it by its host's address in the group (known_by address), or since it was
    started with the group (start), as it told then. Fields: as of `list`.
    """
    from operations.documents.worker_groups import group_row
    from operations.session import opened
    from operations.worker_groups import group_given

    with opened() as session:
        row = group_row(group_given(session, name))
    if form is Format.JSON:
        print_json(row)
        return
    members = row.pop("members")
    print_fields(row, zone=session.zone)
    if members is None:
        say("ZooKeeper does not answer, so whether a worker serves it is not known")
    elif not members:
        say(
            "no living worker serves it:"
            f" orcaflow server start worker-server --groups {escaped(name)}"
        )
    else:
        write("")
        print_rows(
            members if isinstance(members, list) else [],
            form=form,
            columns=("address", "known_by"),
        )


@app.command(
    epilog=(
        "\b\n"
        "Examples:\n"
        "  orcaflow worker-group create etl --project default\n"
        "  orcaflow worker-group create big --address 10.0.0.7 --address 10.0.0.8\n"
        "  orcaflow server start worker-server --port 1235 --groups etl\n"
    )
)
def create(
    name: _Name,
    *,
    address: Annotated[
        list[str] | None,
        typer.Option(
            "--address", metavar="HOST", help="A host all workers of which serve it; repeat."
        ),
    ] = None,
    project: ProjectsOption = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """Make a worker group. Exit code 4 if there is one of that name.

    Without addresses it is served by the workers that are started with it. Fields: id, name,
    addresses.

    A project can use it only by a grant: give --project, or `orcaflow worker-group grant` later.
    """
    from operations.session import opened
    from operations.worker_groups import create_group

    with opened() as session:
        made = create_group(session, name, addresses=address or (), projects=project or ())
    if form is Format.JSON:
        print_json({"id": made.id, "name": made.name, "addresses": list(made.addresses)})
    else:
        write(escaped(f"worker group {made.name} is made (id {made.id})"))
    hint_without_grant(GrantKind.WORKER_GROUP, name, project)


@app.command(epilog="Example: orcaflow worker-group delete etl")
def delete(name: _Name, form: FormatOption = Format.TABLE) -> None:
    """Delete a worker group that nothing needs.

    Exit code 4, with the command that cures it, while a live run, a waiting command, a schedule, a
    complement that goes on or a task of a definition names it. Ended runs that named it have the
    default group then. Workers that serve it go on, and make it again at their next start. Fields:
    name, deleted, instances (how many ended runs named it).
    """
    from operations.session import opened
    from operations.worker_groups import delete_group

    with opened() as session:
        detached = delete_group(session, name)
    if form is Format.JSON:
        print_json({"name": name, "deleted": True, "instances": detached})
    else:
        write(escaped(f"worker group {name} is deleted"))
        if detached:
            say(f"{counted(detached, 'ended run')} named it")


add_grant_commands(app, GrantKind.WORKER_GROUP)
