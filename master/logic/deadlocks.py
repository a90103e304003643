"""Finds runs that wait for each other, so that none of them can ever go on.

Pure. What one attempt waits for is a *wait*: entries, each with what it amounts to now, joined as
the author joined them. A *wait cycle* is a set of process instances all of whose waits stay
undecided whatever becomes of everything outside the set; its *ring* is a way through it that comes
back to where it began. In doubt there is no wait cycle: an entry that waits for anything but a
whole run of the set may still turn out either way. What comes from outside the tables, as a
person's intent or a run that begins later, is not looked at: it may come at any time, or never.

Used by the dependent loop of a master, which ends one wait of each cycle.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from master.logic.dependent import DependResult, Join, Joined, Wait

Waits: TypeAlias = Mapping[int, Mapping[int, Wait]]
"""Of each process instance in which nothing else goes on, its undecided attempts' waits, by id."""

_Possible: TypeAlias = frozenset[DependResult]
_Edges: TypeAlias = Mapping[int, Sequence[int]]

_STUCK: Final[_Possible] = frozenset({DependResult.WAITING})
_ANYTHING: Final[_Possible] = frozenset(DependResult)
_SHOWN: Final = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitCycle:
    """Process instances that wait for each other.

    `members` are in order of id. `ring` begins with its oldest, each waits for the next and the
    last for the first. `attempts` are those of the newest member that wait for the next in the
    ring: once they have failed, the ring is open.
    """

    members: tuple[int, ...]
    ring: tuple[int, ...]
    attempts: tuple[int, ...]

    @property
    def newest(self) -> int:
        return self.members[-1]

    @property
    def reason(self) -> str:
        """In words for the user; of a long ring only the beginning is named."""
        if self.ring == (self.newest,):
            return f"process instance {self.newest} waits for itself"
        shown = [str(number) for number in self.ring[:_SHOWN]]
        if len(self.ring) > _SHOWN:
            shown.append(f"({len(self.ring) - _SHOWN} more)")
        return f"process instances {' → '.join([*shown, shown[0]])} wait for each other"


def wait_cycles(waits: Waits) -> tuple[WaitCycle, ...]:
    """All wait cycles; no instance is in two of them.

    An instance that only waits for a wait cycle, and that nobody in it waits for, is no member: it
    learns from the end of what it waits for.
    """
    stuck = _stuck(waits)
    ahead = {each: _needed_by(waits[each], stuck) for each in waits if each in stuck}
    behind: dict[int, list[int]] = {each: [] for each in ahead}
    for each, others in ahead.items():
        for other in others:
            behind[other].append(each)
    found: list[WaitCycle] = []
    seen: set[int] = set()
    for each in sorted(ahead):
        if each in seen:
            continue
        reached, leading_here = _reach(each, ahead), _reach(each, behind)
        # From a wait cycle no way leads out of it; whatever leads to this one is in no other.
        seen |= leading_here
        if reached <= leading_here:
            found.append(_wait_cycle(sorted(reached), ahead, waits, stuck))
    return tuple(found)


def runs_needed(wait: Wait, stuck: Collection[int] | None = None) -> tuple[int, ...]:
    """The whole runs that keep it undecided as long as they go on, each once, as written.

    There are none if anything else can decide it than the end of one of `stuck`; left out, of any.
    """
    found: dict[int, None] = {}
    _collect(wait, stuck, found)
    return tuple(found)


def _stuck(waits: Waits) -> frozenset[int]:
    """The largest set of instances all of whose waits are stuck on members of it."""
    waited_for: dict[int, list[int]] = {}
    for each, attempts in waits.items():
        for wait in attempts.values():
            for other in _runs(wait):
                waited_for.setdefault(other, []).append(each)
    stuck = {each for each, attempts in waits.items() if attempts}
    doubtful = deque(waits)
    while doubtful:
        each = doubtful.popleft()
        if each in stuck and not all(
            _possible(wait, stuck) == _STUCK for wait in waits[each].values()
        ):
            stuck.discard(each)
            doubtful.extend(waited_for.get(each, ()))
    return frozenset(stuck)


def _possible(wait: Wait, stuck: Collection[int] | None) -> _Possible:
    """All that it may amount to at some time, if none of those ever ends; None is any run.

    Each entry is taken to turn out by itself. Two that ask about the same run don't, but what is
    thought possible too often only makes a wait cycle less likely.
    """
    if not isinstance(wait, Joined):
        if wait.result is not DependResult.WAITING:
            return frozenset({wait.result})
        is_stuck = wait.run is not None and (stuck is None or wait.run in stuck)
        return _STUCK if is_stuck else _ANYTHING
    parts = [_possible(part, stuck) for part in wait.parts]
    return _joined(wait.join, parts)


def _joined(join: Join, parts: Sequence[_Possible]) -> _Possible:
    possible = frozenset({join.of_nothing})
    # From the end: what is behind an undecided one in turn is not looked at.
    for part in reversed(parts):
        possible = frozenset(join.of(one, rest) for one in part for rest in possible)
    return possible


def _collect(wait: Wait, stuck: Collection[int] | None, found: dict[int, None]) -> None:
    if _possible(wait, stuck) != _STUCK:
        return
    if not isinstance(wait, Joined):
        if wait.run is not None:
            found[wait.run] = None
        return
    for part in wait.parts:
        _collect(part, stuck, found)
        # Behind one that is never done nothing counts.
        if wait.join is Join.IN_TURN and DependResult.SUCCESS not in _possible(part, stuck):
            return


def _needed_by(attempts: Mapping[int, Wait], stuck: Collection[int]) -> tuple[int, ...]:
    needed: dict[int, None] = {}
    for wait in attempts.values():
        needed |= dict.fromkeys(runs_needed(wait, stuck))
    return tuple(sorted(needed))


def _runs(wait: Wait) -> tuple[int, ...]:
    """All whole runs that it names."""
    if isinstance(wait, Joined):
        return tuple(run for part in wait.parts for run in _runs(part))
    return () if wait.run is None else (wait.run,)


def _reach(begin: int, edges: _Edges) -> frozenset[int]:
    return frozenset(_ways(begin, edges)) | {begin}


def _ways(begin: int, edges: _Edges) -> dict[int, int]:
    """By each instance that can be come to in a step or more, the one before it, shortest first."""
    before: dict[int, int] = {}
    coming = deque([begin])
    while coming:
        each = coming.popleft()
        for other in edges[each]:
            if other not in before:
                before[other] = each
                coming.append(other)
    return before


def _wait_cycle(
    members: Sequence[int], ahead: _Edges, waits: Waits, stuck: Collection[int]
) -> WaitCycle:
    newest = members[-1]
    before = _ways(newest, ahead)
    backwards = [newest]
    while (each := before[backwards[-1]]) != newest:
        backwards.append(each)
    ring = [newest, *reversed(backwards[1:])]
    following = ring[1] if len(ring) > 1 else newest
    oldest = ring.index(min(ring))
    return WaitCycle(
        members=tuple(members),
        ring=(*ring[oldest:], *ring[:oldest]),
        attempts=tuple(
            attempt
            for attempt, wait in sorted(waits[newest].items())
            if following in runs_needed(wait, stuck)
        ),
    )
