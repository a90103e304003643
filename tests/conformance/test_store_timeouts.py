"""Time-outs: each raises one alert and ends its attempt or run once (traps T46a, T46b)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from common.model.commands import CommandType
from common.model.decisions import Decision, FinishProcess, PauseProcess, StopProcess
from common.model.definitions import TaskTimeout
from common.model.failures import FailureReason
from common.model.instances import Ownership
from common.model.plans import Restart
from common.model.states import (
    ExecutionType,
    ProcessState,
    TaskState,
    TimeoutStrategy,
)
from common.store import tables as t
from common.store.listen import Channel
from common.store.master.ports import Intent
from common.store.worker.ports import AttemptEnd
from tests.builders import NOON
from tests.conformance.store_tables import (
    FOLDERS,
    LATER,
    MASTER,
    MINUTE,
    OTHER_WORKER,
    STOPPING,
    WORKER,
    Tables,
    a_begin,
    a_definition,
    a_run,
    a_submit,
    an_end,
    an_intent,
    begin_child,
    carry_out,
    claim,
    end,
    end_run,
    finish,
    has,
    save,
    take_over,
    the_process,
    the_task,
)

SECOND = timedelta(seconds=1)


def a_timed(name: str, strategy: TimeoutStrategy, **changes: Any) -> Decision:
    """A task with a time-out of a minute."""
    return a_submit(name, timeout=TaskTimeout(after=MINUTE, strategy=strategy), **changes)


def titles(db: Tables) -> list[str]:
    return [row["title"] for row in db.rows(t.alert)]


# Tasks


@pytest.mark.parametrize("strategy", list(TimeoutStrategy))
def test_t46a_a_task_that_takes_too_long_is_told_once_and_ended_by_its_worker_alone(
    db: Tables, strategy: TimeoutStrategy
) -> None:
    """T46a."""
    owned = a_run(db, warning_group_id=7)
    (task_id,) = [o.task_instance_id for o in save(db, owned, a_timed("späte", strategy)).offers]
    # Time in the queue does not count.
    assert db.timeouts.time_out(now=LATER + MINUTE) == 0
    claimed = db.tasks.claim(WORKER, [task_id], folders=FOLDERS, now=LATER)
    assert [task.timeout for task in claimed] == [MINUTE if strategy.fails else None]
    assert db.timeouts.time_out(now=LATER + MINUTE - SECOND) == 0
    due = LATER + MINUTE
    assert [db.timeouts.time_out(now=due + n * SECOND) for n in range(2)] == [strategy.warns, 0]
    assert has(the_task(db, task_id), state=1, reason=None, alert_flag=int(strategy.warns))
    assert len(db.rows(t.alert)) == strategy.warns
    if strategy.warns:
        (row,) = db.rows(t.alert)
        assert has(
            row,
            title="Task Timeout Warn: flights",
            show_type=0,
            alertgroup_id=7,
            receivers=None,
            create_time=due,
            content=(
                f"[{{'id':'{task_id}','name':'späte','event':'timeout','warnLevel':'middle'}}]"
            ),
        )


def test_a_task_that_ended_in_time_or_has_no_limit_is_not_told(db: Tables) -> None:
    owned = a_run(db)
    warn = TimeoutStrategy.WARN
    saved = save(db, owned, a_timed("ended", warn), a_submit("free"), a_timed("over", warn))
    ids = [offer.task_instance_id for offer in saved.offers]
    claim(db, ids)
    end(db, an_end(ids[0]))
    other = a_run(db)
    (orphan,) = [offer.task_instance_id for offer in save(db, other, a_timed("a", warn)).offers]
    claim(db, [orphan])
    end_run(db, other, ProcessState.FAILURE)
    assert db.timeouts.time_out(now=LATER + MINUTE) == 1
    assert [row["alert_flag"] for row in db.rows(t.task_instance)] == [0, 0, 1, 0]


def test_t46a_each_attempt_has_a_time_and_an_alert_of_its_own(db: Tables) -> None:
    owned = a_run(db)
    for attempt in (1, 2):
        submission = a_timed("a", TimeoutStrategy.WARN, attempt=attempt)
        (offer,) = save(db, owned, submission).offers
        claim(db, [offer.task_instance_id])
        assert db.timeouts.time_out(now=LATER) == 1
        end(db, an_end(offer.task_instance_id, TaskState.FAILURE))
        save(db, owned, finish("a", TaskState.FAILURE, attempt))
    assert titles(db) == ["Task Timeout Warn: flights"] * 2


@pytest.mark.parametrize("strategy", [TimeoutStrategy.FAILED, TimeoutStrategy.WARNFAILED])
def test_a_dependent_that_takes_too_long_fails(db: Tables, strategy: TimeoutStrategy) -> None:
    owned = a_run(db)
    save(db, owned, a_timed("dep", strategy, task_type="DEPENDENT"))
    (row,) = db.rows(t.task_instance)
    assert db.timeouts.time_out(now=LATER - SECOND) == 0
    db.notifications()
    assert db.timeouts.time_out(now=LATER) == 1 + strategy.warns
    assert db.timeouts.time_out(now=LATER + MINUTE) == 0
    assert has(
        the_task(db, row["id"]),
        state=6,
        end_time=LATER,
        settled=False,
        reason=f"timed out after 1 minute (timeout strategy {strategy.name})",
    )
    assert titles(db) == ["Task Timeout Warn: flights"] * strategy.warns
    (report,) = db.runs.reports(MASTER)
    assert (report.task_instance_id, report.state) == (row["id"], TaskState.FAILURE)
    assert [channel for channel, _ in db.notifications()] == [Channel.TASK]


def a_timed_child(db: Tables, parent: Ownership) -> tuple[int, Ownership]:
    save(db, parent, a_timed("sub", TimeoutStrategy.FAILED, task_type="SUB_PROCESS"))
    task_id = db.rows(t.task_instance)[-1]["id"]
    return task_id, begin_child(db, parent, task_id)


def test_a_sub_process_that_takes_too_long_is_stopped_and_then_a_failure(db: Tables) -> None:
    parent = a_run(db)
    task_id, child = a_timed_child(db, parent)
    assert db.timeouts.time_out(now=LATER - SECOND) == 0
    assert db.timeouts.time_out(now=LATER) == 1
    assert db.runs.wanted(MASTER) == {child: Intent(state=ProcessState.STOP, at=LATER)}
    reason = "timed out after 1 minute (timeout strategy FAILED)"
    # The attempt gets no intent: its owner need not know of the time-out before the child's end.
    assert has(the_task(db, task_id), state=1, wanted_state=None, reason=reason)
    assert db.timeouts.time_out(now=LATER + MINUTE) == 0
    save(db, child, STOPPING, FinishProcess(state=ProcessState.STOP, reason="stopped"), at=LATER)
    assert has(the_task(db, task_id), state=6, end_time=LATER, reason=reason)
    (report,) = db.runs.reports(MASTER)
    assert (report.state, report.reason) == (TaskState.FAILURE, reason)


def test_a_sub_process_that_succeeds_though_it_was_to_be_stopped_has_succeeded(db: Tables) -> None:
    parent = a_run(db)
    task_id, child = a_timed_child(db, parent)
    db.timeouts.time_out(now=LATER)
    end_run(db, child)
    assert has(the_task(db, task_id), state=7, reason=None)


def test_a_sub_process_whose_child_is_being_stopped_already_only_notes_that_it_took_too_long(
    db: Tables,
) -> None:
    parent = a_run(db)
    task_id, child = a_timed_child(db, parent)
    save(db, child, StopProcess(deadline=LATER, failing=True))
    assert db.timeouts.time_out(now=LATER) == 1
    assert the_process(db, child)["wanted_state"] == ProcessState.FAILURE
    assert the_task(db, task_id)["reason"] is not None


def test_a_sub_process_whose_child_has_not_begun_has_all_its_time_left(db: Tables) -> None:
    parent = a_run(db)
    save(db, parent, a_timed("sub", TimeoutStrategy.WARNFAILED, task_type="SUB_PROCESS"))
    assert db.timeouts.time_out(now=LATER + MINUTE) == 0
    assert titles(db) == []


# Process instances


@pytest.mark.parametrize("strategy", list(TimeoutStrategy))
def test_t46b_a_process_that_takes_too_long_is_told_once_and_wanted_failed(
    db: Tables, strategy: TimeoutStrategy
) -> None:
    """T46b: counted to the second, and once."""
    owned = a_run(
        db, name="lange", timeout_minutes=1, timeout_strategy=strategy, warning_group_id=7
    )
    assert the_process(db, owned)["timeout_strategy"] == strategy
    assert db.timeouts.time_out(now=LATER - SECOND) == 0
    assert db.timeouts.time_out(now=LATER) == 1
    assert db.timeouts.time_out(now=LATER + MINUTE) == 0
    assert the_process(db, owned)["timeout_flag"] == 1
    wanted = {owned: Intent(state=ProcessState.FAILURE, at=LATER)} if strategy.fails else {}
    assert db.runs.wanted(MASTER) == wanted
    assert len(db.rows(t.alert)) == strategy.warns
    if strategy.warns:
        (row,) = db.rows(t.alert)
        run_id = owned.process_instance_id
        assert has(
            row,
            title="Process Timeout Warn: lange",
            show_type=0,
            alertgroup_id=7,
            create_time=LATER,
            content=f"[{{'id':'{run_id}','name':'lange','event':'timeout','warnLevel':'middle'}}]",
        )


def test_t46b_a_process_that_was_failed_over_is_not_told_of_again(db: Tables) -> None:
    owned = a_run(db, timeout_minutes=1)
    assert db.timeouts.time_out(now=LATER) == 1
    take_over(db, owned)
    assert db.timeouts.time_out(now=LATER + MINUTE) == 0
    assert titles(db) == ["Process Timeout Warn: flights"]


def test_a_restarted_process_has_its_own_time_out_again(db: Tables) -> None:
    owned = a_run(db, timeout_minutes=1)
    db.timeouts.time_out(now=LATER)
    end_run(db, owned, ProcessState.FAILURE)
    plan = Restart(
        process_instance_id=owned.process_instance_id,
        epoch=owned.epoch,
        command_type=CommandType.REPEAT_RUNNING,
        reset=(),
        afresh=True,
    )
    carry_out(db, plan, now=LATER)
    assert db.timeouts.time_out(now=LATER) == 0
    assert db.timeouts.time_out(now=LATER + MINUTE) == 1
    assert len(titles(db)) == 2


def test_a_process_that_goes_on_has_the_time_of_its_time_out_again(db: Tables) -> None:
    owned = a_run(db, timeout_minutes=1)
    end_run(db, owned, ProcessState.STOP)
    plan = Restart(
        process_instance_id=owned.process_instance_id,
        epoch=owned.epoch,
        command_type=CommandType.RECOVER_SUSPENDED_PROCESS,
        reset=(),
    )
    carry_out(db, plan, now=LATER)
    assert the_process(db, owned)["start_time"] == NOON
    assert db.timeouts.time_out(now=LATER) == 0
    assert db.timeouts.time_out(now=LATER + MINUTE) == 1


def test_a_time_out_takes_the_place_of_a_pause_and_not_of_a_stop(db: Tables) -> None:
    fails = TimeoutStrategy.FAILED
    pausing, stopping = (a_run(db, timeout_minutes=1, timeout_strategy=fails) for _ in range(2))
    save(db, pausing, PauseProcess())
    for owned, command_type in ((pausing, CommandType.PAUSE), (stopping, CommandType.STOP)):
        carry_out(db, an_intent(owned.process_instance_id, command_type))
    assert db.timeouts.time_out(now=LATER) == 2
    assert db.runs.wanted(MASTER) == {
        pausing: Intent(state=ProcessState.FAILURE, at=LATER),
        stopping: Intent(state=ProcessState.STOP, at=NOON),
    }


def test_what_is_being_stopped_has_ended_or_has_not_begun_takes_no_time(db: Tables) -> None:
    definition_id = a_definition(db)
    timed: dict[str, Any] = {"timeout_minutes": 1, "process_definition_id": definition_id}
    ended = a_run(db, **timed)
    end_run(db, ended)
    stopping = a_run(db, **timed)
    save(db, stopping, STOPPING)
    waiting = a_begin(execution_type=ExecutionType.SERIAL_WAIT, **timed)
    assert carry_out(db, waiting).ownership is None
    a_run(db)
    assert db.timeouts.time_out(now=LATER + MINUTE) == 0


def test_what_is_due_together_is_told_together(db: Tables) -> None:
    owned = a_run(db, timeout_minutes=1)
    saved = save(db, owned, *(a_timed(name, TimeoutStrategy.WARN) for name in "ab"))
    claim(db, [offer.task_instance_id for offer in saved.offers])
    assert db.timeouts.time_out(now=LATER) == 3
    assert sorted(titles(db)) == [
        "Process Timeout Warn: flights",
        *["Task Timeout Warn: flights"] * 2,
    ]


# Time-outs that a worker carries out before a master has seen them


def timed_out(task_id: int, **changes: Any) -> AttemptEnd:
    return an_end(task_id, TaskState.FAILURE, failure=FailureReason.TIMED_OUT, **changes)


@pytest.mark.parametrize("strategy", list(TimeoutStrategy))
@pytest.mark.parametrize("is_first", [True, False])
def test_t46a_a_timed_out_attempt_has_one_alert_whichever_of_kill_and_loop_comes_first(
    db: Tables, strategy: TimeoutStrategy, is_first: bool
) -> None:
    owned = a_run(db, warning_group_id=7)
    (offer,) = save(db, owned, a_timed("a", strategy)).offers
    claim(db, [offer.task_instance_id])
    if not is_first:
        db.timeouts.time_out(now=LATER)
    assert end(db, timed_out(offer.task_instance_id)) == {offer.task_instance_id}
    assert db.timeouts.time_out(now=LATER + MINUTE) == 0
    found = [(row["title"], row["alertgroup_id"]) for row in db.rows(t.alert)]
    assert found == [("Task Timeout Warn: flights", 7)] * strategy.warns
    assert the_task(db, offer.task_instance_id)["alert_flag"] == int(strategy.warns)


def test_a_refused_report_of_a_time_out_raises_no_alert(db: Tables) -> None:
    owned = a_run(db)
    (offer,) = save(db, owned, a_timed("a", TimeoutStrategy.WARNFAILED)).offers
    claim(db, [offer.task_instance_id])
    assert end(db, timed_out(offer.task_instance_id), node=OTHER_WORKER) == frozenset()
    assert db.rows(t.alert) == []
    assert end(db, timed_out(offer.task_instance_id)) == {offer.task_instance_id}
    assert end(db, timed_out(offer.task_instance_id)) == frozenset()
    assert len(db.rows(t.alert)) == 1


def test_an_attempt_that_fails_otherwise_raises_no_alert_of_a_time_out(db: Tables) -> None:
    owned = a_run(db)
    saved = save(db, owned, a_timed("a", TimeoutStrategy.WARN), a_timed("b", TimeoutStrategy.WARN))
    first, second = (offer.task_instance_id for offer in saved.offers)
    claim(db, [first, second])
    end(db, an_end(first, TaskState.FAILURE), an_end(second))
    assert db.rows(t.alert) == []


def test_alerts_of_time_outs_go_to_the_administrators_if_the_run_names_no_group(
    db: Tables,
) -> None:
    for _ in range(2):
        owned = a_run(db, timeout_minutes=1, warning_group_id=0)
        saved = save(
            db, owned, a_timed("a", TimeoutStrategy.WARN), a_timed("b", TimeoutStrategy.WARNFAILED)
        )
        slow, killed = (offer.task_instance_id for offer in saved.offers)
        claim(db, [slow, killed])
        end(db, timed_out(killed))
    db.timeouts.time_out(now=LATER + MINUTE)
    assert (
        sorted(titles(db))
        == ["Process Timeout Warn: flights"] * 2 + ["Task Timeout Warn: flights"] * 4
    )
    assert {row["alertgroup_id"] for row in db.rows(t.alert)} == {1}
