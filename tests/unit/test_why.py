"""The reasons that something is not running, each derived from facts alone."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from common.model.cluster import Node
from common.model.commands import CommandType
from common.model.failures import FailureReason
from common.model.offers import Offer
from common.model.states import FailureStrategy, ProcessState, ReleaseState, TaskState
from common.model.workers import WorkerMode
from common.task_types import known_task_types
from common.why import (
    Alive,
    Attempt,
    Cause,
    CauseKind,
    Facts,
    Holder,
    LockHolder,
    LockWait,
    LostAttempt,
    Other,
    PendingCommand,
    PoolWait,
    QueuePlace,
    Run,
    evidence_runs,
    why_command,
    why_instance,
    why_task,
)
from tests.builders import NOON, edges

MASTER = Node(address="m:1", incarnation=1)
WORKER = Node(address="w:1", incarnation=2)
ALIVE = Alive(masters=frozenset({MASTER}), workers=frozenset({WORKER}))


def a_node(name: str, upstream: Sequence[str], **changes: Any) -> dict[str, Any]:
    return {
        "name": name,
        "type": "SHELL",
        "params": {"rawScript": "true"},
        "preTasks": list(upstream),
    } | changes


def a_run(
    dag: str, *attempts: Attempt, nodes: Mapping[str, Any] | None = None, **changes: Any
) -> Run:
    """A live run of this DAG, owned by a living master."""
    tasks = [
        a_node(name, upstream, **(nodes or {}).get(name, {}))
        for name, upstream in edges(dag).items()
    ]
    values: dict[str, Any] = {
        "id": 1,
        "name": "nightly-1",
        "definition_name": "nightly",
        "state": int(ProcessState.RUNNING),
        "start_time": NOON,
        "process_instance_json": json.dumps({"tasks": tasks}),
        "host": MASTER.address,
        "owner_incarnation": MASTER.incarnation,
        "attempts": attempts,
    }
    return Run(**values | changes)


def an_attempt(name: str, state: TaskState, **changes: Any) -> Attempt:
    values: dict[str, Any] = {
        "id": 10,
        "name": name,
        "task_type": "SHELL",
        "attempt": 1,
        "state": int(state),
        "submit_time": NOON,
        "start_time": NOON,
    }
    if state is TaskState.RUNNING:
        values |= {"host": WORKER.address, "worker_incarnation": WORKER.incarnation}
    if state.is_finished:
        values |= {"end_time": NOON, "settled": True}
    return Attempt(**values | changes)


def a_command(kind: CommandType = CommandType.START_PROCESS, **changes: Any) -> PendingCommand:
    values: dict[str, Any] = {
        "id": 5,
        "command_type": int(kind),
        "process_definition_id": 3,
        "definition_name": "nightly",
        "release_state": int(ReleaseState.ONLINE),
        "start_time": NOON,
    }
    return PendingCommand(**values | changes)


def facts(*runs: Run, **changes: Any) -> Facts:
    values: dict[str, Any] = {
        "now": NOON,
        "alive": ALIVE,
        "runs": {run.id: run for run in runs},
        "task_types": known_task_types(),
    }
    return Facts(**values | changes)


def words(causes: Sequence[Cause]) -> list[CauseKind]:
    return [each.cause for top in causes for _, each in top.flat()]


def of_instance(*runs: Run, **changes: Any) -> tuple[Cause, ...]:
    return why_instance(facts(*runs, **changes), runs[0].id)


def of_task(name: str, *runs: Run, **changes: Any) -> tuple[Cause, ...]:
    return why_task(facts(*runs, **changes), runs[0].id, name)


def test_a_task_waits_for_the_task_above_it_which_runs() -> None:
    queued = an_attempt("a", TaskState.RUNNING, waits_at_manager="the queue is full")
    (cause,) = of_task("c", a_run("a >> b >> c", queued))
    assert words([cause]) == [CauseKind.UPSTREAM, CauseKind.UPSTREAM, CauseKind.RUNNING]
    running = cause.because[0].because[0]
    assert "'a' runs on w:1 (attempt 1); its Spark application waits: the queue" in running.text
    assert running.since == NOON


def test_a_long_chain_ends_where_it_begins() -> None:
    names = [f"t{number}" for number in range(500)]
    run = a_run(" >> ".join(names), an_attempt("t0", TaskState.RUNNING))
    (cause,) = of_task("t499", run)
    causes = [each for _, each in cause.flat()]
    assert causes[-1].cause is CauseKind.RUNNING
    assert len(causes) < 10


def test_a_diamond_names_its_head_once() -> None:
    run = a_run("a >> b c; b >> d; c >> d", an_attempt("a", TaskState.RUNNING))
    (cause,) = of_task("d", run)
    assert [each.text for _, each in cause.flat()].count("task 'a': see above") == 1


def test_an_instance_names_what_is_live_and_counts_what_has_not_begun() -> None:
    run = a_run("a >> b c d e", an_attempt("a", TaskState.RUNNING))
    causes = of_instance(run)
    assert words(causes) == [CauseKind.RUNNING, CauseKind.UPSTREAM]
    assert "not begun: 4 tasks ('b', 'c', 'd' and 1 more)" in causes[1].text


def test_a_task_waits_for_its_retry() -> None:
    due = NOON + timedelta(minutes=3)
    failed = an_attempt("a", TaskState.FAILURE, retry_at=due, reason="exit code 3")
    (cause,) = of_task("a", a_run("a", failed))
    assert (cause.cause, cause.next_at) == (CauseKind.RETRY, due)
    assert "exit code 3" in cause.text


def test_a_task_is_not_tried_again_for_its_reason() -> None:
    failed = an_attempt("a", TaskState.FAILURE, failure=FailureReason.TIMED_OUT, retry_times=1)
    nodes = {"a": {"maxRetryTimes": 2, "noRetryOn": ["TIMED_OUT"]}}
    (cause,) = of_task("a", a_run("a", failed, nodes=nodes))
    assert "not tried again, for noRetryOn names TIMED_OUT" in cause.text


@pytest.mark.parametrize("changes", [{"retry_times": 2}, {"failure": FailureReason.TIMED_OUT}])
def test_no_policy_is_blamed_for_the_end_of_all_attempts(changes: dict[str, Any]) -> None:
    failed = an_attempt("a", TaskState.FAILURE, **changes)
    nodes = {"a": {"maxRetryTimes": 2, "retryOn": ["TIMED_OUT"]}}
    (cause,) = of_task("a", a_run("a", failed, nodes=nodes))
    assert "tried again" not in cause.text


def test_a_task_is_delayed() -> None:
    due = NOON + timedelta(minutes=3)
    (cause,) = of_task("a", a_run("a", an_attempt("a", TaskState.DELAY_EXECUTION, due_at=due)))
    assert (cause.cause, cause.next_at) == (CauseKind.DELAY, due)


def test_a_task_waits_for_a_slot_and_its_holder_is_named() -> None:
    holder = Holder(
        task_instance_id=7, task_name="load", process_instance_id=4, slots=2, since=NOON
    )
    waits = PoolWait(name="db", slots=1, size=2, holders=(holder,), ahead=3)
    run = a_run("a", an_attempt("a", TaskState.WAITING_DEPEND))
    (cause,) = of_task("a", run, pools={10: (waits,)})
    assert words([cause]) == [CauseKind.POOL, CauseKind.POOL, CauseKind.RUNNING]
    assert "2 of 2 slots are taken" in cause.because[0].text
    assert "before it: 3 tasks" in cause.because[0].text
    assert "'load' of process instance 4" in cause.because[0].because[0].text


@pytest.mark.parametrize("size", [None, 1])
def test_a_pool_that_can_never_have_room_is_reported(size: int | None) -> None:
    waits = PoolWait(name="db", slots=2, size=size)
    run = a_run("a", an_attempt("a", TaskState.WAITING_DEPEND))
    assert CauseKind.POOL_UNKNOWN in words(of_task("a", run, pools={10: (waits,)}))


def test_a_task_waits_for_a_lock_and_its_holder_is_named() -> None:
    holder = LockHolder(task_instance_id=7, task_name="load", process_instance_id=4, lock="SHARED")
    wait = LockWait(dataset="ds", interval="X", type="EXCLUSIVE", holders=(holder,), hidden=2)
    never = LockWait(dataset="ds", interval="${day}", type="SHARED", problem="no interval")
    run = a_run("a", an_attempt("a", TaskState.WAITING_DEPEND))
    (cause,) = of_task("a", run, locks={10: (wait, never)})
    lock, running = CauseKind.LOCK, CauseKind.RUNNING
    assert words([cause]) == [lock, lock, running, running, CauseKind.LOCK_IMPOSSIBLE]
    assert "waits for locks: EXCLUSIVE of ds X" in cause.text
    named, hidden = cause.because[0].because
    assert "'load' of process instance 4 holds SHARED" in named.text
    assert "not yours hold 2" in hidden.text


def test_workers_that_are_not_ready_are_named_with_their_reasons() -> None:
    run = a_run("a", an_attempt("a", TaskState.SUBMITTED))
    full = {WORKER.address: "host: /tasks has 0.20 GiB free"}
    alone = Alive(masters=ALIVE.masters, workers=ALIVE.workers, unfit=full)
    (queued,) = of_instance(run, alive=alone)
    assert words([queued]) == [CauseKind.QUEUED, CauseKind.WORKER_UNFIT]
    assert "the worker w:1 is not ready: host: /tasks has 0.20 GiB free" in queued.because[0].text
    # The first free slot is none of theirs.
    assert queued.next is None
    other = Node(address="v:1", incarnation=3)
    both = Alive(masters=ALIVE.masters, workers=frozenset({WORKER, other}), unfit=full)
    (queued,) = of_instance(run, alive=both)
    assert words([queued]) == [CauseKind.QUEUED, CauseKind.RUNNING, CauseKind.WORKER_UNFIT]
    assert "v:1" in queued.because[0].text
    assert "w:1" not in queued.because[0].text
    (queued,) = of_instance(run, alive=replace(both, modes={"v": WorkerMode.LAZY}))
    assert words([queued]) == [CauseKind.QUEUED, CauseKind.WORKER_DISABLED, CauseKind.WORKER_UNFIT]
    assert (queued.next, queued.because[0].next) == (None, "orcaflow worker enable v")


def test_processes_that_a_lost_worker_may_have_left_are_told_of_live_and_ended_runs() -> None:
    lost = (LostAttempt(id=9, name="a", attempt=1, host="w:1", lost_at=NOON),)
    running = an_attempt("a", TaskState.RUNNING, attempt=2)
    live = of_instance(a_run("a >> b", running, lost=lost))
    assert words(live)[-1] is CauseKind.PROCESSES_LEFT
    assert "attempt 1 at 'a' may still run on w:1" in live[-1].text
    assert live[-1].since == NOON
    ended = a_run("a", state=int(ProcessState.STOP), end_time=NOON, lost=lost)
    assert words(of_instance(ended)) == [CauseKind.ENDED, CauseKind.PROCESSES_LEFT]
    run = a_run("a >> b", running, lost=lost)
    assert words(of_task("a", run)) == [CauseKind.RUNNING, CauseKind.PROCESSES_LEFT]
    assert CauseKind.PROCESSES_LEFT not in words(of_task("b", run))


def test_a_queued_task_waits_for_a_free_slot_of_workers_that_are_named() -> None:
    run = a_run("a", an_attempt("a", TaskState.SUBMITTED))
    alive = Alive(
        masters=ALIVE.masters, workers=ALIVE.workers, running={WORKER.address: 4}, owned={}
    )
    (cause,) = of_task("a", run, alive=alive, queue={10: QueuePlace(ahead=2)})
    assert words([cause]) == [CauseKind.QUEUED, CauseKind.RUNNING]
    assert "before it: 2 tasks" in cause.text
    assert "w:1 (running 4 tasks)" in cause.because[0].text


def test_no_worker_is_alive() -> None:
    run = a_run("a", an_attempt("a", TaskState.SUBMITTED))
    alive = Alive(masters=ALIVE.masters, workers=frozenset())
    assert words(of_task("a", run, alive=alive)) == [CauseKind.QUEUED, CauseKind.NO_WORKER]


def an_offer(*groups: str, ids: Sequence[int] = ()) -> Offer:
    return Offer(slots=8, version="1", groups=groups, group_ids=frozenset(ids))


def workers_with(**offers: Offer | None) -> Alive:
    """Living workers, by their hosts, with what each has told."""
    nodes = {Node(address=f"{host}:1", incarnation=7): offer for host, offer in offers.items()}
    told = {node: offer for node, offer in nodes.items() if offer is not None}
    return Alive(masters=ALIVE.masters, workers=frozenset(nodes), offers=told)


def test_no_worker_serves_the_group_and_each_tells_what_it_serves() -> None:
    run = a_run("a", an_attempt("a", TaskState.SUBMITTED))
    place = QueuePlace(ahead=0, group_id=4, group_name="etl")
    alive = workers_with(u=an_offer("x", "y", ids=[5, 6]), v=an_offer(), w=None)
    (cause,) = of_task("a", run, alive=alive, queue={10: place})
    assert words([cause]) == [CauseKind.QUEUED, CauseKind.NO_WORKER_IN_GROUP]
    assert cause.because[0].text == (
        "no living worker serves the group 'etl': u:1 serves x, y; v:1 serves no group;"
        " w:1 does not tell its groups"
    )
    assert "--groups etl" in (cause.because[0].next or "")


@pytest.mark.parametrize(
    ("place", "alive"),
    [
        (QueuePlace(ahead=0, group_id=4), workers_with(w=an_offer("etl", ids=[4]))),
        # By the id: a group that was deleted and made again is another one.
        (QueuePlace(ahead=0, group_id=4, addresses=("w",)), workers_with(w=an_offer("x", ids=[9]))),
    ],
)
def test_a_worker_serves_a_group_by_its_start_or_by_its_address(
    place: QueuePlace, alive: Alive
) -> None:
    run = a_run("a", an_attempt("a", TaskState.SUBMITTED))
    (cause,) = of_task("a", run, alive=alive, queue={10: place})
    assert words([cause]) == [CauseKind.QUEUED, CauseKind.RUNNING]
    assert "w:1 (running 0 tasks, 8 slots)" in cause.because[0].text


def test_a_group_made_again_under_its_name_is_not_the_one_that_a_worker_serves() -> None:
    run = a_run("a", an_attempt("a", TaskState.SUBMITTED))
    place = QueuePlace(ahead=0, group_id=9, group_name="etl")
    (cause,) = of_task("a", run, alive=workers_with(w=an_offer("etl", ids=[4])), queue={10: place})
    assert CauseKind.NO_WORKER_IN_GROUP in words([cause])


def test_the_worker_of_a_running_task_is_gone() -> None:
    lost = an_attempt("a", TaskState.RUNNING, worker_incarnation=99)
    (cause,) = of_task("a", a_run("a", lost))
    assert cause.cause is CauseKind.WORKER_GONE
    assert "w:1" in cause.text


def test_the_owner_is_gone_and_its_recovery_waits() -> None:
    run = a_run("a", an_attempt("a", TaskState.RUNNING), owner_incarnation=99)
    recovery = a_command(CommandType.RECOVER_TOLERANCE_FAULT_PROCESS, process_instance_id=1)
    causes = of_instance(run, recoveries={1: recovery})
    assert words(causes) == [CauseKind.OWNER_GONE, CauseKind.COMMAND, CauseKind.RUNNING]
    assert words(of_instance(run))[0] is CauseKind.OWNER_GONE


def test_no_master_is_alive() -> None:
    run = a_run("a", an_attempt("a", TaskState.RUNNING))
    alive = Alive(masters=frozenset(), workers=ALIVE.workers)
    assert words(of_instance(run, alive=alive))[:2] == [CauseKind.OWNER_GONE, CauseKind.NO_MASTER]


def test_zookeeper_can_not_be_asked() -> None:
    run = a_run("a", an_attempt("a", TaskState.RUNNING))
    assert words(of_instance(run, alive=None)) == [CauseKind.ZOOKEEPER, CauseKind.RUNNING]


def test_a_run_waits_for_its_turn_behind_another() -> None:
    other = Other(id=8, state=int(ProcessState.RUNNING), start_time=NOON)
    run = a_run("a", state=int(ProcessState.SERIAL_WAIT), host=None, before=(other,))
    (cause,) = of_instance(run)
    assert words([cause]) == [CauseKind.SERIAL, CauseKind.RUNNING]
    assert "behind process instance 8" in cause.text


def test_a_stop_waits_for_tasks_until_its_deadline() -> None:
    deadline = NOON + timedelta(seconds=20)
    run = a_run(
        "a >> b",
        an_attempt("a", TaskState.RUNNING, wanted_state=9),
        state=int(ProcessState.READY_STOP),
        wanted_state=int(ProcessState.STOP),
        wanted_deadline=deadline,
    )
    (cause,) = of_instance(run)
    assert (cause.cause, cause.next_at) == (CauseKind.STOPPING, deadline)
    assert "on w:1, being ended" in cause.because[0].text


def test_a_pause_waits_for_what_runs() -> None:
    run = a_run(
        "a >> b",
        an_attempt("a", TaskState.RUNNING),
        state=int(ProcessState.READY_PAUSE),
        wanted_state=int(ProcessState.PAUSE),
    )
    (cause,) = of_instance(run)
    assert cause.cause is CauseKind.PAUSING
    assert "going on to its end" in cause.because[0].text


def test_a_sub_process_is_followed_into_its_child() -> None:
    parent = an_attempt("a", TaskState.RUNNING, task_type="SUB_PROCESS", host=None)
    run = a_run(
        "a", parent, nodes={"a": {"type": "SUB_PROCESS", "params": {"processDefinitionId": 2}}}
    )
    child = a_run("x", an_attempt("x", TaskState.SUBMITTED, id=20), id=2)
    causes = of_instance(run, child, children={10: 2})
    assert words(causes) == [CauseKind.SUB_PROCESS, CauseKind.QUEUED, CauseKind.RUNNING]


def test_a_sub_process_waits_for_the_command_of_its_child() -> None:
    parent = an_attempt("a", TaskState.SUBMITTED, task_type="SUB_PROCESS")
    run = a_run(
        "a", parent, nodes={"a": {"type": "SUB_PROCESS", "params": {"processDefinitionId": 2}}}
    )
    offline = a_command(release_state=0, parent_task_instance_id=10)
    causes = of_instance(run, child_commands={10: offline})
    assert words(causes) == [CauseKind.SUB_PROCESS, CauseKind.COMMAND, CauseKind.OFFLINE]


def test_a_dependent_shows_its_evidence() -> None:
    entry = {
        "group": 1,
        "key": "9-ALL-day-today",
        "from": "2026-01-02T00:00:00+00:00",
        "to": "2026-01-03T00:00:00+00:00",
        "run": {"id": 77, "state": "RUNNING"},
        "result": "WAITING",
        "why": "it runs",
    }
    good = {**entry, "result": "SUCCESS"}
    attempt = an_attempt(
        "a",
        TaskState.RUNNING,
        task_type="DEPENDENT",
        host=None,
        evidence=json.dumps([good, entry, {**entry, "run": None}]),
    )
    (cause,) = of_task("a", a_run("a", attempt))
    assert words([cause]) == [CauseKind.DEPENDENT] * 3
    assert "instance 77 in state RUNNING (it runs)" in cause.because[0].text
    assert "no process instance" in cause.because[1].text


def test_nothing_is_told_of_runs_of_foreign_projects() -> None:
    waits = PoolWait(name="db", slots=1, size=2, hidden=2)
    run = a_run("a", an_attempt("a", TaskState.WAITING_DEPEND))
    (cause,) = of_task("a", run, pools={10: (waits,)}, seen=frozenset())
    assert words([cause]) == [CauseKind.POOL, CauseKind.POOL, CauseKind.RUNNING]
    assert "2 of 2 slots are taken" in cause.because[0].text
    hidden = cause.because[0].because[0]
    assert (hidden.text, hidden.next) == ("tasks of projects that are not yours hold 2", None)
    parent = a_run("a", an_attempt("a", TaskState.RUNNING, task_type="SUB_PROCESS", host=None))
    child = replace(a_run("x", name="secret"), id=2)
    (cause,) = of_task("a", parent, child, foreign=frozenset({10}), children={10: 2})
    assert (words([cause]), cause.because) == ([CauseKind.SUB_PROCESS], ())
    assert "2" not in cause.text


@pytest.mark.parametrize("run_id", [77, "77", 77.0, True, None, [77], {"id": 77}])
def test_evidence_names_no_runs_of_foreign_projects(run_id: object) -> None:
    """A row may hold anything: `seen` has to hold the very number."""
    entry = {"key": "9-secret", "run": {"id": run_id, "state": "RUNNING"}, "result": "WAITING"}
    evidence = json.dumps([{**entry, "why": "secret runs"}])
    attempt = an_attempt(
        "a", TaskState.RUNNING, task_type="DEPENDENT", host=None, evidence=evidence
    )
    (cause,) = of_task("a", a_run("a", attempt), seen=frozenset({1, 76}))
    (behind,) = cause.because
    assert "secret" not in f"{behind}"
    assert "77" not in f"{behind}"
    assert behind.next is None
    (cause,) = of_task("a", a_run("a", attempt), seen=frozenset({77}))
    assert ("instance 77" in cause.because[0].text) == (run_id == 77 and type(run_id) is int)
    assert evidence_runs(evidence) == (frozenset({77}) if type(run_id) is int else frozenset())


def test_a_task_below_a_failure_does_not_run() -> None:
    run = a_run("a >> b; c", an_attempt("a", TaskState.FAILURE), an_attempt("c", TaskState.RUNNING))
    assert words(of_task("b", run)) == [CauseKind.UPSTREAM_FAILED, CauseKind.FAILED]


def test_under_end_a_failure_elsewhere_keeps_tasks_from_beginning() -> None:
    run = a_run(
        "a; c >> d",
        an_attempt("a", TaskState.FAILURE),
        an_attempt("c", TaskState.RUNNING),
        failure_strategy=int(FailureStrategy.END),
    )
    assert words(of_task("d", run)) == [CauseKind.ENDING]


def test_a_branch_that_was_not_taken_leaves_its_tasks_out_to_the_end() -> None:
    switch = {
        "type": "SWITCH",
        "params": {
            "switchResult": {
                "dependTaskList": [{"condition": "1 > 0", "nextNode": "x"}],
                "nextNode": "y",
            }
        },
    }
    decided = an_attempt("s", TaskState.SUCCESS, task_type="SWITCH", branch='["x"]')
    run = a_run(
        "s >> x y; y >> z", decided, an_attempt("x", TaskState.RUNNING, id=11), nodes={"s": switch}
    )
    (cause,) = of_task("z", run)
    assert cause.cause is CauseKind.LEFT_OUT
    assert "'s' took another branch" in cause.text
    assert words(of_instance(run)) == [CauseKind.RUNNING]


def test_a_branch_that_was_not_taken_is_left_out_whatever_else_leads_to_it() -> None:
    check = {
        "type": "CONDITIONS",
        "dependence": {
            "relation": "AND",
            "dependTaskList": [
                {
                    "relation": "AND",
                    "dependItemList": [{"depTasks": "check", "status": "SUCCESS"}],
                }
            ],
        },
        "conditionResult": {"successNode": ["load"], "failedNode": ["mail"]},
    }
    run = a_run(
        "check >> c >> load mail; extract >> load; load mail >> join",
        an_attempt("check", TaskState.FAILURE),
        an_attempt("extract", TaskState.SUCCESS),
        an_attempt("c", TaskState.FAILURE, task_type="CONDITIONS", branch='["mail"]'),
        an_attempt("mail", TaskState.RUNNING, id=11),
        nodes={"c": check},
    )
    (cause,) = of_task("load", run)
    assert cause.cause is CauseKind.LEFT_OUT
    assert "'c' took another branch" in cause.text
    assert words(of_task("join", run)) == [CauseKind.UPSTREAM, CauseKind.RUNNING]


def test_a_check_that_did_not_hold_is_no_failure_for_the_branch_that_it_takes() -> None:
    decided = an_attempt("c", TaskState.FAILURE, task_type="CONDITIONS", branch='["mail"]')
    run = a_run("c >> mail; b >> mail", decided, an_attempt("b", TaskState.RUNNING, id=11))
    assert words(of_task("mail", run)) == [CauseKind.UPSTREAM, CauseKind.RUNNING]


def test_a_forbidden_task_is_passed_over_and_what_is_behind_it_waits_for_those_before() -> None:
    run = a_run(
        "a >> f >> c", an_attempt("a", TaskState.RUNNING), nodes={"f": {"runFlag": "FORBIDDEN"}}
    )
    assert words(of_task("f", run)) == [CauseKind.FORBIDDEN]
    assert words(of_task("c", run)) == [CauseKind.UPSTREAM, CauseKind.RUNNING]


def test_tasks_outside_of_what_was_asked_for_never_run() -> None:
    run = a_run(
        "a >> b; c",
        an_attempt("a", TaskState.RUNNING),
        command_param='{"StartNodeNameList": "a"}',
        run_scope='["a"]',
    )
    assert words(of_task("b", run)) == [CauseKind.OUT_OF_SCOPE]
    assert words(of_task("c", run)) == [CauseKind.OUT_OF_SCOPE]


def test_a_task_with_nothing_to_wait_for_is_about_to_begin() -> None:
    run = a_run("a >> b", an_attempt("a", TaskState.SUCCESS))
    assert words(of_task("b", run)) == [CauseKind.NEXT]
    assert words(of_instance(run)) == [CauseKind.NEXT]


def test_an_ended_run_names_what_failed_and_how_to_go_on() -> None:
    run = a_run(
        "a",
        an_attempt("a", TaskState.FAILURE, reason="exit code 3"),
        state=int(ProcessState.FAILURE),
        end_time=NOON,
        state_reason="task 'a' failed",
    )
    (cause,) = of_instance(run)
    assert words([cause]) == [CauseKind.ENDED, CauseKind.FAILED]
    assert "orcaflow instance recover 1" in (cause.next or "")
    assert words(of_task("a", run)) == [CauseKind.FAILED]
    recovery = a_command(CommandType.START_FAILURE_TASK_PROCESS, process_instance_id=1)
    assert words(of_instance(run, recoveries={1: recovery}))[:2] == [
        CauseKind.ENDED,
        CauseKind.COMMAND,
    ]


def of_command(command: PendingCommand, alive: Alive | None = ALIVE) -> list[CauseKind]:
    return words(why_command(facts(alive=alive), command))


def test_a_command_waits_for_its_definition_only_if_it_begins_a_run() -> None:
    assert of_command(a_command(release_state=0)) == [CauseKind.COMMAND, CauseKind.OFFLINE]
    # T39: tasks that have begun may be recovered all the same.
    recovery = a_command(CommandType.START_FAILURE_TASK_PROCESS, release_state=0)
    assert of_command(recovery) == [CauseKind.COMMAND]
    assert of_command(a_command(release_state=None))[1] is CauseKind.NO_DEFINITION


def test_a_command_waits_for_a_master_for_room_or_for_others() -> None:
    nobody = Alive(masters=frozenset(), workers=frozenset())
    assert of_command(a_command(), nobody) == [CauseKind.COMMAND, CauseKind.NO_MASTER]
    full = Alive(masters=ALIVE.masters, workers=frozenset(), owned={MASTER.address: 100})
    assert of_command(a_command(), full) == [CauseKind.COMMAND, CauseKind.MASTERS_FULL]
    # T36d: a sub process needs no room of its own.
    assert of_command(a_command(parent_task_instance_id=3), full) == [CauseKind.COMMAND]
    assert of_command(a_command(ahead=3)) == [CauseKind.COMMAND, CauseKind.QUEUED]
    assert of_command(a_command(), None) == [CauseKind.COMMAND, CauseKind.ZOOKEEPER]


def test_rows_that_can_not_be_read_are_reported_as_such() -> None:
    assert words(of_instance(a_run("a", state=15))) == [CauseKind.UNREADABLE]
    spoilt = a_run("a", process_instance_json="{")
    assert words(of_task("a", spoilt)) == [CauseKind.UNREADABLE]
    odd = an_attempt("a", TaskState.RUNNING, task_type="DEPENDENT", host=None, evidence='{"x": 1}')
    assert words(of_task("a", a_run("a", odd))) == [CauseKind.DEPENDENT]
