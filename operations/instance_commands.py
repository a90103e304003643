"""Asks something of a process instance that is there: puts a command row, and sees it taken.

What a state allows is looked at here only to say at once what a master would say later; the master
decides. Commands to a sub process go to the root of its tree, since a tree is stopped, paused and
recovered as a whole.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from common.clock import SystemClock
from common.errors import NotAllowedError, SchedulerError
from common.model.commands import CommandType
from common.model.states import ProcessState, TaskDependType
from common.store.people.commands import (
    PendingRecovery,
    is_waiting,
    put_pause,
    put_recovery,
    put_stop,
    refusal_of,
)
from common.store.people.views import ProcessInstanceView
from operations.documents.instances import name_of
from operations.lookup import instance_with_id
from operations.session import Session
from orcaflow.cli.output import say
from orcaflow.cli.screens.watch import WatchTimeoutError

TAKEN_WITHIN = timedelta(seconds=5)

_ENDED = frozenset(int(state) for state in ProcessState if state.is_terminal)

# What can be asked of an instance that has ended, by how it ended, and how that is called.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A command that was put, and the instance that it is about."""

    command_id: int
    process_instance_id: int


def ask(
    session: Session,
    process_instance_id: int,
    command_type: CommandType,
    *,
    start_node_names: Sequence[str] = (),
    task_depend_type: TaskDependType = TaskDependType.TASK_POST,
) -> Asked:
    """Put the command. Raises `NotAllowedError` where the state or another command forbids it."""
    with session.engine.begin() as db:
        named = instance_with_id(db, process_instance_id)
        found = named
        if named.root_id not in (0, named.id):
            if command_type is CommandType.EXECUTE_TASK:
                raise NotAllowedError(
                    f"process instance {named.id} is a sub process of {named.root_id}; single tasks"
                    " can be executed in the root of a tree only"
                )
            found = instance_with_id(db, named.root_id)
            say(
                f"process instance {named.id} is a sub process: the command goes to the root of its"
                f" tree, {found.id}"
            )
        if command_type in (CommandType.PAUSE, CommandType.STOP):
            _check_live(found)
            put = put_stop if command_type is CommandType.STOP else put_pause
            command_id = put(
                db,
                process_definition_id=found.process_definition_id,
                process_instance_id=found.id,
            )
            return Asked(command_id=command_id, process_instance_id=found.id)
        _check_ended(found, command_type)
        outcome = put_recovery(
            db,
            command_type=command_type,
            process_definition_id=found.process_definition_id,
            process_instance_id=found.id,
            start_node_names=start_node_names,
            task_depend_type=task_depend_type,
            priority=found.priority,
        )
        if isinstance(outcome, PendingRecovery):
            raise NotAllowedError(_first_come(found.id, outcome))
        return Asked(command_id=outcome, process_instance_id=found.id)


def recovery_of(state: int) -> CommandType:
    """How an instance that ended like this goes on where it ended."""
    if state == ProcessState.FAILURE:
        return CommandType.START_FAILURE_TASK_PROCESS
    return CommandType.RECOVER_SUSPENDED_PROCESS


def await_taken(session: Session, asked: Asked, *, patience: timedelta | None) -> bool:
    """Whether a master took the command in time; `None` waits for ever, saying so once.

    Raises what the master said if it refused.
    """
    clock = SystemClock()
    begun = clock.monotonic()
    told = False
    pause = 0.01
    while True:
        with session.engine.connect() as db:
            waits = is_waiting(db, asked.command_id)
            refusal = None if waits else refusal_of(db, asked.command_id)
        if refusal is not None:
            raise SchedulerError(f"command {asked.command_id} was refused: {refusal}")
        if not waits:
            return True
        passed = timedelta(seconds=clock.monotonic() - begun)
        if patience is not None and passed >= patience:
            return False
        if not told and passed >= TAKEN_WITHIN:
            say(
                f"command {asked.command_id} waits: no master has taken it yet"
                f" (orcaflow instance why --command {asked.command_id})"
            )
            told = True
        # No trigger tells of a command that was refused; a person is waiting, so ask often.
        time.sleep(pause)
        pause = min(pause * 1.3, 0.25)


def await_taken_or_time_out(session: Session, asked: Asked, patience: timedelta | None) -> None:
    if not await_taken(session, asked, patience=patience):
        raise WatchTimeoutError(
            f"no master has taken command {asked.command_id} in time; it waits in t_ds_command"
        )


def _check_live(found: ProcessInstanceView) -> None:
    if found.state in _ENDED:
        raise NotAllowedError(
            f"process instance {found.id} has ended already: {name_of(ProcessState, found.state)}"
        )


def _check_ended(found: ProcessInstanceView, command_type: CommandType) -> None:
    states, rule = _RECOVERABLE[command_type]
    if found.state in states:
        return
    state = name_of(ProcessState, found.state)
    if found.state not in _ENDED:
        cure = f"stop it first: orcaflow instance stop {found.id}"
    elif found.state == ProcessState.SUCCESS:
        cure = f"run all of it again: orcaflow instance rerun {found.id}"
    else:
        cure = f"go on where it ended: orcaflow instance recover {found.id}"
    raise NotAllowedError(f"process instance {found.id} is {state}; {rule} ({cure})")


def _first_come(process_instance_id: int, pending: PendingRecovery) -> str:
    if pending.id == 0:
        return f"process instance {process_instance_id} was recovered by somebody else just now"
    kind = name_of(CommandType, pending.command_type)
    return (
        f"process instance {process_instance_id} is being recovered already: command {pending.id}"
        f" ({kind}) waits since {pending.start_time:%Y-%m-%d %H:%M:%S %Z}"
        f" (orcaflow instance why --command {pending.id})"
    )
