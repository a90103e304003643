"""`orcaflow instance`: process instances, from their beginning to their end."""

from __future__ import annotations

from typing import Annotated

import typer

from orcaflow.cli.commands import instance_restarts
from orcaflow.cli.commands.instance_restarts import (
    InstanceId,
    TimeoutOption,
    WaitOption,
    say_waiting,
)
from orcaflow.cli.output import (
    Format,
    FormatOption,
    escaped,
    print_fields,
    print_json,
    print_rows,
    say,
    write,
    write_table,
)

app = typer.Typer(
    help="Look at process instances, watch, stop, pause, recover and delete them.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)

INSTANCE_COLUMNS = (
    "id",
    "definition",
    "project",
    "state",
    "first_command_type",
    "start_time",
    "duration",
    "host",
)


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

    Fields: id, name, definition, project, version (of the run's copy of the definition),
    latest_version (of the definition now), process_definition_id, state, state_code, wanted_state,
    reason, command_type (the last one), first_command_type (the one that started it), run_times,
    failure_strategy, priority, schedule_time, start_time, end_time, duration (seconds, without the
    time for which the run lay ended before a restart), duration_from, host, owner_epoch.
    """
    from common.clock import SystemClock
    from operations.documents.instances import instance_row
    from operations.instances import list_instances
    from operations.session import opened

    with opened() as session:
        found = list_instances(session, definition=definition, states=state or (), limit=limit)
    now = SystemClock().now()
    print_rows(
        [instance_row(view, now=now) for view in found],
        form=form,
        columns=INSTANCE_COLUMNS,
        zone=session.zone,
        none="There are no such process instances.",
    )


@app.command(epilog="Example: orcaflow instance show 12")
def show(process_instance_id: InstanceId, form: FormatOption = Format.TABLE) -> None:
    """Show a process instance with its parameters, every attempt at its tasks, and its relatives.

    Values of parameters whose names sound secret are masked. Fields: those of `list`,
    business_date (the day before its moment), date_rule (what its schedule_time is; null without
    one), business_time (its moment, if that is not schedule_time), command_param, global_params,
    tasks (as in `task list`), parent (null if it is no sub process) and children (its sub
    processes), each with process_instance_id, definition, state, task, task_instance_id and attempt
    (of the SUB_PROCESS task).
    """
    from common.clock import SystemClock
    from operations.documents.instances import (
        date_fields,
        instance_row,
        parameter_fields,
        relative_row,
        task_row,
    )
    from operations.instances import family_of, instance_detail
    from operations.session import opened
    from orcaflow.cli.screens.progress import application_lines
    from orcaflow.cli.screens.task_table import TASK_COLUMNS, task_table

    with opened() as session:
        detail = instance_detail(session, process_instance_id)
        family = family_of(session, detail.instance)
    now = SystemClock().now()
    row = instance_row(detail.instance, now=now) | date_fields(detail) | parameter_fields(detail)
    if form is Format.JSON:
        print_json(
            {
                **row,
                "parent": None if family.parent is None else relative_row(family.parent),
                "children": [relative_row(child) for child in family.children],
                "tasks": [task_row(task, now=now) for task in detail.tasks],
            }
        )
        return
    print_fields(row, zone=session.zone)
    if family.parent is not None:
        above = family.parent
        name = escaped(above.definition_name or "-")
        write(
            f"\nsub process of {above.process_instance_id} ({name}), task"
            f" {escaped(above.task_name)}: orcaflow instance show {above.process_instance_id}"
        )
    if detail.tasks:
        write("")
        wanted = (*TASK_COLUMNS, "progress", "failure_reason", "lost_at", "reason")
        tasks, columns = task_table(detail.tasks, wanted, now=now)
        write_table(tasks, columns, zone=session.zone)
    if family.children:
        write("\nsub processes:")
        columns = ("process_instance_id", "definition", "state", "task", "attempt")
        rows = [relative_row(child) for child in family.children]
        write_table(rows, columns, zone=session.zone)
    for task in detail.tasks:
        if known := list(application_lines(task)):
            write("")
            write(f"{escaped(task.name)} (task instance {task.id}, attempt {task.attempt}):")
            for label, text in known:
                write(f"  {label:<11}  {text}")


@app.command(epilog="Example: orcaflow instance watch 12")
def watch(
    process_instance_id: InstanceId,
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
    from operations.documents.instances import instance_row, task_row
    from operations.session import opened
    from orcaflow.cli.options import read_span
    from orcaflow.cli.screens.watch import watch as watch_instance

    patience = None if timeout is None else read_span(timeout)
    with opened() as session:
        try:
            snapshot = watch_instance(
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
                "instance": instance_row(snapshot.instance, now=now),
                "tasks": [task_row(task, now=now) for task in snapshot.tasks.values()],
            }
        )
    if not snapshot.succeeded:
        raise typer.Exit(1)


@app.command(epilog="Example: orcaflow instance stop 12 --wait")
def stop(
    process_instance_id: InstanceId,
    *,
    wait: WaitOption = False,
    timeout: TimeoutOption = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """Ask for a process instance to be stopped: its tasks are ended, and no other begins.

    Asking again is harmless; one that has ended is refused with exit code 4. A sub process is
    stopped with its whole tree. Exit code 1 if a master drops the request, and with --wait also if
    the instance came to its own end before. Fields: command_id, instance (as in `list`).
    """
    _signal(process_instance_id, "STOP", wait=wait, timeout=timeout, form=form)


@app.command(epilog="Example: orcaflow instance pause 12 --wait")
def pause(
    process_instance_id: InstanceId,
    *,
    wait: WaitOption = False,
    timeout: TimeoutOption = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """Ask for a process instance to be paused: what runs goes on to its end, and no other begins.

    Tasks that wait in the queue are taken back. Asking again is harmless; one that has ended, or
    has not begun, is refused with exit code 4. `resume` goes on. Exit code 1 if a master drops the
    request, and with --wait also if the instance came to its own end before. Fields: command_id,
    instance (as in `list`).
    """
    _signal(process_instance_id, "PAUSE", wait=wait, timeout=timeout, form=form)


instance_restarts.add_to(app)


@app.command(
    epilog=(
        "\b\n"
        "Examples:\n"
        "  orcaflow instance why 12\n"
        "  orcaflow instance why 12 --task report\n"
        "  orcaflow instance why --command 34 -o json\n"
    )
)
def why(
    process_instance_id: Annotated[
        int | None, typer.Argument(metavar="ID", help="Id of a process instance.", min=1)
    ] = None,
    *,
    task: Annotated[
        str | None, typer.Option("--task", metavar="NAME", help="Why this task of it is not done.")
    ] = None,
    command: Annotated[
        int | None,
        typer.Option("--command", metavar="ID", help="Why this command still waits.", min=1),
    ] = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """Say why a process instance is not done: what it waits for, and what that waits for.

    With --task also for a task that has not begun. Everything is read at one moment, from the
    tables and ZooKeeper. Fields of each cause: cause (a word for programs), subject, since, next
    (what will be looked at), next_at, text, depth (below the cause before it).
    """
    from common.model.states import ProcessState
    from operations.documents.instances import name_of
    from operations.explaining import causes_of_command, explain_instance
    from operations.session import opened
    from orcaflow.cli.screens.causes import print_causes

    if (process_instance_id is None) == (command is None):
        raise typer.BadParameter("give the ID of a process instance, or --command ID")
    if command is not None:
        if task is not None:
            raise typer.BadParameter("--task goes with the ID of a process instance")
        with opened() as session:
            causes = causes_of_command(session, command)
        print_causes(causes, form=form, zone=session.zone)
        return
    number = process_instance_id or 0
    with opened() as session:
        found = explain_instance(session, number, task=task)
    if form is not Format.JSON:
        state = name_of(ProcessState, found.state)
        day = "" if found.business_date is None else f", business date {found.business_date}"
        rule = "" if found.date_rule is None else f" (date rule {found.date_rule})"
        write(f"process instance {number} ({escaped(found.name)}) is {state}{day}{rule}")
    print_causes(found.causes, form=form, zone=session.zone)


@app.command(
    epilog=(
        "\b\nExamples:\n  orcaflow instance delete 12\n  orcaflow instance delete 12 13 -o json\n"
    )
)
def delete(
    process_instance_ids: Annotated[
        list[int], typer.Argument(metavar="ID...", help="Ids of process instances.", min=1)
    ],
    *,
    force: Annotated[
        bool,
        typer.Option("--force", help="Even if processes of lost attempts may still run."),
    ] = False,
    form: FormatOption = Format.TABLE,
) -> None:
    """Delete process instances that have ended, for good: all of these or none.

    Their tasks, sub processes, requests for slots and quality results go with them, and so do
    directories and logs on this computer. Ledgers keep what commands, fires and dates of
    complements came to. Exit code 4, with the command that cures it, for one that is live, is a sub
    process, is a date of a complement that goes on, or that a waiting command is about. Fields:
    deleted (ids, those of sub processes included), task_instances, folders (how many were removed),
    left (those that could not be) and hosts (other workers, where logs stay).
    """
    from operations.deleting import delete_instances
    from operations.documents.deletions import deleted_row
    from operations.session import opened
    from orcaflow.cli.screens.deletions import print_deleted, say_left

    with opened() as session:
        deleted = delete_instances(session, process_instance_ids, force=force)
    if form is Format.JSON:
        print_json(deleted_row(deleted))
        say_left(deleted)
    else:
        print_deleted(deleted)


def _signal(
    process_instance_id: int, kind: str, *, wait: bool, timeout: str | None, form: Format
) -> None:
    from common.clock import SystemClock
    from common.model.commands import CommandType
    from common.model.states import ProcessState
    from operations.documents.instances import instance_row
    from operations.instance_commands import put_command
    from operations.instances import find_instance
    from operations.session import opened
    from orcaflow.cli.options import patience_of
    from orcaflow.cli.screens.watch import watch as watch_instance
    from orcaflow.cli.waiting import TAKEN_WITHIN, await_taken, await_taken_or_time_out

    patience = patience_of(timeout, wait=wait)
    with opened() as session:
        command = put_command(session, process_instance_id, CommandType[kind], notify=say)
        if wait:
            await_taken_or_time_out(session, command, patience)
            instance = watch_instance(
                session,
                command.process_instance_id,
                timeout=patience,
                to_stdout=form is not Format.JSON,
            ).instance
        else:
            if not await_taken(session, command, patience=TAKEN_WITHIN):
                say_waiting(command.id)
            instance = find_instance(session, command.process_instance_id)
    if form is Format.JSON:
        row = instance_row(instance, now=SystemClock().now())
        print_json({"command_id": command.id, "instance": row})
    elif not wait:
        done = "stopped" if kind == "STOP" else "paused"
        write(f"asked for process instance {command.process_instance_id} to be {done}")
    if wait and instance.state != ProcessState[kind]:
        # It came to its own end before the command reached it.
        raise typer.Exit(1)
