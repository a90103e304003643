"""The share of slots that one project may hold, for any slots, percentages and holders."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from common.model.slot_share import (
    NO_LIMIT,
    SlotShare,
    further_slots,
    headroom,
    most_slots,
)

PERCENTS = st.integers(1, NO_LIMIT)
LIMITS = st.integers(1, NO_LIMIT - 1)
SLOTS = st.integers(1, 200)
PROJECTS = st.integers(1, 5)
GREEDY = st.lists(PROJECTS, max_size=400)


@given(percent=LIMITS, slots=st.integers(2, 200), takes=st.integers(0, 400))
def test_a_greedy_project_leaves_a_slot_to_every_other_project(
    percent: int, slots: int, takes: int
) -> None:
    share = SlotShare.of(percent, slots, {})
    for _ in range(takes):
        share.take(1)
    assert share.take(2)


@given(percent=LIMITS, slots=SLOTS, takes=GREEDY)
def test_a_project_that_holds_slots_never_takes_the_last_one(
    percent: int, slots: int, takes: list[int]
) -> None:
    share = SlotShare.of(percent, slots, {})
    for project in takes:
        held = share.held.get(project, 0)
        if share.take(project) and held:
            assert share.free > 0


@given(slots=SLOTS, takes=st.integers(0, 400))
def test_without_a_limit_one_project_takes_every_slot(slots: int, takes: int) -> None:
    share = SlotShare.of(NO_LIMIT, slots, {})
    assert sum(share.take(1) for _ in range(takes)) == min(slots, takes)


@given(percent=PERCENTS, slots=SLOTS)
def test_a_project_that_is_alone_takes_what_is_promised(percent: int, slots: int) -> None:
    share = SlotShare.of(percent, slots, {})
    assert sum(share.take(1) for _ in range(2 * slots)) == most_slots(percent, slots)
    assert share.full() == [1]


@given(percent=PERCENTS, held=st.integers(0, 200), free=st.integers(-5, 200))
def test_the_number_of_further_slots_is_what_single_takes_add_up_to(
    percent: int, held: int, free: int
) -> None:
    share = SlotShare(percent=percent, free=free, held={1: held})
    took = sum(share.take(1) for _ in range(free + 2))
    assert took == further_slots(percent, held=held, free=free)


@given(percent=PERCENTS, held=st.integers(1, 200), free=st.integers(0, 200))
def test_more_held_or_less_free_never_gives_more(percent: int, held: int, free: int) -> None:
    number = further_slots(percent, held=held, free=free)
    assert further_slots(percent, held=held + 1, free=free) <= number
    assert further_slots(percent, held=held, free=free - 1) <= number
    assert further_slots(percent, held=held - 1, free=free) >= number


@given(percent=LIMITS, slots=st.integers(2, 200), surplus=st.integers(0, 500))
def test_slots_above_the_share_of_a_project_are_not_taken_from_others(
    percent: int, slots: int, surplus: int
) -> None:
    most = most_slots(percent, slots)
    exact, more = (SlotShare.of(percent, slots, {1: most + each}) for each in (0, surplus))
    assert exact.free == more.free
    assert more.full() == [1]
    assert more.take(2)


@given(percent=PERCENTS, slots=SLOTS, held=st.dictionaries(PROJECTS, st.integers(1, 60)))
def test_within_the_headroom_every_project_may_take_a_slot(
    percent: int, slots: int, held: dict[int, int]
) -> None:
    if headroom(percent, slots, held=sum(held.values())) > 0:
        share = SlotShare.of(percent, slots, held)
        assert all(share.has_room(project) for project in (*held, 6))


@given(percent=PERCENTS, slots=SLOTS, takes=GREEDY)
def test_a_copy_does_not_change_the_share(percent: int, slots: int, takes: list[int]) -> None:
    share = SlotShare.of(percent, slots, {1: 1})
    copy = share.copy()
    for project in takes:
        copy.take(project)
    assert share == SlotShare.of(percent, slots, {1: 1})


def test_two_greedy_projects_hold_44_of_100_slots_each() -> None:
    share = SlotShare.of(80, 100, {})
    for _ in range(100):
        share.take(1)
        share.take(2)
    assert sorted(share.held.values()) == [44, 44]
    assert share.free == 12
