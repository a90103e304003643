"""Saves of a run that wait for a take-over, a claim, an intent or a report."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from datetime import timedelta

import pytest
from sqlalchemy import Connection, Engine, select, update
from sqlalchemy.exc import OperationalError

from common.errors import ServiceUnreachableError
from common.model.decisions import AbandonTask, FinishProcess, KillTask, PauseProcess
from common.model.states import ProcessState, TaskState
from common.store import tables as t
from common.store.connect import engine
from common.store.master.ports import Saved
from common.store.master.runs import PostgresRunStore
from common.store.worker.ports import AttemptEnd
from common.store.worker.tasks import PostgresTaskStore
from tests.builders import NOON
from tests.integration.store_races.racing import (
    MASTER,
    WORKER,
    a_run,
    a_submit,
    attempt,
    claim,
    instance,
    save,
    submit,
    until_blocked,
)


def test_a_save_that_waits_for_a_take_over_writes_nothing(here: Engine, there: Engine) -> None:
    owned = a_run(here)
    with ThreadPoolExecutor(1) as pool, there.connect() as other:
        other.execute(
            update(t.process_instance)
            .where(t.process_instance.c.id == owned.process_instance_id)
            .values(owner_epoch=owned.epoch + 1)
        )
        saving = pool.submit(save, here, owned, a_submit("a"))
        until_blocked(there, "here")
        other.commit()
        assert saving.result() == Saved(lost=frozenset([owned]), offers=(), kills=(), withdrawn=())


def test_a_kill_that_waits_for_a_claim_is_asked_of_the_worker_9509_15662(
    here: Engine, there: Engine
) -> None:
    owned = a_run(here)
    (task_id,) = submit(here, owned, "a")
    with ThreadPoolExecutor(1) as pool, there.connect() as other:
        _claim_by_hand(other, task_id)
        saving: Future[Saved] = pool.submit(save, here, owned, KillTask(name="a", attempt=1))
        until_blocked(there, "here")
        other.commit()
        saved = saving.result()
    assert [entry.address for entry in saved.kills] == [WORKER.address]
    assert saved.withdrawn == ()
    assert PostgresTaskStore(here).running(WORKER) == {task_id: True}


def _claim_by_hand(db: Connection, task_id: int) -> None:
    db.execute(
        update(t.task_instance)
        .where(t.task_instance.c.id == task_id)
        .values(state=1, host=WORKER.address, worker_incarnation=WORKER.incarnation)
    )


def test_t66_a_stop_that_is_written_while_the_owner_saves_is_not_lost(
    here: Engine, there: Engine
) -> None:
    owned = a_run(here)
    with ThreadPoolExecutor(1) as pool, there.connect() as other:
        other.execute(
            update(t.process_instance)
            .where(t.process_instance.c.id == owned.process_instance_id)
            .values(wanted_state=5, wanted_at=NOON)
        )
        saving = pool.submit(save, here, owned, PauseProcess())
        until_blocked(there, "here")
        other.commit()
        assert saving.result().lost == frozenset()
    row = instance(here, owned.process_instance_id)
    assert (row.state, row.wanted_state) == (2, 5)
    assert PostgresRunStore(here).wanted(MASTER)[owned].state is ProcessState.STOP


def test_kills_and_reports_of_the_same_attempts_do_not_wait_in_a_ring(
    here: Engine, there: Engine
) -> None:
    owned = a_run(here)
    names = [f"t{n}" for n in range(40)]
    ids = submit(here, owned, *names)
    claim(here, WORKER, ids)
    ends = [
        AttemptEnd(task_instance_id=task_id, state=TaskState.SUCCESS, end_time=NOON)
        for task_id in reversed(ids)
    ]
    with ThreadPoolExecutor(2) as pool:
        kills = [KillTask(name=name, attempt=1) for name in names]
        saving = pool.submit(save, here, owned, *kills)
        reporting = pool.submit(PostgresTaskStore(there).report, WORKER, ends)
        assert reporting.result() == frozenset(ids)
        assert saving.result().withdrawn == ()


def test_a_run_that_stays_locked_is_an_unreachable_service_and_no_conflict(
    url: str, there: Engine
) -> None:
    impatient = engine(url, lock_timeout=timedelta(milliseconds=50))
    owned = a_run(impatient)
    with there.begin() as db:
        db.execute(
            select(t.process_instance.c.id)
            .where(t.process_instance.c.id == owned.process_instance_id)
            .with_for_update()
        )
        with pytest.raises(ServiceUnreachableError, match="lock timeout") as caught:
            save(impatient, owned, a_submit("a"))
    assert isinstance(caught.value.__cause__, OperationalError)
    impatient.dispose()


def test_an_attempt_that_reports_while_it_is_given_up_has_one_end(
    here: Engine, there: Engine
) -> None:
    owned = a_run(here)
    (first, second) = submit(here, owned, "a", "b")
    claim(here, WORKER, [first, second])
    ends = [
        AttemptEnd(task_instance_id=task_id, state=TaskState.SUCCESS, end_time=NOON)
        for task_id in (first, second)
    ]
    with ThreadPoolExecutor(1) as pool, there.connect() as other:
        # The report of the first comes just before, that of the second too late.
        other.execute(
            update(t.task_instance)
            .where(t.task_instance.c.id == first)
            .values(state=7, end_time=NOON)
        )
        giving_up = pool.submit(
            save,
            here,
            owned,
            AbandonTask(name="a", attempt=1),
            AbandonTask(name="b", attempt=1),
            FinishProcess(state=ProcessState.STOP),
        )
        until_blocked(there, "here")
        other.commit()
        kills = giving_up.result().kills
    assert [entry.task_instance_id for entry in kills] == [second]
    assert PostgresTaskStore(here).report(WORKER, ends) == frozenset()
    rows = [attempt(here, task_id) for task_id in (first, second)]
    assert [(row.state, row.settled) for row in rows] == [(7, True), (9, True)]
