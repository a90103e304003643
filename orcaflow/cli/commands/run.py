"""`orcaflow run`: begin a run and, if asked to, watch it to its end."""

from __future__ import annotations

from datetime import timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from orcaflow.cli.output import Format, FormatOption, print_json, say, write

if TYPE_CHECKING:
    from common.model.command_param import CommandParam
    from common.store.people.definitions import DefinitionRow
    from common.store.people.views import ProcessInstanceView
    from operations.session import Session

EXAMPLES = (
    "\b\n"
    "Examples:\n"
    "  orcaflow run flights --date 2013-01-02 --wait\n"
    "  orcaflow run flights --param day=2013-01-02 --priority high\n"
    "  orcaflow run flights --start-nodes join --depend post --wait --timeout 10m\n"
)

_FIND_WITHIN_SECONDS = 5.0
_UNITS = {"s": 1, "m": 60, "h": 3600}


class Depend(StrEnum):
    """Which nodes go with the start nodes."""

    ONLY = "only"
    PRE = "pre"
    POST = "post"


class OnFailure(StrEnum):
    """What the final failure of one task means for the others."""

    END = "end"
    CONTINUE = "continue"


class Urgency(StrEnum):
    """The priority of the run."""

    HIGHEST = "highest"
    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"
    LOWEST = "lowest"


def run(
    name: Annotated[str, typer.Argument(help="Name of a definition that is ONLINE.")],
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
    form: FormatOption = Format.TABLE,
) -> None:
    """Begin a run: put a command into t_ds_command, and tell which process instance it became.

    With --wait it is shown as it goes; Ctrl-C then ends the watching and not the run. Exit code 1
    if it was refused or did not succeed, 124 after --timeout. Fields: command_id, instance (as in
    `instance list`), and with --wait tasks (as in `task list`).
    """
    from common.model.command_param import CommandParam
    from common.model.states import FailureStrategy, Priority, TaskDependType
    from common.store.people.commands import put_start
    from operations.lookup import definition_named, nodes_named, worker_group_named
    from operations.session import moment_of, opened

    params = _params(param or [])
    patience = patience_of(timeout, wait=wait)
    if depend is not Depend.POST and not start_nodes:
        raise typer.BadParameter(f"--depend {depend} needs --start-nodes")
    with opened() as session:
        try:
            moment = None if date is None else moment_of(date, session.zone)
        except (ValueError, OverflowError) as error:
            raise typer.BadParameter(str(error), param_hint="--date") from error
        with session.engine.begin() as db:
            definition = definition_named(db, name)
            _check_online(definition)
            names: list[str] = []
            if start_nodes is not None:
                names = nodes_named(
                    definition.process_definition_json or "",
                    start_nodes,
                    owner=repr(definition.name),
                    field="start_nodes",
                )
            command_param = CommandParam.of(start_params=params, start_node_names=names)
            _check_size(session, command_param)
            command_id = put_start(
                db,
                process_definition_id=definition.id,
                param=command_param,
                schedule_time=moment,
                task_depend_type=TaskDependType[f"TASK_{depend.name}"],
                failure_strategy=FailureStrategy[failure_strategy.name],
                priority=Priority[priority.name],
                worker_group_id=-1
                if worker_group is None
                else worker_group_named(db, worker_group),
            )
        try:
            instance_id = _instance_of(session, command_id, patience if wait else None, wait=wait)
            if instance_id is None:
                _tell_waiting(command_id, form)
                return
            if not wait:
                tell_begun(session, command_id, instance_id, form)
                return
            ended_well = watched(session, command_id, instance_id, patience, form)
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


def patience_of(timeout: str | None, *, wait: bool) -> timedelta | None:
    """How long a person wants to wait; None is for ever. A usage error without --wait."""
    if timeout is None:
        return None
    if not wait:
        raise typer.BadParameter("--timeout needs --wait")
    return read_span(timeout)


def read_span(text: str) -> timedelta:
    """A time like 90, 90s, 10m or 2h."""
    number, unit = (text[:-1], text[-1]) if text[-1:] in _UNITS else (text, "s")
    try:
        seconds = float(number) * _UNITS[unit]
        if not 0 < seconds < 10_000_000:
            raise ValueError
    except ValueError:
        raise typer.BadParameter(
            f"{text!r} is no time, as 90s, 10m or 2h is", param_hint="--timeout"
        ) from None
    return timedelta(seconds=seconds)


