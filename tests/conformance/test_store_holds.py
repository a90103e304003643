"""Attempts held back by a delay, or for lack of slots in a pool."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest

from common.model.decisions import AbandonTask, Decision, RetryTask
from common.model.definitions import PoolShare
from common.model.grants import GrantKind
from common.model.instances import Ownership
from common.model.states import Priority, ProcessState, TaskState
from common.store import tables as t
from common.store.listen import Channel
from common.store.master.pool_grants import no_pool
from common.store.master.ports import Released
from tests.builders import NOON
from tests.conformance.pools import a_pool, queue_of, share, state_of, submit_held
from tests.conformance.store_tables import (
    LATER,
    MASTER,
    MINUTE,
    OTHER_MASTER,
    REFUSED,
    WORKER,
    Tables,
    a_run,
    an_end,
    claim,
    end,
    end_run,
    fail_over,
    finish,
    has,
    kill,
    pause,
    release,
    released,
    save,
    submit,
    the_task,
)

# Delay


def test_a_delayed_attempt_is_offered_when_its_time_has_come(db: Tables) -> None:
    owned = a_run(db)
    task_id = submit_held(db, owned, "a", due_at=LATER)
    assert has(the_task(db, task_id), state=12, due_at=LATER, submit_time=NOON)
    assert claim(db, [task_id]) == []
    assert db.runs.unclaimed(MASTER, submitted_before=LATER) == ()
    early = release(db, LATER - timedelta(seconds=1))
    assert early == Released(offers=(), instances=0, next_due=LATER)
    due = release(db, LATER)
    (offer,) = due.offers
    assert (offer.task_instance_id, due.next_due) == (task_id, None)
    assert state_of(db, task_id) is TaskState.SUBMITTED
    assert release(db, LATER).offers == ()
    assert claim(db, [task_id]) == [task_id]


def test_the_next_delay_that_is_over_is_told(db: Tables) -> None:
    owned = a_run(db)
    submit_held(db, owned, "late", due_at=LATER + MINUTE)
    submit_held(db, owned, "soon", due_at=LATER)
    submit_held(db, a_run(db, node=OTHER_MASTER), "sooner", due_at=NOON + timedelta(seconds=1))
    assert release(db).next_due == NOON + timedelta(seconds=1)
    assert release(db, LATER).next_due == LATER + MINUTE


def test_a_delayed_attempt_waits_for_its_pool_afterwards(db: Tables) -> None:
    a_pool(db)
    owned = a_run(db)
    first = submit_held(db, owned, "first", share("db"))
    delayed = submit_held(db, owned, "delayed", share("db"), due_at=NOON)
    assert state_of(db, delayed) is TaskState.DELAY_EXECUTION
    # Its slot is not reserved meanwhile.
    assert released(db) == [first]
    assert state_of(db, delayed) is TaskState.WAITING_DEPEND
    claim(db, [first])
    end(db, an_end(first))
    assert released(db) == [delayed]


# Pools


def test_an_attempt_that_needs_slots_is_held_until_they_are_free(db: Tables) -> None:
    pool = a_pool(db)
    owned = a_run(db)
    first = submit_held(db, owned, "a", share("db"), pool_priority=3)
    second = submit_held(db, owned, "b", share(pool))
    assert state_of(db, first) is TaskState.WAITING_DEPEND
    (row,) = queue_of(db, first)
    assert has(
        row,
        task_name="a",
        group_id=pool,
        group_name="db",
        process_id=owned.process_instance_id,
        priority=3,
        status=-1,
        weight=1,
    )
    assert claim(db, [first]) == []
    assert db.runs.unclaimed(MASTER, submitted_before=LATER) == ()
    assert released(db) == [first]
    assert queue_of(db, first)[0]["status"] == 1
    assert claim(db, [first]) == [first]
    assert released(db) == []
    end(db, an_end(first))
    assert released(db) == [second]


def test_any_master_lets_go_of_any_masters_attempts(db: Tables) -> None:
    a_pool(db, size=2)
    mine = submit_held(db, a_run(db), "a", share("db"))
    others = submit_held(db, a_run(db, node=OTHER_MASTER), "a", share("db"))
    assert released(db) == [mine, others]


def test_no_more_are_let_go_of_than_there_are_slots(db: Tables) -> None:
    a_pool(db, size=3)
    owned = a_run(db)
    waiting = [submit_held(db, owned, name, share("db")) for name in "abcde"]
    assert released(db) == waiting[:3]
    assert released(db) == []


def test_attempts_with_weight_take_so_many_slots(db: Tables) -> None:
    a_pool(db, size=3)
    owned = a_run(db)
    heavy = submit_held(db, owned, "heavy", share("db", 2))
    light = submit_held(db, owned, "light", share("db"))
    last = submit_held(db, owned, "last", share("db"))
    assert released(db) == [heavy, light]
    claim(db, [heavy, light])
    end(db, an_end(light))
    assert released(db) == [last]


def test_all_pools_of_an_attempt_are_taken_together_or_none(db: Tables) -> None:
    a_pool(db, "db")
    a_pool(db, "api")
    owned = a_run(db)
    busy = submit_held(db, owned, "busy", share("api"))
    assert released(db) == [busy]
    both = submit_held(db, owned, "both", share("db"), share("api"))
    assert released(db) == []
    assert [row["status"] for row in queue_of(db, both)] == [-1, -1]
    claim(db, [busy])
    end(db, an_end(busy))
    assert released(db) == [both]
    assert [row["status"] for row in queue_of(db, both)] == [1, 1]


def test_an_attempt_of_two_pools_is_not_starved_by_those_behind_it_in_either(db: Tables) -> None:
    """Otherwise attempts for single pools would keep its pools from ever being free together."""
    a_pool(db, "db")
    a_pool(db, "api")
    a_pool(db, "other")
    owned = a_run(db)
    running = submit_held(db, owned, "running", share("api"))
    assert released(db) == [running]
    both = submit_held(db, owned, "both", share("db"), share("api"))
    behind = [submit_held(db, owned, f"only {pool}", share(pool)) for pool in ("db", "api")]
    mixed = submit_held(db, owned, "mixed", share("db"), share("other"))
    last = submit_held(db, owned, "last", share("other"))
    assert released(db) == []
    claim(db, [running])
    end(db, an_end(running))
    assert released(db) == [both]
    claim(db, [both])
    end(db, an_end(both))
    assert released(db) == behind
    claim(db, behind)
    end(db, *map(an_end, behind))
    assert released(db) == [mixed]
    claim(db, [mixed])
    end(db, an_end(mixed))
    assert released(db) == [last]


def test_an_attempt_that_waits_for_a_closed_pool_keeps_nobody_from_its_others(db: Tables) -> None:
    """The time at which it opens again is unknown."""
    closed = a_pool(db, "db", status=0)
    a_pool(db, "api")
    owned = a_run(db)
    both = submit_held(db, owned, "both", share("db"), share("api"))
    light = submit_held(db, owned, "light", share("api"))
    assert released(db) == [light]
    db.update(t.task_group, closed, status=1)
    assert released(db) == []
    claim(db, [light])
    end(db, an_end(light))
    assert released(db) == [both]


def test_a_pool_named_twice_by_an_attempt_is_asked_for_the_sum(db: Tables) -> None:
    pool = a_pool(db, size=3)
    owned = a_run(db)
    task_id = submit_held(db, owned, "a", share("db", 2), share(pool))
    (row,) = queue_of(db, task_id)
    assert row["weight"] == 3
    other = submit_held(db, owned, "b", share("db"))
    assert released(db) == [task_id]
    assert state_of(db, other) is TaskState.WAITING_DEPEND


def test_the_processs_priority_goes_before_the_tasks_and_the_larger_of_these_first(
    db: Tables,
) -> None:
    a_pool(db)
    low, urgent = a_run(db, priority=Priority.LOW), a_run(db, priority=Priority.HIGHEST)
    in_order = [
        submit_held(db, low, "large", share("db"), pool_priority=9),
        submit_held(db, urgent, "small", share("db"), pool_priority=1),
        submit_held(db, urgent, "large", share("db"), pool_priority=5),
        submit_held(db, urgent, "small too", share("db"), pool_priority=1),
    ]
    expected = [in_order[2], in_order[1], in_order[3], in_order[0]]
    for task_id in expected:
        assert released(db) == [task_id]
        claim(db, [task_id])
        end(db, an_end(task_id))


def test_a_heavy_attempt_is_not_starved_by_light_ones_behind_it(db: Tables) -> None:
    a_pool(db, size=2)
    a_pool(db, "api", size=2)
    owned = a_run(db)
    running = submit_held(db, owned, "running", share("db"))
    assert released(db) == [running]
    heavy = submit_held(db, owned, "heavy", share("db", 2))
    light = submit_held(db, owned, "light", share("db"))
    elsewhere = submit_held(db, owned, "elsewhere", share("api"))
    assert released(db) == [elsewhere]
    claim(db, [running])
    end(db, an_end(running))
    assert released(db) == [heavy]
    claim(db, [heavy])
    end(db, an_end(heavy))
    assert released(db) == [light]


@pytest.mark.parametrize(
    ("pools", "reason"),
    [
        ((share("nope"),), no_pool("nope").reason),
        ((share(4711),), no_pool("4711").reason),
        ((share("db"), share("nope"), share("neither")), no_pool("nope").reason),
        ((share("db", 4),), "pool 'db' has 3 slots, the task needs 4"),
        ((share("db", 2), share("db", 2)), "pool 'db' has 3 slots, the task needs 4"),
    ],
)
def test_t51b_an_attempt_whose_pool_can_never_take_it_ends_with_the_reason(
    db: Tables, pools: tuple[PoolShare, ...], reason: str
) -> None:
    a_pool(db, size=3)
    owned = a_run(db)
    task_id = submit_held(db, owned, "a", *pools)
    db.notifications()
    assert released(db, LATER) == []
    assert has(the_task(db, task_id), state=6, end_time=LATER, settled=False, reason=reason)
    (report,) = db.runs.reports(MASTER)
    assert (report.task_instance_id, report.reason) == (task_id, reason)
    assert [channel for channel, _ in db.notifications()] == [Channel.TASK]
    other = submit_held(db, owned, "b", share("db"))
    assert released(db) == [other]


def test_an_attempt_fails_whose_grant_of_the_pool_was_revoked_while_it_waited(db: Tables) -> None:
    pool = a_pool(db)
    owned = a_run(db)
    first, second = (submit_held(db, owned, name, share("db")) for name in "ab")
    assert released(db) == [first]
    db.revoke(GrantKind.POOL, pool)
    claim(db, [first])
    end(db, an_end(first))
    assert released(db, LATER) == []
    row = the_task(db, second)
    assert has(row, state=6, reason=no_pool("db").reason, failure_reason="NOT_GRANTED")


def test_a_pool_of_no_size_or_of_a_name_that_is_taken_is_refused(db: Tables) -> None:
    a_pool(db)
    for name, size in (("db", 2), ("none", 0), ("less", -1), ("huge", 1_000_001)):
        with pytest.raises(REFUSED):
            a_pool(db, name, size)


def test_a_pool_that_grows_lets_more_in_and_calls_out(db: Tables) -> None:
    pool = a_pool(db)
    owned = a_run(db)
    first, second = (submit_held(db, owned, name, share("db")) for name in "ab")
    assert released(db) == [first]
    db.notifications()
    db.update(t.task_group, pool, group_size=2)
    assert db.notifications() == [(Channel.HOLD, "")]
    assert released(db) == [second]
    db.update(t.task_group, pool, name="renamed")
    assert db.notifications() == []


def test_a_pool_that_shrinks_lets_nobody_in_until_it_has_room(db: Tables) -> None:
    pool = a_pool(db, size=2)
    owned = a_run(db)
    a, b, c = (submit_held(db, owned, name, share("db")) for name in "abc")
    assert released(db) == [a, b]
    db.update(t.task_group, pool, group_size=1)
    claim(db, [a, b])
    end(db, an_end(a))
    assert released(db) == []
    end(db, an_end(b))
    assert released(db) == [c]


def test_a_closed_pool_lets_nobody_in(db: Tables) -> None:
    pool = a_pool(db, status=0)
    task_id = submit_held(db, a_run(db), "a", share("db"))
    assert released(db) == []
    db.update(t.task_group, pool, status=1)
    assert released(db) == [task_id]


def _killed(db: Tables, owned: Ownership, task_id: int) -> None:
    save(db, owned, kill("a"))
    end(db, an_end(task_id, TaskState.KILL))


def _lost(db: Tables, _owned: Ownership, _task_id: int) -> None:
    fail_over(db, WORKER, now=LATER)


def _given_up(db: Tables, owned: Ownership, _task_id: int) -> None:
    save(db, owned, AbandonTask(name="a", attempt=1))


def _failed(db: Tables, _owned: Ownership, task_id: int) -> None:
    end(db, an_end(task_id, TaskState.FAILURE))


@pytest.mark.parametrize("ends", [_killed, _lost, _given_up, _failed])
def test_no_end_of_an_attempt_leaks_its_slot_13314_14200_15287_15528(
    db: Tables, ends: Callable[[Tables, Ownership, int], None]
) -> None:
    a_pool(db)
    owned = a_run(db)
    holder = submit_held(db, owned, "a", share("db"))
    assert released(db) == [holder]
    claim(db, [holder])
    waiting = submit_held(db, owned, "b", share("db"))
    assert released(db) == []
    ends(db, owned, holder)
    assert released(db) == [waiting]
    (row,) = queue_of(db, holder)
    assert (row["status"], row["in_queue"]) == (2, 0)


def test_an_attempt_withdrawn_after_it_was_let_go_of_gives_its_slot_back(db: Tables) -> None:
    a_pool(db)
    owned = a_run(db)
    first, second = (submit_held(db, owned, name, share("db")) for name in "ab")
    assert released(db) == [first]
    saved = save(db, owned, kill("a"))
    assert [entry.task_instance_id for entry in saved.withdrawn] == [first]
    assert saved.holds
    assert released(db) == [second]


def test_a_retry_asks_for_its_slots_again(db: Tables) -> None:
    a_pool(db)
    owned = a_run(db)
    first, second = (submit_held(db, owned, name, share("db")) for name in "ab")
    assert released(db) == [first]
    claim(db, [first])
    end(db, an_end(first, TaskState.FAILURE))
    retry = RetryTask(name="a", attempt=1, state=TaskState.FAILURE, at=NOON)
    assert save(db, owned, retry).holds
    again = submit_held(db, owned, "a", share("db"), attempt=2)
    assert released(db) == [second]
    claim(db, [second])
    end(db, an_end(second))
    assert save(db, owned, finish("b")).holds
    assert released(db) == [again]


def test_an_end_without_pools_lets_go_of_nothing(db: Tables) -> None:
    owned = a_run(db)
    (task_id,) = submit(db, owned, "a")
    claim(db, [task_id])
    end(db, an_end(task_id))
    assert not save(db, owned, finish("a")).holds
    assert not end_run(db, owned).holds


def test_nothing_is_let_go_of_for_a_run_that_has_ended(db: Tables) -> None:
    a_pool(db)
    owned = a_run(db)
    submit_held(db, owned, "a", share("db"))
    submit_held(db, owned, "b", due_at=NOON)
    end_run(db, owned, ProcessState.FAILURE)
    assert release(db) == Released(offers=(), instances=0, next_due=None)


def test_an_offer_of_what_is_let_go_of_is_as_good_as_any(db: Tables) -> None:
    group = db.insert(t.worker_group, name="spark", ip_list="10.0.0.3")
    owned = a_run(db, priority=Priority.HIGH, worker_group_id=group)
    a_pool(db)
    task_id = submit_held(db, owned, "a", share("db"), priority=Priority.LOWEST)
    (offer,) = release(db).offers
    assert (offer.process_priority, offer.task_priority) == (1, 4)
    assert (offer.task_instance_id, offer.worker_group_id) == (task_id, group)
    assert db.runs.unclaimed(MASTER, submitted_before=LATER) == (offer,)


# Withdrawing


@pytest.mark.parametrize(
    ("decision", "state", "reason"),
    [
        (kill, TaskState.KILL, "withdrawn before it started"),
        (pause, TaskState.PAUSE, "paused before it started"),
    ],
)
def test_a_held_attempt_is_withdrawn_at_once(
    db: Tables, decision: Callable[[str], Decision], state: TaskState, reason: str
) -> None:
    a_pool(db)
    owned = a_run(db)
    delayed = submit_held(db, owned, "delayed", due_at=LATER)
    waiting = submit_held(db, owned, "waiting", share("db"))
    saved = save(db, owned, decision("delayed"), decision("waiting"), at=LATER)
    # It is in no queue yet.
    assert (saved.withdrawn, saved.kills) == ((), ())
    for task_id in (delayed, waiting):
        assert has(
            the_task(db, task_id),
            state=int(state),
            wanted_state=int(state),
            end_time=LATER,
            reason=reason,
            settled=False,
        )
    reports = db.runs.reports(MASTER)
    assert [(one.task_instance_id, one.state) for one in reports] == [
        (delayed, state),
        (waiting, state),
    ]
    assert release(db, LATER) == Released(offers=(), instances=0, next_due=None)
