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
    say,
    write,
)

if TYPE_CHECKING:
    from operations.session import Session
    from operations.task_log import TaskLog

app = typer.Typer(
    help="Look at attempts at tasks, their logs and parameters.",
    no_args_is_help=True,
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
    duration (seconds), host, pid, retry_times, max_retry_times, retry_at, log_path, execute_path,
    due_at (until when a delay holds it), branch (what a SWITCH or CONDITIONS took); of Spark also
    memory_factor, app_link (ids of applications), ui_link, history_link, progress, usage (objects).
    """
    from common.clock import SystemClock
    from common.model.states import TaskState
    from common.store.people.views import task_instances
    from operations.documents.instances import TASK_COLUMNS, task_row, task_table
    from operations.lookup import instance_with_id
    from operations.session import opened
    from orcaflow.cli.commands.instance import read_state

    codes = None if not state else [int(read_state(TaskState, each)) for each in state]
    with opened() as session, session.engine.connect() as db:
        if instance is not None:
            instance_with_id(db, instance)
        found = task_instances(
            db, process_instance_id=instance, states=codes, valid_only=not every, limit=limit
        )
    now = SystemClock().now()
    wanted = ("id", "process_instance_id", *TASK_COLUMNS[1:], "progress", "failure_reason")
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

    It is read on the computer that ran the task, below $ORCAFLOW_HOME/tasks/logs.
    """
    from operations.lookup import task_with_id
    from operations.session import opened
    from operations.task_log import opened_log

    with opened() as session:
        with session.engine.connect() as db:
            task = task_with_id(db, task_instance_id)
        try:
            if follow and task.end_time is None:
                task_log_path = _awaited_path(session, task_instance_id)
            else:
                task_log_path = task.log_path
            with opened_log(session.config.home, task_log_path) as opened_file:
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
    from common.clock import SystemClock
    from common.errors import NotFoundError
    from common.store.people.runs import task_document
    from operations.lookup import task_with_id
    from operations.rendering import rendered
    from operations.session import opened

    with opened() as session, session.engine.connect() as db:
        task = task_with_id(db, task_instance_id)
        document = task_document(db, task_instance_id)
    if document is None:
        raise NotFoundError(f"task instance {task_instance_id} is gone")
    result = rendered(document, config=session.config, now=SystemClock().now())
    if form is Format.JSON:
        print_json(
            {
                "id": task.id,
                "name": task.name,
                "task_type": task.task_type,
                "moment": result.moment,
                "parameters": result.parameters,
                "origins": result.origins,
                "params": result.params,
                "put_out": result.put_out,
            }
        )
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
    """Declare a failed attempt to be good, so that a recovery goes on behind it.

    Only the valid attempt of a task that failed or was killed, in a run that has ended; else exit
    code 4. Nothing runs by this alone: `orcaflow instance recover` goes on. Fields: as `list`.
    """
    from common.clock import SystemClock
    from common.errors import NotAllowedError
    from common.model.states import ProcessState, TaskState
    from common.store.people.runs import force_success as force
    from operations.documents.instances import name_of, task_row
    from operations.lookup import instance_with_id, task_with_id
    from operations.session import opened

    now = SystemClock().now()
    with opened() as session, session.engine.begin() as db:
        before = task_with_id(db, task_instance_id)
        reason = "declared a success by hand"
        if before.state in (TaskState.FAILURE, TaskState.KILL, TaskState.NEED_FAULT_TOLERANCE):
            was = name_of(TaskState, before.state)
            reason += f"; it was {was}" + (f": {before.reason}" if before.reason else "")
        if not force(db, task_instance_id, at=now, reason=reason[:4000]):
            run = instance_with_id(db, before.process_instance_id)
            state = name_of(TaskState, before.state)
            if not before.valid:
                cause = "another attempt has taken its place"
            elif before.state not in (
                TaskState.FAILURE,
                TaskState.KILL,
                TaskState.NEED_FAULT_TOLERANCE,
            ):
                cause = f"it is {state}, and only a failed or killed attempt can be declared good"
            else:
                cause = (
                    f"its process instance {run.id} is {name_of(ProcessState, run.state)};"
                    f" wait for its end, or stop it: orcaflow instance stop {run.id}"
                )
            raise NotAllowedError(f"task instance {task_instance_id}: {cause}")
        after = task_with_id(db, task_instance_id)
    if form is Format.JSON:
        print_json(task_row(after, now=now))
        return
    write(
        f"task instance {task_instance_id} ({escaped(after.name)}) counts as a success now;"
        f" go on: orcaflow instance recover {after.process_instance_id}"
    )


@app.command(epilog="Example: orcaflow task why 34")
def why(task_instance_id: _Id, form: FormatOption = Format.TABLE) -> None:
    """Say why an attempt is not running, or not done: what it waits for, and what that waits for.

    `orcaflow instance why ID --task NAME` does the same for a task that has no attempt yet. Fields
    of each cause: cause (a word for programs), subject, since, next (what will be looked at),
    next_at, text, depth (below the cause before it).
    """
    from common.why import Cause, CauseKind, why_task
    from operations.explaining import facts_of_instance, print_causes
    from operations.lookup import task_with_id
    from operations.session import opened

    with opened() as session:
        with session.engine.connect() as db:
            task = task_with_id(db, task_instance_id)
        facts = facts_of_instance(session, task.process_instance_id)
    causes = why_task(facts, task.process_instance_id, task.name)
    current = {each.id for each in facts.runs[task.process_instance_id].attempts}
    if task_instance_id not in current:
        causes = (
            Cause(
                cause=CauseKind.SUPERSEDED,
                subject=f"task instance {task_instance_id}",
                text=f"attempt {task.attempt} at {task.name!r} is over: another has taken its"
                " place, or a recovery starts the task afresh",
                since=task.end_time,
                because=causes,
            ),
        )
    print_causes(causes, form=form, zone=session.zone)


def _awaited_path(session: Session, task_instance_id: int) -> str | None:
    """The path of the log, once a worker has begun the attempt."""
    import time

    from operations.lookup import task_with_id
    from operations.task_log import LogMissingError, opened_log

    told = False
    while True:
        with session.engine.connect() as db:
            task = task_with_id(db, task_instance_id)
        if task.end_time is not None:
            return task.log_path
        if task.log_path:
            try:
                with opened_log(session.config.home, task.log_path):
                    return task.log_path
            except LogMissingError:
                # Claimed a moment ago, or running on another computer, which ends it all the same.
                if told:
                    return task.log_path
        if not told:
            say(f"waiting for a worker to start task instance {task_instance_id}")
            told = True
        # No trigger tells of a task that begins; only a person waits here, and no daemon.
        time.sleep(0.3)


def _follow(session: Session, task_instance_id: int, opened_file: TaskLog) -> None:
    """Print what is added until the attempt has ended; then what came in between, too."""
    from datetime import timedelta

    from common.clock import SystemClock
    from common.store.listen import Channel, Notifications
    from operations.lookup import task_with_id

    clock = SystemClock()
    unfinished = ""
    look_at = 0.0
    with Notifications(
        session.url, (Channel.TASK,), application_name="orcaflow-log"
    ) as notifications:
        ended = False
        while not ended:
            if clock.monotonic() >= look_at:
                with session.engine.connect() as db:
                    ended = task_with_id(db, task_instance_id).end_time is not None
                look_at = clock.monotonic() + 1.0
            while piece := opened_file.read():
                unfinished = _put_lines(unfinished + piece)
            if not ended and notifications.wait(timedelta(milliseconds=150)):
                look_at = 0.0
    _put_rest(unfinished, opened_file)


def _put_rest(unfinished: str, opened_file: TaskLog) -> None:
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
