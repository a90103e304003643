"""`orcaflow token`: the secrets by which programs use the HTTP API."""

from __future__ import annotations

import re
from datetime import timedelta
from enum import StrEnum
from typing import Annotated

import typer

from orcaflow.cli.output import Format, FormatOption, print_json, print_rows, say, write

app = typer.Typer(
    help="API tokens: made, listed and revoked.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)

COLUMNS = ("id", "user", "name", "role", "projects", "expire_time", "last_used")
_SPAN = re.compile(r"(\d{1,6})([hd])")


class ScopeChoice(StrEnum):
    """The role that a token allows at most."""

    VIEWER = "viewer"
    OPERATOR = "operator"
    AUTHOR = "author"
    ADMIN = "admin"


@app.command(
    epilog=(
        "\b\n"
        "Examples:\n"
        "  orcaflow token create --user ada --name laptop -o json\n"
        "  orcaflow token create --user ci --name nightly --project default --role operator\n"
    )
)
def create(
    *,
    user: Annotated[str, typer.Option("--user", metavar="NAME", help="Whose token it is.")],
    name: Annotated[str, typer.Option("--name", metavar="LABEL", help="Where it is used.")],
    project: Annotated[
        list[str] | None,
        typer.Option("--project", metavar="NAME", help="Good for this project alone; repeat."),
    ] = None,
    role: Annotated[
        ScopeChoice, typer.Option("--role", help="The most that it is good for.")
    ] = ScopeChoice.ADMIN,
    expires: Annotated[
        str, typer.Option("--expires", metavar="SPAN", help="As 12h or 30d; 365d at most.")
    ] = "30d",
    form: FormatOption = Format.TABLE,
) -> None:
    """Make a token and print it, this once: the database holds its hash alone.

    It never adds a right to those of its user. Fields: id, token, and those of `list`.
    """
    from common.clock import SystemClock
    from operations.documents.users import token_row
    from operations.session import opened
    from operations.tokens import create_token

    life = _span(expires)
    with opened() as session:
        made = create_token(
            session,
            user,
            name=name,
            role=role.value,
            projects=project or (),
            life=life,
            now=SystemClock().now(),
        )
    if form is Format.JSON:
        print_json({"id": made.view.id, "token": made.text, **token_row(made.view)})
    else:
        write(made.text)
        say(f"token {made.view.id} of {user}: it is not shown again")


@app.command(name="list", epilog="Example: orcaflow token list --user ada")
def list_(
    *,
    user: Annotated[
        str | None, typer.Option("--user", metavar="NAME", help="Only this user's.")
    ] = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """List the tokens, expired ones too; their texts are nowhere.

    Fields: id, user, name, role, projects (ids, or null for all), expire_time, last_used,
    create_time.
    """
    from operations.documents.users import token_row
    from operations.session import opened
    from operations.tokens import list_tokens

    with opened() as session:
        rows = [token_row(view) for view in list_tokens(session, user=user)]
    print_rows(
        rows,
        form=form,
        columns=COLUMNS,
        zone=session.zone,
        none="There are no tokens; make one: orcaflow token create --user NAME --name LABEL",
    )


@app.command(epilog="Example: orcaflow token revoke 3")
def revoke(
    token_id: Annotated[int, typer.Argument(metavar="ID", help="Id of the token.", min=1)],
    form: FormatOption = Format.TABLE,
) -> None:
    """Delete a token, whose next use is refused; exit code 3 if there is none.

    Fields: id, revoked.
    """
    from operations.session import opened
    from operations.tokens import revoke_token

    with opened() as session:
        revoke_token(session, token_id)
    if form is Format.JSON:
        print_json({"id": token_id, "revoked": True})
    else:
        write(f"token {token_id} is revoked")


def _span(text: str) -> timedelta:
    match = _SPAN.fullmatch(text)
    if match is None:
        raise typer.BadParameter(f"{text!r} is no span, as 12h or 30d is", param_hint="--expires")
    number = int(match.group(1))
    return timedelta(hours=number) if match.group(2) == "h" else timedelta(days=number)
