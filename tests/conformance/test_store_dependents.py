"""DEPENDENT attempts: the runs that decide them, and their single end."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from common.model.commands import CommandType
from common.model.decisions import (
    AbandonTask,
    Decision,
    FinishProcess,
    RetryTask,
)
from common.model.failures import FailureReason
from common.model.instances import Ownership
from common.model.states import (
    ExecutionType,
    ProcessState,
    TaskState,
)
from common.model.upstream import Absence, Answer, Question, UpstreamRun, UpstreamTask
from common.store import tables as t
from common.store.listen import read_task_report
from common.store.master.ports import AnsweringRun, DependentDecision, Saved, WaitingDependent
from tests.builders import NOON
from tests.conformance.store_tables import (
    LATER,
    MASTER,
    MINUTE,
    OTHER_MASTER,
    REBORN,
    Tables,
    a_begin,
    a_definition,
    a_run,
    a_submit,
    an_end,
    carry_out,
    claim,
    end,
    end_run,
    finish,
    has,
    kill,
    pause,
    save,
    submit,
    take_over,
    the_newest_id,
    the_process,
    the_task,
)

DAY = timedelta(days=1)


def a_dependent(db: Tables, owned: Ownership, name: str = "dep") -> int:
    saved = save(db, owned, a_submit(name, task_type="DEPENDENT", task_json='{"n":1}'), at=LATER)
    assert saved == Saved(lost=frozenset(), offers=(), kills=(), withdrawn=(), dependents=True)
    return the_newest_id(db, t.task_instance)


def decide(
    db: Tables,
    waiting: WaitingDependent,
    state: TaskState | None = TaskState.SUCCESS,
    *,
    evidence: str = "[]",
    reason: str | None = None,
    failure: FailureReason | None = None,
) -> bool:
    decision = DependentDecision(
        waiting=waiting, state=state, evidence=evidence, reason=reason, failure=failure
    )
    written = db.dependents.decide([decision], now=LATER + MINUTE)
    assert written <= {waiting.task_instance_id}
    return bool(written)


# Waiting


def test_a_dependent_runs_in_its_master_from_the_start(db: Tables) -> None:
    owned = a_run(db, schedule_time=NOON - DAY, process_definition_id=a_definition(db))
    task_id = a_dependent(db, owned)
    assert has(the_task(db, task_id), state=1, host=None, start_time=LATER, settled=False)
    assert db.dependents.waiting(MASTER) == (
        WaitingDependent(
            ownership=owned,
            task_instance_id=task_id,
            name="dep",
            task_json='{"n":1}',
            process_definition_id=the_process(db, owned)["process_definition_id"],
            moment=NOON - DAY,
            start_time=LATER,
            evidence=None,
            project_id=1,
        ),
    )
    # No worker holds it, so none can lose it.
    assert db.failover.task_owners() == frozenset()
    assert claim(db, [task_id]) == []
    assert db.runs.unclaimed(MASTER, submitted_before=LATER + MINUTE) == ()


def test_the_dependents_of_a_nodes_live_runs_wait_in_order(db: Tables) -> None:
    first, second, over = a_run(db), a_run(db), a_run(db)
    a = a_dependent(db, second, "a")
    b = a_dependent(db, first, "b")
    a_dependent(db, over, "c")
    end_run(db, over, ProcessState.FAILURE)
    other = a_dependent(db, a_run(db, node=OTHER_MASTER))
    submit(db, first, "shell")
    assert [one.task_instance_id for one in db.dependents.waiting(MASTER)] == [a, b]
    assert [one.task_instance_id for one in db.dependents.waiting(OTHER_MASTER)] == [other]
    assert db.dependents.waiting(REBORN) == ()


def test_the_undecided_are_told_with_the_epochs_of_their_owner(db: Tables) -> None:
    first, second = a_run(db), a_run(db)
    a, b = a_dependent(db, first), a_dependent(db, second)
    submit(db, first, "shell")
    over = a_run(db)
    a_dependent(db, over)
    end_run(db, over, ProcessState.FAILURE)
    assert db.dependents.undecided(MASTER) == {a: first.epoch, b: second.epoch}
    again = take_over(db, second, node=OTHER_MASTER)
    assert db.dependents.undecided(MASTER) == {a: first.epoch}
    assert db.dependents.undecided(OTHER_MASTER) == {b: again.epoch}
    assert db.dependents.undecided(REBORN) == {}


# Deciding


def test_several_are_decided_together_apart_from_those_that_wait_no_more(db: Tables) -> None:
    mine, others = a_run(db), a_run(db, node=OTHER_MASTER)
    ids = [a_dependent(db, mine, name) for name in "abc"]
    ids.append(a_dependent(db, others))
    a, b, c = db.dependents.waiting(MASTER)
    (d,) = db.dependents.waiting(OTHER_MASTER)
    save(db, mine, kill("b"))
    states = (TaskState.SUCCESS, TaskState.SUCCESS, None, TaskState.FAILURE)
    decisions = [
        DependentDecision(waiting=waiting, state=state, evidence=f"[{number}]")
        for number, (waiting, state) in enumerate(zip((a, b, c, d), states, strict=True))
    ]
    written = db.dependents.decide(decisions, now=LATER + MINUTE)
    assert written == {ids[0], ids[2], ids[3]}
    assert has(the_task(db, ids[0]), state=7, evidence="[0]", end_time=LATER + MINUTE)
    assert has(the_task(db, ids[1]), state=int(TaskState.KILL), evidence=None)
    assert has(the_task(db, ids[2]), state=1, evidence="[2]", end_time=None)
    assert has(the_task(db, ids[3]), state=6, evidence="[3]", end_time=LATER + MINUTE)
    assert db.dependents.decide([], now=LATER) == frozenset()


def test_what_was_looked_at_is_kept_while_it_waits(db: Tables) -> None:
    owned = a_run(db)
    task_id = a_dependent(db, owned)
    (waiting,) = db.dependents.waiting(MASTER)
    db.notifications()
    assert decide(db, waiting, None, evidence='[{"run":7}]')
    assert has(the_task(db, task_id), state=1, evidence='[{"run":7}]', end_time=None, reason=None)
    assert db.notifications() == []
    (again,) = db.dependents.waiting(MASTER)
    assert again == replace(waiting, evidence='[{"run":7}]')


@pytest.mark.parametrize("state", [TaskState.SUCCESS, TaskState.FAILURE])
def test_a_decision_ends_it_and_is_a_report_to_its_run(db: Tables, state: TaskState) -> None:
    owned = a_run(db)
    task_id = a_dependent(db, owned)
    (waiting,) = db.dependents.waiting(MASTER)
    db.notifications()
    failure = FailureReason.UPSTREAM_FAILED if state is TaskState.FAILURE else None
    assert decide(db, waiting, state, evidence="[1]", reason="so\0 it is", failure=failure)
    assert has(
        the_task(db, task_id),
        state=int(state),
        evidence="[1]",
        end_time=LATER + MINUTE,
        reason="so\N{REPLACEMENT CHARACTER} it is",
        failure_reason=failure,
        settled=False,
    )
    (report,) = db.runs.reports(MASTER)
    assert (report.task_instance_id, report.state) == (task_id, state)
    assert report.failure is failure
    ((_, payload),) = db.notifications()
    assert read_task_report(payload).task_instance_id == task_id
    assert db.dependents.waiting(MASTER) == ()
    assert not decide(db, waiting, TaskState.FAILURE)
    assert the_task(db, task_id)["state"] == state


@pytest.mark.parametrize("gone", ["taken over", "killed", "given up", "ended"])
def test_what_does_not_wait_any_more_is_not_decided(db: Tables, gone: str) -> None:
    owned = a_run(db)
    task_id = a_dependent(db, owned)
    (waiting,) = db.dependents.waiting(MASTER)
    match gone:
        case "taken over":
            take_over(db, owned)
        case "killed":
            save(db, owned, kill("dep"))
        case "given up":
            save(db, owned, AbandonTask(name="dep", attempt=1))
        case "ended":
            end_run(db, owned, ProcessState.FAILURE)
    before = the_task(db, task_id)
    for state in (None, TaskState.SUCCESS):
        assert not decide(db, waiting, state, evidence="late")
    assert the_task(db, task_id) == before


@pytest.mark.parametrize(("decision", "state"), [(kill, TaskState.KILL), (pause, TaskState.PAUSE)])
def test_a_dependent_is_withdrawn_at_once(
    db: Tables, decision: Callable[[str], Decision], state: TaskState
) -> None:
    owned = a_run(db)
    task_id = a_dependent(db, owned)
    saved = save(db, owned, decision("dep"), at=LATER)
    assert (saved.withdrawn, saved.kills, saved.intents) == ((), (), False)
    assert has(the_task(db, task_id), state=int(state), wanted_state=int(state), end_time=LATER)
    assert [report.state for report in db.runs.reports(MASTER)] == [state]


# Looking up


def test_runs_are_told_with_their_definition_and_their_moment(db: Tables) -> None:
    definition_id = a_definition(db, name="flights")
    first = a_run(db, process_definition_id=definition_id, schedule_time=NOON - DAY)
    second = a_run(db, process_definition_id=definition_id)
    ids = [second.process_instance_id, 2_000_000_000, first.process_instance_id]
    assert db.dependents.runs(ids) == tuple(
        AnsweringRun(
            process_instance_id=owned.process_instance_id,
            process_definition_id=definition_id,
            definition_name="flights",
            moment=moment,
        )
        for owned, moment in ((first, NOON - DAY), (second, NOON))
    )


def a_question(definition_id: int | None, **changes: Any) -> Question:
    """A question about the day of NOON."""
    midnight = NOON - timedelta(hours=12)
    question = Question(
        definition_id=definition_id,
        definition_name=None,
        task=None,
        start=midnight,
        end=midnight + DAY,
    )
    return replace(question, **changes)


def answer(db: Tables, question: Question) -> Answer:
    (found,) = db.dependents.look_up([question])
    return found


def the_answer(db: Tables, question: Question) -> UpstreamRun:
    found = answer(db, question)
    assert isinstance(found, UpstreamRun)
    return found


def test_t43b_the_newest_run_by_id_answers_and_not_the_one_that_ended_last(db: Tables) -> None:
    """T43b, T43d: a run counts for its schedule day, not for the day on which it ran."""
    definition_id = a_definition(db)
    first, second, of_yesterday = (
        a_run(db, process_definition_id=definition_id, schedule_time=moment)
        for moment in (NOON, NOON - timedelta(hours=1), NOON - DAY)
    )
    save(db, second, FinishProcess(state=ProcessState.FAILURE), at=NOON)
    save(db, first, FinishProcess(state=ProcessState.SUCCESS), at=LATER)
    assert the_answer(db, a_question(definition_id)) == UpstreamRun(
        id=second.process_instance_id,
        state=ProcessState.FAILURE,
        schedule_time=NOON - timedelta(hours=1),
        moment=NOON - timedelta(hours=1),
        start_time=NOON,
        end_time=NOON,
    )
    yesterday = a_question(definition_id, start=NOON - DAY, end=NOON - DAY + MINUTE)
    assert the_answer(db, yesterday).id == of_yesterday.process_instance_id


def test_t43d_a_run_counts_for_its_business_date_and_not_for_its_schedule_time(db: Tables) -> None:
    """A backfill of a day and the schedule's run for that day are found by the same question."""
    definition_id = a_definition(db)
    backfill = a_run(
        db,
        process_definition_id=definition_id,
        command_type=CommandType.COMPLEMENT_DATA,
        schedule_time=NOON - DAY,
        business_time=NOON,
    )
    assert the_answer(db, a_question(definition_id)).moment == NOON
    yesterday = a_question(definition_id, start=NOON - DAY, end=NOON - DAY + MINUTE)
    assert answer(db, yesterday) is None
    waiting = a_run(
        db,
        process_definition_id=a_definition(db),
        schedule_time=NOON - DAY,
        business_time=NOON,
    )
    a_dependent(db, waiting)
    assert [each.moment for each in db.dependents.waiting(MASTER)] == [NOON]
    (known,) = db.dependents.runs([backfill.process_instance_id])
    assert known.moment == NOON


