"""The share of a daemon's slots that one project may hold. Pure.

A *slot* is room for a process instance in a master, or for a task in a worker. The rule is the
dynamic threshold of shared switch buffers (Choudhury and Hahne, 1998): a project takes another slot
only while the ratio of its slots to the free slots is at most `percent` to `100 - percent`
afterwards. With 80 percent of 100 slots, one active project holds 80, and two hold 44 each. The
other slots stay free for projects that hold none; such a project may also take the last free slot.

Used by the command loop and the assign loop of masters, by the claim loop of workers, and by
`common.why`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Self

NO_LIMIT = 100
"""The percentage with which a project may take every slot."""


def most_slots(percent: int, slots: int) -> int:
    """Return the number of slots that a project takes while no other project holds any."""
    return max(1, percent * slots // 100)


def further_slots(percent: int, *, held: int, free: int) -> int:
    """Return the number of slots that a project may take in addition to the `held` ones."""
    if free <= 0:
        return 0
    within = (percent * free - (NO_LIMIT - percent) * held) // 100
    return max(1 if held <= 0 else 0, within)


@dataclass(slots=True, kw_only=True)
class SlotShare:
    """Slots and their holders while a batch is chosen: `take` counts what each project takes."""

    percent: int
    free: int
    held: dict[int, int] = field(default_factory=dict)
    """The number of slots by project."""

    @classmethod
    def of(cls, percent: int, slots: int, held: Mapping[int, int]) -> Self:
        """Count the slots that are free, given the number that each project holds.

        Sub processes and runs after a failover need no room, so a project may hold more than its
        share. The surplus is not counted: it would take the slots of other projects.
        """
        most = most_slots(percent, slots)
        free = slots - sum(min(number, most) for number in held.values())
        return cls(percent=percent, free=free, held=dict(held))

    def copy(self) -> Self:
        """Return an independent copy."""
        return replace(self, held=dict(self.held))

    def room(self, project: int) -> int:
        """Return the number of slots that the project may take now."""
        return further_slots(self.percent, held=self.held.get(project, 0), free=self.free)

    def has_room(self, project: int) -> bool:
        """Return True if the project may take another slot."""
        return self.room(project) > 0

    def take(self, project: int) -> bool:
        """Take a slot for the project if it may take another; return True if so."""
        if not self.has_room(project):
            return False
        self.held[project] = self.held.get(project, 0) + 1
        self.free -= 1
        return True

    def full(self) -> list[int]:
        """Return the projects that hold slots and may take no more, in order."""
        return sorted(project for project in self.held if not self.has_room(project))


def headroom(percent: int, slots: int, *, held: int) -> int:
    """Return the number of slots that can be taken before any project could exceed its share.

    The caller need not know which projects hold the `held` slots, or take the others.
    """
    return most_slots(percent, slots) - held


@dataclass(frozen=True, slots=True, kw_only=True)
class RoomShare:
    """The shares of a master's room: of dates of complements, and of all other runs."""

    live: SlotShare
    dates: SlotShare


@dataclass(frozen=True, slots=True, kw_only=True)
class SharePercents:
    """The configured shares of one project: of the room of a master, and of a worker's slots."""

    master: int = NO_LIMIT
    worker: int = NO_LIMIT


NO_SHARES = SharePercents()
"""No limit anywhere."""
