"""`orcaflow definition|dataset share`, `unshare` and `shares`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from common.model.reach import ShareKind
from orcaflow.cli.output import Format, FormatOption, escaped, print_json, print_rows, write

if TYPE_CHECKING:
    from operations.shares import Shared

_Name = Annotated[str, typer.Argument(help="Name or id of the definition.")]
_Dataset = Annotated[str, typer.Argument(help="The dataset.")]
_Project = Annotated[
    str, typer.Option("--with", metavar="PROJECT", help="Name or id of the other project.")
]


def add_to_definitions(app: typer.Typer) -> None:
    """Add the subcommands of `orcaflow definition`."""
    app.command(epilog="Example: orcaflow definition share load --with reports")(share)
    app.command(epilog="Example: orcaflow definition unshare load --with reports")(unshare)
    app.command(epilog="Example: orcaflow definition shares load -o json")(shares)


def add_to_datasets(app: typer.Typer) -> None:
    """Add the subcommands of `orcaflow dataset`."""
    app.command("share", epilog="Example: orcaflow dataset share flights --with reports")(
        share_dataset
    )
    app.command("unshare", epilog="Example: orcaflow dataset unshare flights --with reports")(
        unshare_dataset
    )
    app.command("shares", epilog="Example: orcaflow dataset shares flights -o json")(
        shares_of_dataset
    )


def share(name: _Name, *, project: _Project, form: FormatOption = Format.TABLE) -> None:
    """Share a definition with another project.

    Definitions of that project may then run it as a sub process and wait for its runs, always in
    the version that is in force when the task starts. Takes the role admin in the definition's
    project.

    Fields: definition, id, project, changed.
    """
    _share(ShareKind.DEFINITION, name, project, form)


def unshare(name: _Name, *, project: _Project, form: FormatOption = Format.TABLE) -> None:
    """End the share of a definition with a project.

    Tasks of that project that refer to the definition fail from then on. Runs that have started
    continue. Takes the role admin in the definition's project.

    Fields: definition, id, project, changed.
    """
    _unshare(ShareKind.DEFINITION, name, project, form)


def shares(name: _Name, *, form: FormatOption = Format.TABLE) -> None:
    """List the projects that share a definition.

    Fields: project_id, project (null if you may not see it), user, create_time.
    """
    _list(ShareKind.DEFINITION, name, form)


def share_dataset(name: _Dataset, *, project: _Project, form: FormatOption = Format.TABLE) -> None:
    """Share a dataset with another project.

    Tasks of that project may then read it, lock it, wait for it and publish into it. Takes the role
    admin in the dataset's project.

    Fields: dataset, project, changed.
    """
    _share(ShareKind.DATASET, name, project, form)


def unshare_dataset(
    name: _Dataset, *, project: _Project, form: FormatOption = Format.TABLE
) -> None:
    """End the share of a dataset with a project.

    The next read of a task there finds no segments, and its next lock or publication is refused,
    even if it holds a lock. Takes the role admin in the dataset's project.

    Fields: dataset, project, changed.
    """
    _unshare(ShareKind.DATASET, name, project, form)


def shares_of_dataset(name: _Dataset, *, form: FormatOption = Format.TABLE) -> None:
    """List the projects that share a dataset.

    Fields: project_id, project (null if you may not see it), user, create_time.
    """
    _list(ShareKind.DATASET, name, form)


def _share(kind: ShareKind, name: str, project: str, form: Format) -> None:
    from operations import shares
    from operations.session import opened

    with opened() as session:
        done = shares.share(session, name, _given(project), kind=kind)
    state = "now" if done.changed else "already"
    _print(done, f"is {state} shared with {project}", form)


def _unshare(kind: ShareKind, name: str, project: str, form: Format) -> None:
    from operations import shares
    from operations.session import opened

    with opened() as session:
        done = shares.unshare(session, name, _given(project), kind=kind)
    state = "is no longer" if done.changed else "was not"
    _print(done, f"{state} shared with {project}", form)


def _print(done: Shared, sentence: str, form: Format) -> None:
    from operations.documents.shares import shared_row

    if form is Format.JSON:
        print_json(shared_row(done))
    else:
        write(f"{escaped(done.name)} {escaped(sentence)}")


def _list(kind: ShareKind, name: str, form: Format) -> None:
    from operations import shares
    from operations.documents.shares import SHARE_COLUMNS, share_row
    from operations.session import opened

    with opened() as session:
        found = shares.shares(session, name, kind=kind)
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
