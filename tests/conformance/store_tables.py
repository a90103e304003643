"""Both stores behind one interface, for the tests `test_store_…`, and builders for these.

`Tables` is the stores over one database together with a person's direct sight of its rows.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Protocol

from sqlalchemy import Engine, Table, delete, insert, select, text, update
from sqlalchemy.exc import DBAPIError

from common.model.cluster import Node
from common.model.commands import Command, CommandType
from common.model.decisions import (
    Decision,
    FinishProcess,
    FinishTask,
    KillTask,
    PauseTask,
    RetryTask,
    StopProcess,
    SubmitTask,
)
from common.model.grants import GrantKind
from common.model.instances import Ownership
from common.model.plans import Begin, ChildOf, Drop, Handled, Plan, Resume, SetIntent, Snapshot
from common.model.states import (
    FailureStrategy,
    Priority,
    ProcessState,
    TaskDependType,
    TaskState,
    WarningType,
)
from common.store import tables as t
from common.store.master.commands import PostgresCommandStore
from common.store.master.complement_progress import PostgresComplementStore
from common.store.master.dependents import PostgresDependentStore
from common.store.master.failover import PostgresFailoverStore
from common.store.master.holds import PostgresHoldStore
from common.store.master.ports import (
    CommandStore,
    ComplementStore,
    DependentStore,
    FailoverStore,
    FirstStep,
    HoldStore,
    LoadedRun,
    Planner,
    Released,
    RunStore,
    Saved,
    ScheduleStore,
    Step,
    TimeoutStore,
)
from common.store.master.runs import PostgresRunStore
from common.store.master.schedules import PostgresScheduleStore
from common.store.master.timeouts import PostgresTimeoutStore
from common.store.retention import PostgresRetentionStore, RetentionStore
from common.store.worker.ports import AttemptEnd, AttemptFolders, TaskStore
from common.store.worker.tasks import PostgresTaskStore
from tests.builders import NOON
from tests.conformance.granted_tables import GRANTED, RESTORED
from tests.memory.store import (
    MemoryCommandStore,
    MemoryComplementStore,
    MemoryDatabase,
    MemoryDependentStore,
    MemoryFailoverStore,
    MemoryHoldStore,
    MemoryRetentionStore,
    MemoryRunStore,
    MemoryScheduleStore,
    MemoryTaskStore,
    MemoryTimeoutStore,
    RowRefusedError,
    Rows,
)

MINUTE = timedelta(minutes=1)
LATER = NOON + MINUTE
MASTER = Node(address="10.0.0.1:5678", incarnation=2**40)
REBORN = Node(address=MASTER.address, incarnation=MASTER.incarnation + 7)
OTHER_MASTER = Node(address="10.0.0.2:5678", incarnation=2**40 + 1)
WORKER = Node(address="10.0.0.3:1234", incarnation=2**41)
RESTARTED = Node(address=WORKER.address, incarnation=WORKER.incarnation + 7)
OTHER_WORKER = Node(address="10.0.0.4:1234", incarnation=2**41 + 1)
PARAM_LIMIT, MOST_SUB_PROCESSES = 6000, 40
FOLDERS = AttemptFolders(work="/attempts", logs="/logs")

TABLES = (
    t.command,
    t.error_command,
    t.command_ledger,
    t.process_definition,
    t.process_instance,
    t.task_instance,
    t.quality_result,
    t.task_log_tail,
    t.task_group,
    t.task_group_queue,
    t.relation_process_instance,
    t.schedule,
    t.schedule_fire,
    t.complement,
    t.complement_date,
    t.alert,
    t.datasource,
    t.environment,
    t.worker_group,
    t.worker_server,
    t.tenant,
    t.queue,
    t.user,
)
SEEDED = (t.tenant, t.queue, t.user)

REFUSED = (RowRefusedError, DBAPIError)
"""The errors that a person gets whose row breaks a constraint."""


class Tables(Protocol):
    """The stores over one database, with direct access to its rows, as a person has.

    `hinted` is the address of the worker that is told of new attempts.
    """

    hinted: str | None

    @property
    def commands(self) -> CommandStore: ...

    @property
    def runs(self) -> RunStore: ...

    @property
    def tasks(self) -> TaskStore: ...

    @property
    def failover(self) -> FailoverStore: ...

    @property
    def holds(self) -> HoldStore: ...

    @property
    def timeouts(self) -> TimeoutStore: ...

    @property
    def dependents(self) -> DependentStore: ...

    @property
    def schedules(self) -> ScheduleStore: ...

    @property
    def complements(self) -> ComplementStore: ...

    @property
    def retention(self) -> RetentionStore: ...

    def insert(self, table: Table, **columns: Any) -> int:
        """Insert a row; grant a shared object to project 1."""
        ...

    def revoke(self, kind: GrantKind, number: int) -> None:
        """Revoke project 1's grant of a shared object."""
        ...

    def update(self, table: Table, row_id: int, **columns: Any) -> None: ...

    def rows(self, table: Table) -> list[dict[str, Any]]: ...

    def notifications(self) -> list[tuple[str, str]]: ...


