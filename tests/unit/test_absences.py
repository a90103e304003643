"""The decisions of a master about workers that are missing in the registry."""

from __future__ import annotations

from datetime import timedelta

from common.model.cluster import Node
from master.logic.absences import Absences

MASTER = Node(address="m:1", incarnation=1)
WORKER = Node(address="w:1", incarnation=2)
OTHER = Node(address="w:2", incarnation=3)


def absences() -> Absences:
    """Of a master that came back at 0; workers get 10 s for that, and 5 s after their marks."""
    made = Absences(return_grace=timedelta(seconds=10), grace=timedelta(seconds=5))
    made.due((), master=MASTER, now=0.0)
    return made


def test_whoever_is_missing_when_the_master_comes_back_gets_time_to_come_back_too() -> None:
    one = absences()
    early = one.due([WORKER], master=MASTER, now=9.9)
    assert (early.mark, early.fail_over) == ((), ())
    assert early.look_again is not None
    assert one.due([WORKER], master=MASTER, now=10.0).mark == (WORKER,)


def test_a_missing_worker_is_marked_first_and_failed_over_after_the_grace() -> None:
    one = absences()
    assert one.due([WORKER], master=MASTER, now=20.0).mark == (WORKER,)
    # The marks may take long: the grace begins when they stand.
    one.marked(WORKER, now=23.0)
    waiting = one.due([WORKER, OTHER], master=MASTER, now=27.0)
    assert (waiting.mark, waiting.fail_over) == ((OTHER,), ())
    assert waiting.look_again == timedelta(seconds=1)
    assert one.due([WORKER], master=MASTER, now=28.0).fail_over == (WORKER,)


def test_marks_that_were_not_made_are_made_by_a_later_pass() -> None:
    one = absences()
    assert one.due([WORKER], master=MASTER, now=20.0).mark == (WORKER,)
    again = one.due([WORKER], master=MASTER, now=40.0)
    assert (again.mark, again.fail_over) == ((WORKER,), ())


def test_a_number_that_comes_again_after_a_wipe_means_another_worker() -> None:
    one = absences()
    one.due([WORKER], master=MASTER, now=20.0)
    one.marked(WORKER, now=20.0)
    one.due([], master=MASTER, now=21.0)
    again = one.due([WORKER], master=MASTER, now=60.0)
    assert (again.mark, again.fail_over) == ((WORKER,), ())


def test_a_doubt_about_the_master_s_own_session_makes_all_begin_anew() -> None:
    one = absences()
    one.due([WORKER], master=MASTER, now=20.0)
    one.marked(WORKER, now=20.0)
    one.doubt()
    assert one.due([WORKER], master=MASTER, now=26.0).mark == ()
    assert one.due([WORKER], master=MASTER, now=36.0).mark == (WORKER,)


def test_another_incarnation_of_the_master_begins_anew_too() -> None:
    one = absences()
    one.due([WORKER], master=MASTER, now=20.0)
    one.marked(WORKER, now=20.0)
    later = one.due([WORKER], master=Node(address="m:1", incarnation=9), now=26.0)
    assert (later.mark, later.fail_over) == ((), ())
