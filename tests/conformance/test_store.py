"""What `common.store.protocol` promises, asked of PostgreSQL and of the simulator's store in memory."""

from __future__ import annotations

import json
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial
from random import Random
from typing import Any, Literal, Protocol

import pytest
from sqlalchemy import Engine, Table, create_engine, delete, insert, select, text, update

from common.embedded.addresses import PostgresAddress
from common.model.cluster import KillEntry, Node, QueueEntry, ip_number
from common.model.commands import BadCommandError, Command, CommandType
from common.model.decisions import (
    Decision,
    FinishProcess,
    FinishTask,
    GiveUpRetry,
    KillTask,
    PassForbidden,
    RetryTask,
    StopProcess,
    SubmitTask,
)
from common.model.instances import Ownership
from common.model.plans import Begin, Drop, Handled, Plan, Reject, Resume, Signal, Snapshot
from common.model.states import (
    FailureStrategy,
    Priority,
    ProcessState,
    ReleaseState,
    TaskDependType,
    TaskState,
    WarningType,
)
from common.store import schema
from common.store import tables as t
from common.store.commands import PostgresCommandStore
from common.store.connect import connect, engine
from common.store.failover import PostgresFailoverStore
from common.store.listen import Channel, read_task_report
from common.store.protocol import (
    AttemptEnd,
    AttemptFolders,
    CommandStore,
    FailoverStore,
    LoadedRun,
    Planner,
    RunStore,
    Saved,
    Step,
    TaskStore,
)
from common.store.runs import PostgresRunStore
from common.store.tasks import PostgresTaskStore
from common.store.transaction import StoreConflictError
from tests.builders import NOON
from tests.memory.store import (
    MemoryCommandStore,
    MemoryDatabase,
    MemoryFailoverStore,
    MemoryRunStore,
    MemoryTaskStore,
    Rows,
)

LATER = NOON + timedelta(minutes=1)
MASTER = Node(address="10.0.0.1:5678", incarnation=2**40)
REBORN = Node(address=MASTER.address, incarnation=MASTER.incarnation + 7)
OTHER_MASTER = Node(address="10.0.0.2:5678", incarnation=2**40 + 1)
WORKER = Node(address="10.0.0.3:1234", incarnation=2**41)
RESTARTED = Node(address=WORKER.address, incarnation=WORKER.incarnation + 7)
OTHER_WORKER = Node(address="10.0.0.4:1234", incarnation=2**41 + 1)
PARAM_LIMIT = 6000

TABLES = (
    t.command,
    t.error_command,
    t.process_definition,
    t.process_instance,
    t.task_instance,
    t.worker_group,
    t.tenant,
    t.queue,
    t.user,
)


SEEDED = (t.tenant, t.queue, t.user)


class Tables(Protocol):
    """Direct sight of the tables, as a person with a client has it."""

    @property
    def commands(self) -> CommandStore: ...

    @property
    def runs(self) -> RunStore: ...

    @property
    def tasks(self) -> TaskStore: ...

    @property
    def failover(self) -> FailoverStore: ...

    def insert(self, table: Table, **columns: Any) -> int: ...

    def update(self, table: Table, row_id: int, **columns: Any) -> None: ...

    def rows(self, table: Table) -> list[dict[str, Any]]: ...

    def heard(self) -> list[tuple[str, str]]: ...


class MemoryTables:
    def __init__(self) -> None:
        self.database = MemoryDatabase(os_user="tester")
        self.commands = MemoryCommandStore(self.database, param_limit_bytes=PARAM_LIMIT)
        self.runs = MemoryRunStore(self.database)
        self.tasks = MemoryTaskStore(self.database)
        self.failover = MemoryFailoverStore(self.database)

    def insert(self, table: Table, **columns: Any) -> int:
        return self.database.insert(self._rows(table), **columns)

    def update(self, table: Table, row_id: int, **columns: Any) -> None:
        self.database.update(self._rows(table), row_id, **columns)

    def rows(self, table: Table) -> list[dict[str, Any]]:
        rows = self._rows(table)
        names = rows.record_type.__dataclass_fields__
        return [{name: getattr(row, name) for name in names} for row in rows]

    def heard(self) -> list[tuple[str, str]]:
        return self.database.drain_notifications()

    def _rows(self, table: Table) -> Rows[Any]:
        every: tuple[Rows[Any], ...] = (
            self.database.commands,
            self.database.error_commands,
            self.database.definitions,
            self.database.processes,
            self.database.tasks,
            self.database.worker_groups,
            self.database.tenants,
            self.database.queues,
            self.database.users,
        )
        return next(rows for rows in every if rows.name == table.name)


class PostgresTables:
    def __init__(self, made: Engine, listener: Any) -> None:
        self.engine = made
        self.commands = PostgresCommandStore(made, param_limit_bytes=PARAM_LIMIT)
        self.runs = PostgresRunStore(made)
        self.tasks = PostgresTaskStore(made)
        self.failover = PostgresFailoverStore(made)
        self._listener = listener

    def insert(self, table: Table, **columns: Any) -> int:
        with self.engine.begin() as db:
            row_id: int = db.scalars(insert(table).values(**columns).returning(table.c.id)).one()
            return row_id

    def update(self, table: Table, row_id: int, **columns: Any) -> None:
        with self.engine.begin() as db:
            db.execute(update(table).where(table.c.id == row_id).values(**columns))

    def rows(self, table: Table) -> list[dict[str, Any]]:
        with self.engine.connect() as db:
            return [dict(row) for row in db.execute(select(table).order_by(table.c.id)).mappings()]

    def heard(self) -> list[tuple[str, str]]:
        # The answer to any statement comes after the notifications of what was committed before it.
        with self._listener.cursor() as cursor:
            cursor.execute("SELECT 1")
        heard = [(notify.channel, notify.payload) for notify in self._listener.notifies]
        self._listener.notifies.clear()
        return heard

    def draw_ids_afresh(self) -> None:
        names = ", ".join(table.name for table in TABLES if table not in SEEDED)
        with self.engine.begin() as db:
            db.execute(text(f"TRUNCATE {names} RESTART IDENTITY CASCADE"))

    def draw_ids_from_the_highest(self, table: Table) -> None:
        highest = text(
            f"SELECT setval(pg_get_serial_sequence('{table.name}', 'id'), max(id)) FROM {table.name}"
        )
        with self.engine.begin() as db:
            db.execute(highest)

    def empty(self) -> None:
        with self.engine.begin() as db:
            for table in reversed(TABLES):
                db.execute(
                    delete(table).where(table.c.id > 1) if table in SEEDED else delete(table)
                )
            db.execute(update(t.user).values(tenant_id=1, queue=None))
        self.heard()


@pytest.fixture(scope="module")
def postgres_tables(postgres: PostgresAddress) -> Iterator[PostgresTables]:
    """One database for the module, emptied for each test: that costs a tenth of a new one."""
    name = f"test_store_{uuid.uuid4().hex[:12]}"
    server = create_engine(
        postgres.url.replace("postgresql://", "postgresql+psycopg2://"),
        isolation_level="AUTOCOMMIT",
    )
    with server.connect() as db:
        db.execute(text(f"CREATE DATABASE {name}"))
    url = replace(postgres, dbname=name).url
    made = engine(url)
    schema.upgrade(made, os_user="tester")
    listener = connect(url)
    with listener.cursor() as cursor:
        for channel in Channel:
            cursor.execute(f"LISTEN {channel}")
    yield PostgresTables(made, listener)
    listener.close()
    made.dispose()
    with server.connect() as db:
        db.execute(text(f"DROP DATABASE {name} WITH (FORCE)"))
    server.dispose()


@pytest.fixture(params=["memory", "postgresql"])
def db(request: pytest.FixtureRequest) -> Tables:
    if request.param == "memory":
        return MemoryTables()
    tables: PostgresTables = request.getfixturevalue("postgres_tables")
    tables.empty()
    return tables


# Builders


def a_definition(db: Tables, **columns: Any) -> int:
    return db.insert(
        t.process_definition,
        **{
            "name": f"flights-{uuid.uuid4().hex[:8]}",
            "release_state": 1,
            "process_definition_json": "{}",
            **columns,
        },
    )


def a_command(db: Tables, **columns: Any) -> int:
    return db.insert(t.command, **{"command_type": 0, "process_definition_id": 1, **columns})