class MemoryTables:
    def __init__(self) -> None:
        self.database = MemoryDatabase(os_user="tester")
        self.database.most_sub_processes = MOST_SUB_PROCESSES
        self.hinted: str | None = None
        self.commands = MemoryCommandStore(
            self.database, param_limit_bytes=PARAM_LIMIT, hint_to=lambda _: self.hinted
        )
        self.runs = MemoryRunStore(self.database, hint_to=lambda _: self.hinted)
        self.tasks = MemoryTaskStore(self.database)
        self.failover = MemoryFailoverStore(self.database)
        self.holds = MemoryHoldStore(self.database)
        self.timeouts = MemoryTimeoutStore(self.database)
        self.dependents = MemoryDependentStore(self.database)
        self.schedules = MemoryScheduleStore(self.database)
        self.complements = MemoryComplementStore(self.database)
        self.retention = MemoryRetentionStore(self.database)

    def insert(self, table: Table, **columns: Any) -> int:
        return self.database.insert(self._rows(table), **columns)

    def revoke(self, kind: GrantKind, number: int) -> None:
        self.database.revoked.add((kind, number, 1))

    def update(self, table: Table, row_id: int, **columns: Any) -> None:
        self.database.update(self._rows(table), row_id, **columns)

    def rows(self, table: Table) -> list[dict[str, Any]]:
        rows = self._rows(table)
        names = rows.record_type.__dataclass_fields__
        return [{name: getattr(row, name) for name in names} for row in rows]

    def notifications(self) -> list[tuple[str, str]]:
        return self.database.drain_notifications()

    def _rows(self, table: Table) -> Rows[Any]:
        return next(rows for rows in self.database.tables if rows.name == table.name)


class PostgresTables:
    def __init__(self, made: Engine, listener: Any) -> None:
        self.engine = made
        self.hinted: str | None = None
        both: Any = {"hint_to": lambda _: self.hinted, "most_sub_processes": MOST_SUB_PROCESSES}
        self.runs = PostgresRunStore(made, **both)
        self.commands = PostgresCommandStore(made, param_limit_bytes=PARAM_LIMIT, **both)
        self.tasks = PostgresTaskStore(made)
        self.failover = PostgresFailoverStore(made)
        self.holds = PostgresHoldStore(made)
        self.timeouts = PostgresTimeoutStore(made)
        self.dependents = PostgresDependentStore(made)
        self.schedules = PostgresScheduleStore(made)
        self.complements = PostgresComplementStore(made)
        self.retention = PostgresRetentionStore(made)
        self._listener = listener

    def insert(self, table: Table, **columns: Any) -> int:
        with self.engine.begin() as db:
            row_id: int = db.scalars(insert(table).values(**columns).returning(table.c.id)).one()
            if table in GRANTED:
                kind, number = GRANTED[table], columns.get("code", row_id)
                given = {"object_type": int(kind), "object_id": number, "project_id": 1}
                db.execute(insert(t.grant).values(given))
            return row_id

    def revoke(self, kind: GrantKind, number: int) -> None:
        with self.engine.begin() as db:
            gone = delete(t.grant).where(t.grant.c.object_type == int(kind))
            assert db.execute(gone.where(t.grant.c.object_id == number)).rowcount == 1

    def update(self, table: Table, row_id: int, **columns: Any) -> None:
        with self.engine.begin() as db:
            db.execute(update(table).where(table.c.id == row_id).values(**columns))

    def rows(self, table: Table) -> list[dict[str, Any]]:
        (found,) = self.rows_of([table])
        return found

    def rows_of(self, tables: Sequence[Table]) -> list[list[dict[str, Any]]]:
        """The rows of several tables, read in one transaction."""
        with self.engine.connect() as db:
            return [
                [dict(row) for row in db.execute(select(table).order_by(table.c.id)).mappings()]
                for table in tables
            ]

    def notifications(self) -> list[tuple[str, str]]:
        # The answer to any statement comes after the notifications of earlier commits.
        with self._listener.cursor() as cursor:
            cursor.execute("SELECT 1")
        notifications = [(notify.channel, notify.payload) for notify in self._listener.notifies]
        self._listener.notifies.clear()
        return notifications

    def draw_ids_afresh(self) -> None:
        names = ", ".join(table.name for table in TABLES if table not in SEEDED)
        with self.engine.begin() as db:
            db.execute(text(f"TRUNCATE {names} RESTART IDENTITY CASCADE"))

    def draw_ids_from_the_highest(self, tables: Sequence[Table]) -> None:
        highest = (
            f"setval(pg_get_serial_sequence('{table.name}', 'id'),"
            f" (SELECT coalesce(max(id), 0) + 1 FROM {table.name}), false)"
            for table in tables
        )
        with self.engine.begin() as db:
            db.execute(text(f"SELECT {', '.join(highest)}"))

    def empty(self) -> None:
        deletions = [
            f"DELETE FROM {table.name}{' WHERE id > 1' if table in SEEDED else ''}"
            for table in reversed(TABLES)
        ]
        with self.engine.begin() as db:
            # In one round trip: each test begins with it.
            db.execute(text("; ".join([*deletions, *RESTORED])))
        self.hinted = None
        self.notifications()