def test_t43d_a_run_without_a_schedule_time_counts_by_its_start(db: Tables) -> None:
    definition_id = a_definition(db)
    owned = a_run(db, process_definition_id=definition_id)
    assert the_answer(db, a_question(definition_id)).id == owned.process_instance_id
    assert answer(db, a_question(definition_id, start=NOON + MINUTE)) is None


def test_the_beginning_of_an_interval_counts_and_its_end_does_not(db: Tables) -> None:
    definition_id = a_definition(db)
    a_run(db, process_definition_id=definition_id)
    assert answer(db, a_question(definition_id, start=NOON)) is not None
    assert answer(db, a_question(definition_id, end=NOON)) is None


def test_questions_are_answered_in_their_order(db: Tables) -> None:
    one, other, empty = (a_definition(db) for _ in range(3))
    first = a_run(db, process_definition_id=one)
    second = a_run(db, process_definition_id=other)
    found = db.dependents.look_up([a_question(other), a_question(empty), a_question(one)])
    ids = [run.id if isinstance(run, UpstreamRun) else run for run in found]
    assert ids == [second.process_instance_id, None, first.process_instance_id]
    assert db.dependents.look_up([]) == ()


def test_a_definition_may_be_named_by_name(db: Tables) -> None:
    lower = a_definition(db, name="flights", project_id=2)
    a_definition(db, name="flights", project_id=1)
    owned = a_run(db, process_definition_id=lower)
    by_name = a_question(None, definition_name="flights", asking_project=2)
    assert the_answer(db, by_name).id == owned.process_instance_id


