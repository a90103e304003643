"""Stops, pauses and recovers process instances: puts command rows, and reads if they are taken.

States are checked here to refuse at once what a master would refuse later; the master decides.
Commands to a sub process go to the root of its tree, since a tree is stopped, paused and recovered
as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from common.errors import NotAllowedError
from common.model.commands import CommandOutcome, CommandType
from common.model.rights import Action, Principal
from common.model.states import ProcessState, TaskDependType
from common.store.connect import Connection
from common.store.people.commands import (
    PendingRecovery,
    put_pause,
    put_recovery,
    put_stop,
)
from common.store.people.definitions import DefinitionRow, definition_by_id
from common.store.people.runs import run_shape
from common.store.people.views import ProcessInstanceView
from operations import commands
from operations.documents.instances import name_of
from operations.errors import CommandFailedError, PendingCommandError, UsageError
from operations.lookup import instance_with_id, nodes_named
from operations.rights import Change, change, refusing
from operations.runs import check_online
from operations.session import Session, operation

_ENDED = frozenset(int(state) for state in ProcessState if state.is_terminal)

# The commands for an instance that has ended: the states that allow each, and the rule in words.
_RECOVERABLE: Mapping[CommandType, tuple[frozenset[int], str]] = {
    CommandType.RECOVER_SUSPENDED_PROCESS: (
        frozenset({ProcessState.PAUSE, ProcessState.STOP}),
        "only one that was paused or stopped can be resumed",
    ),
    CommandType.START_FAILURE_TASK_PROCESS: (
        frozenset({ProcessState.FAILURE}),
        "only one that failed has failed tasks to rerun",
    ),
    CommandType.REPEAT_RUNNING: (_ENDED, "only one that has ended can be rerun"),
    CommandType.EXECUTE_TASK: (_ENDED, "tasks can be executed only in one that has ended"),
}


_TAKING_LATEST = frozenset(
    {
        CommandType.RECOVER_SUSPENDED_PROCESS,
        CommandType.START_FAILURE_TASK_PROCESS,
        CommandType.REPEAT_RUNNING,
    }
)
"""The commands that can take the latest version of the definition."""

_WORDS: Mapping[CommandType, str] = {
    CommandType.STOP: "stop",
    CommandType.PAUSE: "pause",
    CommandType.RECOVER_SUSPENDED_PROCESS: "resume",
    CommandType.START_FAILURE_TASK_PROCESS: "rerun-failed",
    CommandType.REPEAT_RUNNING: "rerun",
    CommandType.EXECUTE_TASK: "execute",
}
"""The actions as the audit names them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PutCommand:
    """A command that was put, and the instance that it goes to."""

    id: int
    process_instance_id: int
    command_type: CommandType
    version: int | None = None
    """The version of the definition that a restart runs; None if it is not known."""
    latest_version: int | None = None

    @property
    def has_newer_version(self) -> bool:
        """True if the definition has a later version than the restart runs."""
        return (self.latest_version or 0) > (self.version or 0) > 0


@operation
def put_command(
    session: Session,
    process_instance_id: int,
    command_type: CommandType,
    *,
    start_node_names: Sequence[str] = (),
    task_depend_type: TaskDependType = TaskDependType.TASK_POST,
    takes_latest: bool = False,
    notify: Callable[[str], None] = lambda _: None,
) -> PutCommand:
    """Put the command. Raises `NotAllowedError` where the state or another command forbids it.

    With `takes_latest` the run takes the latest version of its definition, which must be one that
    a new run could have. `notify` is called, before any check, if the command goes to the root of
    the instance's tree.
    """
    word = f"instance.{_WORDS[command_type]}"
    with change(session, word, "instance", object_id=process_instance_id) as made:
        return _put(
            made,
            session.principal,
            process_instance_id,
            command_type,
            start_node_names=start_node_names,
            task_depend_type=task_depend_type,
            takes_latest=takes_latest,
            notify=notify,
        )


@operation
def put_commands(
    session: Session,
    process_instance_ids: Sequence[int],
    command_type: CommandType | None,
    *,
    takes_latest: bool = False,
) -> list[PutCommand]:
    """Put the command to all of these instances or to none; one for each tree of runs.

    None is the command that goes on where each of them ended.
    """
    ids = sorted(set(process_instance_ids))
    word = "instance.recover" if command_type is None else f"instance.{_WORDS[command_type]}"
    listed = ", ".join(map(str, ids))
    put: dict[int, PutCommand] = {}
    with change(session, word, "instance", object_name=listed) as made:
        for number in ids:
            found = instance_with_id(made.db, session.principal, number, action=Action.OPERATE)
            if (found.root_id or number) not in put:
                kind = command_type or _recovery_of(made.db, session.principal, found)
                done = _put(made, session.principal, number, kind, takes_latest=takes_latest)
                put[done.process_instance_id] = done
        made.object_name = listed
        made.detail = f"commands {', '.join(str(each.id) for each in put.values())}"
    return list(put.values())


