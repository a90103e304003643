"""The port through which a master chooses workers for attempts that ask for it.

`common.store.master.assignments` implements it on PostgreSQL. The rules of
`common.store.master.ports` hold.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from common.model.assignments import Decide
from common.model.cluster import QueueEntry


@dataclass(frozen=True, slots=True, kw_only=True)
class Assigned:
    """The entries to put into the queue, and those to take out. `waiting`: some have no worker."""

    offers: tuple[QueueEntry, ...] = ()
    withdrawn: tuple[QueueEntry, ...] = ()
    waiting: bool = False


class AssignmentStore(Protocol):
    """Attempts that ask for a worker, whoever owns them; any master may choose for them."""

    def is_asked(self) -> bool:
        """Return True if an attempt that asks is not claimed yet, or has ended."""
        ...

    def assign(self, decide: Decide) -> Assigned:
        """Choose, one master at a time: read the facts, have it decided, write the choices.

        An attempt that was claimed or withdrawn meanwhile is left as it is.
        """
        ...
