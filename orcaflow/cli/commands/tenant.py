"""`orcaflow tenant`: the accounts that tasks run as."""

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
    print_json,
    print_rows,
    say,
    write,
)

app = typer.Typer(
    help="Tenants: the accounts that tasks run as where worker.tenant_mode is tenant.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)

_Code = Annotated[str, typer.Argument(metavar="CODE", help="The name of the account.")]


@app.command(name="list", epilog="Example: orcaflow tenant list -o json")
def list_(form: FormatOption = Format.TABLE) -> None:
    """List the tenants.

    Fields: id, code (the account), queue (of YARN), queue_id, description, create_time.
    """
    from operations.documents.tenants import tenant_row
    from operations.session import opened
    from operations.tenants import list_tenants

    with opened() as session:
        rows = [tenant_row(each) for each in list_tenants(session)]
    print_rows(
        rows,
        form=form,
        columns=("id", "code", "queue", "create_time", "description"),
        zone=session.zone,
        none="There are no tenants; make one: orcaflow tenant create CODE",
    )


@app.command(
    epilog=(
        "\b\n"
        "Examples:\n"
        "  orcaflow tenant create etl --queue root.etl --project default\n"
        '  in a definition: "tenantCode": "etl"\n'
    )
)
def create(
    code: _Code,
    *,
    queue: Annotated[
        str | None, typer.Option("--queue", help="The YARN queue of its tasks; else default.")
    ] = None,
    description: Annotated[str | None, typer.Option(help="Whose tasks it is for.")] = None,
    project: ProjectsOption = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """Make a tenant. Exit code 4 if there is one of that code.

    It makes no account: where workers run in mode tenant, each host needs an ordinary one of that
    name, or the tenant's tasks fail. Fields: id, code, queue, queue_id, description, create_time,
    has_account (on this computer).

    A project can use it only by a grant: give --project, or `orcaflow tenant grant` later.
    """
    from operations.documents.tenants import tenant_row
    from operations.session import opened
    from operations.tenants import create_tenant

    with opened() as session:
        made = create_tenant(
            session, code, queue=queue, description=description, projects=project or ()
        )
    if form is Format.JSON:
        print_json({**tenant_row(made.view), "has_account": made.has_account})
    else:
        write(f"tenant {made.view.code} is made (id {made.view.id})")
    hint_without_grant(GrantKind.TENANT, code, project)
    if not made.has_account:
        say(f"this computer has no account {code!r}: workers in mode tenant need it on their hosts")


@app.command(epilog="Example: orcaflow tenant delete etl")
def delete(code: _Code, form: FormatOption = Format.TABLE) -> None:
    """Delete a tenant that nothing needs.

    Exit code 4, with the cure, while a live run, a definition or a user names it. Ended runs that
    named it have their creators' tenant then. Its account stays. Fields: code, deleted, instances
    (how many ended runs named it).
    """
    from operations.session import opened
    from operations.tenants import delete_tenant

    with opened() as session:
        detached = delete_tenant(session, code)
    if form is Format.JSON:
        print_json({"code": code, "deleted": True, "instances": detached})
    else:
        write(escaped(f"tenant {code} is deleted"))
        if detached:
            say(f"{counted(detached, 'ended run')} named it")


add_grant_commands(app, GrantKind.TENANT)
