"""Complements when masters and people act at the same moment, or die in the midst of it."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import Engine, delete, event, func, select, text, update
from sqlalchemy.exc import DBAPIError

from common.model.cluster import Node
from common.model.commands import Command
from common.model.complement_states import ComplementState, OnFailure, Reprocess, RunOrder
from common.model.complements import ComplementSnapshot, ComplementStep, NewComplement, RunSettings
from common.model.plans import Begin, Drop, Handled, Plan, Snapshot
from common.model.states import ExecutionType, ProcessState
from common.store import tables as t
from common.store.complements import create_complements
from common.store.connect import engine
from common.store.master.commands import PostgresCommandStore
from common.store.master.complement_progress import PostgresComplementStore
from common.store.master.ports import Progressed
from master.logic.complement import step
from tests.bounds import step_until
from tests.builders import NOON
from tests.integration.failing_statements import failing

DAY = timedelta(days=1)
MASTER = Node(address="10.0.0.1:5678", incarnation=1)
OTHER_MASTER = Node(address="10.0.0.2:5678", incarnation=2)


@pytest.fixture
def here(url: str) -> Iterator[Engine]:
    made = engine(url, application_name="here")
    with made.begin() as db:
        for table in (t.command, t.error_command, t.complement, t.process_instance):
            db.execute(delete(table))
    yield made
    made.dispose()


@pytest.fixture
def there(url: str) -> Iterator[Engine]:
    made = engine(url, application_name="there")
    yield made
    made.dispose()


def a_complement(made: Engine, days: int, **changes: Any) -> int:
    new = NewComplement(
        process_definition_id=1,
        dates=tuple(NOON + day * DAY for day in range(days)),
        timezone_id="UTC",
        parallelism=1,
        order=RunOrder.ASCENDING,
        on_failure=OnFailure.STOP,
        reprocess=Reprocess.ALL,
        settings=RunSettings(),
    )
    with made.begin() as db:
        (made_id,) = create_complements(db, [replace(new, **changes)], command_id=0, now=NOON)
    return made_id


def advance(
    made: Engine,
    decide: Callable[[ComplementSnapshot], ComplementStep] = step,
    *,
    thorough: bool = False,
) -> Progressed:
    return PostgresComplementStore(made).advance(decide=decide, now=NOON, thorough=thorough)


def a_begin(command: Command, _snapshot: Snapshot) -> Begin:
    return Begin(
        name=f"run-{command.id}",
        process_definition_id=command.process_definition_id,
        command_type=command.command_type,
        command_param="{}",
        process_instance_json="{}",
        global_params="[]",
        task_depend_type=command.task_depend_type,
        failure_strategy=command.failure_strategy,
        warning_type=command.warning_type,
        warning_group_id=0,
        schedule_time=command.schedule_time,
        command_start_time=NOON,
        executor_id=1,
        priority=command.priority,
        worker_group_id=-1,
        timeout_minutes=0,
        tenant_id=-1,
        complement_date_id=command.complement_date_id,
    )


def take(
    made: Engine,
    planner: Callable[[Command, Snapshot], Plan] = a_begin,
    *,
    node: Node = MASTER,
    limit: int = 100,
) -> tuple[Handled, ...]:
    taken = PostgresCommandStore(made).take(
        node=node,
        limit=limit,
        room=100,
        spare=100,
        live_masters=frozenset,
        planner=planner,
        now=NOON,
    )
    return taken.handled


def request(made: Engine, state: ComplementState) -> None:
    with made.begin() as db:
        db.execute(update(t.complement).values(state=int(state)))


def end_runs(made: Engine, state: ProcessState = ProcessState.SUCCESS, limit: int = 1000) -> int:
    live = (
        select(t.process_instance.c.id)
        .where(t.process_instance.c.state == ProcessState.RUNNING)
        .order_by(t.process_instance.c.id)
        .limit(limit)
        .with_for_update(skip_locked=True)
        .scalar_subquery()
    )
    with made.begin() as db:
        statement = update(t.process_instance).where(t.process_instance.c.id.in_(live))
        return db.execute(statement.values(state=int(state), end_time=NOON)).rowcount


def rows(made: Engine, table: Any) -> list[Any]:
    with made.connect() as db:
        return list(db.execute(select(table).order_by(table.c.id)))


def date_states(made: Engine) -> list[str]:
    return [row.state for row in rows(made, t.complement_date)]


def state_of(made: Engine, complement_id: int) -> ComplementState:
    with made.connect() as db:
        question = select(t.complement.c.state).where(t.complement.c.id == complement_id)
        return ComplementState(db.scalars(question).one())


def test_masters_that_move_a_complement_on_at_once_run_each_date_once_and_never_too_many(
    here: Engine, there: Engine
) -> None:
    complement_id = a_complement(here, 120, parallelism=8)
    live = (
        select(func.count())
        .select_from(t.process_instance)
        .where(t.process_instance.c.state == ProcessState.RUNNING)
    )

    def drive(made: Engine, node: Node, seed: int) -> int:
        chance = random.Random(seed)
        most = 0
        while not state_of(made, complement_id).is_ended:
            advance(made)
            take(made, node=node, limit=chance.randint(1, 5))
            with made.connect() as db:
                most = max(most, db.scalar(live) or 0)
            end_runs(made, limit=chance.randint(1, 3))
        return most

    with ThreadPoolExecutor(3) as pool:
        drivers = [
            pool.submit(drive, made, node, seed)
            for seed, (made, node) in enumerate(
                [(here, MASTER), (there, OTHER_MASTER), (there, MASTER)]
            )
        ]
        most = max(each.result() for each in drivers)
    assert state_of(here, complement_id) is ComplementState.SUCCESS
    assert most <= 8
    dates = Counter(row.schedule_time for row in rows(here, t.process_instance))
    assert dates == Counter(NOON + day * DAY for day in range(120))
    assert set(date_states(here)) == {"success"}


def test_people_and_masters_at_once_bring_about_neither_a_deadlock_nor_a_second_run(
    here: Engine, there: Engine
) -> None:
    complement_id = a_complement(here, 40, parallelism=4)

    def interfere(made: Engine) -> None:
        for turn in range(30):
            with made.begin() as db:
                wanted = (
                    update(t.complement)
                    .where(t.complement.c.id == complement_id)
                    .where(
                        t.complement.c.state.in_(
                            (
                                ComplementState.RUNNING,
                                ComplementState.READY_PAUSE,
                                ComplementState.PAUSE,
                            )
                        )
                    )
                )
                paused = ComplementState.READY_PAUSE if turn % 2 == 0 else ComplementState.RUNNING
                db.execute(wanted.values(state=int(paused)))
            advance(made)

    def drive(made: Engine, node: Node) -> None:
        for _ in range(60):
            advance(made)
            take(made, node=node, limit=3)
            end_runs(made, limit=2)

    with ThreadPoolExecutor(3) as pool:
        for each in (
            pool.submit(interfere, there),
            pool.submit(drive, here, MASTER),
            pool.submit(drive, there, OTHER_MASTER),
        ):
            each.result()
    request(here, ComplementState.RUNNING)

    def proceed() -> None:
        advance(here)
        take(here)
        end_runs(here)

    step_until(lambda: state_of(here, complement_id).is_ended, proceed, awaited="its end")
    assert state_of(here, complement_id) is ComplementState.SUCCESS
    dates = Counter(row.schedule_time for row in rows(here, t.process_instance))
    assert dates == Counter(NOON + day * DAY for day in range(40))


def test_a_date_whose_complement_is_cancelled_while_its_command_is_planned_does_not_begin(
    here: Engine, there: Engine
) -> None:
    complement_id = a_complement(here, 2)
    advance(here)

    def planner(command: Command, snapshot: Snapshot) -> Plan:
        request(there, ComplementState.READY_STOP)
        # The command is locked: it can't be withdrawn, and its date still counts as live.
        advance(there)
        assert date_states(there) == ["submitted", "pending"]
        assert state_of(there, complement_id) is ComplementState.READY_STOP
        return a_begin(command, snapshot)

    (handled,) = take(here, planner)
    assert isinstance(handled.plan, Drop)
    assert rows(here, t.process_instance) == []
    advance(here)
    assert state_of(here, complement_id) is ComplementState.STOP
    assert date_states(here) == ["cancelled", "cancelled"]


def test_a_date_that_begins_while_its_complement_is_cancelled_is_stopped(
    here: Engine, there: Engine
) -> None:
    complement_id = a_complement(here, 2)
    advance(here)

    cancelled: list[str] = []

    @event.listens_for(here, "before_cursor_execute")
    def _cancel(_connection: Any, _cursor: Any, statement: str, *_others: Any) -> None:
        if "DELETE FROM t_ds_command" in statement and not cancelled:
            cancelled.append(statement)
            request(there, ComplementState.READY_STOP)
            advance(there)

    (handled,) = take(here)
    assert handled.ownership is not None
    assert date_states(here) == ["running", "pending"]
    advance(there)
    (run,) = rows(here, t.process_instance)
    assert (run.state, run.wanted_state) == (ProcessState.RUNNING, ProcessState.STOP)
    assert state_of(here, complement_id) is ComplementState.READY_STOP
    end_runs(here, ProcessState.STOP)
    advance(here)
    assert state_of(here, complement_id) is ComplementState.STOP
    assert date_states(here) == ["cancelled", "cancelled"]


def test_commands_that_nobody_holds_are_withdrawn_and_those_held_are_not(
    here: Engine, there: Engine
) -> None:
    a_complement(here, 3, parallelism=3)
    advance(here)
    held, *_ = rows(here, t.command)
    with there.begin() as db:
        db.execute(select(t.command.c.id).where(t.command.c.id == held.id).with_for_update())
        request(here, ComplementState.READY_PAUSE)
        advance(here)
        assert [row.id for row in rows(here, t.command)] == [held.id]
    assert Counter(date_states(here)) == {"submitted": 1, "pending": 2}


def test_a_complement_that_another_master_moves_on_is_passed_over(
    here: Engine, there: Engine
) -> None:
    held, free = a_complement(here, 1), a_complement(here, 1)
    with there.begin() as db:
        db.execute(select(t.complement.c.id).where(t.complement.c.id == held).with_for_update())
        assert advance(here) == Progressed(begun=1, moving=True)
    begun = {row.complement_id for row in rows(here, t.complement_date) if row.command_id}
    assert begun == {free}


@pytest.mark.parametrize(
    ("operation", "table"),
    [
        ("INSERT", "t_ds_command"),
        ("UPDATE", "t_ds_complement_date"),
        ("UPDATE", "t_ds_complement"),
    ],
)
def test_a_master_that_dies_while_a_date_begins_leaves_it_to_the_next(
    here: Engine, there: Engine, operation: str, table: str
) -> None:
    complement_id = a_complement(here, 2)
    request(here, ComplementState.SUBMITTED)
    with failing(here, operation, table):
        assert advance(here) == Progressed(begun=0, moving=True)
    assert rows(here, t.command) == []
    assert date_states(here) == ["pending", "pending"]
    assert state_of(here, complement_id) is ComplementState.SUBMITTED
    assert advance(there).begun == 1


@pytest.mark.parametrize(
    ("operation", "table"),
    [("INSERT", "t_ds_process_instance"), ("DELETE", "t_ds_command")],
)
def test_a_master_that_dies_while_it_takes_a_date_leaves_it_to_the_next(
    here: Engine, there: Engine, operation: str, table: str
) -> None:
    a_complement(here, 1)
    advance(here)

    def lost(handled: tuple[Handled, ...]) -> None:
        assert all(one.ownership is None for one in handled)

    with failing(here, operation, table):
        if table == "t_ds_command":
            with pytest.raises(DBAPIError):
                take(here)
            assert date_states(here) == ["submitted"]
        else:
            # PostgreSQL refuses the instance: an error row has the reason, and the date has failed.
            lost(take(here))
            advance(here)
            assert date_states(here) == ["failure"]
            return
    (handled,) = take(there)
    assert handled.ownership is not None
    (date,) = rows(here, t.complement_date)
    assert date.process_instance_id == handled.ownership.process_instance_id


def test_a_date_of_a_serial_definition_begins_though_its_run_waits_for_its_turn(
    here: Engine,
) -> None:
    a_complement(here, 2, parallelism=2)
    advance(here)
    taken = take(
        here,
        lambda command, snapshot: replace(
            a_begin(command, snapshot), execution_type=ExecutionType.SERIAL_WAIT
        ),
    )
    assert [one.ownership is not None for one in taken] == [True, False]
    runs = rows(here, t.process_instance)
    assert [row.state for row in runs] == [ProcessState.RUNNING, ProcessState.SERIAL_WAIT]
    dates = rows(here, t.complement_date)
    assert [(row.state, row.process_instance_id) for row in dates] == [
        ("running", run.id) for run in runs
    ]


def test_a_spoilt_date_fails_alone(here: Engine) -> None:
    a_complement(here, 2, parallelism=2, on_failure=OnFailure.CONTINUE)
    with here.begin() as db:
        db.execute(
            update(t.complement_date)
            .where(t.complement_date.c.position == 1)
            .values(schedule_time=text("'infinity'"))
        )
    advance(here)
    take(here)
    end_runs(here)
    advance(here)
    bad, good = rows(here, t.complement_date)
    assert good.state == "success"
    assert bad.state == "failure"
    assert "schedule_time is infinity" in bad.reason


def test_a_look_costs_the_same_however_many_dates_there_are(here: Engine) -> None:
    a_complement(here, 20_000, parallelism=2)
    with here.begin() as db:
        db.execute(text("ANALYZE t_ds_complement_date"))
    assert advance(here).begun == 2
    counts: list[ComplementSnapshot] = []

    def decide(found: ComplementSnapshot) -> ComplementStep:
        counts.append(found)
        return step(found)

    advance(here, decide)
    assert counts[0].pending < 20_000
    assert counts[0].live == 2


def test_a_date_that_stays_locked_elsewhere_keeps_no_other_command_waiting(
    here: Engine, there: Engine
) -> None:
    a_complement(here, 2, parallelism=2)
    advance(here)
    locked, _free = rows(here, t.complement_date)
    with there.begin() as db:
        db.execute(
            select(t.complement_date.c.id)
            .where(t.complement_date.c.id == locked.id)
            .with_for_update()
        )
        plans = [type(one.plan) for one in take(here)]
    assert plans == [Drop, Begin]
    # It has lost its command, which the next pass finds out.
    assert advance(here).begun == 1
    take(here)
    assert date_states(here) == ["running", "running"]


def test_a_complement_whose_dates_stay_locked_elsewhere_holds_up_no_other(
    here: Engine, there: Engine, url: str
) -> None:
    held, free = a_complement(here, 1), a_complement(here, 1)
    impatient = engine(url, lock_timeout=timedelta(milliseconds=50))
    with there.begin() as db:
        db.execute(
            select(t.complement_date.c.id)
            .where(t.complement_date.c.complement_id == held)
            .with_for_update()
        )
        assert advance(impatient) == Progressed(begun=1, moving=True)
    impatient.dispose()
    begun = {row.complement_id for row in rows(here, t.complement_date) if row.command_id}
    assert begun == {free}
