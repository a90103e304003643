"""Finds complements that never end because of the order of their dates. Pure.

A definition may wait for an earlier run of the same definition, such as the run of yesterday. If
the complement starts that date later, and every run that it has started waits in this way, then
none of the runs ever ends. A wait that another run may answer counts as answered, so a complement
that can end is never reported.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from zoneinfo import ZoneInfo

from common.business_dates import moment_of_date
from common.depend_intervals import intervals
from common.model.complements import NewComplement
from common.model.control import Dependent, Relation
from common.model.definitions import ProcessGraph
from common.model.depend_items import DependItem, Item
from common.zones import zone_named

_LOOKED_BEYOND: Final = 100
"""The number of dates to follow, in addition to the dates that may run at the same time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnWait:
    """A DEPENDENT task of a definition or of its sub processes that waits for runs of these."""

    task: str
    dependent: Dependent


@dataclass(frozen=True, slots=True, kw_only=True)
class StuckDate:
    """A date that waits for a date that starts later. Both are places in `dates`."""

    place: int
    awaited: int
    task: str
    item: str


def own_waits(graph: ProcessGraph, own: Mapping[int, str]) -> tuple[OwnWait, ...]:
    """List the tasks of a definition that wait for one of `own`, which are definitions by id."""
    return tuple(
        OwnWait(task=name, dependent=node.control)
        for name, node in graph.nodes.items()
        if isinstance(node.control, Dependent)
        and not node.forbidden
        and any(is_own(item, own) for group in node.control.groups for item in group.items)
    )


def is_own(item: Item, own: Mapping[int, str]) -> bool:
    """Return True if an item is about one of these definitions."""
    if not isinstance(item, DependItem):
        return False
    if item.definition_id is not None:
        return item.definition_id in own
    return item.project is None and item.definition_name in own.values()


def stuck_date(
    new: NewComplement,
    waits: Sequence[OwnWait],
    own: Mapping[int, str],
    *,
    skipped: Collection[int] = (),
    answered: Collection[int] = (),
) -> StuckDate | None:
    """Return the first date that waits for ever; None if all dates can end in this order.

    `skipped` are the places of dates that do not run. `answered` are the places of dates with an
    earlier run, which answers a wait.
    """
    order = [place for place in range(len(new.dates)) if place not in skipped]
    if not waits or new.parallelism >= len(order):
        return None
    follower = _Follower(new, waits, own, order, frozenset(answered))
    return follower.follow(new.parallelism)


class _Follower:
    """Follows the dates of a complement as their runs start and end."""

    def __init__(
        self,
        new: NewComplement,
        waits: Sequence[OwnWait],
        own: Mapping[int, str],
        order: Sequence[int],
        answered: frozenset[int],
    ) -> None:
        self._zone: ZoneInfo = zone_named(new.timezone_id)
        self._waits = waits
        self._own = own
        self._order = order
        self._answered = answered
        self._moments = {
            place: moment_of_date(new.dates[place], new.date_rule, self._zone) for place in order
        }
        in_time = sorted((moment, place) for place, moment in self._moments.items())
        self._sorted = [moment for moment, _ in in_time]
        self._places = [place for _, place in in_time]
        self._started: set[int] = set()
        self._done: set[int] = set()

    def follow(self, parallelism: int) -> StuckDate | None:
        live: list[int] = []
        coming = iter(self._order[: parallelism + _LOOKED_BEYOND])
        left = len(self._order)
        while True:
            while len(live) < parallelism and (place := next(coming, None)) is not None:
                live.append(place)
                self._started.add(place)
                left -= 1
            ended = [place for place in live if self._held_by(place) is None]
            if not ended:
                break
            self._done.update(ended)
            live = [place for place in live if place not in self._done]
        if len(live) < parallelism or not left:
            return None
        found = (self._held_by(place) for place in live)
        return next((each for each in found if each and each.awaited not in self._started), None)

    def _held_by(self, place: int) -> StuckDate | None:
        """Return the wait by which the run of a date does not end; None if the run ends."""
        for wait in self._waits:
            parts = [
                (group.relation, [self._of_item(item, place, wait.task) for item in group.items])
                for group in wait.dependent.groups
            ]
            groups = [_joined(relation, items) for relation, items in parts]
            found = _joined(wait.dependent.relation, groups)
            if found is not None:
                return found
        return None

    def _of_item(self, item: Item, place: int, task: str) -> StuckDate | None:
        if not isinstance(item, DependItem) or not is_own(item, self._own):
            return None
        waits = [
            None
            if awaited is None
            else StuckDate(place=place, awaited=awaited, task=task, item=item.key)
            for awaited in self._awaited(item, place)
        ]
        return _joined(Relation.OR if item.any_interval else Relation.AND, waits)

    def _awaited(self, item: DependItem, place: int) -> Iterator[int | None]:
        """Yield the awaited date of each interval; None if the interval passes."""
        # A task may succeed before its run ends.
        enough = self._started if item.task is not None else self._done
        for interval in intervals(item, self._moments[place], self._zone):
            first = bisect_left(self._sorted, interval.start)
            behind = bisect_left(self._sorted, interval.end)
            others = [each for each in self._places[first:behind] if each != place]
            if any(each in enough or each in self._answered for each in others):
                yield None
                continue
            later = [each for each in others if each not in self._started]
            yield next(iter(later or others), None)


def _joined(relation: Relation, parts: Sequence[StuckDate | None]) -> StuckDate | None:
    """Return a wait that holds up the whole, if one does."""
    held = [each for each in parts if each is not None]
    if not held or (relation is Relation.OR and len(held) < len(parts)):
        return None
    return held[0]
