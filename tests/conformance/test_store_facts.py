"""Facts and failure reasons of Spark applications in rows, and attempts that are final."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from common.model.commands import CommandType
from common.model.decisions import FinishProcess, GiveUpRetry, RetryTask
from common.model.definitions import PoolShare, TaskTimeout
from common.model.failures import FailureReason
from common.model.instances import Ownership
from common.model.memory_factor import MAX_MEMORY_FACTOR
from common.model.plans import Restart
from common.model.spark import Progress, SparkFacts, Usage, progress_from, usage_from
from common.model.states import ProcessState, TaskState, TimeoutStrategy
from common.store import tables as t
from common.store.listen import read_task_report
from common.store.worker.ports import ClaimedTask
from tests.builders import NOON
from tests.conformance.store_tables import (
    FOLDERS,
    LATER,
    MASTER,
    MINUTE,
    OTHER_WORKER,
    REFUSED,
    RESTARTED,
    WORKER,
    Tables,
    a_command,
    a_run,
    a_sub_process,
    a_submit,
    always,
    an_end,
    begin_child,
    claim,
    end,
    end_run,
    fail_over,
    finish,
    load,
    released,
    save,
    submit,
    take,
    the_newest_id,
    the_task,
)

FACTS = SparkFacts(
    application_ids=("app-1", "app-2"),
    ui_link="http://driver:4040",
    progress=Progress(tasks=40, tasks_done=12, tasks_running=3),
)
_MINUTE = TaskTimeout(after=MINUTE, strategy=TimeoutStrategy.FAILED)
_NAMES = ("app_link", "ui_link", "history_link", "progress", "usage")


def _facts_of(db: Tables, task_id: int) -> dict[str, Any]:
    row = the_task(db, task_id)
    return {name: row[name] for name in _NAMES if row[name] is not None}


def test_what_a_running_attempt_says_is_in_its_row(db: Tables) -> None:
    a, b, quiet = submit(db, a_run(db), "a", "b", "quiet")
    claim(db, [a, b, quiet])
    usage = Usage(cpu_seconds=1.5)
    db.tasks.record_facts(
        WORKER, {b: replace(FACTS, usage=usage, history_link="http://h"), a: FACTS, 2**70: FACTS}
    )
    assert (the_task(db, a)["app_link"], the_task(db, a)["ui_link"]) == (
        "app-1,app-2",
        "http://driver:4040",
    )
    assert progress_from(the_task(db, a)["progress"]) == FACTS.progress
    assert (the_task(db, a)["history_link"], the_task(db, a)["usage"]) == (None, None)
    assert usage_from(the_task(db, b)["usage"]) == usage
    assert _facts_of(db, quiet) == {}
    assert {the_task(db, one)["state"] for one in (a, b, quiet)} == {TaskState.RUNNING}


def test_what_is_not_said_any_more_stays_as_it_was_told(db: Tables) -> None:
    (a,) = submit(db, a_run(db), "a")
    claim(db, [a])
    db.tasks.record_facts(WORKER, {a: FACTS})
    before = _facts_of(db, a)
    db.tasks.record_facts(WORKER, {a: SparkFacts()})
    db.tasks.record_facts(WORKER, {})
    assert _facts_of(db, a) == before
    db.tasks.record_facts(WORKER, {a: SparkFacts(history_link="https://history")})
    assert _facts_of(db, a) == before | {"history_link": "https://history"}


def test_a_cause_of_waiting_goes_when_the_application_runs(db: Tables) -> None:
    (a,) = submit(db, a_run(db), "a")
    claim(db, [a])
    waiting = SparkFacts(progress=Progress(waiting="the queue is full"), waited=True)
    db.tasks.record_facts(WORKER, {a: waiting})
    assert progress_from(the_task(db, a)["progress"]).waiting == "the queue is full"
    db.tasks.record_facts(WORKER, {a: replace(waiting, progress=Progress())})
    assert progress_from(the_task(db, a)["progress"]) == Progress()


def test_only_the_incarnation_that_holds_a_running_attempt_tells_of_it(db: Tables) -> None:
    a, b, ended = submit(db, a_run(db), "a", "b", "ended")
    claim(db, [a, ended])
    end(db, an_end(ended))
    for other in (RESTARTED, OTHER_WORKER):
        db.tasks.record_facts(other, {a: FACTS})
    db.tasks.record_facts(WORKER, {b: FACTS, ended: FACTS})
    assert [_facts_of(db, one) for one in (a, b, ended)] == [{}, {}, {}]


def test_telling_of_an_attempt_calls_nobody(db: Tables) -> None:
    (a,) = submit(db, a_run(db), "a")
    claim(db, [a])
    db.notifications()
    db.tasks.record_facts(WORKER, {a: FACTS})
    assert db.notifications() == []


def test_a_report_carries_the_last_facts_and_leaves_the_rest_alone(db: Tables) -> None:
    a, b = submit(db, a_run(db), "a", "b")
    claim(db, [a, b])
    db.tasks.record_facts(WORKER, {a: FACTS, b: FACTS})
    last = SparkFacts(
        progress=Progress(tasks=40, tasks_done=40), usage=Usage(run_seconds=2.5, core_seconds=8.0)
    )
    end(db, an_end(a, facts=last), an_end(b))
    row = the_task(db, a)
    assert (row["app_link"], row["ui_link"]) == ("app-1,app-2", "http://driver:4040")
    assert progress_from(row["progress"]) == last.progress
    assert json.loads(row["usage"]) == {"run_seconds": 2.5, "core_seconds": 8.0}
    assert progress_from(the_task(db, b)["progress"]) == FACTS.progress


def test_facts_that_no_text_column_can_keep_are_kept_as_well_as_can_be(db: Tables) -> None:
    (a,) = submit(db, a_run(db), "a")
    claim(db, [a])
    db.tasks.record_facts(
        WORKER, {a: SparkFacts(application_ids=("a\0b",), ui_link="http://\ud800")}
    )
    assert _facts_of(db, a) == {"app_link": "a\N{REPLACEMENT CHARACTER}b", "ui_link": "http://?"}


@pytest.mark.parametrize(
    ("state", "found", "said", "expected"),
    [
        (TaskState.FAILURE, FailureReason.TIMED_OUT, None, "TIMED_OUT"),
        (TaskState.FAILURE, None, FailureReason.FETCH_FAILED, "FETCH_FAILED"),
        (TaskState.FAILURE, FailureReason.KILLED, FailureReason.FETCH_FAILED, "KILLED"),
        (TaskState.FAILURE, None, None, "EXIT_CODE"),
        (TaskState.KILL, FailureReason.OUT_OF_MEMORY, None, "OUT_OF_MEMORY"),
        # A stop of ours is no failure, whatever end the attempt reports.
        (TaskState.KILL, None, FailureReason.PYTHON_ERROR, None),
        (TaskState.SUCCESS, FailureReason.EXIT_CODE, FailureReason.EXIT_CODE, None),
    ],
)
def test_the_reason_of_a_failure_is_in_the_row_and_reaches_the_owner(
    db: Tables,
    state: TaskState,
    found: FailureReason | None,
    said: FailureReason | None,
    expected: str | None,
) -> None:
    owned = a_run(db)
    (a,) = submit(db, owned, "a")
    claim(db, [a])
    db.notifications()
    end(db, an_end(a, state, failure=found, facts=SparkFacts(failure=said)))
    assert the_task(db, a)["failure_reason"] == expected
    assert [report.failure for report in db.runs.reports(MASTER)] == [expected]
    assert [read_task_report(payload).failure for _, payload in db.notifications()] == [expected]
    assert [row.failure for row in load(db, owned).tasks] == [expected]


def test_a_reason_that_is_not_known_here_counts_as_none(db: Tables) -> None:
    owned = a_run(db)
    (a,) = submit(db, owned, "a")
    claim(db, [a])
    end(db, an_end(a, TaskState.FAILURE))
    db.update(t.task_instance, a, failure_reason="OF_A_LATER_RELEASE")
    assert [report.failure for report in db.runs.reports(MASTER)] == [None]
    assert [row.failure for row in load(db, owned).tasks] == [None]


def test_an_attempt_without_its_pool_fails_since_its_project_has_none(db: Tables) -> None:
    owned = a_run(db)
    save(db, owned, a_submit("a", pools=(PoolShare(pool_name="nobody's"),)))
    assert released(db) == []
    (row,) = db.rows(t.task_instance)
    assert (row["state"], row["failure_reason"]) == (TaskState.FAILURE, "NOT_GRANTED")


def test_a_wait_that_takes_too_long_fails_for_its_time_out(db: Tables) -> None:
    owned = a_run(db)
    save(db, owned, a_submit("a", task_type="DEPENDENT", timeout=_MINUTE))
    db.timeouts.time_out(now=NOON + 2 * MINUTE)
    (row,) = db.rows(t.task_instance)
    assert (row["state"], row["failure_reason"]) == (TaskState.FAILURE, "TIMED_OUT")


@pytest.mark.parametrize(
    ("end_of_child", "state", "expected"),
    [
        (ProcessState.STOP, TaskState.FAILURE, "TIMED_OUT"),
        (ProcessState.SUCCESS, TaskState.SUCCESS, None),
    ],
)
def test_a_sub_process_that_takes_too_long_fails_for_its_time_out_unless_it_succeeds(
    db: Tables, end_of_child: ProcessState, state: TaskState, expected: str | None
) -> None:
    parent = a_run(db)
    save(db, parent, a_sub_process("sub", timeout=_MINUTE))
    task_id = the_newest_id(db, t.task_instance)
    child = begin_child(db, parent, task_id)
    db.timeouts.time_out(now=NOON + 2 * MINUTE)
    end_run(db, child, end_of_child)
    row = the_task(db, task_id)
    assert (row["state"], row["failure_reason"]) == (state, expected)


# More memory


def test_an_attempt_carries_its_memory_factor_to_its_worker_and_back(db: Tables) -> None:
    owned = a_run(db)
    saved = save(db, owned, a_submit("a", memory_factor=2.25), a_submit("b"))
    a, b = (offer.task_instance_id for offer in saved.offers)
    claimed = db.tasks.claim(WORKER, [a, b], folders=FOLDERS, now=NOON)
    assert [one.memory_factor for one in claimed] == [2.25, 1.0]
    assert [row.memory_factor for row in load(db, owned).tasks] == [2.25, 1.0]


@pytest.mark.parametrize(
    "spoilt", [0.0, 0.99, -1.0, float("nan"), float("inf"), 2 * MAX_MEMORY_FACTOR]
)
def test_a_memory_factor_that_makes_no_sense_is_refused(db: Tables, spoilt: float) -> None:
    (a,) = submit(db, a_run(db), "a")
    with pytest.raises(REFUSED):
        db.update(t.task_instance, a, memory_factor=spoilt)


# Attempts whose worker was lost


def _lose(db: Tables, owned: Ownership, name: str = "a", attempt: int = 1) -> int:
    """An attempt whose worker is lost and which awaits a substitute; its id."""
    (task_id,) = submit(db, owned, name, attempt=attempt)
    claim(db, [task_id])
    fail_over(db, WORKER, now=LATER)
    save(db, owned, _make_up(name, attempt))
    return task_id


def _make_up(name: str = "a", attempt: int = 1) -> RetryTask:
    state = TaskState.NEED_FAULT_TOLERANCE
    return RetryTask(name=name, attempt=attempt, state=state, at=LATER)


def _fail(db: Tables, owned: Ownership, attempt: int, *, again: bool = True) -> int:
    (task_id,) = submit(db, owned, "a", attempt=attempt)
    claim(db, [task_id])
    end(db, an_end(task_id, TaskState.FAILURE))
    state = TaskState.FAILURE
    if again:
        save(db, owned, RetryTask(name="a", attempt=attempt, state=state, at=LATER))
    else:
        save(db, owned, finish("a", state, attempt))
    return task_id


def _claimed(db: Tables, owned: Ownership, attempt: int) -> ClaimedTask:
    ids = submit(db, owned, "a", attempt=attempt)
    (claimed,) = db.tasks.claim(WORKER, ids, folders=FOLDERS, now=NOON)
    return claimed


def test_a_claim_names_the_attempts_that_it_makes_up_for_newest_first(db: Tables) -> None:
    owned = a_run(db)
    _lose(db, owned, "other")
    first, second = _lose(db, owned), _lose(db, owned, attempt=2)
    third = _claimed(db, owned, 3)
    assert (third.lost_attempts, third.ended_attempts) == ((second, first), ())


def test_attempts_that_were_lost_before_another_end_are_not_made_up_for(db: Tables) -> None:
    owned = a_run(db)
    first, second = _lose(db, owned), _fail(db, owned, 2)
    third = _lose(db, owned, attempt=3)
    fourth = _claimed(db, owned, 4)
    assert (fourth.lost_attempts, fourth.ended_attempts) == ((third,), (second, first))


def test_a_first_attempt_and_a_retry_make_up_for_nothing(db: Tables) -> None:
    owned = a_run(db)
    first = _claimed(db, owned, 1)
    assert (first.lost_attempts, first.ended_attempts) == ((), ())
    again = a_run(db)
    failed = _fail(db, again, 1)
    retry = _claimed(db, again, 2)
    assert (retry.lost_attempts, retry.ended_attempts) == ((), (failed,))


def test_an_attempt_that_was_given_up_is_not_made_up_for(db: Tables) -> None:
    owned = a_run(db)
    given_up = _lose(db, owned)
    save(db, owned, GiveUpRetry(name="a", attempt=1))
    second = _claimed(db, owned, 2)
    assert (second.lost_attempts, second.ended_attempts) == ((), (given_up,))


def _over(db: Tables, task_id: int) -> bool | None:
    return db.tasks.over([task_id])[task_id]


def test_an_attempt_is_over_once_it_has_ended(db: Tables) -> None:
    a, b, c = submit(db, a_run(db), "a", "b", "c")
    claim(db, [b, c])
    end(db, an_end(c, TaskState.KILL))
    assert db.tasks.over([a, b, c]) == {a: False, b: False, c: True}


def test_of_what_is_not_there_nothing_is_known(db: Tables) -> None:
    unknown = [2_000_000_000, 2**70, 0, -5]
    assert db.tasks.over(unknown) == dict.fromkeys(unknown)
    assert db.tasks.over([]) == {}


def test_a_lost_attempt_is_not_over_before_what_makes_up_for_it_is(db: Tables) -> None:
    owned = a_run(db)
    (lost,) = submit(db, owned, "a")
    claim(db, [lost])
    fail_over(db, WORKER, now=LATER)
    assert _over(db, lost) is False, "its owner has not heard of it yet"
    save(db, owned, _make_up())
    assert _over(db, lost) is False, "the next attempt is still to come"
    second = _lose(db, owned, attempt=2)
    assert db.tasks.over([lost, second]) == {lost: False, second: False}
    (third,) = submit(db, owned, "a", attempt=3)
    assert _over(db, lost) is False, "the attempt that makes up for it is in the queue"
    claim(db, [third])
    assert db.tasks.over([lost, second, third]) == {lost: False, second: False, third: False}
    end(db, an_end(third))
    assert db.tasks.over([lost, second, third]) == {lost: True, second: True, third: True}


def test_a_lost_attempt_is_over_when_a_retry_follows_the_one_that_made_up_for_it(
    db: Tables,
) -> None:
    owned = a_run(db)
    lost = _lose(db, owned)
    failed = _fail(db, owned, 2)
    (third,) = submit(db, owned, "a", attempt=3)
    assert db.tasks.over([lost, failed, third]) == {lost: True, failed: True, third: False}


def test_a_lost_attempt_is_over_when_nothing_is_to_make_up_for_it(db: Tables) -> None:
    given_up, settled = a_run(db), a_run(db)
    first = _lose(db, given_up)
    save(db, given_up, GiveUpRetry(name="a", attempt=1))
    (second,) = submit(db, settled, "a")
    claim(db, [second])
    fail_over(db, WORKER, now=LATER)
    save(db, settled, finish("a", TaskState.NEED_FAULT_TOLERANCE))
    assert db.tasks.over([first, second]) == {first: True, second: True}


def test_a_lost_attempt_is_over_with_its_run_unless_that_is_paused(db: Tables) -> None:
    paused, stopped = a_run(db), a_run(db)
    first, second = _lose(db, paused), _lose(db, stopped)
    save(db, paused, FinishProcess(state=ProcessState.PAUSE))
    end_run(db, stopped, ProcessState.STOP)
    assert db.tasks.over([first, second]) == {first: False, second: True}


def test_a_lost_attempt_is_over_once_a_recovery_has_put_it_aside(db: Tables) -> None:
    owned = a_run(db)
    lost = _lose(db, owned)
    save(db, owned, FinishProcess(state=ProcessState.PAUSE))
    a_command(db, command_type=7)
    plan = Restart(
        process_instance_id=owned.process_instance_id,
        epoch=owned.epoch,
        command_type=CommandType.REPEAT_RUNNING,
        reset=("a",),
    )
    (handled,) = take(db, always(plan))
    assert handled.ownership is not None
    assert _over(db, lost) is True
    assert _claimed(db, handled.ownership, 2).lost_attempts == ()


def test_over_is_asked_of_one_attempt_at_a_time_or_of_many(db: Tables) -> None:
    owned = a_run(db)
    ids = submit(db, owned, *(f"task {number}" for number in range(30)))
    claim(db, ids)
    end(db, *(an_end(task_id) for task_id in ids[::2]))
    answers = db.tasks.over([*ids, *ids])
    assert answers == {task_id: index % 2 == 0 for index, task_id in enumerate(ids)}
