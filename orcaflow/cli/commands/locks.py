"""`orcaflow locks`: who holds intervals of datasets, and who waits for them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

import typer

from orcaflow.cli.output import Format, FormatOption, print_rows

if TYPE_CHECKING:
    from operations.locks import LockHolder

app = typer.Typer(
    help="Locks on intervals of datasets: who holds them, and who waits for them.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)


@app.callback()
def _locks() -> None:
    """Keep `list` a word of its own, though it is the only one."""


@app.command(
    name="list",
    epilog=(
        "\b\n"
        "Examples:\n"
        "  orcaflow locks list --dataset flights\n"
        '  in a task: "locks": [{"dataset": "flights", "interval": "$[yyyy-MM-dd]/P1D"}]\n'
    ),
)
def list_(
    dataset: Annotated[str | None, typer.Option(help="Of this dataset alone.")] = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """List the locks that tasks hold or wait for.

    Fields: dataset, interval, type, state (held, revoked or waiting), priority, granularity,
    partition_num, group, version, since, tasks (task_instance_id, task, process_instance_id).
    """
    from operations.documents.locks import held_row, waiting_row
    from operations.locks import list_locks
    from operations.session import opened

    with opened() as session:
        found = list_locks(session, dataset=dataset)
    held = [(held_row(one), one.holders) for one in found.held]
    waiting = [(waiting_row(one), (one.holder,)) for one in found.waiting]
    rows = [
        row if form is Format.JSON else row | {"tasks": _names(holders)}
        for row, holders in (*held, *waiting)
    ]
    print_rows(
        rows,
        form=form,
        columns=("dataset", "interval", "type", "state", "priority", "since", "tasks"),
        zone=session.zone,
        none="No task holds a lock, or waits for one",
    )


def _names(holders: Iterable[LockHolder]) -> str:
    return ", ".join(f"{one.task_name} ({one.task_instance_id})" for one in holders)
