"""`orcaflow purge`: delete the history of runs that ended long ago."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from orcaflow.cli.output import (
    Format,
    FormatOption,
    escaped,
    moment,
    print_json,
    print_rows,
    say,
    write,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from common.purging import Purged

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command(
    epilog=(
        "\b\n"
        "Examples:\n"
        "  orcaflow purge --older-than 90d --plan\n"
        "  orcaflow purge --older-than 90d --definition flights\n"
    )
)
def purge(
    *,
    older_than: Annotated[
        str,
        typer.Option("--older-than", metavar="AGE", help="Since the end: 12h, 90d, 8w, 2y."),
    ],
    definition: Annotated[
        str | None,
        typer.Option("--definition", metavar="NAME", help="Only what belongs to this one."),
    ] = None,
    plan: Annotated[
        bool, typer.Option("--plan", help="Tell what would go, and delete nothing.")
    ] = False,
    form: FormatOption = Format.TABLE,
) -> None:
    """Delete runs that ended so long ago, with attempts, logs, alerts, fires and complements.

    Kept are paused runs, the newest run of each definition, and whatever something still needs. In
    short transactions: runs go on meanwhile, and it may be ended and repeated at any time. The
    setting master.retention_days does the same all the time. Fields: before, deleted (rows by
    table), folders, left, longest_transaction (seconds); with --plan before, rows (by table),
    definitions (id, name, process_instances, task_instances).
    """
    from operations import purging
    from operations.documents.purging import planned_row, purged_row
    from operations.session import opened
    from operations.texts import counted

    with opened() as session:
        if plan:
            before, found = purging.plan_purge(
                session, older_than=older_than, definition=definition
            )
            row = planned_row(before, found)
            if form is Format.JSON:
                print_json(row)
                return
            write(f"ended before {moment(before, session.zone)}, and needed by nothing:")
            for table, count in found.rows.items():
                write(f"  {table:<26} {count:>10}")
            print_rows(
                row["definitions"],  # type: ignore[arg-type]  # A list of rows.
                form=form,
                columns=("id", "name", "process_instances", "task_instances"),
                none="No run would go.",
            )
            return
        result = purging.purge(
            session, older_than=older_than, definition=definition, progress=_progress()
        )
    for each in result.left:
        say(f"not removed: {escaped(each)}")
    if form is Format.JSON:
        print_json(purged_row(result))
        return
    rows = result.purged.rows
    others = ", ".join(
        f"{count} of {table}"
        for table, count in rows.items()
        if table not in ("t_ds_process_instance", "t_ds_task_instance")
    )
    write(
        f"deleted {counted(rows.get('t_ds_process_instance', 0), 'process instance')},"
        f" {counted(rows.get('t_ds_task_instance', 0), 'task instance')}"
        f"{', ' + others if others else ''};"
        f" the longest transaction took {result.purged.longest.total_seconds() * 1000:.0f} ms"
    )


def _progress() -> Callable[[Purged], None]:
    """Print the count on a terminal, some times a second; elsewhere nothing."""
    import sys

    from common.clock import SystemClock

    clock, last = SystemClock(), [0.0]

    def shown_now(done: Purged) -> None:
        now = clock.monotonic()
        if sys.stderr.isatty() and now - last[0] > 0.2:
            last[0] = now
            sys.stderr.write(f"\r{sum(done.rows.values())} rows deleted")
            sys.stderr.flush()

    return shown_now
