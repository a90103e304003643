"""Finds deadlocks: runs that wait for each other, so that none of them can ever go on.

Pure. A *wait* is the condition of one attempt: entries with their present results, joined as the
author joined them. A *wait cycle* is a set of process instances all of whose waits stay undecided
whatever happens outside the set; its *ring* is a path through it that returns to its start. In
doubt there is no wait cycle: an entry that waits for anything but a whole run of the set may still
go either way. Events from outside the tables, like a person's intent or a run that begins later,
are not considered: they may come at any time, or never.

Used by the dependent loop of a master, which ends one wait of each cycle.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from master.logic.dependent import DependResult, Join, Joined, Wait

Waits: TypeAlias = Mapping[int, Mapping[int, Wait]]
"""The waits of undecided attempts by id, for each process instance that does nothing else."""

_Possible: TypeAlias = frozenset[DependResult]
_Edges: TypeAlias = Mapping[int, Sequence[int]]

_STUCK: Final[_Possible] = frozenset({DependResult.WAITING})
_ANYTHING: Final[_Possible] = frozenset(DependResult)
_SHOWN: Final = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitCycle:
    """Process instances that wait for each other.

    `members` are in order of id. `ring` begins with its oldest; each waits for the next and the
    last for the first. `attempts` are those of the newest member that wait for the next in the
    ring: once they have failed, the cycle is broken.
    """

    members: tuple[int, ...]
    ring: tuple[int, ...]
    attempts: tuple[int, ...]

    @property
    def newest(self) -> int:
        return self.members[-1]

    @property
    def reason(self) -> str:
        """The reason in words for people; of a long ring only the beginning is named."""
        if self.ring == (self.newest,):
            return f"process instance {self.newest} waits for itself"
        shown = [str(number) for number in self.ring[:_SHOWN]]
        if len(self.ring) > _SHOWN:
            shown.append(f"({len(self.ring) - _SHOWN} more)")
        return f"process instances {' → '.join([*shown, shown[0]])} wait for each other"


def wait_cycles(waits: Waits) -> tuple[WaitCycle, ...]:
    """Find all wait cycles; no instance is in two of them.

    An instance that waits for a wait cycle, and that no member waits for, is no member itself: the
    end of its upstream decides it.
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
        # No path leads out of a wait cycle; whatever leads to this one is in no other.
        seen |= leading_here
        if reached <= leading_here:
            found.append(_wait_cycle(sorted(reached), ahead, waits, stuck))
    return tuple(found)


def runs_needed(wait: Wait, stuck: Collection[int] | None = None) -> tuple[int, ...]:
    """Return the whole runs that keep it undecided while they are live, each once, as written.

    None are returned if anything but the end of one of `stuck` (by default: of any run) can decide
    it.
    """
    found: dict[int, None] = {}
    _collect(wait, stuck, found)
    return tuple(found)


def _stuck(waits: Waits) -> frozenset[int]:
    """Compute the largest set of instances all of whose waits are stuck on its members."""
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
    """Return all results it may have if no run of `stuck` (None: no run at all) ever ends.

    Entries are taken as independent. Two about the same run are not, but a result too many among
    the possible ones only makes a wait cycle less likely.
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
    # From the end: entries behind an undecided one in turn don't count.
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
        # Entries behind one that never succeeds don't count.
        if wait.join is Join.IN_TURN and DependResult.SUCCESS not in _possible(part, stuck):
            return


def _needed_by(attempts: Mapping[int, Wait], stuck: Collection[int]) -> tuple[int, ...]:
    needed: dict[int, None] = {}
    for wait in attempts.values():
        needed |= dict.fromkeys(runs_needed(wait, stuck))
    return tuple(sorted(needed))


def _runs(wait: Wait) -> tuple[int, ...]:
    """Return all whole runs that it names."""
    if isinstance(wait, Joined):
        return tuple(run for part in wait.parts for run in _runs(part))
    return () if wait.run is None else (wait.run,)


def _reach(begin: int, edges: _Edges) -> frozenset[int]:
    return frozenset(_predecessors(begin, edges)) | {begin}


def _predecessors(begin: int, edges: _Edges) -> dict[int, int]:
    """Map each instance reachable in a step or more to its predecessor on a shortest path."""
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
    before = _predecessors(newest, ahead)
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
