"""`orcaflow task`: attempts at tasks, their logs, and what their parameters come to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from orcaflow.cli.output import (
    Format,
    FormatOption,
    escaped,
    escaped_log,
    print_json,
    print_rows,
    write,
)

if TYPE_CHECKING:
    from operations.log_pieces import Log
    from operations.session import Session

app = typer.Typer(
    help="Look at attempts at tasks, their logs and parameters.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)

_LONGEST_LINE = 1_000_000

_Id = Annotated[int, typer.Argument(metavar="ID", help="Id of a task instance.", min=1)]


@app.command(
    name="list",
    epilog=(
        "\b\n"
        "Examples:\n"
        "  orcaflow task list --instance 12\n"
        "  orcaflow task list --state running -o json\n"
    ),
)
def list_(
    *,
    instance: Annotated[
        int | None, typer.Option("--instance", metavar="ID", help="Only of this instance.", min=1)
    ] = None,
    state: Annotated[
        list[str] | None,
        typer.Option("--state", metavar="STATE", help="Only in this state, as running; repeat."),
    ] = None,
    every: Annotated[
        bool, typer.Option("--all", help="Also attempts whose place another has taken.")
    ] = False,
    limit: Annotated[int, typer.Option(min=1, max=100_000, help="No more than so many.")] = 100,
    form: FormatOption = Format.TABLE,
) -> None:
    """List attempts in the order in which they were made; the newest, if there are too many.

    Fields: id, process_instance_id, name, task_type, attempt, state, state_code, wanted_state,
    reason, failure_reason (a word for it), exit_code, valid, submit_time, start_time, end_time,
    duration (seconds), host, lost_at (set while its processes may run though it was given up or its
    worker is missing), pid, retry_times, max_retry_times, retry_at, log_path, execute_path,
    due_at (until when a delay holds it), branch (what a SWITCH or CONDITIONS took); of Spark also
    memory_factor, app_link (ids of applications), ui_link, history_link, progress, usage (objects).
    """
    from common.clock import SystemClock
    from operations.documents.instances import task_row
    from operations.session import opened
    from operations.tasks import list_tasks
    from orcaflow.cli.screens.task_table import TASK_COLUMNS, task_table

    with opened() as session:
        found = list_tasks(
            session,
            process_instance_id=instance,
            states=state or (),
            valid_only=not every,
            limit=limit,
        )
    now = SystemClock().now()
    wanted = (
        "id",
        "process_instance_id",
        *TASK_COLUMNS[1:],
        "progress",
        "failure_reason",
        "lost_at",
    )
    rows, columns = task_table(found, wanted, now=now)
    print_rows(
        [task_row(view, now=now) for view in found] if form is Format.JSON else rows,
        form=form,
        columns=columns,
        zone=session.zone,
        none="There are no such task instances.",
    )


@app.command(
    epilog=("\b\nExamples:\n  orcaflow task log 34 -f\n  orcaflow task log 34 --lines 50\n")
)
def log(
    task_instance_id: _Id,
    *,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on until the attempt has ended.")
    ] = False,
    lines: Annotated[
        int | None, typer.Option("--lines", "-n", help="Only the last so many.", min=0)
    ] = None,
) -> None:
    """Print the log of an attempt. Colours are kept; other signs that steer a terminal are shown.

    It is read below $ORCAFLOW_HOME/tasks/logs, else from the worker that ran the task, or another
    one of its host. A control task
    (SUB_PROCESS, DEPENDENT, CONDITIONS, SWITCH) has none: its decision is printed.
    """
    from operations.control_decisions import decision_of, is_control_task
    from operations.session import opened
    from operations.tasks import find_task
    from operations.worker_logs import opened_anywhere
    from orcaflow.cli.screens.decisions import decision_lines
    from orcaflow.cli.waiting import await_end, await_log

    with opened() as session:
        task = find_task(session, task_instance_id)
        try:
            if is_control_task(task):
                if follow:
                    await_end(session, task_instance_id)
                shown = list(decision_lines(decision_of(session, task_instance_id)))
                for line in shown if lines is None else shown[max(0, len(shown) - lines) :]:
                    write(line)
                return
            if follow and task.end_time is None:
                task = await_log(session, task_instance_id)
            with opened_anywhere(session, task, waits=follow) as opened_file:
                if lines is not None:
                    opened_file.skip_to_last(lines)
                if follow:
                    _follow(session, task_instance_id, opened_file)
                else:
                    _put_rest("", opened_file)
        except KeyboardInterrupt:
            raise typer.Exit(130) from None


@app.command(epilog="Example: orcaflow task render 34")
def render(task_instance_id: _Id, form: FormatOption = Format.TABLE) -> None:
    """Print the parameters of an attempt, and its texts with the parameters put in.

    Time placeholders count from the schedule time, else from the start of the attempt, else from
    now. Values of parameters whose names sound secret are masked. Fields: id, name, task_type,
    moment, parameters, origins (built-in, global, upstream, local or start-up), params, put_out.
    """
    from operations.documents.tasks import rendered_row
    from operations.session import opened
    from operations.tasks import render_task

    with opened() as session:
        task, result = render_task(session, task_instance_id)
    if form is Format.JSON:
        print_json(rendered_row(task, result))
        return
    write("parameters:")
    for name, value in result.parameters.items():
        write(f"  {escaped(name)} = {escaped(value)}  ({result.origins[name]})")
    if result.put_out:
        write("put out:")
        for name, value in result.put_out.items():
            write(f"  {escaped(name)} = {escaped(value)}")
    for key, value in result.params.items():
        if isinstance(value, str):
            write(f"{escaped(key)}:")
            for line in value.splitlines():
                write(f"  {escaped(line)}")
        elif value:
            import json

            write(f"{escaped(key)}: {json.dumps(value, ensure_ascii=True)}")


@app.command(name="force-success", epilog="Example: orcaflow task force-success 34")
def force_success(task_instance_id: _Id, form: FormatOption = Format.TABLE) -> None:
    """Declare a failed attempt to be good, or pass a DEPENDENT that waits.

    The valid attempt of a task that failed or was killed, in a run that has ended: nothing runs by
    this alone, `orcaflow instance recover` continues after it. Or a DEPENDENT that waits: its run
    continues. Exit code 4 for any other. Fields: as `list`.
    """
    from common.clock import SystemClock
    from operations import tasks
    from operations.documents.instances import task_row
    from operations.instances import find_instance
    from operations.session import opened

    with opened() as session:
        after = tasks.force_success(session, task_instance_id)
        run = find_instance(session, after.process_instance_id)
    if form is Format.JSON:
        print_json(task_row(after, now=SystemClock().now()))
        return
    # The run of a DEPENDENT that waited continues by itself.
    word = "recover" if run.end_time is not None else "watch"
    write(
        f"task instance {task_instance_id} ({escaped(after.name)}) counts as a success now;"
        f" go on: orcaflow instance {word} {after.process_instance_id}"
    )


@app.command(epilog="Example: orcaflow task why 34")
def why(task_instance_id: _Id, form: FormatOption = Format.TABLE) -> None:
    """Say why an attempt is not running, or not done: what it waits for, and what that waits for.

    `orcaflow instance why ID --task NAME` does the same for a task that has no attempt yet. Fields
    of each cause: cause (a word for programs), subject, since, next (what will be looked at),
    next_at, text, depth (below the cause before it).
    """
    from operations.explaining import causes_of_task_instance
    from operations.session import opened
    from orcaflow.cli.screens.causes import print_causes

    with opened() as session:
        causes = causes_of_task_instance(session, task_instance_id)
    print_causes(causes, form=form, zone=session.zone)


def _follow(session: Session, task_instance_id: int, opened_file: Log) -> None:
    """Print what is added until the attempt has ended; then what came in between, too."""
    from datetime import timedelta

    from common.clock import SystemClock
    from common.store.listen import Channel
    from operations.tasks import find_task

    clock = SystemClock()
    unfinished = ""
    look_at = 0.0
    with session.news((Channel.TASK,), application_name="orcaflow-log") as notifications:
        ended = False
        while not ended:
            if clock.monotonic() >= look_at:
                ended = find_task(session, task_instance_id).end_time is not None
                look_at = clock.monotonic() + 1.0
            while piece := opened_file.read():
                unfinished = _put_lines(unfinished + piece)
            if not ended and notifications.wait(timedelta(milliseconds=150)):
                look_at = 0.0
    _put_rest(unfinished, opened_file)


def _put_rest(unfinished: str, opened_file: Log) -> None:
    for piece in opened_file.rest():
        unfinished = _put_lines(unfinished + piece)
    _put(unfinished)


def _put_lines(text: str) -> str:
    """Print the whole lines; the rest, which waits, since a colour in it could be cut in two."""
    end = len(text) if len(text) > _LONGEST_LINE else text.rfind("\n") + 1
    _put(text[:end])
    return text[end:]


def _put(text: str) -> None:
    import sys

    if text:
        sys.stdout.write(escaped_log(text))
        sys.stdout.flush()