def _put(
    made: Change,
    principal: Principal,
    process_instance_id: int,
    command_type: CommandType,
    *,
    start_node_names: Sequence[str] = (),
    task_depend_type: TaskDependType = TaskDependType.TASK_POST,
    takes_latest: bool = False,
    notify: Callable[[str], None] = lambda _: None,
) -> PutCommand:
    if takes_latest and command_type not in _TAKING_LATEST:
        raise UsageError(
            "version", f"a {_WORDS[command_type]} goes to the version that the run has"
        )
    db = made.db
    named = instance_with_id(db, principal, process_instance_id, action=Action.OPERATE)
    made.object_name = named.name
    found = named
    if named.root_id not in (0, named.id):
        if command_type is CommandType.EXECUTE_TASK:
            raise NotAllowedError(
                f"process instance {named.id} is a sub process of {named.root_id}; single tasks"
                " can be executed in the root of a tree only"
            )
        # It may be of another project.
        found = instance_with_id(db, principal, named.root_id, action=Action.OPERATE)
        notify(
            f"process instance {named.id} is a sub process: the command goes to the root of its"
            f" tree, {found.id}"
        )
    if command_type in (CommandType.PAUSE, CommandType.STOP):
        _check_live(found, command_type)
        signal = put_stop if command_type is CommandType.STOP else put_pause
        command_id = signal(
            db,
            process_definition_id=found.process_definition_id,
            process_instance_id=found.id,
            executor_id=principal.user_id,
        )
        made.detail = f"command {command_id}"
        return PutCommand(id=command_id, process_instance_id=found.id, command_type=command_type)
    _check_ended(found, command_type)
    definition = _definition(db, found)
    if takes_latest:
        _check_latest(found, definition)
    outcome = put_recovery(
        db,
        command_type=command_type,
        process_definition_id=found.process_definition_id,
        process_instance_id=found.id,
        start_node_names=start_node_names,
        task_depend_type=task_depend_type,
        priority=found.priority,
        executor_id=principal.user_id,
        takes_latest=takes_latest,
    )
    if isinstance(outcome, PendingRecovery):
        raise PendingCommandError(_first_come(found.id, outcome))
    made.detail = f"command {outcome}"
    if takes_latest:
        made.detail += f", with version {found.latest_version} in the place of {found.version}"
    return PutCommand(
        id=outcome,
        process_instance_id=found.id,
        command_type=command_type,
        version=found.latest_version if takes_latest else found.version,
        latest_version=found.latest_version,
    )


@operation
def recover(
    session: Session,
    process_instance_id: int,
    *,
    takes_latest: bool = False,
    notify: Callable[[str], None] = lambda _: None,
) -> PutCommand:
    """Put the command that goes on where the instance, or the root of its tree, ended."""
    # What may only be seen is refused by `put_command`, which notes it.
    with refusing(session, "instance.recover", "instance", process_instance_id) as db:
        named = instance_with_id(db, session.principal, process_instance_id)
        kind = _recovery_of(db, session.principal, named)
    return put_command(session, process_instance_id, kind, takes_latest=takes_latest, notify=notify)


def _recovery_of(db: Connection, principal: Principal, named: ProcessInstanceView) -> CommandType:
    root = instance_with_id(db, principal, named.root_id or named.id)
    if root.state == ProcessState.FAILURE:
        return CommandType.START_FAILURE_TASK_PROCESS
    return CommandType.RECOVER_SUSPENDED_PROCESS


@operation
def execute_tasks(
    session: Session,
    process_instance_id: int,
    tasks: str,
    mode: TaskDependType,
    *,
    notify: Callable[[str], None] = lambda _: None,
) -> PutCommand:
    """Put the command that runs the tasks of a comma list again; `mode` adds their neighbours."""
    word = f"instance.{_WORDS[CommandType.EXECUTE_TASK]}"
    with refusing(session, word, "instance", process_instance_id) as db:
        instance_with_id(db, session.principal, process_instance_id)
        shape = run_shape(db, process_instance_id)
        names = nodes_named(
            "" if shape is None else shape.process_instance_json,
            tasks,
            owner=f"process instance {process_instance_id}",
            field="tasks",
        )
    return put_command(
        session,
        process_instance_id,
        CommandType.EXECUTE_TASK,
        start_node_names=names,
        task_depend_type=mode,
        notify=notify,
    )


