"""`orcaflow run`: begin a run and, if asked to, watch it to its end."""

from __future__ import annotations

import contextlib
from datetime import timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from orcaflow.cli.output import Format, FormatOption, print_json, say, write

if TYPE_CHECKING:
    from common.store.people.views import ProcessInstanceView
    from operations.session import Session

app = typer.Typer(add_completion=False, rich_markup_mode=None)

_EXAMPLES = (
    "\b\n"
    "Examples:\n"
    "  orcaflow run flights --date 2013-01-02 --wait\n"
    "  orcaflow run flights --param day=2013-01-02 --priority high\n"
    "  orcaflow run flights --start-nodes join --depend post --wait --timeout 10m\n"
)


class Depend(StrEnum):
    """The nodes that go with the start nodes."""

    ONLY = "only"
    PRE = "pre"
    POST = "post"


class OnFailure(StrEnum):
    """The effect of one task's final failure on the others."""

    END = "end"
    CONTINUE = "continue"


class Urgency(StrEnum):
    """The priority of the run."""

    HIGHEST = "highest"
    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"
    LOWEST = "lowest"


class Warn(StrEnum):
    """The ends of a run that raise an alert."""

    NONE = "none"
    SUCCESS = "success"
    FAILURE = "failure"
    ALL = "all"


WARNING_HELP = (
    "The ends that raise an alert for alert group 1, which `alert list` shows: none, success,"
    " failure or all."
)


@app.command(epilog=_EXAMPLES)
def run(
    name: Annotated[str, typer.Argument(help="Name or id of a definition that is ONLINE.")],
    *,
    param: Annotated[
        list[str] | None,
        typer.Option("--param", "-p", metavar="NAME=VALUE", help="A start-up parameter; repeat."),
    ] = None,
    date: Annotated[
        str | None,
        typer.Option("--date", metavar="DATE", help="The date that time placeholders count from."),
    ] = None,
    wait: Annotated[
        bool, typer.Option("--wait", "-w", help="Watch it to its end; exit code 0 on success.")
    ] = False,
    timeout: Annotated[
        str | None,
        typer.Option("--timeout", metavar="TIME", help="Watch no longer, as 90s, 10m or 2h."),
    ] = None,
    start_nodes: Annotated[
        str | None,
        typer.Option("--start-nodes", metavar="A,B", help="Tasks to start from; without it all."),
    ] = None,
    depend: Annotated[
        Depend, typer.Option(help="With start nodes: those alone, or what is before or after too.")
    ] = Depend.POST,
    failure_strategy: Annotated[
        OnFailure, typer.Option(help="Once a task has failed: end the others, or continue.")
    ] = OnFailure.CONTINUE,
    priority: Annotated[Urgency, typer.Option(help="Who goes first.")] = Urgency.MEDIUM,
    worker_group: Annotated[
        str | None, typer.Option(metavar="GROUP", help="For tasks that name no group themselves.")
    ] = None,
    environment: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="For tasks that name no environment themselves."),
    ] = None,
    warning_type: Annotated[Warn, typer.Option("--warning-type", help=WARNING_HELP)] = Warn.NONE,
    form: FormatOption = Format.TABLE,
) -> None:
    """Begin a run: put a command into t_ds_command, and tell which process instance it became.

    With --wait it is shown as it goes; Ctrl-C then ends the watching and not the run. Exit code 1
    if it was refused, discarded or did not succeed, 124 after --timeout. Fields: command_id,
    instance (as in `instance list`), and with --wait tasks (as in `task list`).
    """
    from common.model.states import FailureStrategy, Priority, TaskDependType, WarningType
    from operations.errors import CommandFailedError
    from operations.runs import begin_run
    from operations.session import opened
    from orcaflow.cli.options import patience_of
    from orcaflow.cli.waiting import await_instance

    params = _params(param or [])
    patience = patience_of(timeout, wait=wait)
    if depend is not Depend.POST and not start_nodes:
        raise typer.BadParameter(f"--depend {depend} needs --start-nodes")
    with opened() as session:
        command_id = begin_run(
            session,
            name,
            params=params,
            date=date,
            start_nodes=start_nodes,
            depend=TaskDependType[f"TASK_{depend.name}"],
            failure_strategy=FailureStrategy[failure_strategy.name],
            priority=Priority[priority.name],
            worker_group=worker_group,
            warning_type=WarningType[warning_type.name],
            environment=environment,
        )
        try:
            instance_id = await_instance(session, command_id, patience if wait else None, wait=wait)
            if instance_id is None:
                _report_waiting(command_id, form)
                return
            if not wait:
                report_begun(session, command_id, instance_id, form)
                return
            ended_well = watched(session, command_id, instance_id, patience, form)
        except CommandFailedError as error:
            made = error.command.process_instance_id
            if made is None:
                raise
            report_begun(session, command_id, made, form)
            raise typer.Exit(1) from None
        except KeyboardInterrupt:
            say(f"\nNot watching any more; the run goes on. {_how_to_go_on(session, command_id)}")
            raise typer.Exit(130) from None
    if not ended_well:
        raise typer.Exit(1)


