"""A wait cycle can never go on: compared with a model small enough to try every future."""

from __future__ import annotations

from itertools import product

from hypothesis import given, settings
from hypothesis import strategies as st

from master.logic.deadlocks import Waits, runs_needed, wait_cycles
from master.logic.dependent import DependResult, Entry, Join, Joined, Wait

# A busy machine is no failure of the code.
UNTIMED = settings(deadline=None)

RUNS = range(1, 6)
OUTSIDE = 9
ENTRIES = st.one_of(
    st.sampled_from([*RUNS, OUTSIDE]).map(lambda run: Entry(result=DependResult.WAITING, run=run)),
    st.sampled_from([*RUNS]).map(lambda run: Entry(result=DependResult.WAITING, run=run)),
    st.sampled_from(list(DependResult)).map(lambda result: Entry(result=result)),
)


def _joins(parts: st.SearchStrategy[Wait]) -> st.SearchStrategy[Wait]:
    return st.builds(
        lambda join, some: Joined(join=join, parts=tuple(some)),
        st.sampled_from(list(Join)),
        st.lists(parts, max_size=3),
    )


WAITS_OF_ONE = st.recursive(ENTRIES, _joins, max_leaves=5)
ALL_WAITS = st.dictionaries(
    st.sampled_from(list(RUNS)),
    st.dictionaries(st.integers(1, 3), WAITS_OF_ONE, max_size=2),
    max_size=len(RUNS),
)


def outcome(wait: Wait, told: list[DependResult]) -> DependResult:
    """Return the result of a wait whose entries have these results, in the order written."""
    if isinstance(wait, Entry):
        return told.pop(0)
    parts = [outcome(part, told) for part in wait.parts]
    if wait.join is Join.IN_TURN:
        return next((one for one in parts if one is not DependResult.SUCCESS), DependResult.SUCCESS)
    first, last = DependResult.FAILED, DependResult.SUCCESS
    if wait.join is Join.ANY:
        first, last = last, first
    if first in parts:
        return first
    return DependResult.WAITING if DependResult.WAITING in parts else last


def entries(wait: Wait) -> list[Entry]:
    if isinstance(wait, Entry):
        return [wait]
    return [entry for part in wait.parts for entry in entries(part)]


def may_be_decided(wait: Wait, going_on: set[int]) -> bool:
    """True if its result may change from waiting, while those can't have ended."""
    turns_out: list[list[DependResult]] = []
    for entry in entries(wait):
        waits = entry.result is DependResult.WAITING
        is_free = waits and entry.run not in going_on
        turns_out.append(list(DependResult) if is_free else [entry.result])
    return any(
        outcome(wait, list(told)) is not DependResult.WAITING for told in product(*turns_out)
    )


def never_to_go_on(waits: Waits) -> set[int]:
    """Apply every possible event until none is left; what remains never goes on."""
    left = {run for run, attempts in waits.items() if attempts}
    while True:
        moves = {
            run for run in left if any(may_be_decided(wait, left) for wait in waits[run].values())
        }
        if not moves:
            return left
        left -= moves


@UNTIMED
@given(waits=ALL_WAITS)
def test_no_member_of_a_wait_cycle_can_ever_go_on(waits: Waits) -> None:
    stuck = never_to_go_on(waits)
    members = [member for cycle in wait_cycles(waits) for member in cycle.members]
    assert set(members) <= stuck
    assert len(members) == len(set(members))
    # And every endless wait leads to a cycle.
    assert bool(members) == bool(stuck)


@UNTIMED
@given(waits=ALL_WAITS)
def test_a_ring_leads_from_its_newest_member_back_to_it(waits: Waits) -> None:
    stuck = never_to_go_on(waits)
    for cycle in wait_cycles(waits):
        assert cycle.newest in cycle.ring
        assert set(cycle.ring) <= set(cycle.members)
        assert cycle.ring[0] == min(cycle.ring)
        assert cycle.attempts
        for each, following in zip(cycle.ring, (*cycle.ring[1:], cycle.ring[0]), strict=True):
            needed = [runs_needed(wait, stuck) for wait in waits[each].values()]
            assert any(following in runs for runs in needed)


@UNTIMED
@given(waits=ALL_WAITS)
def test_opening_wait_cycle_after_wait_cycle_lets_everything_go_on(waits: Waits) -> None:
    left = dict(waits)
    while found := wait_cycles(left):
        for cycle in found:
            # As after a failure: it has ended, and an entry that names it may have either result.
            del left[cycle.newest]
    assert never_to_go_on(left) == set()


@UNTIMED
@given(wait=WAITS_OF_ONE)
def test_a_wait_needs_runs_only_if_nothing_else_decides_it(wait: Wait) -> None:
    named = {entry.run for entry in entries(wait) if entry.run is not None}
    needed = set(runs_needed(wait))
    assert needed <= named
    undecidable = not may_be_decided(wait, named)
    assert bool(needed) == undecidable
