"""`orcaflow grants`: the objects that projects share, and the projects that can use each."""

from __future__ import annotations

from typing import Annotated

import typer

from orcaflow.cli.granting import show_grants
from orcaflow.cli.output import Format, FormatOption

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command(epilog="Example: orcaflow grants --kind datasource -o json")
def grants(
    *,
    kind: Annotated[
        str | None,
        typer.Option(
            "--kind", help="tenant, datasource, environment, pool or worker-group; without it, all."
        ),
    ] = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """List shared objects with the projects that can use each.

    Fields: kind, id, name, projects (id, name).
    """
    from operations.grants import kind_named

    show_grants(None if kind is None else kind_named(kind), None, form)
