"""The subcommands of `orcaflow definition` about shares: `share`, `unshare`, `shares`."""

from __future__ import annotations

from typing import Annotated

import typer

from orcaflow.cli.output import Format, FormatOption, escaped, print_json, print_rows, write

_Name = Annotated[str, typer.Argument(help="Name or id of the definition.")]
_Project = Annotated[
    str, typer.Option("--with", metavar="PROJECT", help="Name or id of the other project.")
]


def add_to(app: typer.Typer) -> None:
    """Add the subcommands to those of definitions."""
    app.command(epilog="Example: orcaflow definition share load --with reports")(share)
    app.command(epilog="Example: orcaflow definition unshare load --with reports")(unshare)
    app.command(epilog="Example: orcaflow definition shares load -o json")(shares)


def share(name: _Name, *, project: _Project, form: FormatOption = Format.TABLE) -> None:
    """Share a definition with another project.

    Definitions of that project may then run it as a sub process and wait for its runs, always in
    the version that is in force when the task starts. Takes the role admin in the definition's
    project.

    Fields: definition, id, project, changed.
    """
    from operations import shares
    from operations.documents.shares import shared_row
    from operations.session import opened

    with opened() as session:
        done = shares.share(session, name, _given(project))
    if form is Format.JSON:
        print_json(shared_row(done))
    else:
        state = "now" if done.changed else "already"
        write(f"{escaped(done.name)} is {state} shared with {escaped(project)}")


def unshare(name: _Name, *, project: _Project, form: FormatOption = Format.TABLE) -> None:
    """End the share of a definition with a project.

    Tasks of that project that refer to the definition fail from then on. Runs that have started
    continue. Takes the role admin in the definition's project.

    Fields: definition, id, project, changed.
    """
    from operations import shares
    from operations.documents.shares import shared_row
    from operations.session import opened

    with opened() as session:
        done = shares.unshare(session, name, _given(project))
    if form is Format.JSON:
        print_json(shared_row(done))
    elif done.changed:
        write(f"{escaped(done.name)} is no longer shared with {escaped(project)}")
    else:
        write(f"{escaped(done.name)} was not shared with {escaped(project)}")


def shares(name: _Name, *, form: FormatOption = Format.TABLE) -> None:
    """List the projects that share a definition.

    Fields: project_id, project (null for one that you may not see), user, create_time.
    """
    from operations import shares
    from operations.documents.shares import SHARE_COLUMNS, share_row
    from operations.session import opened

    with opened() as session:
        found = shares.shares(session, name)
    print_rows(
        [share_row(each) for each in found],
        form=form,
        columns=SHARE_COLUMNS,
        zone=session.zone,
        none="It is shared with no project.",
    )


def _given(project: str) -> str | int:
    return (
        int(project) if project.isascii() and project.isdigit() and len(project) < 10 else project
    )
