"""What the stores promise when several connections act at the same moment, or lose their own."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, create_engine, event, insert, select, text, update
from sqlalchemy.exc import OperationalError

from common.clock import SystemClock
from common.embedded.addresses import PostgresAddress
from common.errors import ServiceUnreachableError
from common.model.cluster import Node
from common.model.commands import Command, CommandType
from common.model.decisions import Decision, FinishTask, KillTask, SubmitTask
from common.model.instances import Ownership
from common.model.plans import Begin, Drop, Plan, Signal, Snapshot
from common.model.states import (
    FailureStrategy,
    Priority,
    ProcessState,
    TaskDependType,
    TaskState,
    WarningType,
)
from common.store import schema
from common.store import tables as t
from common.store.commands import PostgresCommandStore
from common.store.connect import engine
from common.store.failover import PostgresFailoverStore
from common.store.protocol import AttemptEnd, AttemptFolders, Saved, Step
from common.store.runs import PostgresRunStore
from common.store.tasks import PostgresTaskStore
from tests.builders import NOON

MASTER = Node(address="10.0.0.1:5678", incarnation=1)
OTHER_MASTER = Node(address="10.0.0.2:5678", incarnation=2)
WORKER = Node(address="10.0.0.3:1234", incarnation=3)
OTHER_WORKER = Node(address="10.0.0.4:1234", incarnation=4)


@pytest.fixture(scope="module")
def url(postgres: PostgresAddress) -> Iterator[str]:
    """One database for the module; each test has runs and commands of its own."""
    name = f"test_races_{uuid.uuid4().hex[:12]}"
    server = create_engine(
        postgres.url.replace("postgresql://", "postgresql+psycopg2://"),
        isolation_level="AUTOCOMMIT",
    )
    with server.connect() as db:
        db.execute(text(f"CREATE DATABASE {name}"))
    made = replace(postgres, dbname=name).url
    upgraded = engine(made)
    schema.upgrade(upgraded, os_user="tester")
    upgraded.dispose()
    yield made
    with server.connect() as db:
        db.execute(text(f"DROP DATABASE {name} WITH (FORCE)"))
    server.dispose()


@pytest.fixture
def here(url: str) -> Iterator[Engine]:
    made = engine(url, application_name="here")
    yield made
    made.dispose()


@pytest.fixture
def there(url: str) -> Iterator[Engine]:
    made = engine(url, application_name="there")
    yield made
    made.dispose()


def a_begin(command: Command, _snapshot: Snapshot) -> Plan:
    return Begin(
        name=f"run-{command.id}",
        process_definition_id=1,
        command_type=CommandType.START_PROCESS,
        command_param="{}",
        process_instance_json="{}",
        global_params="[]",
        task_depend_type=TaskDependType.TASK_POST,
        failure_strategy=FailureStrategy.CONTINUE,
        warning_type=WarningType.NONE,
        warning_group_id=0,
        schedule_time=None,
        command_start_time=NOON,
        executor_id=1,
        priority=Priority.MEDIUM,
        worker_group_id=-1,
        timeout_minutes=0,
        tenant_id=-1,
    )


def a_submit(name: str) -> SubmitTask:
    return SubmitTask(
        name=name,
        attempt=1,
        retry_times=0,
        task_type="SHELL",
        task_json="{}",
        priority=Priority.MEDIUM,
        worker_group_id=-1,
        max_retry_times=0,
        retry_interval=timedelta(),
    )


def commands(made: Engine, count: int, **columns: Any) -> list[int]:
    rows = [{"command_type": 0, "process_definition_id": 1, **columns}] * count
    with made.begin() as db:
        return list(
            db.scalars(
                insert(t.command).returning(t.command.c.id, sort_by_parameter_order=True), rows
            )
        )


def take(
    made: Engine,
    node: Node,
    planner: Callable[[Command, Snapshot], Plan] = a_begin,
    *,
    limit: int = 100,
) -> dict[int, Ownership | None]:
    handled = PostgresCommandStore(made).take(
        node=node, limit=limit, live_masters=frozenset(), planner=planner, now=NOON
    )
    return {one.command_id: one.ownership for one in handled}


def a_run(made: Engine) -> Ownership:
    (command_id,) = commands(made, 1)
    owned = take(made, MASTER)[command_id]
    assert owned is not None
    return owned


def save(made: Engine, owned: Ownership, *decisions: Decision) -> Saved:
    step = Step(ownership=owned, decisions=decisions, at=NOON)
    return PostgresRunStore(made).save([step])


def submit(made: Engine, owned: Ownership, *names: str) -> list[int]:
    saved = save(made, owned, *(a_submit(name) for name in names))
    return [offer.task_instance_id for offer in saved.offers]


def claim(made: Engine, node: Node, ids: list[int]) -> list[int]:
    claimed = PostgresTaskStore(made).claim(
        node, ids, folders=AttemptFolders(work="/attempts", logs="/logs"), now=NOON
    )
    return [task.id for task in claimed]


def until_blocked(made: Engine, application: str) -> None:
    """Return once a session of that application waits for a lock."""
    deadline = SystemClock().monotonic() + 20
    question = text(
        "SELECT count(*) FROM pg_stat_activity"
        " WHERE application_name LIKE :name AND wait_event_type = 'Lock'"
    )
    with made.execution_options(isolation_level="AUTOCOMMIT").connect() as db:
        while not db.scalar(question, {"name": f"{application}:%"}):
            assert SystemClock().monotonic() < deadline, "nobody waits"


def test_masters_that_take_at_once_take_each_command_once(here: Engine, there: Engine) -> None:
    made = commands(here, 120)

    def take_all(engine_of_one: Engine, node: Node) -> list[int]:
        taken: list[int] = []
        while batch := take(engine_of_one, node, limit=7):
            taken += batch
        return taken

    with ThreadPoolExecutor(2) as pool:
        both = [pool.submit(take_all, here, MASTER), pool.submit(take_all, there, OTHER_MASTER)]
        # A loop ends when all that is left is locked by the other, who then takes it.
        taken = [command_id for one in both for command_id in one.result()]
    assert sorted(taken) == made
    with here.connect() as db:
        names = db.scalars(
            select(t.process_instance.c.name).where(
                t.process_instance.c.name.in_([f"run-{command_id}" for command_id in made])
            )
        ).all()
    assert len(names) == len(set(names)) == len(made)


def test_commands_that_another_master_holds_are_passed_over(here: Engine, there: Engine) -> None:
    held, free = commands(here, 2)
    with there.begin() as db:
        db.execute(select(t.command.c.id).where(t.command.c.id == held).with_for_update())
        assert list(take(here, MASTER)) == [free]
    assert list(take(here, MASTER)) == [held]


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


def test_a_kill_that_waits_for_a_claim_is_asked_of_the_worker(here: Engine, there: Engine) -> None:
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


def test_a_claim_does_not_wait_for_a_withdrawal(here: Engine, there: Engine) -> None:
    withdrawn, free = submit(here, a_run(here), "a", "b")
    with there.connect() as other:
        other.execute(
            update(t.task_instance)
            .where(t.task_instance.c.id == withdrawn)
            .values(state=9, end_time=NOON)
        )
        assert claim(here, WORKER, [withdrawn, free]) == [free]
        other.commit()
    assert claim(here, WORKER, [withdrawn]) == []


def test_workers_that_claim_at_once_get_each_attempt_once(here: Engine, there: Engine) -> None:
    ids = submit(here, a_run(here), *(f"t{n}" for n in range(60)))
    with ThreadPoolExecutor(2) as pool:
        one = pool.submit(claim, here, WORKER, ids)
        two = pool.submit(claim, there, OTHER_WORKER, ids[::-1])
        got = one.result() + two.result()
    # What one passed over because the other held it, the other has got.
    assert sorted(got) == ids


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


def test_masters_that_find_the_same_loss_at_once_recover_each_run_once(
    here: Engine, there: Engine
) -> None:
    gone = Node(address="10.0.0.9:5678", incarnation=9)
    runs = commands(here, 20)
    take(here, gone)
    with ThreadPoolExecutor(2) as pool:
        both = [
            pool.submit(PostgresFailoverStore(made).recover_runs, gone, now=NOON)
            for made in (here, there)
        ]
        assert sum(one.result() for one in both) == len(runs)
    recovered = take(here, MASTER, lambda _command, _snapshot: Drop(reason="counted"))
    assert len(recovered) == len(runs)


def test_a_frozen_masters_run_does_not_hold_up_the_commands_of_others(
    here: Engine, there: Engine
) -> None:
    owned = a_run(here)
    param = f'{{"ProcessInstanceId":{owned.process_instance_id}}}'
    (stop,) = commands(here, 1, command_type=9, command_param=param)
    (start,) = commands(here, 1)

    def plan(command: Command, snapshot: Snapshot) -> Plan:
        if command.command_type is not CommandType.STOP:
            return a_begin(command, snapshot)
        return Signal(
            process_instance_id=owned.process_instance_id,
            command_type=CommandType.STOP,
            wanted_state=ProcessState.STOP,
        )

    with there.begin() as frozen:
        frozen.execute(
            select(t.process_instance.c.id)
            .where(t.process_instance.c.id == owned.process_instance_id)
            .with_for_update()
        )
        assert list(take(here, OTHER_MASTER, plan)) == [start]
    assert list(take(here, OTHER_MASTER, plan)) == [stop]
    assert PostgresRunStore(here).wanted(MASTER)[owned] is ProcessState.STOP


def test_a_usual_save_is_three_statements(here: Engine) -> None:
    owned = a_run(here)
    (first,) = submit(here, owned, "a")
    claim(here, WORKER, [first])
    report = AttemptEnd(task_instance_id=first, state=TaskState.SUCCESS, end_time=NOON)
    PostgresTaskStore(here).report(WORKER, [report])
    statements: list[str] = []

    @event.listens_for(here, "before_cursor_execute")
    def _count(_db: Any, _cursor: Any, statement: str, *_: Any) -> None:
        statements.append(statement)

    finished = FinishTask(name="a", attempt=1, state=TaskState.SUCCESS)
    save(here, owned, finished, a_submit("b"))
    assert len(statements) == 3, statements


def test_a_lost_connection_costs_a_look_nothing_and_a_save_a_clear_error(
    here: Engine, there: Engine
) -> None:
    owned = a_run(here)
    store = PostgresRunStore(here)
    _end_sessions_of(there, "here")
    assert owned in store.owned(MASTER)
    _end_sessions_of(there, "here")
    with pytest.raises(ServiceUnreachableError) as caught:
        save(here, owned, a_submit("a"))
    assert "INSERT" not in str(caught.value)
    assert "SELECT" not in str(caught.value)
    assert save(here, owned, a_submit("a")).lost == frozenset()


def _end_sessions_of(made: Engine, application: str) -> None:
    end = text(
        "SELECT count(pg_terminate_backend(pid, 5000)) FROM pg_stat_activity"
        " WHERE application_name LIKE :name"
    )
    with made.begin() as db:
        assert db.scalar(end, {"name": f"{application}:%"})


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
