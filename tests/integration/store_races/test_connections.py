"""The stores' statements and connections: their number, their transactions, and the loss of one."""

from __future__ import annotations

import re
from typing import Any

import pytest
from sqlalchemy import Engine, event, text, update
from sqlalchemy.exc import ProgrammingError

from common.errors import ServiceUnreachableError
from common.model.decisions import FinishProcess, FinishTask
from common.model.states import ProcessState, TaskState
from common.store import tables as t
from common.store.master.runs import PostgresRunStore
from common.store.transaction import _OBSERVERS, observe_transactions, transaction
from common.store.worker.ports import AttemptEnd
from common.store.worker.tasks import PostgresTaskStore
from tests.builders import NOON
from tests.integration.store_races.racing import (
    MASTER,
    WORKER,
    a_run,
    a_submit,
    claim,
    instance,
    save,
    submit,
)


def test_a_usual_save_is_one_statement(here: Engine, heard: None) -> None:
    owned = a_run(here)
    (first,) = submit(here, owned, "a")
    claim(here, WORKER, [first])
    report = AttemptEnd(task_instance_id=first, state=TaskState.SUCCESS, end_time=NOON)
    PostgresTaskStore(here).report(WORKER, [report])
    statements: list[str] = []

    @event.listens_for(here, "before_cursor_execute")
    def _count(_db: Any, _cursor: Any, statement: str, *_: Any) -> None:
        # Each connection prepares a statement once.
        if not statement.startswith("PREPARE "):
            statements.append(statement)

    finished = FinishTask(name="a", attempt=1, state=TaskState.SUCCESS)
    save(here, owned, finished, a_submit("b"))
    assert len(statements) == 1, statements


def test_a_look_sends_its_question_and_nothing_else(here: Engine, there: Engine) -> None:
    store = PostgresRunStore(here)
    # By its process: a connection that an earlier test has closed may exist for a moment yet.
    with here.connect() as db:
        pid = db.scalar(text("SELECT pg_backend_pid()"))
    last = text("SELECT query FROM pg_stat_activity WHERE pid = :pid")
    for _ in range(2):
        store.owned(MASTER)
        with there.connect() as db:
            (said,) = db.scalars(last, {"pid": pid})
        # Neither the end of a transaction nor a setting of the session came after it.
        assert re.fullmatch(r"(SET LOCAL \w+=off;)+EXECUTE f\w{10} \([^;]*\)", said)
    assert save(here, a_run(here), a_submit("a")).lost == frozenset()


def test_what_follows_a_look_on_its_connection_is_a_transaction_again(here: Engine) -> None:
    PostgresRunStore(here).owned(MASTER)
    owned = a_run(here)
    change = (
        update(t.process_instance)
        .where(t.process_instance.c.id == owned.process_instance_id)
        .values(state_reason="taken back")
    )
    with transaction(here) as db:
        db.execute(change)
        db.rollback()
    assert instance(here, owned.process_instance_id).state_reason is None


def test_the_seconds_of_each_transaction_are_told_also_of_one_that_fails(here: Engine) -> None:
    told: list[float] = []
    observe_transactions(told.append)
    try:
        with transaction(here) as db:
            db.execute(text("SELECT pg_sleep(0.01)"))
        with pytest.raises(ProgrammingError), transaction(here) as db:
            db.execute(text("SELECT nothing"))
    finally:
        _OBSERVERS.remove(told.append)
    assert len(told) == 2
    assert told[0] > 0.01


def test_an_idle_connection_that_is_lost_costs_neither_a_look_nor_a_save_anything(
    here: Engine, there: Engine
) -> None:
    owned = a_run(here)
    store = PostgresRunStore(here)
    _end_sessions_of(there, "here")
    assert owned in store.owned(MASTER)
    _end_sessions_of(there, "here")
    assert save(here, owned, a_submit("a")).lost == frozenset()


def test_a_connection_that_is_lost_in_a_save_is_a_clear_error(
    here: Engine, there: Engine, heard: None
) -> None:
    owned = a_run(here)

    @event.listens_for(here, "before_cursor_execute", once=True)
    def _lose(*_: Any) -> None:
        _end_sessions_of(there, "here")

    with pytest.raises(ServiceUnreachableError) as caught:
        save(here, owned, a_submit("a"))
    assert "INSERT" not in str(caught.value)
    assert "SELECT" not in str(caught.value)
    assert save(here, owned, a_submit("a")).lost == frozenset()


def _end_sessions_of(made: Engine, application: str) -> None:
    end = text(
        "SELECT count(pg_terminate_backend(pid, 5000)) FROM pg_stat_activity"
        " WHERE application_name LIKE :name AND datname = current_database()"
    )
    with made.begin() as db:
        assert db.scalar(end, {"name": f"{application}:%"})


def test_the_last_step_of_a_run_is_one_statement(here: Engine, heard: None) -> None:
    owned = a_run(here)
    (only,) = submit(here, owned, "a")
    claim(here, WORKER, [only])
    report = AttemptEnd(task_instance_id=only, state=TaskState.SUCCESS, end_time=NOON)
    PostgresTaskStore(here).report(WORKER, [report])
    statements: list[str] = []

    @event.listens_for(here, "before_cursor_execute")
    def _count(_db: Any, _cursor: Any, statement: str, *_: Any) -> None:
        # Each connection prepares a statement once.
        if not statement.startswith("PREPARE "):
            statements.append(statement)

    finished = FinishTask(name="a", attempt=1, state=TaskState.SUCCESS)
    save(here, owned, finished, FinishProcess(state=ProcessState.SUCCESS))
    assert len(statements) == 1, statements
