"""The commands `grant`, `revoke` and `grants` for each kind of object with grants."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from common.model.grants import GrantKind
from orcaflow.cli.output import Format, FormatOption, escaped, print_json, print_rows, say, write

if TYPE_CHECKING:
    from collections.abc import Sequence

ProjectsOption: TypeAlias = Annotated[
    list[str] | None,
    typer.Option("--project", metavar="PROJECT", help="Grant it to this project; repeat."),
]
_Project: TypeAlias = Annotated[
    str, typer.Option("--project", metavar="PROJECT", help="Name or id of the project.")
]
_Name: TypeAlias = Annotated[str, typer.Argument(metavar="NAME", help="Name or id.")]
COLUMNS = ("kind", "id", "name", "projects")


def hint_without_grant(kind: GrantKind, name: str, projects: Sequence[str] | None) -> None:
    """Print that no project can use a new object yet, and the command that grants it."""
    if not projects:
        say(
            f"no project can use this {kind.title} yet:"
            f" orcaflow {kind.word} grant {escaped(name)} --project PROJECT"
        )


def add_grant_commands(app: typer.Typer, kind: GrantKind) -> None:
    """Add the three commands to the group of a kind."""

    def grant(
        name: _Name,
        *,
        project: _Project,
        form: FormatOption = Format.TABLE,
    ) -> None:
        from operations.documents.grants import grants_row
        from operations.grants import grant
        from operations.session import opened

        with opened() as session:
            row = grants_row(grant(session, kind, name, project))
        if form is Format.JSON:
            print_json(row)
        else:
            write(escaped(f"project {project} can use {kind.title} {row['name']}"))

    def revoke(
        name: _Name,
        *,
        project: _Project,
        form: FormatOption = Format.TABLE,
    ) -> None:
        from operations.documents.grants import grants_row
        from operations.grants import revoke
        from operations.session import opened

        with opened() as session:
            row = grants_row(revoke(session, kind, name, project))
        if form is Format.JSON:
            print_json(row)
        else:
            write(escaped(f"project {project} can no longer use {kind.title} {row['name']}"))

    def grants(
        name: Annotated[
            str | None, typer.Argument(metavar="[NAME]", help="Name or id; without it, all.")
        ] = None,
        form: FormatOption = Format.TABLE,
    ) -> None:
        show_grants(kind, name, form)

    fields = "Fields: kind, id, name, projects (id, name)."
    title, word = kind.title, kind.word
    grant.__doc__ = f"Grant a {title} to a project. Its tasks can then name it.\n\n{fields}"
    revoke.__doc__ = (
        f"Revoke the grant of a {title}. Exit code 4 if it does not exist.\n\nAttempts that have"
        f" not started then fail; running attempts continue. {fields}"
    )
    grants.__doc__ = f"List each {title} with the projects that can use it.\n\n{fields}"
    app.command(epilog=f"Example: orcaflow {word} grant etl --project sales")(grant)
    app.command(epilog=f"Example: orcaflow {word} revoke etl --project sales")(revoke)
    app.command(epilog=f"Example: orcaflow {word} grants -o json")(grants)


def show_grants(kind: GrantKind | None, name: str | None, form: Format) -> None:
    """Print objects with the projects that can use them."""
    from operations.documents.grants import grants_row
    from operations.grants import list_grants
    from operations.session import opened

    with opened() as session:
        rows = [grants_row(each) for each in list_grants(session, kind, name)]
    if form is Format.JSON:
        print_json(rows)
        return
    print_rows(
        [{**row, "projects": _names(row)} for row in rows],
        form=form,
        columns=COLUMNS,
        none="There are no such objects.",
    )


def _names(row: dict[str, object]) -> str:
    projects = row["projects"]
    names = [str(each["name"]) for each in projects] if isinstance(projects, list) else []
    return ", ".join(names) or "none"
