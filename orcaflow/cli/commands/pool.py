"""`orcaflow pool`: slots that tasks share, whatever process they belong to."""

from __future__ import annotations

from typing import Annotated

import typer

from common.model.grants import GrantKind
from operations.errors import UsageError
from operations.limits import check_pool_size
from operations.texts import counted
from orcaflow.cli.granting import ProjectsOption, add_grant_commands, hint_without_grant
from orcaflow.cli.output import (
    Format,
    FormatOption,
    print_json,
    print_rows,
    say,
    write,
    write_table,
)

app = typer.Typer(
    help="Slots that tasks share: how many of them may run at the same time, whatever runs them.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)

_Name = Annotated[str, typer.Argument(help="Name of the pool.")]


def _size(given: int) -> int:
    try:
        check_pool_size(given)
    except UsageError as error:
        raise typer.BadParameter(error.message) from error
    return given


_SizeOption = Annotated[
    int,
    typer.Option(
        "--size", metavar="SLOTS", callback=_size, help="How many slots it has, 1 to 1000000."
    ),
]


@app.command(
    epilog=(
        "\b\n"
        "Examples:\n"
        "  orcaflow pool create database --size 4 --project default\n"
        '  in a task: "taskGroups": [{"name": "database", "slots": 2}]\n'
    )
)
def create(
    name: _Name,
    *,
    size: _SizeOption,
    description: Annotated[str | None, typer.Option(help="What it protects.")] = None,
    project: ProjectsOption = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """Make a pool. Exit code 4 if there is one of that name. Fields: id, name, size.

    A project can use it only by a grant: give --project, or `orcaflow pool grant` later.
    """
    from operations.pools import create_pool
    from operations.session import opened

    with opened() as session:
        made = create_pool(
            session, name, size=size, description=description, projects=project or ()
        )
    if form is Format.JSON:
        print_json({"id": made, "name": name, "size": size})
    else:
        write(f"pool {name} has {counted(size, 'slot')}")
    hint_without_grant(GrantKind.POOL, name, project)


@app.command(name="list", epilog="Example: orcaflow pool list -o json")
def list_(form: FormatOption = Format.TABLE) -> None:
    """List pools, and how much of each is taken.

    Fields: id, name, size, used (slots), free, waiting (attempts), description.
    """
    from operations.documents.pools import pool_row
    from operations.pools import list_pools
    from operations.session import opened

    with opened() as session:
        found = list_pools(session)
    print_rows(
        [pool_row(pool) for pool in found],
        form=form,
        columns=("name", "size", "used", "free", "waiting", "description"),
        none="There are no pools; make one: orcaflow pool create NAME --size N",
    )


@app.command(epilog="Example: orcaflow pool show database")
def show(name: _Name, form: FormatOption = Format.TABLE) -> None:
    """Show who holds a pool's slots and who waits for them, the next one first.

    Fields: those of `list`, holders and waiters (both: task_instance_id, task, process_instance_id,
    slots, priority, since).
    """
    from operations.documents.pools import pool_row, pool_use_row
    from operations.pools import pool_given
    from operations.session import opened

    with opened() as session:
        pool = pool_given(session, name)
    holders = [pool_use_row(use) for use in pool.users if use.holds]
    waiters = [pool_use_row(use) for use in pool.users if not use.holds]
    if form is Format.JSON:
        print_json({**pool_row(pool), "holders": holders, "waiters": waiters})
        return
    verb = "is" if pool.size == 1 else "are"
    wait = f"{counted(pool.waiting, 'task')} {'waits' if pool.waiting == 1 else 'wait'}"
    write(f"{pool.name}: {pool.used} of {counted(pool.size, 'slot')} {verb} taken, {wait}")
    columns = ("task_instance_id", "task", "process_instance_id", "slots", "priority", "since")
    for what, rows in (("held by", holders), ("waiting", waiters)):
        if rows:
            write(f"\n{what}:")
            write_table(rows, columns, zone=session.zone)


@app.command(epilog="Example: orcaflow pool resize database --size 8")
def resize(name: _Name, *, size: _SizeOption, form: FormatOption = Format.TABLE) -> None:
    """Give a pool another size. Tasks that hold its slots go on, even if it becomes smaller.

    Fields: those of `list`.
    """
    from operations.documents.pools import pool_row
    from operations.pools import resize_pool
    from operations.session import opened

    with opened() as session:
        pool = resize_pool(session, name, size=size)
    if form is Format.JSON:
        print_json(pool_row(pool))
        return
    write(f"pool {pool.name} has {counted(pool.size, 'slot')} now")
    if pool.used > pool.size:
        say(f"{pool.used} slots are still taken; none is given before there are fewer than that")


@app.command(epilog="Example: orcaflow pool remove database")
def remove(name: _Name, form: FormatOption = Format.TABLE) -> None:
    """Remove a pool that no task uses; exit code 4 if one does.

    A task that names it fails from then on, with a reason that says so. Fields: name, removed.
    """
    from operations.pools import remove_pool
    from operations.session import opened

    with opened() as session:
        remove_pool(session, name)
    if form is Format.JSON:
        print_json({"name": name, "removed": True})
    else:
        write(f"pool {name} is removed")


add_grant_commands(app, GrantKind.POOL)