def test_a_definition_that_does_not_exist_never_answers(db: Tables) -> None:
    nobody = a_question(None, definition_name="nobody")
    unknown = a_question(2_000_000_000)
    assert answer(db, nobody) is Absence.NO_DEFINITION
    assert answer(db, unknown) is Absence.NO_DEFINITION


def test_a_run_does_not_answer_itself(db: Tables) -> None:
    definition_id = a_definition(db)
    before = a_run(db, process_definition_id=definition_id)
    asking = a_run(db, process_definition_id=definition_id)
    question = a_question(definition_id, apart_from=asking.process_instance_id)
    assert the_answer(db, question).id == before.process_instance_id
    tomorrow = replace(question, start=NOON + DAY, end=NOON + 2 * DAY)
    assert answer(db, tomorrow) is None


def test_the_first_run_of_all_has_nobody_to_wait_for(db: Tables) -> None:
    definition_id, other = a_definition(db), a_definition(db)
    asking = a_run(db, process_definition_id=definition_id)
    own = a_question(definition_id, apart_from=asking.process_instance_id)
    assert answer(db, own) is Absence.FIRST_RUN
    assert answer(db, replace(own, definition_id=other)) is None


def test_live_runs_and_those_that_wait_for_their_turn_answer_too(db: Tables) -> None:
    definition_id = a_definition(db, execution_type=1)
    a_run(db, process_definition_id=definition_id)
    assert the_answer(db, a_question(definition_id)).state is ProcessState.RUNNING
    waiting = a_begin(process_definition_id=definition_id, execution_type=ExecutionType.SERIAL_WAIT)
    assert carry_out(db, waiting).ownership is None
    assert the_answer(db, a_question(definition_id)).state is ProcessState.SERIAL_WAIT


