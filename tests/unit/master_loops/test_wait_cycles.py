"""Runs that wait for each other, and the dependent loop that ends one of them."""

from __future__ import annotations

import pytest

from common.errors import ServiceUnreachableError
from common.model.states import TaskState
from tests.unit.master_loops.dependents import Waiter, a_dependent
from tests.unit.master_loops.place import SECOND


def in_a_ring(waiter: Waiter, *numbers: int) -> None:
    """Each of these runs waits for the next, and the last for the first."""
    waiter.store.add(*(a_dependent(number) for number in numbers))
    waiter.store.waited_for |= dict(zip(numbers, (*numbers[1:], numbers[0]), strict=True))


def test_of_runs_that_wait_for_each_other_the_newest_fails(waiter: Waiter) -> None:
    in_a_ring(waiter, 1, 3, 2)
    waiter.loop.run_once()
    assert (waiter.store.decided, waiter.store.followed) == ({}, [])
    waiter.later(5 * SECOND)
    reason = "process instances 1 → 3 → 2 → 1 wait for each other"
    assert waiter.store.decided == {3: (TaskState.FAILURE, reason)}


def test_wait_cycles_are_sought_at_the_interval(waiter: Waiter) -> None:
    waiter.store.add(a_dependent())
    waiter.store.waited_for = {1: 7}
    for _ in range(5):
        waiter.loop.on_end()
        waiter.later(SECOND)
    assert waiter.store.followed == [[7]]
    waiter.later(5 * SECOND)
    assert waiter.store.followed == [[7], [7]]


def test_a_run_that_moves_by_itself_is_no_part_of_a_ring(waiter: Waiter) -> None:
    in_a_ring(waiter, 1, 2)
    waiter.store.moving = (1,)
    for _ in range(3):
        waiter.later(5 * SECOND)
    assert waiter.store.decided == {}
    waiter.store.moving = ()
    waiter.later(5 * SECOND)
    assert list(waiter.store.decided) == [2]


@pytest.mark.parametrize(("elsewhere", "failed"), [(1, [2]), (2, [])])
def test_each_master_ends_only_its_own_runs_of_a_ring(
    waiter: Waiter, elsewhere: int, failed: list[int]
) -> None:
    in_a_ring(waiter, 1, 2)
    waiter.store.elsewhere[elsewhere] = waiter.store.rows.pop(elsewhere)
    for _ in range(3):
        waiter.later(5 * SECOND)
    assert list(waiter.store.decided) == failed


def test_a_run_elsewhere_that_will_fail_by_itself_is_no_part_of_a_ring(waiter: Waiter) -> None:
    in_a_ring(waiter, 1, 2)
    del waiter.store.rows[1]
    waiter.store.elsewhere[1] = a_dependent(1, task_json="{")
    for _ in range(3):
        waiter.later(5 * SECOND)
    assert waiter.store.decided == {}


def test_a_ring_among_more_runs_than_can_be_followed_is_found_in_time(waiter: Waiter) -> None:
    waiter.loop = waiter.made(followed_at_most=8)
    waiter.store.add(*(a_dependent(number) for number in range(1, 41)))
    waiter.store.waited_for = {number: 100 + number for number in range(1, 41)}
    in_a_ring(waiter, 201, 202)
    for _ in range(12):
        waiter.later(5 * SECOND)
    assert list(waiter.store.decided) == [202]
    assert all(len(asked) <= 8 for asked in waiter.store.followed)


def test_a_search_that_gets_no_answer_is_made_again(waiter: Waiter) -> None:
    in_a_ring(waiter, 1, 2)
    waiter.loop.run_once()
    waiter.store.broken = ("held_up",)
    with pytest.raises(ServiceUnreachableError):
        waiter.later(5 * SECOND)
    waiter.store.broken = ()
    waiter.later(5 * SECOND)
    assert list(waiter.store.decided) == [2]