@operation
def is_taken(session: Session, command: PutCommand) -> bool:
    """True once a master has carried the command out; `CommandFailedError` if it had no effect.

    A stop that was dropped since the instance is being stopped already has what it wants, and a
    pause likewise.
    """
    try:
        return commands.outcome(session, command.id) is not None
    except CommandFailedError as error:
        if error.command.outcome is CommandOutcome.DROPPED and _is_so(session, command):
            return True
        raise


_WANTED: Mapping[CommandType, frozenset[int]] = {
    CommandType.STOP: frozenset({ProcessState.READY_STOP, ProcessState.STOP}),
    CommandType.PAUSE: frozenset({ProcessState.READY_PAUSE, ProcessState.PAUSE}),
}


def _is_so(session: Session, command: PutCommand) -> bool:
    wanted = _WANTED.get(command.command_type, frozenset())
    with session.engine.connect() as db:
        found = instance_with_id(db, session.principal, command.process_instance_id)
    return found.state in wanted or (found.state not in _ENDED and found.wanted_state in wanted)


def _check_live(found: ProcessInstanceView, command_type: CommandType) -> None:
    if found.state in _ENDED:
        raise NotAllowedError(
            f"process instance {found.id} has ended already: {name_of(ProcessState, found.state)}"
        )
    if found.state == ProcessState.SERIAL_WAIT and command_type is CommandType.PAUSE:
        raise NotAllowedError(
            f"process instance {found.id} has not begun: it waits for its turn, and can be stopped"
            f" but not paused (orcaflow instance stop {found.id})"
        )


def _check_ended(found: ProcessInstanceView, command_type: CommandType) -> None:
    states, rule = _RECOVERABLE[command_type]
    if found.state in states:
        return
    state = name_of(ProcessState, found.state)
    cure = _cure(found, command_type)
    raise NotAllowedError(f"process instance {found.id} is {state}; {rule} ({cure})")


def _definition(db: Connection, found: ProcessInstanceView) -> DefinitionRow | None:
    """Return the run's definition, if it names one; refuse a deleted definition."""
    number = found.process_definition_id
    definition = definition_by_id(db, number) if number else None
    if number and definition is None:
        raise NotAllowedError(
            f"process instance {found.id} can't run again: its definition {number} was deleted;"
            " import it, and start a new run"
        )
    return definition


def _check_latest(found: ProcessInstanceView, definition: DefinitionRow | None) -> None:
    """Refuse what a master would refuse to a new run of the definition, but for its grants."""
    if definition is None:
        raise NotAllowedError(f"process instance {found.id} has no definition with versions")
    check_online(definition)


def _cure(found: ProcessInstanceView, command_type: CommandType) -> str:
    """Name the command that does what was meant, or those that lead there."""
    instance = f"orcaflow instance {{}} {found.id}".format
    meant = instance("rerun" if command_type is CommandType.REPEAT_RUNNING else "recover")
    if found.state in _ENDED:
        if found.state == ProcessState.SUCCESS:
            return f"run all of it again: {instance('rerun')}"
        if found.state == ProcessState.FAILURE:
            return f"go on where it ended: {instance('recover')}"
        return (
            f"go on with what was killed or never began: {instance('resume')} --wait; what fails"
            f" then: {instance('rerun')} --failed"
        )
    if found.state == ProcessState.SERIAL_WAIT:
        return f"it waits for its turn and begins by itself: {instance('why')}"
    for kind, word in ((CommandType.PAUSE, "paused"), (CommandType.STOP, "stopped")):
        if found.state in _WANTED[kind] or found.wanted_state in _WANTED[kind]:
            return f"it is being {word}; see that end, then go on: {instance('watch')}; {meant}"
    return f"stop it first: {instance('stop')}"


def _first_come(process_instance_id: int, pending: PendingRecovery) -> str:
    if pending.id == 0:
        return f"process instance {process_instance_id} was recovered by somebody else just now"
    kind = name_of(CommandType, pending.command_type)
    return (
        f"process instance {process_instance_id} is being recovered already: command {pending.id}"
        f" ({kind}) waits since {pending.start_time:%Y-%m-%d %H:%M:%S %Z}"
        f" (orcaflow instance why --command {pending.id})"
    )