def _check_online(definition: DefinitionRow) -> None:
    from common.errors import NotAllowedError
    from common.model.states import ReleaseState

    if not definition.usable or definition.release_state is not ReleaseState.ONLINE:
        raise NotAllowedError(
            f"{definition.name!r} is OFFLINE; release it first: "
            f"orcaflow definition online {definition.name!r}"
        )


def _check_size(session: Session, param: CommandParam) -> None:
    from common.errors import NotAllowedError

    limit = session.config.command.param_limit_bytes
    text = param.row_text()
    if "\\u0000" in text:
        raise typer.BadParameter("a parameter has a NUL character", param_hint="--param")
    if len(text.encode("utf-8", "replace")) > limit:
        raise NotAllowedError(
            f"the parameters are larger than {limit} bytes (command.param_limit_bytes)"
        )


def _instance_of(
    session: Session, command_id: int, patience: timedelta | None, *, wait: bool
) -> int | None:
    """The instance that the command became; None if no master has taken it within a few seconds.

    When waiting there is no end to it but the time-out. Raises what the master said if it refused.
    """
    import time

    from common.clock import SystemClock
    from common.errors import SchedulerError
    from common.store.people.commands import outcome
    from orcaflow.cli.screens.watch import WatchTimeoutError

    clock = SystemClock()
    begun = clock.monotonic()
    told = False
    pause = 0.01
    while True:
        with session.engine.connect() as db:
            became = outcome(db, command_id)
        if became.refusal is not None:
            raise SchedulerError(f"command {command_id} was refused: {became.refusal}")
        if became.process_instance_id is not None:
            return became.process_instance_id
        passed = clock.monotonic() - begun
        if patience is not None and passed >= patience.total_seconds():
            raise WatchTimeoutError(
                f"no master has begun command {command_id} within {patience.total_seconds():g} s; "
                "it waits in t_ds_command"
            )
        if passed >= _FIND_WITHIN_SECONDS:
            if not became.waits:
                raise SchedulerError(
                    f"command {command_id} is gone, and no process instance has come of it"
                )
            if not wait:
                return None
            if not told:
                say(
                    f"command {command_id} waits: no master has taken it yet "
                    "(`orcaflow server list` shows the masters)"
                )
                told = True
        # No trigger tells of a command that was refused; a person is waiting, so ask often.
        time.sleep(pause)
        pause = min(pause * 1.3, 0.25)


def _tell_waiting(command_id: int, form: Format) -> None:
    say(
        f"command {command_id} waits: no master has taken it yet. It will run when one does; "
        "`orcaflow server list` shows the masters."
    )
    if form is Format.JSON:
        print_json({"command_id": command_id, "instance": None})


def tell_begun(session: Session, command_id: int, instance_id: int, form: Format) -> None:
    """Say that a command was carried out, by the instance that goes on."""
    from common.clock import SystemClock
    from operations.documents.instances import instance_row
    from operations.lookup import instance_with_id

    with session.engine.connect() as db:
        instance = instance_with_id(db, instance_id)
    if form is Format.JSON:
        row = instance_row(instance, now=SystemClock().now())
        print_json({"command_id": command_id, "instance": row})
    else:
        write(_begun(instance))


def _begun(instance: ProcessInstanceView) -> str:
    """One that has to wait for others of its definition, or was discarded, has not begun."""
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
    """Watch the instance to its end; whether it succeeded."""
    from common.clock import SystemClock
    from operations.documents.instances import instance_row, task_row
    from orcaflow.cli.screens.watch import watch

    sight = watch(session, instance_id, timeout=patience, to_stdout=form is not Format.JSON)
    if form is Format.JSON:
        now = SystemClock().now()
        print_json(
            {
                "command_id": command_id,
                "instance": instance_row(sight.instance, now=now),
                "tasks": [task_row(task, now=now) for task in sight.tasks.values()],
            }
        )
    return sight.succeeded


def _how_to_go_on(session: Session, command_id: int) -> str:
    from common.errors import SchedulerError
    from common.store.people.commands import outcome

    try:
        with session.engine.connect() as db:
            instance_id = outcome(db, command_id).process_instance_id
    except SchedulerError:
        instance_id = None
    if instance_id is None:
        return f"Command {command_id} waits for a master; see `orcaflow instance list`."
    return (
        f"Watch it: `orcaflow instance watch {instance_id}`; "
        f"stop it: `orcaflow instance stop {instance_id}`."
    )