def a_begin(**changes: Any) -> Begin:
    begin = Begin(
        name="flights-1-1767355200000",
        process_definition_id=1,
        command_type=CommandType.START_PROCESS,
        command_param="{}",
        process_instance_json='{"tasks":[]}',
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
    return replace(begin, **changes)


def always(plan: Plan) -> Planner:
    return lambda _command, _snapshot: plan


def by_id(plans: dict[int, Plan]) -> Planner:
    return lambda command, _snapshot: plans[command.id]


def take(
    db: Tables, planner: Planner, *, node: Node = MASTER, limit: int = 100
) -> tuple[Handled, ...]:
    return db.commands.take(
        node=node, limit=limit, live_masters=frozenset([node]), planner=planner, now=NOON
    )


def a_run(db: Tables, *, node: Node = MASTER, **changes: Any) -> Ownership:
    """A new run of `node`, by the way that every run begins."""
    a_command(db)
    (handled,) = take(db, always(a_begin(**changes)), node=node)
    assert handled.ownership is not None
    return handled.ownership


def a_submit(name: str, attempt: int = 1, **changes: Any) -> SubmitTask:
    submit = SubmitTask(
        name=name,
        attempt=attempt,
        retry_times=attempt - 1,
        task_type="SHELL",
        task_json='{"type":"SHELL"}',
        priority=Priority.MEDIUM,
        worker_group_id=-1,
        max_retry_times=3,
        retry_interval=timedelta(minutes=2),
    )
    return replace(submit, **changes)


def save(db: Tables, owned: Ownership, *decisions: Decision) -> Saved:
    return db.runs.save([Step(ownership=owned, decisions=decisions, at=NOON)])


def load(db: Tables, owned: Ownership) -> LoadedRun:
    (run,) = db.runs.load([owned])
    return run


def submit(db: Tables, owned: Ownership, *names: str) -> list[int]:
    saved = save(db, owned, *(a_submit(name) for name in names))
    return [offer.task_instance_id for offer in saved.offers]


def claim(db: Tables, ids: Sequence[int], *, node: Node = WORKER) -> list[int]:
    claimed = db.tasks.claim(node, ids, folders=FOLDERS, now=NOON)
    return [task.id for task in claimed]


FOLDERS = AttemptFolders(work="/attempts", logs="/logs")


def an_end(task_id: int, state: TaskState = TaskState.SUCCESS, **changes: Any) -> AttemptEnd:
    return AttemptEnd(task_instance_id=task_id, state=state, end_time=LATER, **changes)


def end(db: Tables, *ends: AttemptEnd, node: Node = WORKER) -> frozenset[int]:
    return db.tasks.report(node, ends)


def finish(name: str, state: TaskState = TaskState.SUCCESS, attempt: int = 1) -> FinishTask:
    return FinishTask(name=name, attempt=attempt, state=state)


def kill(name: str, attempt: int = 1) -> KillTask:
    return KillTask(name=name, attempt=attempt)


def the_process(db: Tables, owned: Ownership) -> dict[str, Any]:
    return next(r for r in db.rows(t.process_instance) if r["id"] == owned.process_instance_id)


def the_task(db: Tables, task_id: int) -> dict[str, Any]:
    return next(row for row in db.rows(t.task_instance) if row["id"] == task_id)


def take_over(db: Tables, owned: Ownership, *, node: Node = OTHER_MASTER) -> Ownership:
    a_command(db, command_type=2)
    plan = Resume(process_instance_id=owned.process_instance_id, epoch=owned.epoch)
    (handled,) = take(db, always(plan), node=node)
    assert handled.ownership is not None
    return handled.ownership


def a_stop(owned: Ownership) -> Signal:
    return Signal(
        process_instance_id=owned.process_instance_id,
        command_type=CommandType.STOP,
        wanted_state=ProcessState.STOP,
    )


# Commands


def test_a_start_becomes_a_process_instance_that_belongs_to_its_taker(db: Tables) -> None:
    command_id = a_command(db)
    begin = a_begin(schedule_time=LATER, worker_group_id=3, locations="{}", timeout_minutes=5)
    (handled,) = take(db, always(begin))
    (row,) = db.rows(t.process_instance)
    owned = Ownership(process_instance_id=row["id"], host=MASTER.address, epoch=1)
    assert handled == Handled(command_id=command_id, plan=begin, ownership=owned)
    assert db.rows(t.command) == []
    expected = {
        "name": begin.name,
        "process_definition_id": 1,
        "state": 1,
        "recovery": 0,
        "start_time": NOON,
        "end_time": None,
        "run_times": 1,
        "host": MASTER.address,
        "owner_incarnation": MASTER.incarnation,
        "owner_epoch": 1,
        "command_type": 0,
        "command_param": "{}",
        "task_depend_type": 2,
        "max_try_times": 0,
        "failure_strategy": 1,
        "warning_type": 0,
        "warning_group_id": 0,
        "schedule_time": LATER,
        "command_start_time": NOON,
        "global_params": "[]",
        "process_instance_json": begin.process_instance_json,
        "flag": 1,
        "is_sub_process": 0,
        "executor_id": 1,
        "locations": "{}",
        "connects": None,
        "history_cmd": "START_PROCESS",
        "process_instance_priority": 2,
        "worker_group_id": 3,
        "timeout": 5,
        "tenant_id": -1,
        "wanted_state": None,
        "state_reason": None,
    }
    assert {name: row[name] for name in expected} == expected


def test_commands_are_taken_by_priority_then_age_then_id(db: Tables) -> None:
    late = a_command(db, update_time=LATER)
    low = a_command(db, update_time=NOON, process_instance_priority=4)
    early = a_command(db, update_time=NOON)
    twin = a_command(db, update_time=NOON)
    urgent = a_command(db, update_time=LATER, process_instance_priority=0)
    drop = always(Drop(reason="only the order matters"))
    assert [one.command_id for one in take(db, drop, limit=2)] == [urgent, early]
    assert [one.command_id for one in take(db, drop)] == [twin, late, low]


def test_nothing_is_taken_without_capacity_or_without_commands(db: Tables) -> None:
    assert not db.commands.waiting()
    assert take(db, always(a_begin())) == ()
    a_command(db)
    assert db.commands.waiting()
    assert take(db, always(a_begin()), limit=0) == ()
    assert len(db.rows(t.command)) == 1


def test_a_planner_sees_the_command_its_definition_its_instance_and_who_is_alive(
    db: Tables,
) -> None:
    owned = a_run(db)
    definition_id = a_definition(db, name="flights", version=3, timeout=9, global_params="[]")
    a_command(
        db,
        command_type=9,
        process_definition_id=definition_id,
        command_param=json.dumps({"ProcessInstanceId": owned.process_instance_id}),
        schedule_time=LATER,
        worker_group_id=0,
    )
    seen: list[tuple[Command, Snapshot]] = []

    def planner(command: Command, snapshot: Snapshot) -> Plan:
        seen.append((command, snapshot))
        return Drop(reason="seen")

    take(db, planner)
    ((command, snapshot),) = seen
    assert command.command_type is CommandType.STOP
    assert (command.schedule_time, command.worker_group_id) == (LATER, -1)
    assert command.process_instance_id == owned.process_instance_id
    assert snapshot.definition is not None
    assert (snapshot.definition.name, snapshot.definition.version) == ("flights", 3)
    assert snapshot.definition.release_state is ReleaseState.ONLINE
    assert snapshot.definition.usable
    assert snapshot.definition.timeout_minutes == 9
    assert snapshot.instance is not None
    assert (snapshot.instance.state, snapshot.instance.owner) == (ProcessState.RUNNING, MASTER)
    assert snapshot.instance.owner_epoch == 1
    assert snapshot.live_masters == {MASTER}


def test_what_a_command_names_and_is_not_there_is_absent_from_the_snapshot(db: Tables) -> None:
    a_command(db, process_definition_id=None, command_param='{"ProcessInstanceId":"4711"}')
    seen: list[Snapshot] = []

    def planner(_command: Command, snapshot: Snapshot) -> Plan:
        seen.append(snapshot)
        return Drop(reason="seen")

    take(db, planner)
    assert [(one.definition, one.instance) for one in seen] == [(None, None)]


def test_a_command_is_taken_once(db: Tables) -> None:
    a_command(db)
    assert len(take(db, always(a_begin()), node=MASTER)) == 1
    assert take(db, always(a_begin()), node=OTHER_MASTER) == ()
    assert len(db.rows(t.process_instance)) == 1


def test_a_rejected_command_is_kept_with_the_reason_and_its_columns_as_they_were(
    db: Tables,
) -> None:
    columns = {
        "command_type": 6,
        "process_definition_id": 99,
        "command_param": ' {"a" : 1}',
        "task_depend_type": 1,
        "failure_strategy": 0,
        "warning_type": 3,
        "warning_group_id": 7,
        "schedule_time": LATER,
        "start_time": NOON,
        "executor_id": 5,
        "update_time": NOON,
        "process_instance_priority": 1,
        "worker_group_id": 8,
    }
    command_id = a_command(db, **columns)
    (handled,) = take(db, always(Reject(reason="no\0such definition")))
    (row,) = db.rows(t.error_command)
    assert {name: row[name] for name in columns} == columns
    assert row["command_id"] == command_id
    assert row["message"] == "no\N{REPLACEMENT CHARACTER}such definition"
    assert isinstance(handled.plan, Reject)
    assert db.rows(t.command) == []


def test_the_same_command_id_can_be_rejected_twice(db: Tables) -> None:
    a_command(db, id=2_000_000_001)
    take(db, always(Reject(reason="first")))
    a_command(db, id=2_000_000_001)
    take(db, always(Reject(reason="second")))
    assert [row["message"] for row in db.rows(t.error_command)] == ["first", "second"]


def _raising(error: Exception) -> Callable[[Command, Snapshot], Plan]:
    def planner(_command: Command, _snapshot: Snapshot) -> Plan:
        raise error

    return planner


@pytest.mark.parametrize(
    ("columns", "planner", "message"),
    [
        ({"command_param": "{not JSON"}, None, "command_param is not JSON"),
        ({"command_param": "[1]"}, None, "command_param must be a JSON object"),
        ({"command_param": "[" * 5900}, None, "command_param"),
        ({"command_param": '{"ProcessInstanceId":"x"}'}, None, "ProcessInstanceId"),
        ({"command_param": '{"ProcessInstanceId":"' + "9" * 30 + '"}'}, None, "ProcessInstanceId"),
        (
            {"command_param": '{"ProcessInstanceId":"' + "9" * 5000 + '"}'},
            None,
            "ProcessInstanceId",
        ),
        ({"command_param": "é" * PARAM_LIMIT}, None, f"has {2 * PARAM_LIMIT} bytes"),
        ({"command_param": '{"n":' + "9" * 5000 + "}"}, None, "command_param can't be read"),
        ({"command_type": 13}, None, "command_type is 13; it must be one of 0 START_PROCESS, "),
        ({"command_type": None}, None, "command_type is NULL"),
        ({"command_type": -(2**31)}, None, "command_type is -2147483648"),
        ({"task_depend_type": 3}, None, "task_depend_type is 3"),
        ({"failure_strategy": 2}, None, "failure_strategy is 2; it must be one of 0 END, 1 CON"),
        ({"warning_type": 70000}, None, "warning_type is 70000"),
        ({"process_instance_priority": -1}, None, "process_instance_priority is -1"),
        ({}, _raising(BadCommandError("there is no definition 1")), "there is no definition 1"),
        ({}, _raising(ZeroDivisionError("a mistake")), "ZeroDivisionError: a mistake"),
        ({}, always(a_begin(name="a\0b")), "name holds a NUL character"),
        ({}, always(a_begin(global_params="\ud800")), "global_params holds half of a surrogate"),
        ({}, always(a_begin(name="x" * 321)), "too long"),
        ({}, always(a_begin(tenant_id=2**40)), "out of range"),
    ],
)
def test_a_poisoned_command_is_rejected_alone(
    db: Tables, columns: dict[str, Any], planner: Planner | None, message: str
) -> None:
    before = a_command(db)
    poisoned = a_command(db, **columns)
    behind = a_command(db)
    good = always(a_begin())

    def mixed(command: Command, snapshot: Snapshot) -> Plan:
        of = planner if planner is not None and command.id == poisoned else good
        return of(command, snapshot)

    handled = {one.command_id: one for one in take(db, mixed)}
    assert set(handled) == {before, poisoned, behind}
    assert handled[before].ownership is not None
    assert handled[behind].ownership is not None
    assert isinstance(handled[poisoned].plan, Reject)
    assert handled[poisoned].ownership is None
    (row,) = db.rows(t.error_command)
    assert row["command_id"] == poisoned
    assert message in row["message"]
    assert "INSERT" not in row["message"]
    assert row["command_param"] == columns.get("command_param")
    assert len(db.rows(t.process_instance)) == 2
    assert db.rows(t.command) == []


def test_a_command_about_an_instance_in_an_unknown_state_is_rejected(db: Tables) -> None:
    owned = a_run(db)
    db.update(t.process_instance, owned.process_instance_id, state=11)
    param = json.dumps({"ProcessInstanceId": owned.process_instance_id})
    a_command(db, command_type=9, command_param=param)
    (handled,) = take(db, always(a_stop(owned)))
    assert isinstance(handled.plan, Reject)
    assert "state 11" in handled.plan.reason


def test_a_batch_begins_many_runs_each_under_its_own_command(db: Tables) -> None:
    plans: dict[int, Plan] = {a_command(db): a_begin(name=f"run-{n}") for n in range(30)}
    handled = take(db, by_id(plans))
    names = {row["id"]: row["name"] for row in db.rows(t.process_instance)}
    for one in handled:
        assert isinstance(one.plan, Begin)
        assert one.ownership is not None
        assert names[one.ownership.process_instance_id] == one.plan.name
    assert len(handled) == len(names) == 30


def test_a_resume_makes_the_run_its_takers_and_raises_the_epoch(db: Tables) -> None:
    owned = a_run(db)
    now_owned = take_over(db, owned)
    assert now_owned == replace(owned, host=OTHER_MASTER.address, epoch=2)
    row = the_process(db, owned)
    assert (row["host"], row["owner_incarnation"]) == OTHER_MASTER_COLUMNS
    assert (row["owner_epoch"], row["recovery"], row["command_type"]) == (2, 1, 2)
    assert row["history_cmd"] == "START_PROCESS,RECOVER_TOLERANCE_FAULT_PROCESS"
    assert row["state"] == ProcessState.RUNNING
    assert load(db, now_owned).ownership == now_owned


OTHER_MASTER_COLUMNS = (OTHER_MASTER.address, OTHER_MASTER.incarnation)


def test_a_resume_that_somebody_else_has_done_since_is_dropped(db: Tables) -> None:
    owned = a_run(db)
    take_over(db, owned)
    a_command(db, command_type=2)
    stale = Resume(process_instance_id=owned.process_instance_id, epoch=owned.epoch)
    (handled,) = take(db, always(stale), node=REBORN)
    assert isinstance(handled.plan, Drop)
    assert handled.ownership is None
    assert the_process(db, owned)["owner_epoch"] == 2
    assert db.rows(t.command) == []


def test_a_run_that_has_ended_is_not_resumed(db: Tables) -> None:
    owned = a_run(db)
    save(db, owned, FinishProcess(state=ProcessState.SUCCESS))
    a_command(db, command_type=2)
    plan = Resume(process_instance_id=owned.process_instance_id, epoch=owned.epoch)
    (handled,) = take(db, always(plan))
    assert isinstance(handled.plan, Drop)
    assert the_process(db, owned)["state"] == ProcessState.SUCCESS


def test_a_stop_stores_what_is_wanted_and_changes_no_state(db: Tables) -> None:
    owned = a_run(db)
    a_command(db, command_type=9)
    (handled,) = take(db, always(a_stop(owned)), node=OTHER_MASTER)
    assert handled.plan == a_stop(owned)
    assert handled.ownership is None
    row = the_process(db, owned)
    assert (row["state"], row["wanted_state"], row["wanted_at"]) == (1, 5, NOON)
    assert (row["command_type"], row["history_cmd"]) == (9, "START_PROCESS,STOP")
    assert db.runs.wanted(MASTER) == {owned: ProcessState.STOP}
    assert db.runs.wanted(OTHER_MASTER) == {}


def test_a_second_stop_is_dropped_also_within_one_batch(db: Tables) -> None:
    owned = a_run(db)
    a_command(db, command_type=9)
    a_command(db, command_type=9)
    first, second = take(db, always(a_stop(owned)))
    assert isinstance(first.plan, Signal)
    assert isinstance(second.plan, Drop)
    a_command(db, command_type=9)
    assert isinstance(take(db, always(a_stop(owned)))[0].plan, Drop)
    assert the_process(db, owned)["history_cmd"] == "START_PROCESS,STOP"


def test_a_stop_that_comes_after_the_end_changes_nothing(db: Tables) -> None:
    owned = a_run(db)
    save(db, owned, FinishProcess(state=ProcessState.FAILURE, reason="it broke"))
    a_command(db, command_type=9)
    (handled,) = take(db, always(a_stop(owned)))
    assert isinstance(handled.plan, Drop)
    row = the_process(db, owned)
    assert (row["state"], row["wanted_state"]) == (ProcessState.FAILURE, None)
    assert row["history_cmd"] == "START_PROCESS"


def test_an_end_that_comes_after_a_stop_keeps_the_state_that_it_ended_in(db: Tables) -> None:
    owned = a_run(db)
    a_command(db, command_type=9)
    take(db, always(a_stop(owned)))
    save(db, owned, FinishProcess(state=ProcessState.SUCCESS))
    assert the_process(db, owned)["state"] == ProcessState.SUCCESS
    assert db.runs.wanted(MASTER) == {}


def test_what_is_dropped_leaves_no_trace(db: Tables) -> None:
    a_command(db)
    (handled,) = take(db, always(Drop(reason="it has come about already")))
    assert handled.ownership is None
    assert db.rows(t.command) == db.rows(t.error_command) == db.rows(t.process_instance) == []


# Reading runs


def test_a_run_is_loaded_with_every_attempt_oldest_first(db: Tables) -> None:
    owned = a_run(db, worker_group_id=4, priority=Priority.HIGH)
    (first,) = submit(db, owned, "a")
    claim(db, [first])
    end(db, an_end(first, TaskState.FAILURE))
    due = LATER + timedelta(minutes=1)
    save(db, owned, RetryTask(name="a", attempt=1, state=TaskState.FAILURE, at=due))
    waiting = load(db, owned).tasks
    assert [(row.settled, row.valid, row.retry_at) for row in waiting] == [(True, True, due)]
    saved = save(db, owned, a_submit("a", 2), a_submit("b"))
    loaded = load(db, owned)
    assert loaded.ownership == owned
    assert loaded.process.state is ProcessState.RUNNING
    assert loaded.process.priority is Priority.HIGH
    assert loaded.process.worker_group_id == 4
    assert loaded.process.process_instance_json == a_begin().process_instance_json
    assert loaded.process.start_time == NOON
    assert loaded.process.wanted_state is None
    assert [(row.name, row.attempt, row.state, row.valid) for row in loaded.tasks] == [
        ("a", 1, TaskState.FAILURE, False),
        ("a", 2, TaskState.SUBMITTED, True),
        ("b", 1, TaskState.SUBMITTED, True),
    ]
    assert [row.id for row in loaded.tasks[1:]] == [o.task_instance_id for o in saved.offers]
    assert loaded.tasks[0].end_time == LATER
    assert [row.retry_times for row in loaded.tasks] == [0, 1, 0]


def test_a_run_of_somebody_else_is_not_loaded(db: Tables) -> None:
    owned = a_run(db)
    taken = take_over(db, owned)
    strangers = [
        owned,
        replace(taken, host=MASTER.address),
        replace(taken, epoch=3),
        replace(taken, process_instance_id=2_000_000_000),
    ]
    assert db.runs.load(strangers) == db.runs.load([]) == ()
    assert [run.ownership for run in db.runs.load([*strangers, taken])] == [taken]


def test_several_runs_are_loaded_in_the_order_asked_each_with_its_own_tasks(db: Tables) -> None:
    first, second = a_run(db), a_run(db)
    submit(db, first, "a")
    submit(db, second, "b", "c")
    loaded = db.runs.load([second, first])
    assert [(run.ownership, [task.name for task in run.tasks]) for run in loaded] == [
        (second, ["b", "c"]),
        (first, ["a"]),
    ]


def test_an_incarnation_owns_its_live_runs_and_not_its_former_ones(db: Tables) -> None:
    first, second, ended = a_run(db), a_run(db), a_run(db)
    a_run(db, node=OTHER_MASTER)
    save(db, ended, FinishProcess(state=ProcessState.SUCCESS))
    save(db, second, StopProcess())
    assert db.runs.owned(MASTER) == {first, second}
    assert db.runs.owned(REBORN) == frozenset()


# Saving runs


def test_a_submitted_task_is_a_row_and_an_offer(db: Tables) -> None:
    owned = a_run(db, priority=Priority.HIGHEST)
    saved = save(db, owned, a_submit("a", priority=Priority.LOW))
    (row,) = db.rows(t.task_instance)
    expected = {
        "name": "a",
        "task_type": "SHELL",
        "process_definition_id": 1,
        "process_instance_id": owned.process_instance_id,
        "task_json": '{"type":"SHELL"}',
        "state": 0,
        "submit_time": NOON,
        "start_time": NOON,
        "end_time": None,
        "host": None,
        "retry_times": 0,
        "flag": 1,
        "retry_interval": 2,
        "max_retry_times": 3,
        "task_instance_priority": 3,
        "worker_group_id": -1,
        "executor_id": 1,
        "attempt": 1,
        "wanted_state": None,
        "settled": False,
    }
    assert {name: row[name] for name in expected} == expected
    offer = QueueEntry(
        process_priority=0,
        process_instance_id=owned.process_instance_id,
        task_priority=3,
        task_instance_id=row["id"],
    )
    assert saved == Saved(lost=frozenset(), offers=(offer,), kills=(), withdrawn=())


@pytest.mark.parametrize(
    ("ip_list", "hosts"),
    [
        (" 10.0.0.3 ,10.0.0.4", f"{ip_number('10.0.0.3')},{ip_number('10.0.0.4')}"),
        ("spark-1, spark-2", "-1"),
        (" ", "-1"),
        (None, "-1"),
    ],
)
def test_an_offer_names_the_workers_of_its_group(
    db: Tables, ip_list: str | None, hosts: str
) -> None:
    group = db.insert(t.worker_group, name="spark", ip_list=ip_list)
    by_run = save(db, a_run(db, worker_group_id=group), a_submit("a")).offers
    by_task = save(db, a_run(db, worker_group_id=99), a_submit("a", worker_group_id=group)).offers
    for (offer,) in (by_run, by_task):
        assert (offer.hosts, offer.worker_group_id) == (hosts, group)
    (unknown,) = save(db, a_run(db, worker_group_id=99), a_submit("a")).offers
    assert (unknown.hosts, unknown.worker_group_id) == ("-1", 99)


def test_settling_an_end_and_submitting_the_next_task_are_one_save(db: Tables) -> None:
    owned = a_run(db)
    (first,) = submit(db, owned, "a")
    claim(db, [first])
    end(db, an_end(first))
    saved = save(db, owned, finish("a"), a_submit("b"), PassForbidden(name="c"))
    assert len(saved.offers) == 1
    assert the_task(db, first)["settled"] is True
    assert db.runs.reports(MASTER) == ()


def test_the_steps_of_several_runs_are_written_together(db: Tables) -> None:
    runs = [a_run(db) for _ in range(3)]
    steps = [Step(ownership=run, decisions=(a_submit("a"), a_submit("b")), at=NOON) for run in runs]
    saved = db.runs.save(steps)
    assert [offer.process_instance_id for offer in saved.offers] == [
        run.process_instance_id for run in runs for _ in range(2)
    ]
    assert len(db.rows(t.task_instance)) == 6


def test_a_save_for_a_run_that_was_taken_over_writes_nothing_of_it_and_all_of_the_others(
    db: Tables,
) -> None:
    lost, kept = a_run(db), a_run(db)
    take_over(db, lost)
    unknown = replace(kept, process_instance_id=2_000_000_000)
    steps = [
        Step(ownership=run, decisions=(a_submit("a"), StopProcess()), at=NOON)
        for run in (lost, kept, unknown)
    ]
    saved = db.runs.save(steps)
    assert saved.lost == {lost, unknown}
    assert [offer.process_instance_id for offer in saved.offers] == [kept.process_instance_id]
    assert the_process(db, lost)["state"] == ProcessState.RUNNING
    assert the_process(db, kept)["state"] == ProcessState.READY_STOP


def test_the_address_alone_does_not_make_an_owner(db: Tables) -> None:
    owned = a_run(db)
    taken = take_over(db, owned, node=REBORN)
    assert taken.host == owned.host
    assert save(db, owned, a_submit("a")).lost == {owned}
    assert save(db, taken, a_submit("a")).lost == frozenset()


def test_a_save_before_a_take_over_is_what_the_next_owner_loads(db: Tables) -> None:
    owned = a_run(db)
    submit(db, owned, "a")
    assert [task.name for task in load(db, take_over(db, owned)).tasks] == ["a"]


def test_an_empty_save_does_nothing(db: Tables) -> None:
    nothing = Saved(lost=frozenset(), offers=(), kills=(), withdrawn=())
    assert db.runs.save([]) == nothing
    assert save(db, a_run(db)) == nothing


@pytest.mark.parametrize(
    "decision",
    [
        finish("a", TaskState.FAILURE),
        finish("a", attempt=2),
        finish("b"),
        RetryTask(name="a", attempt=1, state=TaskState.KILL, at=LATER),
        GiveUpRetry(name="a", attempt=1),
        kill("b"),
        a_submit("a"),
        a_submit("b", task_json="\0"),
        a_submit("n" * 256),
    ],
)
def test_a_decision_that_the_rows_contradict_undoes_the_whole_save(
    db: Tables, decision: Decision
) -> None:
    owned, bystander = a_run(db), a_run(db)
    (first,) = submit(db, owned, "a")
    claim(db, [first])
    end(db, an_end(first))
    before = db.rows(t.task_instance)
    steps = [
        Step(ownership=bystander, decisions=(a_submit("x"), StopProcess()), at=NOON),
        Step(ownership=owned, decisions=(decision,), at=NOON),
    ]
    with pytest.raises(StoreConflictError, match=str(owned.process_instance_id)):
        db.runs.save(steps)
    assert db.rows(t.task_instance) == before
    assert the_process(db, bystander)["state"] == ProcessState.RUNNING


def test_an_end_is_settled_once(db: Tables) -> None:
    owned = a_run(db)
    (first,) = submit(db, owned, "a")
    claim(db, [first])
    end(db, an_end(first))
    save(db, owned, finish("a"))
    with pytest.raises(StoreConflictError, match="attempt 1 of task 'a'"):
        save(db, owned, finish("a"))


def test_an_attempt_that_still_runs_can_not_be_superseded(db: Tables) -> None:
    owned = a_run(db)
    claim(db, submit(db, owned, "a"))
    with pytest.raises(StoreConflictError):
        save(db, owned, a_submit("a", 2))
    assert len(db.rows(t.task_instance)) == 1


def test_a_retry_supersedes_the_failed_attempt_and_keeps_its_end(db: Tables) -> None:
    owned = a_run(db)
    (first,) = submit(db, owned, "a")
    claim(db, [first])
    end(db, an_end(first, TaskState.FAILURE))
    retry = RetryTask(name="a", attempt=1, state=TaskState.FAILURE, at=LATER)
    saved = save(db, owned, retry, a_submit("a", 2))
    old, new = the_task(db, first), the_task(db, saved.offers[0].task_instance_id)
    assert (old["flag"], old["settled"], old["end_time"]) == (0, True, LATER)
    assert (new["flag"], new["attempt"], new["state"], new["host"]) == (1, 2, 0, None)


def test_a_promised_retry_can_be_given_up_once(db: Tables) -> None:
    owned = a_run(db)
    (first,) = submit(db, owned, "a")
    claim(db, [first])
    end(db, an_end(first, TaskState.FAILURE))
    save(db, owned, RetryTask(name="a", attempt=1, state=TaskState.FAILURE, at=LATER))
    save(db, owned, GiveUpRetry(name="a", attempt=1))
    row = the_task(db, first)
    assert (row["retry_at"], row["settled"], row["flag"]) == (None, True, 1)
    with pytest.raises(StoreConflictError):
        save(db, owned, GiveUpRetry(name="a", attempt=1))


def test_killing_withdraws_what_waits_asks_for_what_runs_and_ends_nothing_twice(
    db: Tables,
) -> None:
    owned = a_run(db)
    waiting, running, ended = submit(db, owned, "waiting", "running", "ended")
    claim(db, [running, ended])
    end(db, an_end(ended))
    saved = save(db, owned, kill("waiting"), kill("running"), kill("ended"))
    assert [entry.task_instance_id for entry in saved.withdrawn] == [waiting]
    assert saved.kills == (KillEntry(address=WORKER.address, task_instance_id=running),)
    withdrawn = the_task(db, waiting)
    assert (withdrawn["state"], withdrawn["end_time"]) == (TaskState.KILL, NOON)
    assert withdrawn["reason"] == "withdrawn before it started"
    assert not withdrawn["settled"]
    asked = the_task(db, running)
    assert (asked["state"], asked["wanted_state"]) == (TaskState.RUNNING, TaskState.KILL)
    assert the_task(db, ended)["state"] == TaskState.SUCCESS
    assert db.tasks.running(WORKER) == {running: True}
    kill_requested = {task.name: task.kill_requested for task in load(db, owned).tasks}
    assert kill_requested == {"waiting": True, "running": True, "ended": True}
    # The run hears of the withdrawal as of any other end.
    reports = {report.name: report.state for report in db.runs.reports(MASTER)}
    assert reports["waiting"] is TaskState.KILL
    save(db, owned, finish("waiting", TaskState.KILL))


def test_a_kill_may_be_asked_for_again(db: Tables) -> None:
    owned = a_run(db)
    claim(db, submit(db, owned, "a"))
    assert len(save(db, owned, kill("a")).kills) == 1
    assert len(save(db, owned, kill("a")).kills) == 1


def test_a_claim_that_comes_after_a_withdrawal_gets_nothing(db: Tables) -> None:
    owned = a_run(db)
    ids = submit(db, owned, "a")
    save(db, owned, kill("a"))
    assert claim(db, ids) == []


def test_a_withdrawal_that_comes_after_a_claim_becomes_a_kill(db: Tables) -> None:
    owned = a_run(db)
    ids = submit(db, owned, "a")
    assert claim(db, ids) == ids
    saved = save(db, owned, kill("a"))
    assert (len(saved.kills), saved.withdrawn) == (1, ())


def test_a_later_step_may_act_on_what_an_earlier_step_of_the_save_has_made(db: Tables) -> None:
    owned = a_run(db)
    steps = [
        Step(ownership=owned, decisions=(a_submit("a"), a_submit("b")), at=NOON),
        Step(ownership=owned, decisions=(kill("a"),), at=NOON),
        Step(ownership=owned, decisions=(finish("a", TaskState.KILL),), at=LATER),
        Step(ownership=owned, decisions=(a_submit("a", 2),), at=LATER),
    ]
    saved = db.runs.save(steps)
    first, second, again = db.rows(t.task_instance)
    assert [(row["name"], row["attempt"]) for row in (first, second, again)] == [
        ("a", 1),
        ("b", 1),
        ("a", 2),
    ]
    assert (first["state"], first["settled"], first["flag"]) == (TaskState.KILL, True, 0)
    assert [entry.task_instance_id for entry in saved.offers] == [second["id"], again["id"]]
    assert [entry.task_instance_id for entry in saved.withdrawn] == [first["id"]]


def test_a_run_ends_once_and_says_why(db: Tables) -> None:
    owned = a_run(db)
    reason = "task 'a\0b' failed" + "!" * 10_000
    save(db, owned, StopProcess(), FinishProcess(state=ProcessState.STOP, reason=reason))
    row = the_process(db, owned)
    assert (row["state"], row["end_time"]) == (ProcessState.STOP, NOON)
    assert row["state_reason"].startswith("task 'a\N{REPLACEMENT CHARACTER}b' failed!")
    assert len(row["state_reason"]) <= 4000
    for decision in (FinishProcess(state=ProcessState.SUCCESS), StopProcess(), a_submit("a")):
        with pytest.raises(StoreConflictError, match=str(owned.process_instance_id)):
            save(db, owned, decision)
    assert the_process(db, owned)["state"] == ProcessState.STOP


# What an owner looks at


def test_reports_are_the_unsettled_ends_of_this_nodes_live_runs(db: Tables) -> None:
    owned, others, over = a_run(db), a_run(db, node=OTHER_MASTER), a_run(db)
    a, b, c = submit(db, owned, "a", "b", "c")
    (foreign,) = submit(db, others, "a")
    (late,) = submit(db, over, "a")
    claim(db, [a, b, c, foreign, late])
    end(db, an_end(b, TaskState.FAILURE, reason="exit 3"), an_end(a))
    end(db, an_end(foreign), an_end(late))
    save(db, over, FinishProcess(state=ProcessState.FAILURE))
    found = db.runs.reports(MASTER)
    assert [report.task_instance_id for report in found] == [a, b]
    assert found[1].process_instance_id == owned.process_instance_id
    assert (found[1].name, found[1].attempt, found[1].state) == ("b", 1, TaskState.FAILURE)
    assert (found[1].end_time, found[1].reason) == (LATER, "exit 3")
    assert db.runs.reports(REBORN) == ()
    save(db, owned, finish("a"))
    assert db.runs.reports(MASTER) == found[1:]


def test_the_queue_must_hold_what_is_submitted_and_not_claimed_in_its_order(db: Tables) -> None:
    group = db.insert(t.worker_group, name="spark", ip_list="10.0.0.3")
    usual, urgent = a_run(db), a_run(db, priority=Priority.HIGHEST, worker_group_id=group)
    save(db, a_run(db, node=OTHER_MASTER), a_submit("foreign"))
    offers = save(
        db, usual, a_submit("low", priority=Priority.LOWEST), a_submit("a"), a_submit("b")
    ).offers
    urgent_offers = save(db, urgent, a_submit("a")).offers
    claim(db, [offers[2].task_instance_id])
    assert db.runs.unclaimed(MASTER, submitted_before=LATER) == (
        *urgent_offers,
        offers[1],
        offers[0],
    )
    assert db.runs.unclaimed(MASTER, submitted_before=NOON) == ()
    save(db, usual, kill("low"))
    assert db.runs.unclaimed(MASTER, submitted_before=LATER) == (*urgent_offers, offers[1])


# Tasks


def test_a_claim_gives_all_that_the_process_needs(db: Tables) -> None:
    definition_id = a_definition(db)
    owned = a_run(
        db,
        process_definition_id=definition_id,
        schedule_time=LATER,
        global_params='[{"prop":"day"}]',
        command_type=CommandType.COMPLEMENT_DATA,
    )
    (task_id,) = submit(db, owned, "a")
    (claimed,) = db.tasks.claim(WORKER, [task_id], folders=FOLDERS, now=LATER)
    place = f"{definition_id}/{owned.process_instance_id}/{task_id}"
    assert (claimed.id, claimed.process_instance_id) == (task_id, owned.process_instance_id)
    assert (claimed.name, claimed.attempt, claimed.task_type) == ("a", 1, "SHELL")
    assert claimed.process_name == a_begin().name
    assert claimed.process_definition_id == definition_id
    assert claimed.task_json == '{"type":"SHELL"}'
    assert (claimed.global_params, claimed.schedule_time) == ('[{"prop":"day"}]', LATER)
    assert claimed.complement
    assert (claimed.tenant_code, claimed.queue, claimed.executor_id) == ("tester", "default", 1)
    assert (claimed.execute_path, claimed.log_path) == (f"/attempts/{place}", f"/logs/{place}.log")
    row = the_task(db, task_id)
    assert (row["state"], row["host"], row["worker_incarnation"]) == (
        TaskState.RUNNING,
        WORKER.address,
        WORKER.incarnation,
    )
    assert (row["start_time"], claimed.start_time) == (LATER, LATER)
    assert (row["execute_path"], row["log_path"]) == (claimed.execute_path, claimed.log_path)


def test_claims_come_in_the_order_asked_and_only_for_what_may_start(db: Tables) -> None:
    owned, ended = a_run(db), a_run(db)
    a, b, c = submit(db, owned, "a", "b", "c")
    (orphan,) = submit(db, ended, "a")
    save(db, ended, FinishProcess(state=ProcessState.FAILURE))
    assert claim(db, [b], node=OTHER_WORKER) == [b]
    assert claim(db, [c, 2_000_000_000, 2**70, -1, b, orphan, a, c]) == [c, a]
    assert claim(db, [a, b, c]) == []
    assert claim(db, []) == []
    assert the_task(db, b)["host"] == OTHER_WORKER.address


def test_a_run_that_began_otherwise_is_no_complement_run(db: Tables) -> None:
    owned = a_run(db, command_type=CommandType.SCHEDULER)
    db.update(
        t.process_instance, owned.process_instance_id, history_cmd="SCHEDULER,COMPLEMENT_DATA"
    )
    (claimed,) = db.tasks.claim(WORKER, submit(db, owned, "a"), folders=FOLDERS, now=NOON)
    assert not claimed.complement


@pytest.mark.parametrize(
    ("of_run", "of_creator", "definition", "expected"),
    [
        ("own", "creators", "there", "own"),
        ("none", "creators", "there", "creators"),
        ("unknown", "creators", "there", "creators"),
        ("none", "unknown", "there", None),
        ("own", "creators", "gone", None),
    ],
)
def test_a_task_runs_as_the_runs_tenant_else_as_its_definitions_creators(
    db: Tables, of_run: str, of_creator: str, definition: str, expected: str | None
) -> None:
    tenants = {
        "own": db.insert(t.tenant, tenant_code="own"),
        "creators": db.insert(t.tenant, tenant_code="creators"),
        "none": -1,
        "unknown": 2_000_000_000,
    }
    creator = db.insert(t.user, user_name="ann", tenant_id=tenants[of_creator])
    there = a_definition(db, user_id=creator)
    definition_id = there if definition == "there" else 2_000_000_000
    owned = a_run(db, process_definition_id=definition_id, tenant_id=tenants[of_run])
    (claimed,) = db.tasks.claim(WORKER, submit(db, owned, "a"), folders=FOLDERS, now=NOON)
    assert claimed.tenant_code == expected


@pytest.mark.parametrize(
    ("of_executor", "expected"), [("fast", "fast"), ("", "slow"), (None, "slow")]
)
def test_a_task_goes_to_its_executors_queue_else_to_its_tenants(
    db: Tables, of_executor: str | None, expected: str
) -> None:
    slow = db.insert(t.queue, queue_name="slow", queue="slow")
    tenant_id = db.insert(t.tenant, tenant_code="etl", queue_id=slow)
    executor = db.insert(t.user, user_name="ann", tenant_id=1, queue=of_executor)
    owned = a_run(
        db, process_definition_id=a_definition(db), tenant_id=tenant_id, executor_id=executor
    )
    (claimed,) = db.tasks.claim(WORKER, submit(db, owned, "a"), folders=FOLDERS, now=NOON)
    assert claimed.queue == expected


def test_the_process_of_an_attempt_is_noted_for_its_holder_alone(db: Tables) -> None:
    a, b = submit(db, a_run(db), "a", "b")
    claim(db, [a])
    claim(db, [b], node=OTHER_WORKER)
    db.tasks.started(WORKER, {a: (4711, 1234.5), b: (4712, 1234.5)})
    db.tasks.started(RESTARTED, {a: (1, 1.0)})
    db.tasks.started(WORKER, {})
    assert (the_task(db, a)["pid"], the_task(db, a)["pid_start_time"]) == (4711, 1234.5)
    assert the_task(db, b)["pid"] is None


def test_a_report_ends_the_attempt_and_tells_its_owner(db: Tables) -> None:
    owned = a_run(db)
    (task_id,) = submit(db, owned, "a")
    claim(db, [task_id])
    db.tasks.started(WORKER, {task_id: (4711, 1.0)})
    report = an_end(task_id, TaskState.FAILURE, exit_code=3, reason="exit\0code 3")
    assert end(db, report) == {task_id}
    row = the_task(db, task_id)
    assert (row["state"], row["end_time"], row["exit_code"]) == (TaskState.FAILURE, LATER, 3)
    assert (row["reason"], row["pid"]) == ("exit\N{REPLACEMENT CHARACTER}code 3", 4711)
    assert not row["settled"]
    assert [found.task_instance_id for found in db.runs.reports(MASTER)] == [task_id]


def test_a_repeated_report_changes_nothing(db: Tables) -> None:
    (task_id,) = submit(db, a_run(db), "a")
    claim(db, [task_id])
    assert end(db, an_end(task_id, TaskState.SUCCESS, pid=5)) == {task_id}
    assert end(db, an_end(task_id, TaskState.FAILURE, pid=6)) == frozenset()
    assert end(db) == frozenset()
    assert (the_task(db, task_id)["state"], the_task(db, task_id)["pid"]) == (7, 5)


def test_only_the_incarnation_that_claimed_an_attempt_can_report_it(db: Tables) -> None:
    a, b = submit(db, a_run(db), "a", "b")
    claim(db, [a])
    for stranger in (RESTARTED, OTHER_WORKER):
        assert end(db, an_end(a), an_end(b), node=stranger) == frozenset()
    assert the_task(db, a)["state"] == TaskState.RUNNING
    assert end(db, an_end(a), an_end(b)) == {a}


def test_several_ends_are_one_report(db: Tables) -> None:
    a, b, c = submit(db, a_run(db), "a", "b", "c")
    claim(db, [a, b, c])
    ends = [
        an_end(c, TaskState.KILL, exit_code=137, reason="killed"),
        an_end(a, exit_code=0),
    ]
    assert end(db, *ends) == {a, c}
    assert [the_task(db, one)["state"] for one in (a, b, c)] == [7, 1, 9]
    assert db.tasks.running(WORKER) == {b: False}


def test_a_restarted_worker_adopts_what_its_former_self_left_running(db: Tables) -> None:
    a, b, ended = submit(db, a_run(db), "a", "b", "ended")
    claim(db, [a, ended])
    claim(db, [b], node=OTHER_WORKER)
    end(db, an_end(ended))
    assert db.tasks.running(RESTARTED) == {}
    assert db.tasks.adopt(RESTARTED, [a, b, ended]) == {a}
    assert db.tasks.adopt(RESTARTED, [a]) == frozenset()
    assert db.tasks.adopt(RESTARTED, []) == db.tasks.adopt(RESTARTED, [2**70]) == frozenset()
    assert (db.tasks.running(RESTARTED), db.tasks.running(WORKER)) == ({a: False}, {})
    assert end(db, an_end(a), node=WORKER) == frozenset()
    assert end(db, an_end(a), node=RESTARTED) == {a}


# Failover


def test_a_lost_masters_runs_are_recovered_once_and_resumed_by_another(db: Tables) -> None:
    first = a_run(db, priority=Priority.HIGH, executor_id=1)
    second, ended = a_run(db), a_run(db)
    a_run(db, node=OTHER_MASTER)
    save(db, ended, FinishProcess(state=ProcessState.SUCCESS))
    assert db.failover.run_owners() == {MASTER, OTHER_MASTER}
    assert db.failover.recover_runs(MASTER, now=LATER) == 2
    assert db.failover.recover_runs(MASTER, now=LATER) == 0
    assert db.failover.run_owners() == {OTHER_MASTER}
    row = db.rows(t.command)[0]
    expected = {
        "command_type": 2,
        "process_definition_id": 1,
        "command_param": json.dumps(
            {"ProcessInstanceId": first.process_instance_id}, separators=(",", ":")
        ),
        "executor_id": 1,
        "process_instance_priority": 1,
        "process_instance_id": first.process_instance_id,
        "start_time": LATER,
        "update_time": LATER,
        "task_depend_type": 2,
        "failure_strategy": 1,
        "worker_group_id": -1,
    }
    assert {name: row[name] for name in expected} == expected

    def resume(_command: Command, snapshot: Snapshot) -> Plan:
        assert snapshot.instance is not None
        assert snapshot.instance.owner == MASTER
        return Resume(process_instance_id=snapshot.instance.id, epoch=snapshot.instance.owner_epoch)

    handled = take(db, resume, node=OTHER_MASTER)
    assert [one.ownership for one in handled] == [
        replace(run, host=OTHER_MASTER.address, epoch=2) for run in (first, second)
    ]
    assert save(db, first, a_submit("a")).lost == {first}
    assert db.failover.run_owners() == {OTHER_MASTER}
    assert db.failover.recover_runs(MASTER, now=LATER) == 0


def test_a_master_that_came_back_under_its_address_is_another_owner(db: Tables) -> None:
    a_run(db, node=REBORN)
    assert db.failover.run_owners() == {REBORN}
    assert db.failover.recover_runs(MASTER, now=LATER) == 0


def test_a_lost_workers_attempts_end_and_their_runs_hear_of_it(db: Tables) -> None:
    owned, over = a_run(db), a_run(db)
    a, b, waiting, done = submit(db, owned, "a", "b", "waiting", "done")
    (forgotten,) = submit(db, over, "a")
    claim(db, [a, done, forgotten])
    claim(db, [b], node=OTHER_WORKER)
    end(db, an_end(done))
    save(db, over, FinishProcess(state=ProcessState.FAILURE))
    assert db.failover.task_owners() == {WORKER, OTHER_WORKER}
    assert db.failover.fail_tasks_over(RESTARTED, now=LATER) == 0
    assert db.failover.fail_tasks_over(WORKER, now=LATER) == 1
    assert db.failover.fail_tasks_over(WORKER, now=LATER) == 0
    assert db.failover.task_owners() == {OTHER_WORKER}
    states = [the_task(db, one)["state"] for one in (a, b, waiting, done, forgotten)]
    assert states == [8, 1, 0, 7, 1]
    assert the_task(db, a)["end_time"] == LATER
    assert WORKER.address in the_task(db, a)["reason"]
    reports = {one.task_instance_id: one.state for one in db.runs.reports(MASTER)}
    assert reports[a] is TaskState.NEED_FAULT_TOLERANCE


def test_a_report_that_comes_after_the_failover_changes_nothing(db: Tables) -> None:
    owned = a_run(db)
    (first,) = submit(db, owned, "a")
    claim(db, [first])
    db.failover.fail_tasks_over(WORKER, now=NOON)
    saved = save(db, owned, finish("a", TaskState.NEED_FAULT_TOLERANCE), a_submit("a", 2))
    (second,) = [offer.task_instance_id for offer in saved.offers]
    assert claim(db, [second], node=OTHER_WORKER) == [second]
    assert end(db, an_end(first)) == frozenset()
    assert db.tasks.adopt(RESTARTED, [first, second]) == frozenset()
    assert the_task(db, first)["state"] == TaskState.NEED_FAULT_TOLERANCE
    assert the_task(db, second)["state"] == TaskState.RUNNING


def test_a_failover_that_comes_after_the_report_changes_nothing(db: Tables) -> None:
    (task_id,) = submit(db, a_run(db), "a")
    claim(db, [task_id])
    end(db, an_end(task_id))
    assert db.failover.fail_tasks_over(WORKER, now=NOON) == 0
    assert the_task(db, task_id)["state"] == TaskState.SUCCESS


# The two against each other


class _Walk:
    """A random history, done to both stores alike; after each step they must look alike."""

    def __init__(self, seed: int, memory: MemoryTables, postgresql: PostgresTables) -> None:
        self._random = Random(seed)
        self._memory = memory
        self._postgresql = postgresql
        self.outcomes: Counter[str] = Counter()

    def step(self) -> None:
        deed = self._random.choice(
            (
                self._start,
                self._stop,
                self._take,
                self._take,
                self._save,
                self._save,
                self._save,
                self._claim,
                self._claim,
                self._report,
                self._report,
                self._adopt,
                self._fail_over,
                self._recover,
            )
        )
        outcome = self._both(deed())
        self.outcomes[f"{deed.__name__}: {'conflict' if outcome == 'conflict' else 'done'}"] += 1
        if outcome == "conflict":
            # What was taken back may have drawn ids, and not as many here as there.
            self._memory.database.tasks._last_id = max(
                (row["id"] for row in self._memory.rows(t.task_instance)), default=0
            )
            self._postgresql.draw_ids_from_the_highest(t.task_instance)
        for table in (t.command, t.error_command, t.process_instance, t.task_instance):
            self._compare_rows(table)
        for master in (MASTER, OTHER_MASTER):
            self._both(partial(_sight_of, master))
        self._both(
            lambda db: (
                db.failover.run_owners(),
                db.failover.task_owners(),
                [db.tasks.running(worker) for worker in (WORKER, RESTARTED, OTHER_WORKER)],
            )
        )

    def _both(self, deed: Callable[[Tables], Any]) -> Any:
        here, there = (_outcome(deed, db) for db in (self._memory, self._postgresql))
        assert here == there
        return here

    def _compare_rows(self, table: Table) -> None:
        here, there = self._memory.rows(table), self._postgresql.rows(table)
        # The memory leaves out columns that no loop uses.
        names = list(here[0]) if here else ["id"]
        assert here == [{name: row[name] for name in names} for row in there]

    def _start(self) -> Callable[[Tables], Any]:
        priority = self._random.randrange(5)
        return lambda db: a_command(
            db, start_time=NOON, update_time=NOON, process_instance_priority=priority
        )

    def _stop(self) -> Callable[[Tables], Any]:
        run_id = self._random.randrange(1, len(self._memory.rows(t.process_instance)) + 2)
        param = json.dumps({"ProcessInstanceId": run_id})
        return lambda db: a_command(
            db, command_type=9, command_param=param, start_time=NOON, update_time=NOON
        )

    def _take(self) -> Callable[[Tables], Any]:
        node = self._random.choice((MASTER, OTHER_MASTER))
        limit = self._random.randrange(1, 5)
        return lambda db: take(db, _as_asked, node=node, limit=limit)

    def _save(self) -> Callable[[Tables], Any]:
        runs = self._memory.rows(t.process_instance)
        steps = []
        for run in self._random.sample(runs, k=min(len(runs), self._random.randrange(1, 4))):
            # Now and then a former owner, or an owner to be.
            epoch = run["owner_epoch"] + self._random.choice((0, 0, 0, 0, 0, -1, 1))
            owned = Ownership(process_instance_id=run["id"], host=run["host"], epoch=epoch)
            decisions = tuple(self._decisions(run["id"]))
            steps.append(Step(ownership=owned, decisions=decisions, at=NOON))

        def save_steps(db: Tables) -> Any:
            saved = db.runs.save(steps)
            kills = sorted(saved.kills, key=lambda entry: entry.name)
            withdrawn = sorted(saved.withdrawn, key=lambda entry: entry.sort_key)
            return saved.lost, saved.offers, kills, withdrawn

        return save_steps

    def _decisions(self, run_id: int) -> Iterator[Decision]:
        rows = [
            row
            for row in self._memory.rows(t.task_instance)
            if row["process_instance_id"] == run_id and row["flag"] == 1
        ]
        yield from (a_submit(f"t{len(rows) + n}") for n in range(self._random.randrange(3)))
        for row in self._random.sample(rows, k=self._random.randrange(len(rows) + 1)):
            name, attempt, state = row["name"], row["attempt"], TaskState(row["state"])
            if not state.is_finished:
                yield kill(name, attempt)
            elif not row["settled"]:
                yield finish(name, state, attempt)
                if self._random.random() < 0.5:
                    yield a_submit(name, attempt + 1)
            elif row["retry_at"] is None and self._random.random() < 0.2:
                # Settled twice: a conflict.
                yield RetryTask(name=name, attempt=attempt, state=state, at=LATER)
        if self._random.random() < 0.1:
            yield StopProcess()
        if self._random.random() < 0.05:
            yield FinishProcess(state=ProcessState.FAILURE, reason="so it was drawn")

    def _some_tasks(self) -> list[int]:
        ids = [row["id"] for row in self._memory.rows(t.task_instance)]
        return self._random.sample(ids, k=self._random.randrange(len(ids) + 1))

    def _worker(self) -> Node:
        return self._random.choice((WORKER, RESTARTED, OTHER_WORKER))

    def _claim(self) -> Callable[[Tables], Any]:
        worker, ids = self._worker(), self._some_tasks()
        return lambda db: db.tasks.claim(worker, ids, folders=FOLDERS, now=NOON)

    def _report(self) -> Callable[[Tables], Any]:
        worker = self._worker()
        states = (TaskState.SUCCESS, TaskState.FAILURE, TaskState.KILL)
        ends = [an_end(task, self._random.choice(states), pid=task) for task in self._some_tasks()]
        return lambda db: db.tasks.report(worker, ends)

    def _adopt(self) -> Callable[[Tables], Any]:
        worker, ids = self._worker(), self._some_tasks()
        return lambda db: db.tasks.adopt(worker, ids)

    def _fail_over(self) -> Callable[[Tables], Any]:
        worker = self._worker()
        return lambda db: db.failover.fail_tasks_over(worker, now=LATER)

    def _recover(self) -> Callable[[Tables], Any]:
        master = self._random.choice((MASTER, OTHER_MASTER))
        return lambda db: db.failover.recover_runs(master, now=LATER)


def _sight_of(master: Node, db: Tables) -> Any:
    return (
        db.runs.load(sorted(db.runs.owned(master))),
        db.runs.reports(master),
        db.runs.wanted(master),
        db.runs.unclaimed(master, submitted_before=LATER),
    )


def _outcome(deed: Callable[[Tables], Any], db: Tables) -> Any:
    try:
        return deed(db)
    except StoreConflictError:
        return "conflict"


def _as_asked(command: Command, snapshot: Snapshot) -> Plan:
    if command.command_type is CommandType.START_PROCESS:
        return a_begin(priority=command.priority)
    if snapshot.instance is None:
        return Reject(reason="there is no such instance")
    if command.command_type is CommandType.STOP:
        return Signal(
            process_instance_id=snapshot.instance.id,
            command_type=CommandType.STOP,
            wanted_state=ProcessState.STOP,
        )
    return Resume(process_instance_id=snapshot.instance.id, epoch=snapshot.instance.owner_epoch)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_both_stores_make_the_same_of_any_history(
    seed: int, postgres_tables: PostgresTables
) -> None:
    postgres_tables.empty()
    postgres_tables.draw_ids_afresh()
    walk = _Walk(seed, MemoryTables(), postgres_tables)
    for _ in range(90):
        walk.step()
    # A history in which nothing ever was contradicted, or everything, would prove little.
    assert 0 < walk.outcomes["_save: conflict"] < walk.outcomes["_save: done"]


# What is called out


def told_of(heard: list[tuple[str, str]]) -> list[tuple[object, ...]]:
    """What notifications of ended attempts say; nothing else may have been called out."""
    assert {channel for channel, _ in heard} == {Channel.TASK}
    reports = [read_task_report(payload) for _, payload in heard]
    return [
        (
            one.process_instance_id,
            one.task_instance_id,
            one.name,
            one.attempt,
            one.state,
            one.end_time,
        )
        for one in reports
    ]


def test_each_change_that_somebody_waits_for_is_called_out(db: Tables) -> None:
    owned = a_run(db)
    run_id = owned.process_instance_id
    assert db.heard() == [(Channel.COMMAND, "")]
    a, b = submit(db, owned, "a", "b")
    claim(db, [a])
    assert db.heard() == []
    end(db, an_end(a))
    assert told_of(db.heard()) == [(run_id, a, "a", 1, TaskState.SUCCESS, LATER)]
    save(db, owned, finish("a"))
    assert db.heard() == []
    save(db, owned, kill("b"))
    assert [told[:5] for told in told_of(db.heard())] == [(run_id, b, "b", 1, TaskState.KILL)]
    a_command(db, command_type=9)
    take(db, always(a_stop(owned)))
    assert db.heard() == [(Channel.COMMAND, ""), (Channel.WANTED, str(run_id))]
    save(db, owned, FinishProcess(state=ProcessState.STOP))
    assert db.heard() == [(Channel.PROCESS, str(run_id))]


# The memory's own promises to the simulator


class _Crash(BaseException):
    """The process died here."""


def _crash_at(name: str, moment: Literal["before", "after"]) -> Callable[[str, str], None]:
    def hook(transaction: str, now: str) -> None:
        if (transaction, now) == (name, moment):
            raise _Crash

    return hook


def test_a_crash_before_a_commit_leaves_everything_as_it_was() -> None:
    db = MemoryTables()
    owned = a_run(db)
    (first,) = submit(db, owned, "a")
    claim(db, [first])
    end(db, an_end(first))
    db.heard()
    before = [db.rows(table) for table in TABLES]
    changes = len(db.database.changes)
    db.database.commit_hook = _crash_at("save", "before")
    with pytest.raises(_Crash):
        save(db, owned, finish("a"), a_submit("b"), StopProcess())
    assert [db.rows(table) for table in TABLES] == before
    assert len(db.database.changes) == changes
    assert db.heard() == []


def test_a_crash_after_a_commit_leaves_it_done() -> None:
    db = MemoryTables()
    a_command(db)
    db.heard()
    db.database.commit_hook = _crash_at("take", "after")
    with pytest.raises(_Crash):
        take(db, always(a_begin()))
    assert db.rows(t.command) == []
    assert len(db.rows(t.process_instance)) == 1


def test_a_taken_back_deletion_keeps_the_order_of_rows() -> None:
    db = MemoryTables()
    ids = [a_command(db) for _ in range(3)]
    db.database.commit_hook = _crash_at("take", "before")
    with pytest.raises(_Crash):
        take(db, always(Drop(reason="not yet")), limit=2)
    assert [row["id"] for row in db.rows(t.command)] == ids


def test_every_change_is_recorded_with_who_made_it() -> None:
    db = MemoryTables()
    owned = a_run(db)
    (task_id,) = submit(db, owned, "a")
    claim(db, [task_id])
    of_task = [change for change in db.database.changes if change.table == t.task_instance.name]
    assert [(change.transaction, change.by, change.id) for change in of_task] == [
        ("save", owned, task_id),
        ("claim", WORKER, task_id),
    ]
    assert of_task[0].old is None
    assert of_task[1].old == of_task[0].new