# Rows that a person types


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


def about(process_instance_id: int) -> str:
    """The `command_param` of a command about an instance."""
    return json.dumps({"ProcessInstanceId": process_instance_id})


# Plans, and commands that are taken with them


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
    db: Tables,
    planner: Planner,
    *,
    node: Node = MASTER,
    limit: int = 100,
    room: int = 100,
    spare: int = 100,
    now: datetime = NOON,
    first_step: FirstStep | None = None,
) -> tuple[Handled, ...]:
    taken = db.commands.take(
        node=node,
        limit=limit,
        room=room,
        spare=spare,
        live_masters=lambda: frozenset([node]),
        planner=planner,
        now=now,
        first_step=first_step,
    )
    return taken.handled


def carry_out(db: Tables, plan: Plan, *, node: Node = MASTER, now: datetime = NOON) -> Handled:
    """Take the only waiting command with this plan."""
    a_command(db)
    (handled,) = take(db, always(plan), node=node, now=now)
    return handled


def planner_arguments(db: Tables, **columns: Any) -> tuple[Command, Snapshot]:
    """Return the planner's arguments for a command with these columns."""
    a_command(db, **columns)
    seen: list[tuple[Command, Snapshot]] = []

    def planner(command: Command, snapshot: Snapshot) -> Plan:
        seen.append((command, snapshot))
        return Drop(reason="seen")

    take(db, planner)
    (sight,) = seen
    return sight


def a_run(db: Tables, *, node: Node = MASTER, now: datetime = NOON, **changes: Any) -> Ownership:
    """A new run of `node`, begun as every run begins."""
    handled = carry_out(db, a_begin(**changes), node=node, now=now)
    assert handled.ownership is not None
    return handled.ownership


def take_over(db: Tables, owned: Ownership, *, node: Node = OTHER_MASTER) -> Ownership:
    a_command(db, command_type=2)
    plan = Resume(process_instance_id=owned.process_instance_id, epoch=owned.epoch)
    (handled,) = take(db, always(plan), node=node)
    assert handled.ownership is not None
    return handled.ownership


def a_stop(owned: Ownership) -> SetIntent:
    return an_intent(owned.process_instance_id, CommandType.STOP)


def an_intent(process_instance_id: int, command_type: CommandType) -> SetIntent:
    wanted = ProcessState.STOP if command_type is CommandType.STOP else ProcessState.PAUSE
    return SetIntent(
        process_instance_id=process_instance_id, command_type=command_type, wanted_state=wanted
    )


# Decisions, and attempts


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


def finish(name: str, state: TaskState = TaskState.SUCCESS, attempt: int = 1) -> FinishTask:
    return FinishTask(name=name, attempt=attempt, state=state)


def kill(name: str, attempt: int = 1) -> KillTask:
    return KillTask(name=name, attempt=attempt)


def pause(name: str, attempt: int = 1) -> PauseTask:
    return PauseTask(name=name, attempt=attempt)


STOPPING = StopProcess(deadline=LATER)


def in_project(db: Tables, owned: Ownership) -> None:
    """Give the run a definition of project 1, so that its attempts may use the project's pools."""
    known = {row["id"] for row in db.rows(t.process_definition)}
    if the_process(db, owned)["process_definition_id"] not in known:
        run = owned.process_instance_id
        db.update(t.process_instance, run, process_definition_id=a_definition(db))


def save(db: Tables, owned: Ownership, *decisions: Decision, at: datetime = NOON) -> Saved:
    if any(isinstance(each, SubmitTask) and each.pools for each in decisions):
        in_project(db, owned)
    return db.runs.save([Step(ownership=owned, decisions=decisions, at=at)])


