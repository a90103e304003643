"""`orcaflow audit`: what people have changed and ordered."""

from __future__ import annotations

from typing import Annotated

import typer

from orcaflow.cli.output import Format, FormatOption, print_rows

app = typer.Typer(
    help="Look at the audit: what people have changed and ordered, and what was refused.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)

COLUMNS = ("id", "at", "user", "action", "object_type", "object_id", "object", "outcome", "detail")


@app.callback()
def _group() -> None: ...  # Has Typer make a group of the only command.


@app.command(
    name="list",
    epilog=(
        "\b\n"
        "Examples:\n"
        "  orcaflow audit list\n"
        "  orcaflow audit list --user ada --action definition --outcome refused\n"
        "  orcaflow audit list --object-type instance --object-id 6 -o json\n"
    ),
)
def list_(
    *,
    user: Annotated[str | None, typer.Option(metavar="NAME", help="Only of this user.")] = None,
    action: Annotated[
        str | None,
        typer.Option(metavar="WORD", help="Only these, as definition, or definition.delete."),
    ] = None,
    object_type: Annotated[
        str | None, typer.Option(metavar="KIND", help="Only about such objects, as instance.")
    ] = None,
    object_id: Annotated[
        int | None, typer.Option(min=1, max=2**31 - 1, help="Only about the object with this id.")
    ] = None,
    project: Annotated[
        int | None,
        typer.Option(min=1, max=2**31 - 1, metavar="ID", help="Only in this project."),
    ] = None,
    outcome: Annotated[
        str | None, typer.Option(metavar="OUTCOME", help="Only what was done, or refused.")
    ] = None,
    before: Annotated[
        int | None, typer.Option(min=1, metavar="ID", help="Only older lines than this one.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="No more than so many.")] = 20,
    form: FormatOption = Format.TABLE,
) -> None:
    """List lines of the audit, the newest first; for administrators. The table t_ds_audit_log.

    Fields: id, at, user, user_id, token_id, address, action, object_type, object_id, object,
    project_id, outcome (done, refused), detail, request.
    """
    from operations.audits import list_audit
    from operations.documents.audits import audit_row
    from operations.session import opened

    with opened() as session:
        found = list_audit(
            session,
            user=user,
            action=action,
            object_type=object_type,
            object_id=object_id,
            project_id=project,
            outcome=outcome,
            before=before,
            limit=limit,
        )
    print_rows(
        [audit_row(line) for line in found],
        form=form,
        columns=COLUMNS,
        zone=session.zone,
        none="The audit has no such line.",
    )
