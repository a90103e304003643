"""Attempts that ask for a worker: chosen once by several masters, claimed by that worker alone."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from sqlalchemy import Engine, delete, func, insert, select, update

from common.model.decisions import KillTask
from common.model.instances import Ownership
from common.model.lock_needs import LockNeed
from common.model.states import TaskState
from common.model.streams.tasks import TASK_TYPE
from common.model.worker_needs import UNASSIGNED, WorkerNeed
from common.model.workers import WorkerStatus
from common.store import tables as t
from common.store.master.assignment_ports import Assigned
from common.store.master.assignments import PostgresAssignmentStore
from common.store.master.holds import PostgresHoldStore
from common.store.master.runs import PostgresRunStore
from common.store.worker.ports import AttemptEnd
from common.store.worker.tasks import PostgresTaskStore
from master.logic.assignment import AssignmentConfig, decide
from tests.builders import NOON
from tests.integration.store_races.racing import (
    MASTER,
    OTHER_WORKER,
    WORKER,
    a_run,
    a_submit,
    attempt,
    claim,
    save,
)

ONE, OTHER = WORKER.address, OTHER_WORKER.address
DEV = 4_711
"""A definition of another project, and the project."""


@pytest.fixture(autouse=True)
def alone(here: Engine) -> Iterator[None]:
    """The requests of other tests, and what they ran."""
    yield
    with here.begin() as db:
        for table in (t.task_assignment, t.project_failures, t.worker_strategy):
            db.execute(delete(table))
        db.execute(
            update(t.task_instance)
            .where(t.task_instance.c.state == TaskState.RUNNING)
            .values(state=int(TaskState.KILL), end_time=func.now())
        )


def asking(made: Engine, owned: Ownership, **need: Any) -> int:
    name = f"t-{uuid.uuid4().hex[:8]}"
    saved = save(made, owned, a_submit(name, worker_need=WorkerNeed(**need)))
    assert (saved.offers, saved.asks) == ((), True)
    with made.connect() as db:
        return db.execute(
            select(t.task_instance.c.id).where(t.task_instance.c.name == name)
        ).scalar_one()


def assign(made: Engine, **slots: int) -> Assigned:
    """Let a master choose among these workers, each with so many slots."""
    names = {"one": ONE, "other": OTHER}
    workers = {
        names[name]: WorkerStatus(capacity=number, used=0, version="1")
        for name, number in slots.items()
    }
    chosen = partial(decide, workers=workers, config=AssignmentConfig())
    return PostgresAssignmentStore(made).assign(chosen)


def chosen(assigned: Assigned) -> dict[int, str]:
    return {each.task_instance_id: each.worker for each in assigned.offers}


def pass_time(made: Engine, seconds: int) -> None:
    with made.begin() as db:
        db.execute(
            update(t.task_assignment).values(
                assigned_at=t.task_assignment.c.assigned_at - timedelta(seconds=seconds)
            )
        )


def end(made: Engine, task_id: int, state: TaskState) -> None:
    ended = AttemptEnd(task_instance_id=task_id, state=state, end_time=NOON, exit_code=0)
    assert PostgresTaskStore(made).report(WORKER, [ended]) == {task_id}


def repaired(made: Engine, task_id: int) -> list[str]:
    """The workers to which the repair of the queue would offer an attempt."""
    found = PostgresRunStore(made).unclaimed(
        MASTER, submitted_before=NOON + timedelta(days=1), after=task_id - 1
    )
    return [each.worker for each in found if each.task_instance_id == task_id]


def failures(made: Engine) -> dict[tuple[int, str], int]:
    """Read the failures by project and worker."""
    with made.connect() as db:
        rows = db.execute(select(t.project_failures))
        return {(row.project_id, row.worker): row.failures for row in rows}


def test_an_attempt_that_asks_is_for_nobody_before_the_choice_and_then_for_one(
    here: Engine,
) -> None:
    store = PostgresAssignmentStore(here)
    assert not store.is_asked()
    task_id = asking(here, a_run(here))
    assert store.is_asked()
    assert attempt(here, task_id).host == UNASSIGNED
    assert claim(here, WORKER, [task_id]) == []
    assert repaired(here, task_id) == []
    assert assign(here, other=0) == Assigned(waiting=True)
    assert chosen(assign(here, one=1)) == {task_id: ONE}
    # Also if the master died before it put the entry into the queue.
    assert repaired(here, task_id) == [ONE]
    assert assign(here, one=1, other=9) == Assigned()
    assert claim(here, OTHER_WORKER, [task_id]) == []
    assert claim(here, WORKER, [task_id]) == [task_id]
    assert not store.is_asked()
    end(here, task_id, TaskState.SUCCESS)
    assert store.is_asked()
    assert assign(here, one=1) == Assigned()
    assert not store.is_asked()


def test_masters_that_choose_at_once_give_no_slot_away_twice(here: Engine, there: Engine) -> None:
    owned = a_run(here)
    ids = {asking(here, owned) for _ in range(5)}
    with ThreadPoolExecutor(2) as pool:
        made = list(pool.map(lambda each: chosen(assign(each, one=1, other=2)), [here, there]))
    both = {**made[0], **made[1]}
    assert len(both) == len(made[0]) + len(made[1]) == 3
    assert sorted(both.values()) == sorted([ONE, OTHER, OTHER])
    # What runs counts, too, whether it asked or not.
    task_id = next(iter(ids - both.keys()))
    first = next(each for each, worker in both.items() if worker == ONE)
    assert claim(here, WORKER, [first]) == [first]
    assert chosen(assign(here, one=1)) == {}
    end(here, first, TaskState.SUCCESS)
    assert list(chosen(assign(here, one=1)).values()) == [ONE]
    assert task_id in ids


def test_replicas_are_kept_apart_while_they_wait_and_while_they_run(here: Engine) -> None:
    owned = a_run(here)
    ids = [asking(here, owned, availability_group="g") for _ in range(3)]
    assert set(chosen(assign(here, one=9, other=9)).items()) <= {
        (task_id, worker) for task_id in ids for worker in (ONE, OTHER)
    }
    assert attempt(here, ids[2]).host == UNASSIGNED
    assert claim(here, WORKER, ids[:2]) == [ids[0]]
    assert assign(here, one=9, other=9).waiting
    end(here, ids[0], TaskState.SUCCESS)
    assert chosen(assign(here, one=9, other=9)) == {ids[2]: ONE}


def test_a_slow_worker_loses_an_attempt_to_another_and_is_counted(here: Engine) -> None:
    task_id = asking(here, a_run(here))
    assert chosen(assign(here, one=9, other=1)) == {task_id: ONE}
    pass_time(here, 299)
    assert assign(here, one=9, other=1) == Assigned()
    pass_time(here, 1)
    made = assign(here, one=9, other=1)
    assert chosen(made) == {task_id: OTHER}
    assert [each.worker for each in made.withdrawn] == [ONE]
    assert failures(here) == {(1, ONE): 1}
    # It is too late for the former.
    assert claim(here, WORKER, [task_id]) == []
    assert claim(here, OTHER_WORKER, [task_id]) == [task_id]


def test_an_attempt_that_nobody_claims_fails_with_the_reason(here: Engine) -> None:
    task_id = asking(here, a_run(here))
    for _ in range(5):
        assert chosen(assign(here, one=1)) == {task_id: ONE}
        pass_time(here, 300)
    made = assign(here, one=1)
    assert (made.offers, [each.worker for each in made.withdrawn]) == ((), [ONE])
    row = attempt(here, task_id)
    assert (row.state, row.host, row.failure_reason) == (TaskState.FAILURE, None, "SUBMIT_FAILED")
    assert row.reason.startswith(f"no worker took it: none of {ONE} claimed it within 300 s")


def test_a_claim_at_the_last_moment_wins(here: Engine) -> None:
    task_id = asking(here, a_run(here))
    assign(here, one=1)
    pass_time(here, 300)
    assert claim(here, WORKER, [task_id]) == [task_id]
    assert assign(here, one=1, other=1) == Assigned()
    assert attempt(here, task_id).host == ONE
    assert failures(here) == {}


def test_an_attempt_that_its_worker_hands_back_is_still_that_worker_s(here: Engine) -> None:
    task_id = asking(here, a_run(here))
    assign(here, one=1)
    claim(here, WORKER, [task_id])
    claimed_at = attempt(here, task_id).start_time
    assert PostgresTaskStore(here).hand_back([WORKER], {task_id: claimed_at}) == {task_id}
    row = attempt(here, task_id)
    assert (row.state, row.host, row.worker_incarnation) == (TaskState.SUBMITTED, ONE, None)
    assert claim(here, WORKER, [task_id]) == [task_id]


def test_a_lost_worker_s_attempt_waits_until_another_is_there(here: Engine) -> None:
    task_id = asking(here, a_run(here))
    assign(here, one=1)
    made = assign(here)
    assert (made.offers, [each.worker for each in made.withdrawn]) == ((), [ONE])
    assert made.waiting
    assert attempt(here, task_id).host == UNASSIGNED
    assert chosen(assign(here, other=1)) == {task_id: OTHER}


@pytest.mark.parametrize("is_chosen", [False, True])
def test_an_attempt_is_withdrawn_before_and_after_the_choice(
    here: Engine, *, is_chosen: bool
) -> None:
    owned = a_run(here)
    task_id = asking(here, owned)
    if is_chosen:
        assign(here, one=1)
    name = attempt(here, task_id).name
    saved = save(here, owned, KillTask(name=name, attempt=1))
    assert [each.worker for each in saved.withdrawn] == [ONE] * is_chosen
    row = attempt(here, task_id)
    assert (row.state, row.host) == (TaskState.KILL, None)
    assert assign(here, one=1) == Assigned()


def test_one_that_is_held_asks_once_it_is_released(here: Engine) -> None:
    ds = f"ds-{uuid.uuid4().hex[:8]}"
    need = LockNeed(dataset=ds, interval="2026-11-20/P1D")
    name = f"t-{uuid.uuid4().hex[:8]}"
    saved = save(here, a_run(here), a_submit(name, locks=(need,), worker_need=WorkerNeed()))
    assert (saved.holds, saved.asks) == (True, False)
    assert assign(here, one=1) == Assigned()
    released = PostgresHoldStore(here).release(now=NOON)
    assert (released.offers, released.asks) == ((), True)
    assert list(chosen(assign(here, one=1)).values()) == [ONE]


def test_failures_are_counted_once_and_the_strategy_is_the_newest(here: Engine) -> None:
    owned = a_run(here)
    first = asking(here, owned)
    assign(here, one=1)
    assert claim(here, WORKER, [first]) == [first]
    end(here, first, TaskState.FAILURE)
    assign(here, one=1)
    assign(here, one=1)
    assert failures(here) == {(1, ONE): 1}
    with here.begin() as db:
        for kind in ("equalDistribution", "fillCapacity"):
            document = {"selectStrategy": {"type": kind}}
            db.execute(insert(t.worker_strategy).values(document=document))
    pair = [asking(here, owned) for _ in range(2)]
    assert set(chosen(assign(here, one=2, other=3)).values()) == {ONE}
    assert claim(here, WORKER, pair) == pair
    foreign = asking(here, a_run(here, DEV, project_id=DEV))
    assign(here, one=9)
    assert claim(here, WORKER, [foreign]) == [foreign]
    end(here, foreign, TaskState.FAILURE)
    end(here, pair[0], TaskState.SUCCESS)
    assign(here)
    assert failures(here) == {(DEV, ONE): 1}


def test_stream_tasks_that_do_the_same_work_are_kept_apart(here: Engine) -> None:
    def reading(sequence: str) -> int:
        owned = a_run(here)
        saved = save(
            here,
            owned,
            a_submit("read", task_type=TASK_TYPE, worker_need=WorkerNeed(dataset="flights")),
        )
        assert saved.asks
        with here.begin() as db:
            run, task = t.process_instance, t.task_instance
            of_run = run.c.id == owned.process_instance_id
            db.execute(
                insert(t.stream_task).values(
                    name=f"task-{owned.process_instance_id}",
                    supervisor="flights",
                    version=1,
                    epoch=1,
                    group_id=0,
                    base_sequence=sequence,
                    assignment={},
                    command_id=db.scalar(select(run.c.command_id).where(of_run)),
                )
            )
            found: int = db.execute(
                select(task.c.id).where(task.c.process_instance_id == owned.process_instance_id)
            ).scalar_one()
            return found

    first, replica, another = (reading(each) for each in ("s1", "s1", "s2"))
    assert chosen(assign(here, one=9)) == {first: ONE, another: ONE}
    assert claim(here, WORKER, [first]) == [first]
    assert assign(here, one=9).waiting
    assert chosen(assign(here, one=9, other=1)) == {replica: OTHER}


def a_run_of_dev(made: Engine) -> Ownership:
    return a_run(made, DEV, project_id=DEV)


@pytest.mark.parametrize(
    "need", [{"capacity": 9}, {"availability_group": "load"}], ids=["capacity", "group"]
)
@pytest.mark.parametrize("is_claimed", [False, True])
def test_a_task_that_asks_keeps_no_task_of_another_project_from_its_worker(
    here: Engine, need: dict[str, Any], *, is_claimed: bool
) -> None:
    first = asking(here, a_run_of_dev(here), **need)
    assert chosen(assign(here, one=9)) == {first: ONE}
    if is_claimed:
        assert claim(here, WORKER, [first]) == [first]
    other = asking(here, a_run(here), availability_group="load")
    assert chosen(assign(here, one=9)) == {other: ONE}
    # Within a project both still count.
    asking(here, a_run_of_dev(here), **need)
    assert assign(here, one=9) == Assigned(waiting=True)


def test_a_thousand_waiting_tasks_of_a_project_do_not_hide_the_tasks_of_another(
    here: Engine,
) -> None:
    need = WorkerNeed(capacity=1_000_000)
    names = [f"t{number}" for number in range(1_000)]
    save(here, a_run_of_dev(here), *(a_submit(name, worker_need=need) for name in names))
    other = asking(here, a_run(here))
    assert chosen(assign(here, one=9)) == {other: ONE}


def test_complements_take_no_slot_from_chosen_tasks_of_other_runs(here: Engine) -> None:
    owned = a_run_of_dev(here)
    with here.begin() as db:
        db.execute(
            update(t.process_instance)
            .where(t.process_instance.c.id == owned.process_instance_id)
            .values(history_cmd="COMPLEMENT_DATA")
        )
    first = asking(here, owned)
    assert chosen(assign(here, one=1)) == {first: ONE}
    assert claim(here, WORKER, [first]) == [first]
    other = asking(here, a_run(here))
    assert chosen(assign(here, one=1)) == {other: ONE}


def test_the_name_of_a_dataset_of_another_project_moves_no_task(here: Engine) -> None:
    affinity = {"affinity": {"flights": [ONE]}, "strong": True}
    document = {
        "selectStrategy": {"type": "equalDistributionWithAffinity", "affinityConfig": affinity}
    }
    with here.begin() as db:
        db.execute(insert(t.worker_strategy).values(document=document))
        db.execute(insert(t.dataset).values(name="flights", project_id=1))
    foreign = asking(here, a_run_of_dev(here), dataset="flights")
    own = asking(here, a_run(here), dataset="flights")
    try:
        assert chosen(assign(here, one=9, other=9)) == {foreign: OTHER, own: ONE}
    finally:
        with here.begin() as db:
            db.execute(delete(t.dataset).where(t.dataset.c.name == "flights"))