def test_a_task_is_told_by_its_valid_attempt(db: Tables) -> None:
    definition_id = a_definition(db)
    owned = a_run(db, process_definition_id=definition_id)
    question = a_question(definition_id, task="a")
    (first,) = submit(db, owned, "a")

    def upstream_task() -> UpstreamTask:
        task = the_answer(db, question).task
        assert task is not None
        return task

    assert upstream_task() == UpstreamTask(
        id=first, state=TaskState.SUBMITTED, retry_pending=False, end_time=None
    )
    claim(db, [first])
    end(db, an_end(first, TaskState.FAILURE))
    # A retry is not decided yet (T43c).
    failed = UpstreamTask(id=first, state=TaskState.FAILURE, retry_pending=True, end_time=LATER)
    assert upstream_task() == failed
    save(db, owned, RetryTask(name="a", attempt=1, state=TaskState.FAILURE, at=LATER))
    assert upstream_task() == failed
    (offer,) = save(db, owned, a_submit("a", 2)).offers
    assert upstream_task().id == offer.task_instance_id
    claim(db, [offer.task_instance_id])
    end(db, an_end(offer.task_instance_id, TaskState.FAILURE))
    save(db, owned, finish("a", TaskState.FAILURE, 2))
    assert upstream_task() == replace(failed, id=offer.task_instance_id, retry_pending=False)


def test_a_success_is_one_before_its_run_has_drawn_its_conclusions(db: Tables) -> None:
    definition_id = a_definition(db)
    owned = a_run(db, process_definition_id=definition_id)
    (task_id,) = submit(db, owned, "a")
    claim(db, [task_id])
    end(db, an_end(task_id))
    task = the_answer(db, a_question(definition_id, task="a")).task
    assert task is not None
    assert (task.state, task.retry_pending) == (TaskState.SUCCESS, False)


def test_a_run_without_an_attempt_tells_whether_it_has_such_a_node(db: Tables) -> None:
    definition_id = a_definition(db)
    text = json.dumps({"tasks": [{"name": "a"}, {"name": "ä"}]})
    owned = a_run(db, process_definition_id=definition_id, process_instance_json=text)
    for name, expected in (("a", True), ("ä", True), ("b", False)):
        found = the_answer(db, a_question(definition_id, task=name))
        assert (found.task, found.has_node) == (None, expected)
    for spoilt in ("{not JSON", "[]", '{"tasks":7}', '{"tasks":[7]}'):
        db.update(t.process_instance, owned.process_instance_id, process_instance_json=spoilt)
        assert not the_answer(db, a_question(definition_id, task="a")).has_node
    assert the_answer(db, a_question(definition_id)).has_node


