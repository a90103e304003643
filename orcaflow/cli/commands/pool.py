"""`orcaflow pool`: slots that tasks share, whatever process they belong to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from operations.texts import counted
from orcaflow.cli.output import Format, FormatOption, print_json, print_rows, say, table, write

if TYPE_CHECKING:
    from common.store.connect import Connection
    from common.store.people.views import PoolView

app = typer.Typer(
    help="Slots that tasks share: how many of them may run at the same time, whatever runs them.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

MAX_SIZE = 1_000_000
MAX_NAME_LENGTH = 200

_Name = Annotated[str, typer.Argument(help="Name of the pool.")]


def _size(given: int) -> int:
    if not 1 <= given <= MAX_SIZE:
        raise typer.BadParameter(f"a pool has from 1 to {MAX_SIZE} slots, not {given}")
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
        "  orcaflow pool create database --size 4\n"
        '  in a task: "taskGroups": [{"name": "database", "slots": 2}]\n'
    )
)
def create(
    name: _Name,
    *,
    size: _SizeOption,
    description: Annotated[str | None, typer.Option(help="What it protects.")] = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """Make a pool. Exit code 4 if there is one of that name. Fields: id, name, size."""
    from common.errors import NotAllowedError
    from common.store.people.pools import create_pool
    from operations.session import opened

    _check_name(name)
    with opened() as session, session.engine.begin() as db:
        made = create_pool(db, name, size=size, description=description)
        if made is None:
            raise NotAllowedError(
                f"there is a pool {name!r} already; change it: orcaflow pool resize {name!r}"
                f" --size {size}"
            )
    if form is Format.JSON:
        print_json({"id": made, "name": name, "size": size})
    else:
        write(f"pool {name} has {counted(size, 'slot')}")


@app.command(name="list", epilog="Example: orcaflow pool list -o json")
def list_(form: FormatOption = Format.TABLE) -> None:
    """List pools, and how much of each is taken.

    Fields: id, name, size, used (slots), free, waiting (attempts), description.
    """
    from common.store.people.views import pools
    from operations.session import opened

    with opened() as session, session.engine.connect() as db:
        found = pools(db)
    print_rows(
        [_row(pool) for pool in found],
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
    from operations.session import opened

    with opened() as session, session.engine.connect() as db:
        pool = _found(db, name)
    users = [
        {
            "task_instance_id": use.task_instance_id,
            "task": use.task_name,
            "process_instance_id": use.process_instance_id,
            "slots": use.slots,
            "priority": use.priority,
            "since": use.since,
        }
        for use in pool.users
    ]
    holders = [row for row, use in zip(users, pool.users, strict=True) if use.holds]
    waiters = [row for row, use in zip(users, pool.users, strict=True) if not use.holds]
    if form is Format.JSON:
        print_json({**_row(pool), "holders": holders, "waiters": waiters})
        return
    verb = "is" if pool.size == 1 else "are"
    wait = f"{counted(pool.waiting, 'task')} {'waits' if pool.waiting == 1 else 'wait'}"
    write(f"{pool.name}: {pool.used} of {counted(pool.size, 'slot')} {verb} taken, {wait}")
    columns = ("task_instance_id", "task", "process_instance_id", "slots", "priority", "since")
    for what, rows in (("held by", holders), ("waiting", waiters)):
        if rows:
            write(f"\n{what}:")
            write(table(rows, columns, zone=session.zone))


@app.command(epilog="Example: orcaflow pool resize database --size 8")
def resize(name: _Name, *, size: _SizeOption, form: FormatOption = Format.TABLE) -> None:
    """Give a pool another size. Tasks that hold its slots go on, even if it becomes smaller.

    Fields: those of `list`.
    """
    from common.clock import SystemClock
    from common.store.people.pools import resize_pool
    from operations.session import opened

    with opened() as session, session.engine.begin() as db:
        _found(db, name)
        resize_pool(db, name, size=size, at=SystemClock().now())
        pool = _found(db, name)
    if form is Format.JSON:
        print_json(_row(pool))
        return
    write(f"pool {pool.name} has {counted(pool.size, 'slot')} now")
    if pool.used > pool.size:
        say(f"{pool.used} slots are still taken; none is given before there are fewer than that")


@app.command(epilog="Example: orcaflow pool remove database")
def remove(name: _Name, form: FormatOption = Format.TABLE) -> None:
    """Remove a pool that no task uses; exit code 4 if one does.

    A task that names it fails from then on, with a reason that says so. Fields: name, removed.
    """
    from common.errors import NotAllowedError
    from common.store.people.pools import lock_pool, remove_pool
    from operations.session import opened

    with opened() as session, session.engine.begin() as db:
        _found(db, name)
        lock_pool(db, name)
        pool = _found(db, name)
        if pool.users:
            first = pool.users[0]
            raise NotAllowedError(
                f"pool {name!r} is in use: task {first.task_name!r} of process instance"
                f" {first.process_instance_id} {'holds' if first.holds else 'waits for'} its slots"
                f" ({len(pool.users)} in all: orcaflow pool show {name!r})"
            )
        remove_pool(db, name)
    if form is Format.JSON:
        print_json({"name": name, "removed": True})
    else:
        write(f"pool {name} is removed")


def _found(db: Connection, name: str) -> PoolView:
    import difflib

    from common.errors import NotFoundError
    from common.store.people.views import pools

    found = pools(db, name=name) if "\0" not in name else []
    if found:
        return found[0]
    near = difflib.get_close_matches(name, [pool.name for pool in pools(db)], n=1)
    perhaps = f"; did you mean {near[0]!r}?" if near else "; see `orcaflow pool list`"
    raise NotFoundError(f"there is no pool {name!r:.200}{perhaps}")


def _check_name(name: str) -> None:
    if not name.strip() or name != name.strip() or not name.isprintable():
        raise typer.BadParameter(
            "a name is printable text that neither begins nor ends with white space",
            param_hint="NAME",
        )
    if len(name) > MAX_NAME_LENGTH:
        raise typer.BadParameter(
            f"has {len(name)} characters; at most {MAX_NAME_LENGTH} are allowed", param_hint="NAME"
        )


def _row(pool: PoolView) -> dict[str, object]:
    return {
        "id": pool.id,
        "name": pool.name,
        "size": pool.size,
        "used": pool.used,
        "free": max(0, pool.size - pool.used),
        "waiting": pool.waiting,
        "description": pool.description,
    }