def _params(pairs: list[str]) -> dict[str, str]:
    params: dict[str, str] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name.strip():
            raise typer.BadParameter(f"{pair!r} is not NAME=VALUE", param_hint="--param")
        if name in params:
            raise typer.BadParameter(f"{name!r} is given twice", param_hint="--param")
        params[name.strip()] = value
    return params


def _report_waiting(command_id: int, form: Format) -> None:
    say(
        f"command {command_id} waits: no master has taken it yet. It will run when one does; "
        "`orcaflow server list` shows the masters."
    )
    if form is Format.JSON:
        print_json({"command_id": command_id, "instance": None})


def report_begun(session: Session, command_id: int, instance_id: int, form: Format) -> None:
    """Report that a command was carried out, with the instance that goes on."""
    from common.clock import SystemClock
    from operations.documents.instances import instance_row
    from operations.instances import find_instance

    instance = find_instance(session, instance_id)
    if form is Format.JSON:
        row = instance_row(instance, now=SystemClock().now())
        print_json({"command_id": command_id, "instance": row})
    else:
        write(_begun(instance))


def _begun(instance: ProcessInstanceView) -> str:
    """The state in words: an instance that waits its turn, or was discarded, has not begun."""
    from common.model.states import ProcessState

    what = f"process instance {instance.id}"
    if instance.state == ProcessState.SERIAL_WAIT:
        return f"{what} waits for its turn: orcaflow instance why {instance.id}"
    if instance.state == ProcessState.STOP:
        return f"{what} has ended: STOP: {instance.state_reason or 'stopped'}"
    return f"{what} has begun: orcaflow instance watch {instance.id}"


def watched(
    session: Session,
    command_id: int,
    instance_id: int,
    patience: timedelta | None,
    form: Format,
) -> bool:
    """Watch the instance to its end; true if it succeeded."""
    from common.clock import SystemClock
    from operations.documents.instances import instance_row, task_row
    from orcaflow.cli.screens.watch import watch

    snapshot = watch(session, instance_id, timeout=patience, to_stdout=form is not Format.JSON)
    if form is Format.JSON:
        now = SystemClock().now()
        print_json(
            {
                "command_id": command_id,
                "instance": instance_row(snapshot.instance, now=now),
                "tasks": [task_row(task, now=now) for task in snapshot.tasks.values()],
            }
        )
    return snapshot.succeeded


def _how_to_go_on(session: Session, command_id: int) -> str:
    from common.errors import SchedulerError
    from operations.commands import outcome

    instance_id = None
    with contextlib.suppress(SchedulerError):
        taken = outcome(session, command_id)
        instance_id = None if taken is None else taken.process_instance_id
    if instance_id is None:
        return f"Command {command_id} waits for a master; see `orcaflow instance list`."
    return (
        f"Watch it: `orcaflow instance watch {instance_id}`; "
        f"stop it: `orcaflow instance stop {instance_id}`."
    )
