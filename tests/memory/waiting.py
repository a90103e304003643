"""The commands in memory that a master takes now, in their order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from common.model.commands import RESTARTING_COMMANDS
from common.model.slot_share import RoomShare, SlotShare
from common.model.states import ProcessState, TaskState
from common.store.master.lanes import Served, lane_of
from common.store.tables import CommandLane
from tests.memory.database import MemoryDatabase
from tests.memory.rows import CommandRecord, ProcessRecord


def waiting(
    db: MemoryDatabase,
    served: Served,
    *,
    limit: int,
    room: int,
    spare: int,
    share: RoomShare | None = None,
) -> list[CommandRecord]:
    """Return the commands to handle now, in order."""
    live, left = (None, None) if share is None else (share.live.copy(), share.dates.copy())
    rows = sorted((row for row in db.commands if not _waits_for_end(db, row)), key=_turn)
    batch: list[CommandRecord] = []
    by_lane = {lane: [row for row in rows if lane_of(row) == lane] for lane in (None, *CommandLane)}
    while len(batch) < limit:
        chosen = _chosen(by_lane, served, live, room - sum(map(_needs_room, batch)))
        chosen = chosen[: limit - len(batch)]
        taken = [
            row
            for row in chosen
            if live is None or not _needs_room(row) or live.take(row.project_id)
        ]
        served.note(taken)
        batch += taken
        for of_lane in by_lane.values():
            of_lane[:] = [row for row in of_lane if row not in chosen]
        if len(taken) == len(chosen):
            break
    # Commands of complement dates get the room and the places that no other run takes.
    places = min(spare - sum(map(_needs_room, batch)), limit - len(batch))
    dates = in_turns(by_lane[CommandLane.DATE], after=served.last.get(CommandLane.DATE, 0))
    if left is not None:
        dates = [row for row in dates if left.take(row.project_id)]
    dates = dates[: max(0, places)]
    served.note(dates)
    return batch + dates


def in_turns(rows: Sequence[CommandRecord], *, after: int) -> list[CommandRecord]:
    """Return the rows round-robin by project; the first project is the next one after `after`."""
    places: Counter[int] = Counter()
    keys = {}
    for row in rows:
        places[row.project_id] += 1
        keys[row.id] = places[row.project_id], row.project_id <= after, row.project_id
    return sorted(rows, key=lambda row: keys[row.id])


def _chosen(
    by_lane: Mapping[CommandLane | None, list[CommandRecord]],
    served: Served,
    live: SlotShare | None,
    room: int,
) -> list[CommandRecord]:
    full = () if live is None else live.full()
    free = [row for row in by_lane[CommandLane.START] if row.project_id not in full]
    starts = in_turns(free, after=served.last.get(CommandLane.START, 0))[: max(0, room)]
    children = in_turns(by_lane[CommandLane.CHILD], after=served.last.get(CommandLane.CHILD, 0))
    places: Counter[tuple[CommandLane | None, int]] = Counter()
    keys = {}
    for lane, ordered in ((CommandLane.CHILD, children), (CommandLane.START, starts)):
        for row in ordered:
            places[lane, row.project_id] += 1
            keys[row.id] = places[lane, row.project_id], lane is CommandLane.START
    about_runs = sorted(by_lane[None], key=lambda row: row.id)
    return about_runs + sorted([*children, *starts], key=lambda row: keys[row.id])


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


def _needs_room(row: CommandRecord) -> bool:
    return lane_of(row) in (CommandLane.START, CommandLane.DATE)
