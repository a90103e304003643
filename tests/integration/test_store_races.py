"""The stores when several connections act at the same moment, or lose their own."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import (
    Connection,
    Engine,
    event,
    func,
    insert,
    select,
    text,
    update,
)
from sqlalchemy.exc import DBAPIError, OperationalError

from common.clock import SystemClock
from common.errors import ServiceUnreachableError
from common.model.cluster import Node
from common.model.commands import Command, CommandType
from common.model.decisions import (
    AbandonTask,
    Decision,
    FinishProcess,
    FinishTask,
    KillTask,
    PauseProcess,
    SubmitTask,
)
from common.model.definitions import PoolShare, TaskTimeout
from common.model.instances import Ownership
from common.model.plans import Begin, ChildOf, Drop, Plan, Reject, Resume, SetIntent, Snapshot
from common.model.states import (
    ExecutionType,
    FailureStrategy,
    Priority,
    ProcessState,
    TaskDependType,
    TaskState,
    TimeoutStrategy,
    WarningType,
)
from common.store import tables as t
from common.store.connect import engine
from common.store.master.commands import PostgresCommandStore
from common.store.master.failover import PostgresFailoverStore
from common.store.master.holds import PostgresHoldStore
from common.store.master.ports import Saved, Step
from common.store.master.runs import PostgresRunStore
from common.store.master.timeouts import PostgresTimeoutStore
from common.store.people.pools import lock_pool, remove_pool
from common.store.transaction import transaction
from common.store.worker.ports import AttemptEnd, AttemptFolders
from common.store.worker.tasks import PostgresTaskStore
from tests.builders import NOON

MASTER = Node(address="10.0.0.1:5678", incarnation=1)
OTHER_MASTER = Node(address="10.0.0.2:5678", incarnation=2)
WORKER = Node(address="10.0.0.3:1234", incarnation=3)
OTHER_WORKER = Node(address="10.0.0.4:1234", incarnation=4)


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


def a_submit(name: str, **changes: Any) -> SubmitTask:
    submit = SubmitTask(
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
    return replace(submit, **changes)


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
        node=node,
        limit=limit,
        room=limit,
        spare=limit,
        live_masters=frozenset(),
        planner=planner,
        now=NOON,
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


def test_t37_a_stop_that_waits_for_the_end_of_a_run_changes_nothing(
    here: Engine, there: Engine
) -> None:
    owned = a_run(here)
    (command_id,) = commands(here, 1, command_type=9)
    stop = SetIntent(
        process_instance_id=owned.process_instance_id,
        command_type=CommandType.STOP,
        wanted_state=ProcessState.STOP,
    )
    with ThreadPoolExecutor(1) as pool, there.connect() as other:
        other.execute(
            update(t.process_instance)
            .where(t.process_instance.c.id == owned.process_instance_id)
            .values(state=7, end_time=NOON)
        )
        stopping = pool.submit(take, here, OTHER_MASTER, lambda _command, _snapshot: stop)
        until_blocked(there, "here")
        other.commit()
        assert command_id in stopping.result()
    row = instance(here, owned.process_instance_id)
    assert (row.state, row.wanted_state, row.command_type) == (7, None, 0)


def test_a_command_and_what_it_begins_are_one_transaction_1246(here: Engine) -> None:
    (command_id,) = commands(here, 1)
    fails = "test_1246_fails"
    with here.begin() as db:
        db.execute(
            text(
                f"CREATE FUNCTION {fails}() RETURNS trigger LANGUAGE plpgsql AS"
                " $$ BEGIN RAISE EXCEPTION 'the command stays'; END $$"
            )
        )
        db.execute(
            text(
                f"CREATE TRIGGER {fails} BEFORE DELETE ON t_ds_command"
                f" FOR EACH ROW EXECUTE FUNCTION {fails}()"
            )
        )
    try:
        with pytest.raises(DBAPIError, match="the command stays"):
            take(here, MASTER)
        with here.connect() as db:
            begun = select(func.count()).where(t.process_instance.c.name == f"run-{command_id}")
            assert db.scalar(begun) == 0
    finally:
        with here.begin() as db:
            db.execute(text(f"DROP FUNCTION {fails}() CASCADE"))
    assert list(take(here, MASTER)) == [command_id]


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


def test_the_update_of_a_claim_is_a_fence_without_the_lock_of_its_look(
    here: Engine, there: Engine
) -> None:
    (task_id,) = submit(here, a_run(here), "a")

    @event.listens_for(here, "before_cursor_execute", retval=True)
    def look_without_a_lock(
        _db: Any, _cursor: Any, statement: str, values: Any, *_: Any
    ) -> tuple[str, Any]:
        return statement.replace("FOR NO KEY UPDATE OF t_ds_task_instance SKIP LOCKED", ""), values

    with ThreadPoolExecutor(1) as pool, there.connect() as other:
        other.execute(
            update(t.task_instance)
            .where(t.task_instance.c.id == task_id)
            .values(state=9, end_time=NOON)
        )
        claiming = pool.submit(claim, here, WORKER, [task_id])
        # The query has found the row unchanged; the UPDATE waits for the withdrawal.
        until_blocked(there, "here")
        other.commit()
        assert claiming.result() == []
    assert attempt(here, task_id).state == TaskState.KILL


def test_workers_that_claim_at_once_get_each_attempt_once(here: Engine, there: Engine) -> None:
    ids = submit(here, a_run(here), *(f"t{n}" for n in range(60)))
    with ThreadPoolExecutor(2) as pool:
        one = pool.submit(claim, here, WORKER, ids)
        two = pool.submit(claim, there, OTHER_WORKER, ids[::-1])
        got = one.result() + two.result()
    # The commands that one skipped because the other had locked them, the other has taken.
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
        return SetIntent(
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
    assert PostgresRunStore(here).wanted(MASTER)[owned].state is ProcessState.STOP


def test_an_attempt_that_stays_locked_holds_up_the_command_for_its_child_alone(
    here: Engine, there: Engine
) -> None:
    owned = a_run(here)
    (task_id,) = an_intent_for_a_child(here, owned, "sub")
    (wanted,) = child_commands(here, [task_id])
    (start,) = commands(here, 1)

    def plan(command: Command, snapshot: Snapshot) -> Plan:
        if command.parent_task_instance_id:
            return a_child_begin(command, snapshot)
        return a_begin(command, snapshot)

    with there.begin() as frozen:
        # The lock of a master that kills it and then freezes.
        frozen.execute(
            select(t.task_instance.c.id).where(t.task_instance.c.id == task_id).with_for_update()
        )
        assert list(take(here, OTHER_MASTER, plan)) == [start]
    assert attempt(here, task_id).state == TaskState.SUBMITTED
    begun = take(here, OTHER_MASTER, plan)
    assert [command_id for command_id, owner in begun.items() if owner] == [wanted]
    assert attempt(here, task_id).state == TaskState.RUNNING


def test_a_definition_that_stays_locked_holds_up_its_own_runs_alone(
    here: Engine, there: Engine
) -> None:
    with here.begin() as db:
        serial: int = db.execute(
            insert(t.process_definition)
            .values(name=f"serial-{uuid.uuid4().hex}", execution_type=1)
            .returning(t.process_definition.c.id)
        ).scalar_one()
    (waits,) = commands(here, 1, process_definition_id=serial)
    (start,) = commands(here, 1)

    def plan(command: Command, snapshot: Snapshot) -> Plan:
        begin = a_begin(command, snapshot)
        assert isinstance(begin, Begin)
        if command.id != waits:
            return begin
        return replace(
            begin, process_definition_id=serial, execution_type=ExecutionType.SERIAL_WAIT
        )

    with there.begin() as frozen:
        # The lock of a master that decides the next turn and then freezes.
        frozen.execute(
            select(t.process_definition.c.id)
            .where(t.process_definition.c.id == serial)
            .with_for_update(key_share=True)
        )
        assert list(take(here, MASTER, plan)) == [start]
    assert list(take(here, MASTER, plan)) == [waits]


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
        assert said.startswith("SELECT t_ds_process_instance.id")
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
        " WHERE application_name LIKE :name AND datname = current_database()"
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


def test_the_last_step_of_a_run_is_three_statements(here: Engine) -> None:
    owned = a_run(here)
    (only,) = submit(here, owned, "a")
    claim(here, WORKER, [only])
    report = AttemptEnd(task_instance_id=only, state=TaskState.SUCCESS, end_time=NOON)
    PostgresTaskStore(here).report(WORKER, [report])
    statements: list[str] = []

    @event.listens_for(here, "before_cursor_execute")
    def _count(_db: Any, _cursor: Any, statement: str, *_: Any) -> None:
        statements.append(statement)

    finished = FinishTask(name="a", attempt=1, state=TaskState.SUCCESS)
    save(here, owned, finished, FinishProcess(state=ProcessState.SUCCESS))
    assert len(statements) == 3, statements


# Trees


def a_child_begin(command: Command, snapshot: Snapshot) -> Plan:
    parent = snapshot.parent
    if parent is None:
        return Reject(reason="no parent")
    begin = a_begin(command, snapshot)
    assert isinstance(begin, Begin)
    child_of = ChildOf(
        process_instance_id=parent.process_instance_id,
        task_instance_id=parent.task_instance_id,
        root_id=parent.root_id,
    )
    return replace(begin, child_of=child_of)


def an_intent_for_a_child(made: Engine, owned: Ownership, *names: str) -> list[int]:
    """Submit SUB_PROCESS attempts whose children have not begun; return their ids."""
    save(made, owned, *(a_submit(name, task_type="SUB_PROCESS") for name in names))
    with made.connect() as db:
        return list(
            db.scalars(
                select(t.task_instance.c.id)
                .where(t.task_instance.c.process_instance_id == owned.process_instance_id)
                .where(t.task_instance.c.name.in_(names))
                .order_by(t.task_instance.c.id)
            )
        )


def child_commands(made: Engine, task_ids: list[int]) -> list[int]:
    with made.connect() as db:
        return list(
            db.scalars(
                select(t.command.c.id)
                .where(t.command.c.parent_task_instance_id.in_(task_ids))
                .order_by(t.command.c.id)
            )
        )


def children(made: Engine, owned: Ownership, *names: str) -> list[Ownership]:
    """Runs that are the children of new attempts of this run."""
    made_of = child_commands(made, an_intent_for_a_child(made, owned, *names))
    begun = take(made, OTHER_MASTER, a_child_begin)
    owners = [begun[command_id] for command_id in made_of]
    return [owner for owner in owners if owner is not None]


def attempt(made: Engine, task_id: int) -> Any:
    with made.connect() as db:
        return db.execute(select(t.task_instance).where(t.task_instance.c.id == task_id)).one()


def instance(made: Engine, instance_id: int) -> Any:
    with made.connect() as db:
        return db.execute(
            select(t.process_instance).where(t.process_instance.c.id == instance_id)
        ).one()


def kill(name: str) -> KillTask:
    return KillTask(name=name, attempt=1)


def test_t36c_a_child_that_waits_for_its_parents_kill_does_not_begin(
    here: Engine, there: Engine
) -> None:
    owned = a_run(here)
    (task_id,) = an_intent_for_a_child(here, owned, "sub")
    (command_id,) = child_commands(here, [task_id])
    with ThreadPoolExecutor(1) as pool, there.connect() as other:
        # As a save with KillTask writes it, just before its commit.
        other.execute(
            update(t.task_instance)
            .where(t.task_instance.c.id == task_id)
            .values(state=9, wanted_state=9, end_time=NOON)
        )
        taking = pool.submit(take, here, OTHER_MASTER, a_child_begin)
        until_blocked(there, "here")
        other.commit()
        assert taking.result() == {command_id: None}
    with here.connect() as db:
        ids = select(t.process_instance.c.id).where(
            t.process_instance.c.parent_task_instance_id == task_id
        )
        assert db.execute(ids).all() == []


def test_a_kill_that_waits_for_a_childs_beginning_is_passed_on_to_the_child(
    here: Engine, there: Engine
) -> None:
    owned = a_run(here)
    (task_id,) = an_intent_for_a_child(here, owned, "sub")
    with ThreadPoolExecutor(2) as pool:
        killing: Future[Saved]
        began: list[Future[Saved]] = []

        def plan(command: Command, snapshot: Snapshot) -> Plan:
            return a_child_begin(command, snapshot)

        @event.listens_for(there, "before_cursor_execute")
        def _kill_before_the_end(_db: Any, _cursor: Any, statement: str, *_: Any) -> None:
            # The attempt is claimed by then, and the transaction still open.
            if statement.startswith("DELETE FROM t_ds_command") and not began:
                began.append(pool.submit(save, here, owned, kill("sub")))
                until_blocked(here, "here")

        begun = take(there, OTHER_MASTER, plan)
        killing = began[0]
        assert killing.result().intents
    (child,) = (owner for owner in begun.values() if owner is not None)
    assert attempt(here, task_id).state == TaskState.RUNNING
    assert PostgresRunStore(here).propagate_intents(MASTER) == 1
    assert PostgresRunStore(here).wanted(OTHER_MASTER)[child].state is ProcessState.STOP
    assert PostgresRunStore(here).propagate_intents(MASTER) == 0


def test_t37_a_childs_end_that_waits_for_its_parents_kill_is_its_end_all_the_same(
    here: Engine, there: Engine
) -> None:
    owned = a_run(here)
    (child,) = children(here, owned, "sub")
    task_id = instance(here, child.process_instance_id).parent_task_instance_id
    with ThreadPoolExecutor(1) as pool, there.connect() as other:
        other.execute(
            update(t.task_instance).where(t.task_instance.c.id == task_id).values(wanted_state=9)
        )
        ending = pool.submit(save, here, child, FinishProcess(state=ProcessState.SUCCESS))
        until_blocked(there, "here")
        other.commit()
        assert ending.result().lost == frozenset()
    row = attempt(here, task_id)
    assert (row.state, row.wanted_state, row.settled) == (7, 9, False)


def test_a_childs_end_comes_too_late_for_an_attempt_that_was_given_up(
    here: Engine, there: Engine
) -> None:
    owned = a_run(here)
    (child,) = children(here, owned, "sub")
    task_id = instance(here, child.process_instance_id).parent_task_instance_id
    with ThreadPoolExecutor(1) as pool, there.connect() as other:
        other.execute(
            update(t.task_instance)
            .where(t.task_instance.c.id == task_id)
            .values(state=9, wanted_state=9, end_time=NOON, settled=True)
        )
        ending = pool.submit(save, here, child, FinishProcess(state=ProcessState.SUCCESS))
        until_blocked(there, "here")
        other.commit()
        ending.result()
    assert attempt(here, task_id).state == TaskState.KILL
    assert instance(here, child.process_instance_id).state == ProcessState.SUCCESS


def test_parents_that_kill_and_children_that_end_do_not_wait_in_a_ring(
    here: Engine, there: Engine
) -> None:
    owned = a_run(here)
    names = [f"s{n}" for n in range(30)]
    begun = children(here, owned, *names)
    assert len(begun) == len(names)
    store = PostgresRunStore(there)
    with ThreadPoolExecutor(2) as pool:
        killing = pool.submit(save, here, owned, *(kill(name) for name in reversed(names)))
        ending = pool.submit(
            store.save,
            [
                Step(
                    ownership=child,
                    decisions=(FinishProcess(state=ProcessState.SUCCESS),),
                    at=NOON,
                )
                for child in reversed(begun)
            ],
        )
        assert ending.result().lost == frozenset()
        assert killing.result().withdrawn == ()
    with here.connect() as db:
        states = db.scalars(
            select(t.task_instance.c.state).where(
                t.task_instance.c.process_instance_id == owned.process_instance_id
            )
        ).all()
    assert states == [TaskState.SUCCESS] * len(names)


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


# Pools, turns and time-outs


def test_a_pool_that_somebody_removes_gives_no_slots(here: Engine, there: Engine) -> None:
    owned = a_run(here)
    name = a_pool(here, 3)
    save(here, owned, a_submit("a", pools=(PoolShare(pool_name=name),)))
    with ThreadPoolExecutor(1) as pool, there.connect() as other:
        assert lock_pool(other, name)
        releasing = pool.submit(PostgresHoldStore(here).release, now=NOON)
        until_blocked(there, "here")
        assert remove_pool(other, name)
        other.commit()
        assert releasing.result().offers == ()
    with here.connect() as db:
        (row,) = db.execute(
            select(t.task_instance).where(
                t.task_instance.c.process_instance_id == owned.process_instance_id
            )
        )
    assert (row.state, row.reason) == (6, f"pool {name!r} does not exist")


def a_pool(made: Engine, size: int) -> str:
    name = f"pool-{uuid.uuid4().hex[:8]}"
    with made.begin() as db:
        db.execute(insert(t.task_group).values(name=name, group_size=size))
    return name


def test_masters_that_release_at_once_let_no_more_go_than_there_is_room_for(
    here: Engine, there: Engine
) -> None:
    owned = a_run(here)
    name = a_pool(here, 3)
    share = PoolShare(pool_name=name)
    save(here, owned, *(a_submit(f"t{n}", pools=(share,)) for n in range(20)))
    with ThreadPoolExecutor(2) as pool:
        both = [
            pool.submit(PostgresHoldStore(made).release, now=NOON)
            for made in (here, there)
            for _ in range(4)
        ]
        offers = [offer for one in both for offer in one.result().offers]
    assert len(offers) == 3
    let_go = [offer.task_instance_id for offer in offers]
    claim(here, WORKER, let_go)
    assert PostgresHoldStore(here).release(now=NOON).offers == ()
    end = AttemptEnd(task_instance_id=let_go[0], state=TaskState.SUCCESS, end_time=NOON)
    PostgresTaskStore(here).report(WORKER, [end])
    assert len(PostgresHoldStore(there).release(now=NOON).offers) == 1


def test_a_release_that_waits_for_a_withdrawal_lets_nothing_go(here: Engine, there: Engine) -> None:
    owned = a_run(here)
    save(here, owned, a_submit("late", due_at=NOON))
    with here.connect() as db:
        task_id = db.scalar(
            select(t.task_instance.c.id).where(
                t.task_instance.c.process_instance_id == owned.process_instance_id
            )
        )
    assert task_id is not None
    with ThreadPoolExecutor(1) as pool, there.connect() as other:
        other.execute(
            update(t.task_instance)
            .where(t.task_instance.c.id == task_id)
            .values(state=9, wanted_state=9, end_time=NOON)
        )
        releasing = pool.submit(PostgresHoldStore(here).release, now=NOON)
        until_blocked(there, "here")
        other.commit()
        assert releasing.result().offers == ()
    assert attempt(here, task_id).state == TaskState.KILL


def a_serial_definition(made: Engine) -> int:
    with made.begin() as db:
        # The runs of all the other tests are of definition 1.
        db.execute(insert(t.process_definition).values(name=uuid.uuid4().hex))
        definition_id: int = db.scalars(
            insert(t.process_definition)
            .values(name=f"serial-{uuid.uuid4().hex[:8]}", execution_type=1)
            .returning(t.process_definition.c.id)
        ).one()
    return definition_id


def serially(definition_id: int) -> Callable[[Command, Snapshot], Plan]:
    def plan(command: Command, snapshot: Snapshot) -> Plan:
        if command.command_type is CommandType.RECOVER_SERIAL_WAIT:
            assert snapshot.instance is not None
            return Resume(
                process_instance_id=snapshot.instance.id,
                epoch=snapshot.instance.owner_epoch,
                command_type=CommandType.RECOVER_SERIAL_WAIT,
            )
        begin = a_begin(command, snapshot)
        assert isinstance(begin, Begin)
        return replace(
            begin,
            process_definition_id=definition_id,
            execution_type=ExecutionType.SERIAL_WAIT,
        )

    return plan


def test_of_runs_of_a_serial_definition_that_begin_at_once_one_is_live(
    here: Engine, there: Engine
) -> None:
    definition_id = a_serial_definition(here)
    plan = serially(definition_id)
    commands(here, 12, process_definition_id=definition_id)
    with ThreadPoolExecutor(2) as pool:
        both = [
            pool.submit(take, made, node, plan, limit=1)
            for made, node in ((here, MASTER), (there, OTHER_MASTER))
            for _ in range(6)
        ]
        owners = [owner for one in both for owner in one.result().values()]
    while left := take(here, MASTER, plan):
        owners += left.values()
    assert len(owners) == 12
    assert len([owner for owner in owners if owner is not None]) == 1


def test_a_run_that_waits_while_the_last_live_one_ends_gets_its_turn_once_15270(
    here: Engine, there: Engine
) -> None:
    definition_id = a_serial_definition(here)
    plan = serially(definition_id)
    commands(here, 1, process_definition_id=definition_id)
    (first,) = take(here, MASTER, plan).values()
    assert first is not None
    commands(here, 1, process_definition_id=definition_id)
    with ThreadPoolExecutor(2) as pool:
        ending = pool.submit(save, here, first, FinishProcess(state=ProcessState.SUCCESS))
        taking = pool.submit(take, there, OTHER_MASTER, plan)
        assert ending.result().holds
        (second,) = taking.result().values()
    with ThreadPoolExecutor(2) as pool:
        releasing = [
            pool.submit(PostgresHoldStore(made).release, now=NOON) for made in (here, there)
        ]
        let_begin = sum(one.result().instances for one in releasing)
    # It came before the end and waited, or after it and did not have to.
    assert let_begin == (1 if second is None else 0)
    begun = [owner for owner in take(here, MASTER, plan).values() if owner is not None]
    assert len(begun) == let_begin


def test_t46c_masters_that_time_out_at_once_make_one_alert_of_each(
    here: Engine, there: Engine
) -> None:
    owned = a_run(here)
    slow = TaskTimeout(after=timedelta(minutes=1), strategy=TimeoutStrategy.WARN)
    save(here, owned, *(a_submit(f"t{n}", timeout=slow) for n in range(10)))
    with here.begin() as db:
        ids = db.scalars(
            select(t.task_instance.c.id).where(
                t.task_instance.c.process_instance_id == owned.process_instance_id
            )
        ).all()
        db.execute(
            update(t.process_instance)
            .where(t.process_instance.c.id == owned.process_instance_id)
            .values(timeout=1, timeout_strategy=2)
        )
        before = db.scalar(select(func.count()).select_from(t.alert))
    claim(here, WORKER, list(ids))
    later = NOON + timedelta(minutes=2)
    with ThreadPoolExecutor(2) as pool:
        both = [
            pool.submit(PostgresTimeoutStore(made).time_out, now=later)
            for made in (here, there)
            for _ in range(3)
        ]
        done = sum(one.result() for one in both)
    with here.connect() as db:
        after = db.scalar(select(func.count()).select_from(t.alert))
    assert before is not None
    assert after == before + 11
    assert done == 11
    assert PostgresRunStore(here).wanted(MASTER)[owned].state is ProcessState.FAILURE
