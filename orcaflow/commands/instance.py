"""`orcaflow instance`: process instances, from their beginning to their end."""

from __future__ import annotations

from typing import Annotated

import typer

from orcaflow.output import (
    Format,
    FormatOption,
    print_fields,
    print_json,
    print_rows,
    say,
    table,
    write,
)

app = typer.Typer(
    help="Look at process instances, watch and stop them.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

_Id = Annotated[int, typer.Argument(metavar="ID", help="Id of a process instance.", min=1)]


@app.command(
    name="list",
    epilog=(
        "\b\n"
        "Examples:\n"
        "  orcaflow instance list --state failure\n"
        "  orcaflow instance list --definition flights --limit 5 -o json\n"
    ),
)
def list_(
    *,
    definition: Annotated[
        str | None, typer.Option("--definition", metavar="NAME", help="Only of this definition.")
    ] = None,
    state: Annotated[
        list[str] | None,
        typer.Option("--state", metavar="STATE", help="Only in this state, as running; repeat."),
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="No more than so many.")] = 20,
    form: FormatOption = Format.TABLE,
) -> None:
    """List process instances, the newest first.

    Fields: id, name, definition, process_definition_id, state, state_code, wanted_state, reason,
    command_type, run_times, failure_strategy, priority, schedule_time, start_time, end_time,
    duration (seconds), host, owner_epoch.
    """
    from common.clock import SystemClock
    from common.model.states import ProcessState
    from common.store.views import process_instances
    from orcaflow.rows import INSTANCE_COLUMNS, instance_row
    from orcaflow.session import opened

    codes = None if not state else [int(read_state(ProcessState, each)) for each in state]
    with opened() as session, session.engine.connect() as db:
        found = process_instances(db, definition_name=definition, states=codes, limit=limit)
    now = SystemClock().now()
    print_rows(
        [instance_row(view, now=now) for view in found],
        form=form,
        columns=INSTANCE_COLUMNS,
        zone=session.zone,
        none="There are no such process instances.",
    )


@app.command(epilog="Example: orcaflow instance show 12")
def show(process_instance_id: _Id, form: FormatOption = Format.TABLE) -> None:
    """Show a process instance with its parameters and every attempt at its tasks.

    Fields: those of `list`, command_param, global_params, tasks (as in `task list`).
    """
    from common.clock import SystemClock
    from common.store.views import process_instance_detail
    from orcaflow.lookup import instance_with_id
    from orcaflow.rows import TASK_COLUMNS, instance_row, task_row
    from orcaflow.session import opened

    with opened() as session, session.engine.connect() as db:
        instance_with_id(db, process_instance_id)
        detail = process_instance_detail(db, process_instance_id)
    if detail is None:
        raise typer.Exit(3)
    now = SystemClock().now()
    row = instance_row(detail.instance, now=now) | {
        "command_param": detail.command_param,
        "global_params": detail.global_params,
    }
    tasks = [task_row(task, now=now) for task in detail.tasks]
    if form is Format.JSON:
        print_json({**row, "tasks": tasks})
        return
    print_fields(row, zone=session.zone)
    if tasks:
        write("")
        write(table(tasks, (*TASK_COLUMNS, "reason"), zone=session.zone))


@app.command(epilog="Example: orcaflow instance watch 12")
def watch(
    process_instance_id: _Id,
    *,
    timeout: Annotated[
        str | None,
        typer.Option("--timeout", metavar="TIME", help="Watch no longer, as 90s, 10m or 2h."),
    ] = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """Show a process instance as it goes, until its end; exit code 0 if it succeeded, else 1.

    Fields: instance (as in `list`), tasks (as in `task list`).
    """
    from common.clock import SystemClock
    from orcaflow.commands.run import read_span
    from orcaflow.rows import instance_row, task_row
    from orcaflow.session import opened
    from orcaflow.watch import watch as watch_instance

    patience = None if timeout is None else read_span(timeout)
    with opened() as session:
        try:
            sight = watch_instance(
                session,
                process_instance_id,
                timeout=patience,
                to_stdout=form is not Format.JSON,
            )
        except KeyboardInterrupt:
            say(f"\nNot watching any more; process instance {process_instance_id} goes on.")
            raise typer.Exit(130) from None
    if form is Format.JSON:
        now = SystemClock().now()
        print_json(
            {
                "instance": instance_row(sight.instance, now=now),
                "tasks": [task_row(task, now=now) for task in sight.tasks.values()],
            }
        )
    if not sight.succeeded:
        raise typer.Exit(1)


@app.command(epilog="Example: orcaflow instance stop 12 --wait")
def stop(
    process_instance_id: _Id,
    *,
    wait: Annotated[bool, typer.Option("--wait", "-w", help="Until it has stopped.")] = False,
    timeout: Annotated[
        str | None,
        typer.Option("--timeout", metavar="TIME", help="Wait no longer, as 90s, 10m or 2h."),
    ] = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """Ask for a process instance to be stopped: its tasks are ended, and no other begins.

    Asking again is harmless; one that has ended is refused with exit code 4. Fields: command_id,
    instance (as in `list`).
    """
    from common.clock import SystemClock
    from common.errors import NotAllowedError
    from common.model.states import ProcessState
    from common.store.requests import put_stop
    from orcaflow.commands.run import read_span
    from orcaflow.lookup import instance_with_id
    from orcaflow.rows import instance_row, name_of
    from orcaflow.session import opened
    from orcaflow.watch import look
    from orcaflow.watch import watch as watch_instance

    if timeout is not None and not wait:
        raise typer.BadParameter("--timeout needs --wait")
    patience = None if timeout is None else read_span(timeout)
    with opened() as session:
        with session.engine.begin() as db:
            instance = instance_with_id(db, process_instance_id)
            if instance.end_time is not None and instance.state in _ENDED:
                raise NotAllowedError(
                    f"process instance {process_instance_id} has ended already: "
                    f"{name_of(ProcessState, instance.state)}"
                )
            command_id = put_stop(
                db,
                process_definition_id=instance.process_definition_id,
                process_instance_id=process_instance_id,
            )
        if wait:
            sight = watch_instance(
                session,
                process_instance_id,
                timeout=patience,
                to_stdout=form is not Format.JSON,
            )
        else:
            sight = look(session, process_instance_id)
    if form is Format.JSON:
        row = instance_row(sight.instance, now=SystemClock().now())
        print_json({"command_id": command_id, "instance": row})
    elif not wait:
        write(f"asked for process instance {process_instance_id} to be stopped")
    if wait and sight.instance.state != ProcessState.STOP:
        # It came to its own end before the command reached it.
        raise typer.Exit(1)


_ENDED = frozenset({3, 5, 6, 7})


def read_state(kind: type, text: str) -> int:
    """A state by name, in any case; a usage error names those that there are."""
    names = {member.name: int(member) for member in kind}  # type: ignore[attr-defined]
    code = names.get(text.upper().replace("-", "_"))
    if code is None:
        raise typer.BadParameter(
            f"{text!r} is no state; known are {', '.join(name.lower() for name in names)}",
            param_hint="--state",
        )
    return code
