"""Causes in the shares of slots: a project holds its share of a daemon. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from common.model.slot_share import SlotShare
from common.why.causes import Cause, CauseKind
from common.why.phrases import counted


def holds_share(percent: int, slots: int, held: Mapping[int, int], project_id: int) -> bool:
    """Return True if slots are free but the project may not take one."""
    share = SlotShare.of(percent, slots, held)
    return share.free > 0 and not share.has_room(project_id)


def capacity_cause(
    *, project: str | None, capacity: int, room: int, most: int, slots: int, worker: str
) -> Cause:
    """Build the cause for a task with a `capacity` above the room for its project."""
    named = "its project" if project is None else f"project {project!r}"
    text = (
        f"it asks for {counted(capacity, 'slot')} (workerSelect.capacity); {named} may take"
        f" {room} more of the {slots} slots of the worker {worker}"
    )
    if capacity > most:
        text += f", and {most} while nothing else runs there"
        cure = "a smaller capacity; worker.project_share_percent sets the share"
    else:
        cure = "it continues when tasks of that worker have ended"
    return Cause(cause=CauseKind.PROJECT_SHARE, subject=named, text=text, next=cure)


def share_cause(
    *, project: str | None, held: int, slots: int, of: str, unit: str, key: str, one: str
) -> Cause:
    """Build the cause for a project that holds its share of the slots of a daemon."""
    named = "its project" if project is None else f"project {project!r}"
    return Cause(
        cause=CauseKind.PROJECT_SHARE,
        subject=named,
        text=f"{named} holds {held} of {slots} {unit} of {of}; the others stay free for other"
        " projects",
        next=f"it continues when {one} of its project has ended; {key} sets the share",
    )
