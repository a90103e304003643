"""Causes that keep a row of `t_ds_command` from being taken or carried out. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from common.model.commands import BEGINNING_COMMANDS, INTENT_COMMANDS, CommandType
from common.why.causes import Cause, CauseKind
from common.why.cluster import no_master_cause, no_zookeeper_cause
from common.why.facts import Facts, PendingCommand
from common.why.phrases import by_address, counted, state_name
from common.why.shares import holds_share, share_cause

_ROOMLESS = (CommandType.RECOVER_TOLERANCE_FAULT_PROCESS, *INTENT_COMMANDS)


def command_cause(facts: Facts, command: PendingCommand) -> Cause:
    """Build the cause for a command that no master has taken."""
    kind = state_name(CommandType, command.command_type)
    subject = f"command {command.id}"
    about = f" for {command.definition_name!r}" if command.definition_name else ""
    because = tuple(_behind_command(facts, command))
    return Cause(
        cause=CauseKind.COMMAND,
        subject=subject,
        text=f"command {command.id} ({kind}){about} waits for a master to take it",
        since=command.start_time,
        next=None if because else "a master looks at the commands at once, or within a second",
        because=because,
    )


def _behind_command(facts: Facts, command: PendingCommand) -> Iterator[Cause]:
    alive = facts.alive
    begins = command.command_type in BEGINNING_COMMANDS
    if begins and command.release_state is None:
        yield Cause(
            cause=CauseKind.NO_DEFINITION,
            subject=f"process definition {command.process_definition_id}",
            text=f"there is no process definition {command.process_definition_id}",
            next="a master moves the command to t_ds_error_command",
        )
    elif begins and command.release_state != 1:
        yield Cause(
            cause=CauseKind.OFFLINE,
            subject=f"process definition {command.definition_name!r}",
            text=f"process definition {command.definition_name!r} is OFFLINE, so no new run of"
            " it begins",
            next=f"orcaflow definition online {command.definition_name!r} lets it begin",
        )
    if alive is None:
        yield no_zookeeper_cause()
        return
    if not alive.masters:
        yield no_master_cause()
        return
    room = [
        node.address
        for node in sorted(alive.masters, key=by_address)
        if alive.owned.get(node.address, 0) < facts.exec_threads
    ]
    if not room and not command.parent_task_instance_id:
        yield Cause(
            cause=CauseKind.MASTERS_FULL,
            subject="masters",
            text=f"every living master runs {facts.exec_threads} process instances or"
            " more, which is what master.exec_threads allows",
            next="one takes it as soon as a process instance has ended",
        )
    elif _has_share_held(facts, command, room):
        yield share_cause(
            project=command.project_name,
            held=alive.owned_of.get(room[0], {}).get(command.project_id, 0),
            slots=facts.exec_threads,
            unit="process instances",
            of=f"the master {room[0]}",
            key="master.project_share_percent",
            one="a process instance",
        )
    elif command.ahead:
        yield Cause(
            cause=CauseKind.QUEUED,
            subject="t_ds_command",
            text="before it in its project, by priority or age:"
            f" {counted(command.ahead, 'command')}",
            next="masters take them in batches",
        )


def _has_share_held(facts: Facts, command: PendingCommand, masters: Sequence[str]) -> bool:
    """Return True if the command's project holds its share of the room of each of these masters."""
    alive = facts.alive
    return (
        alive is not None
        and bool(masters)
        and not command.parent_task_instance_id
        and command.command_type not in _ROOMLESS
        and all(
            holds_share(
                facts.shares.master,
                facts.exec_threads,
                alive.owned_of.get(address, {}),
                command.project_id,
            )
            for address in masters
        )
    )
