"""Runs that wait for each other: which of them form a wait cycle, and which may go on."""

from __future__ import annotations

import pytest

from common.model.control import Relation
from common.model.states import ProcessState
from common.model.upstream import UpstreamRun
from master.logic.deadlocks import WaitCycle, Waits, runs_needed, wait_cycles
from master.logic.dependent import DependResult, Entry, Join, Joined, Wait, questions, wait_of
from tests.unit.dependences import NOON, UTC_ZONE, a_run, an_item, waits_for

SUCCESS = Entry(result=DependResult.SUCCESS)
FAILED = Entry(result=DependResult.FAILED)
OPEN = Entry(result=DependResult.WAITING)


def on(run: int) -> Entry:
    return Entry(result=DependResult.WAITING, run=run)


def every(*parts: Wait) -> Wait:
    return Joined(join=Join.ALL, parts=parts)


def either(*parts: Wait) -> Wait:
    return Joined(join=Join.ANY, parts=parts)


def in_turn(*parts: Wait) -> Wait:
    return Joined(join=Join.IN_TURN, parts=parts)


def found(**waits: Wait) -> tuple[tuple[int, ...], ...]:
    """The members of the wait cycles of instances `r1`, `r2`, …, each with one attempt."""
    return tuple(cycle.members for cycle in wait_cycles(_of(waits)))


def _of(waits: dict[str, Wait]) -> Waits:
    return {int(name[1:]): {int(name[1:]) * 10: wait} for name, wait in waits.items()}


def test_two_that_wait_for_each_other_are_a_wait_cycle() -> None:
    assert wait_cycles({15: {7: on(12)}, 12: {3: on(15)}}) == (
        WaitCycle(members=(12, 15), ring=(12, 15), attempts=(7,)),
    )


def test_the_reason_names_the_ring() -> None:
    (cycle,) = wait_cycles(_of({"r12": on(15), "r15": on(13), "r13": on(12)}))
    assert cycle.reason == "process instances 12 → 15 → 13 → 12 wait for each other"
    assert (cycle.newest, cycle.attempts) == (15, (150,))


def test_of_a_long_ring_only_the_beginning_is_named() -> None:
    (cycle,) = wait_cycles({number: {number: on(number % 500 + 1)} for number in range(1, 501)})
    assert cycle.ring == tuple(range(1, 501))
    assert cycle.reason == (
        "process instances 1 → 2 → 3 → 4 → 5 → 6 → 7 → 8 → 9 → 10 → (490 more) → 1"
        " wait for each other"
    )


def test_one_that_waits_for_itself_is_a_wait_cycle() -> None:
    (cycle,) = wait_cycles({4: {8: on(4), 9: on(4)}})
    assert (cycle.ring, cycle.attempts) == ((4,), (8, 9))
    assert cycle.reason == "process instance 4 waits for itself"


def test_a_chain_is_no_wait_cycle() -> None:
    assert found(r1=on(2), r2=on(3), r3=on(4)) == ()


def test_one_that_only_waits_for_a_wait_cycle_is_no_member() -> None:
    assert found(r1=on(2), r2=on(1), r9=on(1)) == ((1, 2),)


def test_wait_cycles_of_which_one_waits_for_the_other_are_opened_from_the_end() -> None:
    assert found(r1=on(2), r2=every(on(1), on(5)), r5=on(6), r6=on(5)) == ((5, 6),)


def test_wait_cycles_apart_are_both_found() -> None:
    assert found(r1=on(2), r2=on(1), r5=on(6), r6=on(5)) == ((1, 2), (5, 6))


@pytest.mark.parametrize(
    "wait",
    [
        OPEN,
        either(on(1), OPEN),
        every(on(1), OPEN),
        either(on(1), on(99)),
        every(on(1), on(99)),
        in_turn(OPEN, on(1)),
        either(every(on(1), SUCCESS), every(SUCCESS, OPEN)),
    ],
)
def test_a_way_out_that_is_not_in_the_set_makes_it_no_wait_cycle(wait: Wait) -> None:
    assert found(r1=on(2), r2=wait) == ()


@pytest.mark.parametrize(
    "wait",
    [
        every(on(1), SUCCESS),
        either(on(1), FAILED),
        # No interval behind the first unfinished one counts before that one is done.
        in_turn(SUCCESS, on(1), OPEN),
        # A way to failure alone, or to success alone, that decides nothing.
        either(on(1), every(on(1), OPEN)),
        every(on(1), either(on(1), OPEN)),
        either(every(FAILED, OPEN), on(1)),
    ],
)
def test_what_is_not_needed_is_no_way_out(wait: Wait) -> None:
    assert found(r1=on(2), r2=wait) == ((1, 2),)


def test_an_instance_goes_on_if_one_of_its_attempts_can() -> None:
    assert wait_cycles({1: {1: on(2)}, 2: {2: on(1), 3: OPEN}}) == ()
    (cycle,) = wait_cycles({1: {1: on(2)}, 2: {2: on(1), 3: on(2)}})
    # The other one is in a smaller ring of its own, which is broken first.
    assert (cycle.members, cycle.ring, cycle.attempts) == ((1, 2), (2,), (3,))


def test_what_was_decided_is_no_part_of_a_wait_cycle() -> None:
    assert found(r1=on(2), r2=every(on(1), FAILED)) == ()
    assert found(r1=on(2), r2=either(on(1), SUCCESS)) == ()
    assert wait_cycles({1: {}, 2: {3: on(1)}}) == ()
    assert wait_cycles({}) == ()


def test_only_runs_that_must_end_are_needed() -> None:
    assert runs_needed(every(on(3), on(2), on(3))) == (3, 2)
    assert runs_needed(every(on(3), OPEN)) == ()
    assert runs_needed(in_turn(on(3), on(2))) == (3,)
    assert runs_needed(every(on(3), on(2)), {3}) == ()


# The waits of a DEPENDENT task


@pytest.mark.parametrize(
    ("run", "entry"),
    [
        (a_run(ProcessState.RUNNING), on(5)),
        (a_run(ProcessState.SERIAL_WAIT), on(5)),
        # Any resume begins it anew, at an unknown time.
        (a_run(ProcessState.PAUSE), OPEN),
        (a_run(ProcessState.SUCCESS), SUCCESS),
        (a_run(ProcessState.STOP), FAILED),
        (None, OPEN),
    ],
)
def test_a_whole_run_is_waited_for_as_long_as_it_goes_on(
    run: UpstreamRun | None, entry: Entry
) -> None:
    wait = _wait_for(run)
    assert wait == every(every(in_turn(entry)))


def test_one_task_of_a_run_may_be_good_before_the_run_ends() -> None:
    assert _wait_for(a_run(ProcessState.RUNNING), task="t") == every(every(in_turn(OPEN)))


def test_items_are_joined_as_their_author_joined_them() -> None:
    dependent = waits_for(
        an_item("today"),
        an_item("last2Days", any_interval=True),
        an_item("someday"),
        relation=Relation.OR,
    )
    assert wait_of(dependent, NOON, UTC_ZONE, {}) == every(
        either(in_turn(OPEN), either(OPEN, OPEN), in_turn(FAILED))
    )


def _wait_for(run: UpstreamRun | None, task: str | None = None) -> Wait:
    dependent = waits_for(an_item(task=task))
    answers = dict.fromkeys(questions(dependent, NOON, UTC_ZONE), run)
    return wait_of(dependent, NOON, UTC_ZONE, answers)
