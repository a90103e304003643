"""The commands in memory that a master takes now, in their order."""

from __future__ import annotations

from common.model.commands import INTENT_COMMANDS, RESTARTING_COMMANDS, CommandType
from common.model.slot_share import RoomShare
from common.model.states import ProcessState, TaskState
from tests.memory.database import MemoryDatabase
from tests.memory.project_slots import project_of_command
from tests.memory.rows import CommandRecord, ProcessRecord

_ROOMLESS = (*INTENT_COMMANDS, CommandType.RECOVER_TOLERANCE_FAULT_PROCESS)
"""A run that has begun must continue: others may wait for a slot or a turn that it holds."""


def waiting(
    db: MemoryDatabase, *, limit: int, room: int, spare: int, share: RoomShare | None = None
) -> list[CommandRecord]:
    """Return the commands to handle now, in order."""
    live, left = (None, None) if share is None else (share.live.copy(), share.dates.copy())
    rows = sorted((row for row in db.commands if not _waits_for_end(db, row)), key=_turn)
    dates = [row for row in rows if _is_date(row)]
    others = [row for row in rows if not _is_date(row)]
    batch: list[CommandRecord] = []
    for row in others:
        if len(batch) >= limit or sum(map(_needs_room, batch)) >= room:
            break
        if live is None or not _needs_room(row) or live.take(project_of_command(db, row)):
            batch.append(row)
    behind = [row for row in others if row not in batch and not _needs_room(row)]
    # Those that need no room go before the others if the limit is not enough for all.
    chosen = sorted([*batch, *behind], key=_rank)[: max(limit, 0)]
    batch = sorted(chosen, key=others.index)
    spare -= sum(map(_needs_room, batch))
    # Commands of complement dates get the room and the places that no other run takes.
    if left is not None:
        dates = [row for row in dates if left.take(project_of_command(db, row))]
    return batch + dates[: max(0, min(spare, limit - len(batch)))]


def _waits_for_end(db: MemoryDatabase, row: CommandRecord) -> bool:
    """True if the child to restart is about to end, but has not ended yet."""
    parent = db.tasks.get(row.parent_task_instance_id)
    if (
        row.command_type not in RESTARTING_COMMANDS
        or parent is None
        or parent.state != TaskState.SUBMITTED
    ):
        return False
    children = [
        db.processes.get(relation.process_instance_id)
        for relation in db.relations
        if relation.parent_task_instance_id == parent.id
    ]
    return any(child is not None and _is_about_to_end(db, child) for child in children)


def _is_about_to_end(db: MemoryDatabase, child: ProcessRecord) -> bool:
    former = db.tasks.get(child.parent_task_instance_id)
    return child.is_live and (
        child.state == ProcessState.READY_STOP
        or child.wanted_state in (ProcessState.STOP, ProcessState.FAILURE)
        or (former is not None and former.is_finished)
    )


def _turn(row: CommandRecord) -> tuple[float, int, int]:
    """A minute of waiting counts as much as a level of priority (T68)."""
    priority = 2 if row.process_instance_priority is None else row.process_instance_priority
    return row.update_time.timestamp() + 60 * priority, priority, row.id


def _rank(row: CommandRecord) -> int:
    """Return the place of commands about runs, of children, and of those that need room."""
    if row.command_type in _ROOMLESS:
        return 0
    return 2 if _needs_room(row) else 1


def _needs_room(row: CommandRecord) -> bool:
    return row.command_type not in _ROOMLESS and row.parent_task_instance_id == 0


def _is_date(row: CommandRecord) -> bool:
    return _needs_room(row) and row.complement_date_id != 0