# Runs that only an upstream run can move


def held_up(db: Tables, *runs: Ownership) -> list[int]:
    found = db.dependents.held_up([run.process_instance_id for run in runs])
    return [one.task_instance_id for one in found]


def test_what_holds_runs_up_is_told_whoever_owns_them(db: Tables) -> None:
    mine, others, unasked = a_run(db), a_run(db, node=OTHER_MASTER), a_run(db)
    first, second = a_dependent(db, mine, "a"), a_dependent(db, others, "b")
    third = a_dependent(db, mine, "c")
    a_dependent(db, unasked)
    assert held_up(db, others, mine) == [first, second, third]
    (waiting,) = db.dependents.held_up([others.process_instance_id])
    assert (waiting,) == db.dependents.waiting(OTHER_MASTER)
    assert held_up(db) == []


def test_a_run_in_which_something_else_goes_on_is_not_held_up(db: Tables) -> None:
    owned = a_run(db)
    waiting = a_dependent(db, owned)
    (task_id,) = submit(db, owned, "a")
    assert held_up(db, owned) == []
    claim(db, [task_id])
    assert held_up(db, owned) == []
    end(db, an_end(task_id, TaskState.FAILURE))
    # The run has not read it yet, and may begin downstream tasks.
    assert held_up(db, owned) == []
    save(db, owned, RetryTask(name="a", attempt=1, state=TaskState.FAILURE, at=LATER))
    assert held_up(db, owned) == []
    (offer,) = save(db, owned, a_submit("a", 2)).offers
    claim(db, [offer.task_instance_id])
    end(db, an_end(offer.task_instance_id))
    assert held_up(db, owned) == []
    save(db, owned, finish("a", attempt=2))
    assert held_up(db, owned) == [waiting]


def test_a_child_that_goes_on_moves_its_parent(db: Tables) -> None:
    owned = a_run(db)
    a_dependent(db, owned)
    save(db, owned, a_submit("child", task_type="SUB_PROCESS"))
    assert held_up(db, owned) == []


def test_a_wait_that_was_just_decided_is_news_for_its_run(db: Tables) -> None:
    owned = a_run(db)
    a_dependent(db, owned, "a")
    a_dependent(db, owned, "b")
    first, _ = db.dependents.waiting(MASTER)
    assert decide(db, first)
    assert held_up(db, owned) == []


@pytest.mark.parametrize(
    "columns",
    [
        {"state": int(ProcessState.READY_STOP)},
        {"state": int(ProcessState.READY_PAUSE)},
        {"state": int(ProcessState.FAILURE), "end_time": LATER},
        {"wanted_state": int(ProcessState.STOP), "wanted_at": LATER},
        {"timeout": 5, "timeout_strategy": 1},
        {"timeout": 5, "timeout_strategy": 2},
    ],
)
def test_a_run_that_is_going_to_end_is_not_held_up(db: Tables, columns: dict[str, Any]) -> None:
    owned = a_run(db)
    a_dependent(db, owned)
    db.update(t.process_instance, owned.process_instance_id, **columns)
    assert held_up(db, owned) == []


@pytest.mark.parametrize(
    ("seconds", "strategy", "is_held_up"),
    [(5, 0, True), (5, 1, False), (5, 2, False), (None, None, True)],
)
def test_a_wait_that_times_out_as_a_failure_lets_its_run_go_on(
    db: Tables, seconds: int | None, strategy: int | None, is_held_up: bool
) -> None:
    owned = a_run(db)
    (ended,) = submit(db, owned, "a")
    claim(db, [ended])
    end(db, an_end(ended))
    save(db, owned, finish("a"))
    # An ended wait times out no more.
    db.update(t.task_instance, ended, timeout_seconds=5, timeout_strategy=1)
    waiting = a_dependent(db, owned)
    db.update(t.task_instance, waiting, timeout_seconds=seconds, timeout_strategy=strategy)
    assert held_up(db, owned) == ([waiting] if is_held_up else [])


def test_a_time_out_that_only_warns_or_is_over_moves_nothing(db: Tables) -> None:
    owned = a_run(db)
    waiting = a_dependent(db, owned)
    for columns in (
        {"timeout": 5, "timeout_strategy": 0},
        {"timeout": 5, "timeout_strategy": 1, "timeout_flag": 1},
    ):
        db.update(t.process_instance, owned.process_instance_id, **columns)
        assert held_up(db, owned) == [waiting]
