"""`orcaflow worker`: the room of workers, their modes, and the strategy of their choice."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orcaflow.cli.output import Format, FormatOption, escaped, print_json, print_rows, write

if TYPE_CHECKING:
    from common.model.workers import WorkerMode

app = typer.Typer(
    help="Workers: their room, and those that are taken out of service.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)

WORKER_COLUMNS = (
    "address",
    "alive",
    "mode",
    "used",
    "capacity",
    "category",
    "groups",
    "reserved",
    "reason",
)

_Worker = Annotated[
    str, typer.Argument(metavar="HOST[:PORT]", help="A worker, or all workers of a host.")
]
_Reason = Annotated[
    str | None, typer.Option("--reason", help="One line that `worker list` and `why` show.")
]


@app.command(name="list", epilog="Example: orcaflow worker list -o json")
def list_(form: FormatOption = Format.TABLE) -> None:
    """List the living workers, and those that were taken out of service.

    Fields: address, alive, mode (enabled, lazy or disabled, as it was given), obeys (the mode that
    the worker reports), capacity (slots), used, category, version, groups, reserved
    (takes only tasks of its groups), and reason, by and since of a mode that was given.
    """
    from operations.documents.workers import worker_row
    from operations.session import opened
    from operations.workers import list_workers

    with opened() as session:
        rows = [worker_row(each) for each in list_workers(session)]
    print_rows(
        rows,
        form=form,
        columns=WORKER_COLUMNS,
        zone=session.zone,
        none="There are no workers; orcaflow server start worker-server",
    )


@app.command(epilog="Example: orcaflow worker disable 10.0.0.7:1234 --reason 'new disk'")
def disable(worker: _Worker, reason: _Reason = None, form: FormatOption = Format.TABLE) -> None:
    """Have a worker take no more tasks; those that run there go on.

    It holds until the worker is enabled, also if it is restarted, and before it begins. Exit code 3
    for a worker that has never been. Fields: worker, mode, reason, since.
    """
    from common.model.workers import WorkerMode

    _set(worker, WorkerMode.DISABLED, reason, form)


@app.command(epilog="Example: orcaflow worker lazy 10.0.0.7")
def lazy(worker: _Worker, reason: _Reason = None, form: FormatOption = Format.TABLE) -> None:
    """Have a worker take no more tasks, since it is going to be removed.

    As `disable`, and its slots are not counted among those of the cluster any more. Once `worker
    list` shows that it uses none it can be stopped. Fields: worker, mode, reason, since.
    """
    from common.model.workers import WorkerMode

    _set(worker, WorkerMode.LAZY, reason, form)


@app.command(epilog="Example: orcaflow worker enable 10.0.0.7:1234")
def enable(worker: _Worker, form: FormatOption = Format.TABLE) -> None:
    """Have a worker take tasks again; a host's name enables all its workers.

    Exit code 4 if it is enabled already. Fields: worker, mode, reason, since.
    """
    from common.model.workers import WorkerMode

    _set(worker, WorkerMode.ENABLED, None, form)


def _set(worker: str, mode: WorkerMode, reason: str | None, form: Format) -> None:
    from operations.documents.workers import mode_row
    from operations.session import opened
    from operations.workers import set_mode

    with opened() as session:
        change = set_mode(session, worker, mode, reason=reason)
    if form is Format.JSON:
        print_json(mode_row(change))
    else:
        write(escaped(f"worker {change.worker} is {change.mode.value}"))


@app.command(epilog="Example: orcaflow worker strategy --history -o json")
def strategy(
    *,
    history: Annotated[bool, typer.Option("--history", help="All versions, newest first.")] = False,
    form: FormatOption = Format.TABLE,
) -> None:
    """Show the strategy by which workers are chosen for tasks that ask for it (`workerSelect`).

    Fields: version (0 for the default), document (as in Druid), note, by, since.
    """
    from operations.documents.workers import strategy_row
    from operations.session import opened
    from operations.worker_strategies import strategy_history

    with opened() as session:
        rows = [strategy_row(each) for each in strategy_history(session)]
    shown = rows if history else rows[:1]
    print_rows(
        shown
        if form is Format.JSON
        else [row | {"document": json.dumps(row["document"])} for row in shown],
        form=form,
        columns=("version", "document", "note", "by", "since"),
        zone=session.zone,
    )


@app.command(
    epilog=(
        "\b\n"
        "Example: orcaflow worker set-strategy strategy.json\n"
        '  {"selectStrategy": {"type": "fillCapacity"}}\n'
    )
)
def set_strategy(
    file: Annotated[Path, typer.Argument(help="The strategy as JSON; - reads standard input.")],
    *,
    note: Annotated[str | None, typer.Option(help="One line that the history shows.")] = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """Choose workers by another strategy from now on; what was chosen stays.

    The types are fillCapacity and equalDistribution (the default), each alone, as `…WithAffinity`
    (affinityConfig: affinity, strong) or as `…WithCategorySpec` (workerCategorySpec: categoryMap,
    strong), as in Druid. All mistakes are named at once. Fields: as of `strategy`.
    """
    from operations.documents.workers import strategy_row
    from operations.errors import UsageError
    from operations.session import opened
    from operations.worker_strategies import set_strategy

    try:
        read = sys.stdin.read() if str(file) == "-" else file.read_text(encoding="utf-8")
        document = json.loads(read)
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError("file", f"{file} can't be read as JSON: {error}") from None
    with opened() as session:
        made = set_strategy(session, document, note=note)
    if form is Format.JSON:
        print_json(strategy_row(made))
    else:
        write(f"workers are chosen by strategy {made.version}")
