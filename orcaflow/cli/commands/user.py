"""`orcaflow user`: the people who use the HTTP API, and their roles in projects."""

from __future__ import annotations

import sys
from enum import StrEnum
from typing import Annotated

import typer

from orcaflow.cli.output import Format, FormatOption, escaped, print_json, print_rows, write

app = typer.Typer(
    help="Users of the HTTP API: made, listed, disabled, and given roles in projects.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)

COLUMNS = ("id", "name", "admin", "enabled", "password", "projects", "create_time")
_Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the user.")]
_PasswordOption = Annotated[
    bool,
    typer.Option("--password-stdin", help="Read a password from standard input, one line."),
]


class RoleChoice(StrEnum):
    """A role in a project; each does what those before it do, and more."""

    VIEWER = "viewer"
    OPERATOR = "operator"
    AUTHOR = "author"
    ADMIN = "admin"
    NONE = "none"


@app.command(
    epilog=(
        "\b\n"
        "Examples:\n"
        "  orcaflow user create ada\n"
        '  printf %s "$PASSWORD" | orcaflow user create ada --admin --password-stdin\n'
    )
)
def create(
    name: _Name,
    *,
    admin: Annotated[bool, typer.Option("--admin", help="May do everything everywhere.")] = False,
    password_stdin: _PasswordOption = False,
    tenant: Annotated[
        str | None,
        typer.Option("--tenant", metavar="CODE", help="Tenant of runs; else that of the daemons."),
    ] = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """Make a user, who has no right before `grant` gives one. Exit code 4 if there is one.

    Without a password the user can use tokens alone (`orcaflow token create`). Fields: those of
    `list`.
    """
    from operations.documents.users import user_row
    from operations.session import opened
    from operations.users import create_user

    password = _password() if password_stdin else None
    with opened() as session:
        made = create_user(session, name, is_admin=admin, password=password, tenant=tenant)
    if form is Format.JSON:
        print_json(user_row(made))
    else:
        write(f"user {made.view.name} is made (id {made.view.id})")


@app.command(name="list", epilog="Example: orcaflow user list -o json")
def list_(form: FormatOption = Format.TABLE) -> None:
    """List the users with their roles in projects.

    Fields: id, name, admin, enabled, password (true if there is one), tenant, projects (project_id,
    project, role, perm), identities (issuer, subject), create_time.
    """
    from operations.documents.users import user_cells, user_row
    from operations.session import opened
    from operations.users import list_users

    with opened() as session:
        found = list_users(session)
    rows = [user_row(each) if form is Format.JSON else user_cells(each) for each in found]
    print_rows(rows, form=form, columns=COLUMNS, zone=session.zone)


@app.command(epilog="Example: orcaflow user disable ada")
def disable(name: _Name, form: FormatOption = Format.TABLE) -> None:
    """Refuse a user's tokens and sessions from now on; what the user has begun goes on.

    Fields: name, enabled, changed.
    """
    _enable(name, enabled=False, form=form)


@app.command(epilog="Example: orcaflow user enable ada")
def enable(name: _Name, form: FormatOption = Format.TABLE) -> None:
    """Let a disabled user in again, with the tokens of before. Fields: name, enabled, changed."""
    _enable(name, enabled=True, form=form)


@app.command(epilog="Example: orcaflow user grant ada --project default --role operator")
def grant(
    name: _Name,
    *,
    project: Annotated[str, typer.Option("--project", metavar="NAME", help="The project.")],
    role: Annotated[RoleChoice, typer.Option("--role", help="In the place of any other there.")],
    form: FormatOption = Format.TABLE,
) -> None:
    """Give a user a role in a project: viewer sees, operator runs and stops, author writes
    definitions and schedules, admin grants; none takes the role away. Fields: those of `list`.
    """
    from operations.documents.users import user_row
    from operations.session import opened
    from operations.users import grant as grant_role

    with opened() as session:
        found = grant_role(session, name, project=project, role=role.value)
    if form is Format.JSON:
        print_json(user_row(found))
    else:
        write(escaped(f"user {name} is {role.value} in {project} now"))


@app.command(
    name="set",
    epilog=(
        "\b\n"
        "Examples:\n"
        "  orcaflow user set ada --admin\n"
        "  orcaflow user set ada --no-admin --tenant etl\n"
    ),
)
def set_(
    name: _Name,
    *,
    admin: Annotated[
        bool | None, typer.Option("--admin/--no-admin", help="May do everything everywhere.")
    ] = None,
    tenant: Annotated[
        str | None, typer.Option("--tenant", metavar="CODE", help="Tenant of runs from now on.")
    ] = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """Make a user an administrator or an ordinary one, or give another tenant.

    Exit code 4 for the last administrator who is enabled. Fields: those of `list`.
    """
    from common.clock import SystemClock
    from operations.documents.users import user_row
    from operations.session import opened
    from operations.users import edit_user

    if admin is None and tenant is None:
        raise typer.BadParameter("nothing is to be changed: give --admin, --no-admin or --tenant")
    with opened() as session:
        found = edit_user(session, name, is_admin=admin, tenant=tenant, at=SystemClock().now())
    if form is Format.JSON:
        print_json(user_row(found))
    else:
        write(f"user {found.view.name} is changed")


@app.command(epilog='Example: printf %s "$PASSWORD" | orcaflow user password ada --password-stdin')
def password(
    name: _Name, *, password_stdin: _PasswordOption = False, form: FormatOption = Format.TABLE
) -> None:
    """Set a user's password, which has 12 characters or more; its sessions end.

    On a terminal it is asked for. Fields: name, changed.
    """
    from common.clock import SystemClock
    from operations.session import opened
    from operations.users import set_password

    given = _password() if password_stdin else _asked()
    with opened() as session:
        set_password(session, name, password=given, at=SystemClock().now())
    if form is Format.JSON:
        print_json({"name": name, "changed": True})
    else:
        write(escaped(f"user {name} has a new password"))


@app.command(
    epilog="Example: orcaflow user link ada --subject 8f14e45f-ceea-467f-9575-0a2b8c3d4e5f"
)
def link(
    name: _Name,
    *,
    subject: Annotated[
        str, typer.Option("--subject", metavar="TEXT", help="The provider's own name (`sub`).")
    ],
    issuer: Annotated[
        str | None,
        typer.Option("--issuer", metavar="URL", help="The provider; else oidc.issuer."),
    ] = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """Let somebody whom the OpenID provider knows by this subject log in as this user.

    Who tries before that is told the subject. Exit code 4 if it is another user's. Fields: those
    of `list`.
    """
    from operations.documents.users import user_row
    from operations.identities import link as link_identity
    from operations.session import opened

    with opened() as session:
        linked = link_identity(session, name, issuer=issuer, subject=subject)
    if form is Format.JSON:
        print_json(user_row(linked.detail))
    else:
        write(escaped(f"user {name} is {subject} at {linked.issuer} now"))


@app.command(epilog="Example: orcaflow user unlink ada")
def unlink(name: _Name, form: FormatOption = Format.TABLE) -> None:
    """Take a user's identities at OpenID providers away; the user's sessions end.

    Exit code 3 without any. Fields: name, removed.
    """
    from operations.identities import unlink as unlink_identities
    from operations.session import opened

    with opened() as session:
        removed = unlink_identities(session, name)
    if form is Format.JSON:
        print_json({"name": name, "removed": removed})
    else:
        write(escaped(f"user {name} can't log in by a provider any more"))


def _enable(name: str, *, enabled: bool, form: Format) -> None:
    from common.clock import SystemClock
    from operations.session import opened
    from operations.users import set_enabled

    with opened() as session:
        changed = set_enabled(session, name, enabled=enabled, at=SystemClock().now()).changed
    if form is Format.JSON:
        print_json({"name": name, "enabled": enabled, "changed": changed})
        return
    state = "enabled" if enabled else "disabled"
    write(escaped(f"user {name} is {state}{'' if changed else ' already'}"))


def _password() -> str:
    """The first line of standard input, without its end."""
    return sys.stdin.readline().rstrip("\r\n")


def _asked() -> str:
    if not sys.stdin.isatty():
        raise typer.BadParameter("standard input is no terminal: give --password-stdin")
    return str(typer.prompt("Password", hide_input=True, confirmation_prompt=True, err=True))
