"""Causes in the shares of slots: a project holds its share of a daemon. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from common.model.slot_share import SlotShare
from common.why.causes import Cause, CauseKind


def holds_share(percent: int, slots: int, held: Mapping[int, int], project_id: int) -> bool:
    """Return True if slots are free but the project may not take one."""
    share = SlotShare.of(percent, slots, held)
    return share.free > 0 and not share.has_room(project_id)


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
