"""`orcaflow project`: the projects that definitions and roles belong to."""

from __future__ import annotations

from typing import Annotated

import typer

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
    help="Projects: definitions of a team, and who may do what with them.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)

COLUMNS = ("id", "name", "role", "definitions", "live_instances", "owner", "description")
_Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the project.")]
_Description = Annotated[str | None, typer.Option("--description", help="What it is for.")]


@app.command(epilog="Example: orcaflow project create sales --description 'nightly figures'")
def create(
    name: _Name, *, description: _Description = None, form: FormatOption = Format.TABLE
) -> None:
    """Make a project, in which nobody but administrators has a role before `user grant` gives one.

    Exit code 4 if there is one of that name. Fields: those of `list`.
    """
    from operations.documents.projects import project_row
    from operations.projects import create_project
    from operations.session import opened

    with opened() as session:
        made = create_project(session, name, description=description)
    if form is Format.JSON:
        print_json(project_row(made))
    else:
        write(escaped(f"project {made.name} is made (id {made.id})"))


@app.command(name="list", epilog="Example: orcaflow project list -o json")
def list_(form: FormatOption = Format.TABLE) -> None:
    """List the projects that you may see.

    Fields: id, code (its name in DolphinScheduler's API), name, description, owner, role (yours),
    definitions, live_instances (numbers of them), review_since (null: it asks for no review),
    create_time, update_time.
    """
    from operations.documents.projects import project_row
    from operations.projects import project_page
    from operations.session import opened

    with opened() as session:
        rows = [project_row(each) for each in project_page(session)]
    print_rows(
        rows, form=form, columns=COLUMNS, zone=session.zone, none="There are no projects for you."
    )


@app.command(epilog="Example: orcaflow project show default")
def show(name: _Name, form: FormatOption = Format.TABLE) -> None:
    """Show a project with the users who have a role in it; administrators need none.

    Fields: those of `list`, and members (user_id, user, enabled, role, perm).
    """
    from operations.documents.projects import project_member_row, project_row
    from operations.projects import project_detail
    from operations.session import opened

    with opened() as session:
        found = project_detail(session, name)
    members = [project_member_row(each) for each in found.members]
    if form is Format.JSON:
        print_json({**project_row(found.view), "members": members})
        return
    print_fields(project_row(found.view), zone=session.zone)
    if members:
        write("")
        print_rows(members, form=form, columns=("user", "role", "enabled"))


@app.command(
    epilog=(
        "\b\n"
        "Examples:\n"
        "  orcaflow project edit sales --name revenue\n"
        "  orcaflow project edit sales --description 'monthly figures'\n"
        "  orcaflow project edit sales --review\n"
    )
)
def edit(
    name: _Name,
    *,
    new_name: Annotated[str | None, typer.Option("--name", help="Its name from now on.")] = None,
    description: _Description = None,
    review: Annotated[
        bool | None,
        typer.Option(
            "--review/--no-review",
            help="If definitions change by proposals alone, which somebody else approves.",
        ),
    ] = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """Give a project another name or description, or a review. Fields: those of `list`."""
    from common.clock import SystemClock
    from operations.documents.projects import project_row
    from operations.projects import edit_project
    from operations.session import opened

    if new_name is None and description is None and review is None:
        raise typer.BadParameter(
            "nothing is to be changed: give --name, --description, --review or --no-review"
        )
    with opened() as session:
        found = edit_project(
            session,
            name,
            name=new_name,
            description=description,
            review=review,
            at=SystemClock().now(),
        )
    if form is Format.JSON:
        print_json(project_row(found))
    else:
        write(escaped(f"project {found.name} is changed"))


@app.command(epilog="Example: orcaflow project delete sales")
def delete(name: _Name, form: FormatOption = Format.TABLE) -> None:
    """Delete a project without definitions, with the roles in it. Exit code 4 if it has any.

    Fields: id, name, deleted.
    """
    from operations.projects import delete_project
    from operations.session import opened

    with opened() as session:
        gone = delete_project(session, name)
    if form is Format.JSON:
        print_json({"id": gone.id, "name": gone.name, "deleted": True})
    else:
        write(escaped(f"project {gone.name} is deleted"))
