"""Divides a step of a supervisor into parts, which are written in separate transactions.

Pure. A step may start or end thousands of tasks. A single transaction would hold the row of the
supervisor, and all other supervisors of the master, for minutes. The changes of one decision stay
together. A master that takes the supervisor over after some of the parts finds a state that it
could also find after a smaller step: tasks that it gives to their groups, or ends.

The last part replaces and removes offsets, and deletes the request for it. So a reset has its
effect, or its request is still in the table for the next master.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from common.store.master.supervisor_ports import (
    AddOffsets,
    Change,
    EndTask,
    GiveAssignment,
    GiveOrders,
    StartAssignment,
    SupervisorStep,
)

MOST_CHANGES: Final = 100
"""The changes of tasks in one part. A single decision may have more: one for each replica."""
MOST_OFFSETS: Final = 1000
"""The number of partitions with starts in one change."""

_EARLY: Final = (StartAssignment, GiveAssignment, GiveOrders, EndTask, AddOffsets)
"""The changes that may be written although the rest of the step never is."""


def parts_of(
    step: SupervisorStep,
    changes: Sequence[Sequence[Change]],
    *,
    most: int = MOST_CHANGES,
) -> tuple[SupervisorStep, ...]:
    """Return the parts of a step. `changes` has a sequence for each decision.

    The changes that `step` has already are in the last part, with all else that it has.
    """
    closed = [step.closed[at : at + most] for at in range(0, len(step.closed), most)]
    if sum(map(len, changes)) <= most and len(closed) <= 1 and not _has_many_offsets(changes):
        whole = (*(each for those in changes for each in those), *step.changes)
        return (replace(step, changes=whole),)
    early, late = list[list[Change]]([[]]), list[Change]()
    for those in changes:
        if not all(isinstance(each, _EARLY) for each in those):
            late += those
            continue
        for some in _divided(those):
            if early[-1] and len(early[-1]) + len(some) > most:
                early.append([])
            early[-1] += some
    parts = [_part(step, changes=tuple(some)) for some in early if some]
    parts += [_part(step, closed=names) for names in closed]
    return (*parts, replace(step, changes=(*late, *step.changes), closed=()))


def _part(
    step: SupervisorStep, *, changes: tuple[Change, ...] = (), closed: tuple[str, ...] = ()
) -> SupervisorStep:
    return SupervisorStep(
        version=step.version, stream=step.stream, changes=changes, closed=closed, goes_on=True
    )


def _has_many_offsets(changes: Sequence[Sequence[Change]]) -> bool:
    return any(
        isinstance(each, AddOffsets) and len(each.offsets) > MOST_OFFSETS
        for those in changes
        for each in those
    )


def _divided(changes: Sequence[Change]) -> Iterator[Sequence[Change]]:
    """Return the changes of one decision together, but the starts of many partitions one by one."""
    if not (len(changes) == 1 and isinstance(changes[0], AddOffsets)):
        yield changes
        return
    offsets = list(changes[0].offsets.items())
    for at in range(0, len(offsets), MOST_OFFSETS):
        yield (AddOffsets(offsets=dict(offsets[at : at + MOST_OFFSETS])),)