def end_run(db: Tables, owned: Ownership, state: ProcessState = ProcessState.SUCCESS) -> Saved:
    return save(db, owned, FinishProcess(state=state))


def load(db: Tables, owned: Ownership) -> LoadedRun:
    (run,) = db.runs.load([owned])
    assert isinstance(run, LoadedRun)
    return run


def submit(db: Tables, owned: Ownership, *names: str, **changes: Any) -> list[int]:
    saved = save(db, owned, *(a_submit(name, **changes) for name in names))
    return [offer.task_instance_id for offer in saved.offers]


def claim(db: Tables, ids: Sequence[int], *, node: Node = WORKER) -> list[int]:
    claimed = db.tasks.claim(node, ids, folders=FOLDERS, now=NOON)
    return [task.id for task in claimed]


def fail_over(db: Tables, worker: Node, *, now: datetime) -> int:
    """Fail the attempts of a lost worker over, marked first as they have to be."""
    db.failover.mark_lost(worker, now=now)
    return db.failover.fail_tasks_over(worker, now=now)


def an_end(task_id: int, state: TaskState = TaskState.SUCCESS, **changes: Any) -> AttemptEnd:
    return AttemptEnd(task_instance_id=task_id, state=state, end_time=LATER, **changes)


def end(db: Tables, *ends: AttemptEnd, node: Node = WORKER) -> frozenset[int]:
    return db.tasks.report(node, ends)


def run_to_end(db: Tables, owned: Ownership, name: str, state: TaskState) -> int:
    """Submit, claim, report and settle an attempt; return its id."""
    (task_id,) = submit(db, owned, name)
    claim(db, [task_id])
    end(db, an_end(task_id, state))
    save(db, owned, finish(name, state))
    return task_id


def end_with_promise(db: Tables, owned: Ownership, *names: str) -> None:
    """Pause a run whose tasks have failed, and have retries promised a minute after `LATER`."""
    for name in names or ("a",):
        (task_id,) = submit(db, owned, name)
        claim(db, [task_id])
        end(db, an_end(task_id, TaskState.FAILURE))
        retry = RetryTask(name=name, attempt=1, state=TaskState.FAILURE, at=LATER + MINUTE)
        save(db, owned, retry)
    end_run(db, owned, ProcessState.PAUSE)


def release(db: Tables, now: datetime = NOON) -> Released:
    return db.holds.release(now=now)


def released(db: Tables, now: datetime = NOON) -> list[int]:
    """The ids of the attempts that a release lets start."""
    return [offer.task_instance_id for offer in release(db, now).offers]


# Sub processes


def a_sub_process(name: str, attempt: int = 1, **changes: Any) -> SubmitTask:
    return a_submit(name, attempt, task_type="SUB_PROCESS", **changes)


def call_child(db: Tables, parent: Ownership, name: str = "sub", attempt: int = 1) -> int:
    """Submit a SUB_PROCESS attempt, whose command waits; return its id."""
    save(db, parent, a_sub_process(name, attempt))
    return the_newest_id(db, t.task_instance)


def child_of(db: Tables, parent: Ownership, task_id: int) -> ChildOf:
    row = the_process(db, parent)
    return ChildOf(
        process_instance_id=parent.process_instance_id,
        task_instance_id=task_id,
        root_id=row["root_id"] or row["id"],
    )


def begin_child(db: Tables, parent: Ownership, task_id: int, **changes: Any) -> Ownership:
    """Begin the child whose command is the only one that waits; return its run."""
    plan = a_begin(child_of=child_of(db, parent, task_id), **changes)
    (handled,) = take(db, always(plan))
    assert handled.ownership is not None
    return handled.ownership


def a_child(db: Tables, parent: Ownership, name: str = "sub") -> tuple[int, Ownership]:
    """A RUNNING SUB_PROCESS attempt and the run that it waits for."""
    task_id = call_child(db, parent, name)
    return task_id, begin_child(db, parent, task_id)


# Reading rows


def the_process(db: Tables, owned: Ownership) -> dict[str, Any]:
    return the_row(db, t.process_instance, owned.process_instance_id)


def the_task(db: Tables, task_id: int) -> dict[str, Any]:
    return the_row(db, t.task_instance, task_id)


def the_row(db: Tables, table: Table, row_id: int) -> dict[str, Any]:
    return next(row for row in db.rows(table) if row["id"] == row_id)


def the_newest_id(db: Tables, table: Table) -> int:
    newest: int = db.rows(table)[-1]["id"]
    return newest


def has(row: dict[str, Any], **columns: Any) -> bool:
    """Assert that the row has these columns; the message names those that differ."""
    assert {name: row[name] for name in columns} == columns
    return True
