"""Keeps one project from taking all room of a master, while other projects could have runs.

The rule is `common.model.slot_share`. The projects of runs are queried only while one more run
could exceed the share of some project. Whether there are several is queried at most once a second.
Used by the command loop, on its thread.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Final

from common.clock import Clock
from common.model.slot_share import NO_LIMIT, RoomShare, SlotShare, headroom
from common.runtime.remembered import Remembered
from common.store.master.ports import CommandStore

_KEPT: Final = timedelta(seconds=1)


class RunShares:
    """The shares of the room of one master.

    Dates of complements have a share apart from all other runs, which never wait for them.
    """

    def __init__(self, store: CommandStore, *, clock: Clock, percent: int, slots: int) -> None:
        self._store = store
        self._percent = percent
        self._slots = slots
        self._several = Remembered(store.several_projects, clock=clock, kept=_KEPT)
        self._projects: dict[int, int] = {}

    def headroom(self, occupants: int, *, most: int) -> int | None:
        """Return the room for a batch of `most` commands that needs no `of`.

        It is 0 or less if the projects matter, and None if nothing limits the batch.
        """
        if self._percent == NO_LIMIT:
            return None
        left = headroom(self._percent, self._slots, held=occupants)
        return None if left >= most or not self._several() else left

    def of(self, occupants: Mapping[int, bool]) -> RoomShare:
        """Return the shares of the room; `occupants` are True for runs of complements."""
        self._learn(occupants)
        live = self._share(run for run, is_complement in occupants.items() if not is_complement)
        dates = self._share(run for run, is_complement in occupants.items() if is_complement)
        dates.free = min(dates.free, self._slots - len(occupants))
        return RoomShare(live=live, dates=dates)

    def _share(self, runs: Iterable[int]) -> SlotShare:
        held = Counter(self._projects[run] for run in runs)
        return SlotShare.of(self._percent, self._slots, held)

    def _learn(self, occupants: Mapping[int, bool]) -> None:
        """Query the projects of new occupants, and forget former ones."""
        known = {run: self._projects[run] for run in occupants if run in self._projects}
        unknown = [run for run in occupants if run not in known]
        self._projects = known | (self._store.projects(unknown) if unknown else {})
