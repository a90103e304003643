"""Repeated queries of loops must not grow with ended rows: rows are counted, not time."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, event, text

from common.model.cluster import Node
from common.model.commands import CommandRow
from common.model.decisions import FinishTask
from common.model.instances import Ownership
from common.model.rights import Principal
from common.model.slot_share import RoomShare, SlotShare
from common.model.states import ProcessState, TaskState
from common.model.upstream import Question
from common.store.connect import engine
from common.store.master.assignments import PostgresAssignmentStore
from common.store.master.commands import PostgresCommandStore
from common.store.master.dependents import PostgresDependentStore
from common.store.master.failover import PostgresFailoverStore
from common.store.master.holds import PostgresHoldStore
from common.store.master.lanes import Served
from common.store.master.ports import Step
from common.store.master.runs import PostgresRunStore
from common.store.master.timeouts import PostgresTimeoutStore
from common.store.master.waiting import lock_waiting
from common.store.people.good_runs import usual_durations, with_last_good
from common.store.people.numbered_pages import Slice, instance_slice, task_slice
from common.store.people.rights import Thing, held
from common.store.people.schedule_views import schedules
from common.store.people.users import holder_of
from common.store.people.views import (
    process_instance_detail,
    process_instances,
    task_instances,
)
from common.store.retention import FIRST, PostgresRetentionStore
from common.store.transaction import StoreConflictError
from common.store.worker.ports import AttemptEnd, AttemptFolders
from common.store.worker.tasks import PostgresTaskStore
from tests.builders import NOON
from tests.conformance.store_tables import a_begin

MASTER = Node(address="10.0.0.1:5678", incarnation=1)
WORKER = Node(address="10.0.0.3:1234", incarnation=3)
ENDED_RUNS = 3000
# A query may read a few rows for each live one; ended rows are 100 times as many.
FEW = 400
FIRST_LIVE = 10 * ENDED_RUNS + 1
_FOLDERS = AttemptFolders(work="/tasks/exec", logs="/tasks/logs")

_FILL = (
    # A definition that ran every hour, with others that depend on it.
    """INSERT INTO t_ds_process_definition (name, process_definition_json, release_state)
       SELECT 'definition' || n, '{}', 1 FROM generate_series(1, 3) n""",
    f"""INSERT INTO t_ds_process_instance (name, process_definition_id, state, start_time, end_time,
            command_type, process_instance_json, executor_id, host, owner_incarnation, owner_epoch)
        SELECT 'ended' || n, 1, 7, TIMESTAMPTZ '2026-01-01Z' - n * INTERVAL '1 hour', now(), 0,
            '{{}}', 1, '10.0.0.1:5678', 1, 1 FROM generate_series(1, {ENDED_RUNS}) n""",
    """INSERT INTO t_ds_task_instance (name, task_type, process_definition_id, process_instance_id,
            task_json, state, settled, start_time, end_time, host, worker_incarnation)
       SELECT 'task' || k, 'SHELL', 1, p.id, '{}', 7, true, now(), now(), '10.0.0.3:1234', 3
       FROM t_ds_process_instance p, generate_series(1, 10) k ORDER BY p.id, k""",
    "INSERT INTO t_ds_task_group (name, group_size) VALUES ('pool', 5)",
    """INSERT INTO t_ds_task_group_queue (task_id, task_name, group_id, process_id, status)
       SELECT id, name, 1, process_instance_id, 2 FROM t_ds_task_instance""",
    # Live attempts: five that have slots, ten that wait for some.
    """INSERT INTO t_ds_process_instance (name, process_definition_id, state, command_type,
            process_instance_json, executor_id, host, owner_incarnation, owner_epoch)
       VALUES ('live', 2, 1, 0, '{}', 1, '10.0.0.1:5678', 1, 1)""",
    """INSERT INTO t_ds_task_instance (name, task_type, process_definition_id, process_instance_id,
            task_json, state, submit_time)
       SELECT 'task' || n, 'SHELL', 2, p.id, '{}', CASE WHEN n <= 5 THEN 0 ELSE 11 END, now()
       FROM t_ds_process_instance p, generate_series(1, 15) n WHERE p.name = 'live'""",
    """INSERT INTO t_ds_task_group_queue (task_id, task_name, group_id, process_id, status)
       SELECT id, name, 1, process_instance_id, CASE WHEN state = 0 THEN 1 ELSE -1 END
       FROM t_ds_task_instance WHERE state IN (0, 11)""",
    "INSERT INTO t_ds_command (process_definition_id) SELECT 1 FROM generate_series(1, 3000)",
)


@pytest.fixture(scope="module")
def made(url: str) -> Iterator[Engine]:
    filled = engine(url)
    with filled.begin() as db:
        for statement in _FILL:
            db.exec_driver_sql(statement)
    with filled.connect() as db:
        db.execution_options(isolation_level="AUTOCOMMIT").execute(text("VACUUM ANALYZE"))
    yield filled
    filled.dispose()


def rows_read(made: Engine, work: Callable[[], object]) -> dict[str, int]:
    """The number of rows that each statement of this work reads, filtered ones included."""
    read: dict[str, int] = {}

    def explain(_db: Any, cursor: Any, statement: str, values: Any, *_: Any) -> None:
        if "pg_advisory" in statement or statement.startswith("PREPARE"):
            return
        # The settings after a prepared statement within a transaction.
        if statement.startswith("SET LOCAL") and "EXECUTE" not in statement:
            return
        # A prepared statement is carried out with settings of its own.
        settings, _, explained = statement.rpartition(";")
        with cursor.connection.cursor() as other:
            other.execute(f"{settings}; EXPLAIN (ANALYZE, FORMAT JSON) {explained}", values)
            (document,) = other.fetchone()
        plans = document if isinstance(document, list) else json.loads(document)
        read[statement] = _read_by(plans[0]["Plan"])

    event.listen(made, "before_cursor_execute", explain)
    try:
        work()
    finally:
        event.remove(made, "before_cursor_execute", explain)
    return read


def _read_by(plan: dict[str, Any]) -> int:
    own = 0
    if "Scan" in plan["Node Type"] and "Relation Name" in plan:
        passed_over = plan.get("Rows Removed by Filter", 0)
        own = round((plan["Actual Rows"] + passed_over) * plan["Actual Loops"])
    return own + sum(_read_by(below) for below in plan.get("Plans", ()))


def assert_few(read: dict[str, int]) -> None:
    assert read
    assert {statement: rows for statement, rows in read.items() if rows > FEW} == {}


def test_a_release_reads_nothing_of_the_attempts_that_have_ended(made: Engine, heard: None) -> None:
    assert_few(rows_read(made, lambda: PostgresHoldStore(made).release(now=NOON)))


@pytest.mark.parametrize("named", [{"definition_id": 1}, {"definition_name": "definition1"}])
def test_a_wait_for_a_run_that_has_not_come_reads_nothing_of_those_before(
    made: Engine, named: dict[str, Any]
) -> None:
    whose = {"definition_id": None, "definition_name": None} | named
    asked = [
        Question(
            **whose,
            task="task1",
            start=NOON + timedelta(days=9000 + day),
            end=NOON + timedelta(days=9001 + day),
            apart_from=ENDED_RUNS + 1,
        )
        for day in range(7)
    ]
    store = PostgresDependentStore(made)
    assert_few(rows_read(made, lambda: store.look_up(asked)))


@pytest.mark.parametrize(
    "look",
    [
        lambda made: PostgresRunStore(made).owned(MASTER),
        lambda made: PostgresRunStore(made).reports(MASTER),
        lambda made: PostgresRunStore(made).wanted(MASTER),
        lambda made: PostgresRunStore(made).propagate_intents(MASTER),
        lambda made: PostgresRunStore(made).unclaimed(MASTER, submitted_before=NOON),
        lambda made: PostgresDependentStore(made).undecided(MASTER),
        lambda made: PostgresDependentStore(made).waiting(MASTER),
        lambda made: PostgresDependentStore(made).runs([1, ENDED_RUNS]),
        lambda made: PostgresTimeoutStore(made).time_out(now=NOON),
        lambda made: PostgresFailoverStore(made).run_owners(),
        lambda made: PostgresFailoverStore(made).task_owners(),
        lambda made: PostgresFailoverStore(made).recover_ownerless(now=NOON),
        lambda made: PostgresAssignmentStore(made).is_asked(),
        lambda made: PostgresCommandStore(made).waiting(),
    ],
    ids=[
        "owned",
        "reports",
        "wanted",
        "intents",
        "unclaimed",
        "undecided",
        "dependents",
        "answering runs",
        "timeouts",
        "run owners",
        "task owners",
        "ownerless",
        "assignments",
        "commands",
    ],
)
def test_a_slow_look_reads_nothing_of_what_has_ended(
    made: Engine, look: Callable[[Engine], object], heard: None
) -> None:
    assert_few(rows_read(made, lambda: look(made)))


def test_a_purge_reads_few_runs_besides_those_that_it_marks(made: Engine) -> None:
    store, before = PostgresRetentionStore(made), NOON + timedelta(days=9000)
    read = rows_read(made, lambda: store.mark(before=before, after=FIRST, limit=50, needs=()))
    # The attempts of the fifty are ten times as many, and whatever commands wait are looked through.
    of_runs = {each: rows for each, rows in read.items() if "t_ds_command" not in each}
    (recursive,) = (each for each in of_runs if "WITH RECURSIVE" in each)
    # With a hundred thousand runs a join with a recursion would read all of them.
    assert "t_ds_process_instance" not in recursive.rpartition(")")[2]
    assert {each: rows for each, rows in of_runs.items() if rows > 2 * FEW} == {}


PERSON = Principal(user_id=1, user_name="admin")


@pytest.mark.parametrize(
    "read",
    [
        lambda db: process_instances(db, limit=20, principal=PERSON),
        lambda db: process_instances(db, limit=20, principal=PERSON, before=ENDED_RUNS // 2),
        lambda db: process_instances(db, limit=20),
        lambda db: process_instances(db, limit=20, principal=PERSON, definition_id=1),
        lambda db: schedules(db, limit=20, principal=PERSON),
        lambda db: held(db, PERSON, Thing.INSTANCE, ENDED_RUNS // 2),
        lambda db: held(db, PERSON, Thing.TASK, ENDED_RUNS // 2),
        lambda db: task_instances(db, process_instance_id=ENDED_RUNS // 2, limit=500),
        lambda db: process_instance_detail(db, ENDED_RUNS // 2, with_tasks=False),
        lambda db: holder_of(db, "of nobody"),
    ],
    ids=[
        "page",
        "later page",
        "owner's page",
        "of a definition",
        "schedules",
        "run",
        "attempt",
        "attempts",
        "detail",
        "token",
    ],
)
def test_a_prepared_read_for_people_reads_few_rows_of_what_has_ended(
    made: Engine, read: Callable[[Connection], object], heard: None
) -> None:
    served = engine(made.url.render_as_string(hide_password=False), by_statement=True)
    with served.connect() as db:
        found = rows_read(served, lambda: read(db))
    served.dispose()
    assert all("EXECUTE" in statement for statement in found)
    assert_few(found)


_OF_ADA = (
    "INSERT INTO t_ds_project (id, name, user_id) VALUES (2, 'of ada', 1)",
    "INSERT INTO t_ds_user (id, user_name, user_type) VALUES (2, 'ada', 1)",
    "INSERT INTO t_ds_relation_project_user (user_id, project_id, perm) VALUES (2, 2, 1)",
    "UPDATE t_ds_process_definition SET project_id = 2 WHERE id = 3",
    # One among the newest of all, two behind them.
    "UPDATE t_ds_process_instance SET process_definition_id = 3 WHERE id IN (10, 20, 2990)",
    "UPDATE t_ds_process_instance SET state = 6 WHERE id = 20",
)
ADA = Principal(user_id=2, user_name="ada")
TOKEN_OF_ADMIN = Principal(user_id=1, user_name="admin", projects=frozenset({2}))


@pytest.mark.parametrize("principal", [ADA, TOKEN_OF_ADMIN], ids=["ada", "a token"])
def test_whoever_sees_few_runs_is_shown_those_behind_the_newest_of_all_too(
    made: Engine, principal: Principal
) -> None:
    def listed(**asked: Any) -> list[int]:
        return [each.id for each in process_instances(db, principal=principal, **asked)]

    with made.connect() as db:
        for statement in _OF_ADA:
            db.exec_driver_sql(statement)
        assert listed() == [2990, 20, 10]
        assert listed(limit=2) == [2990, 20]
        assert listed(before=2990) == [20, 10]
        assert listed(before=20) == [10]
        assert listed(states=[6]) == [20]
        assert listed(states=[6, 7], limit=2) == [2990, 20]
        assert listed(definition_id=3) == listed(definition_id=3, limit=5) == [2990, 20, 10]
        assert listed(definition_id=3, before=2990, limit=1) == [20]
        assert listed(definition_id=1) == []
        assert listed(definition_name="definition3") == [2990, 20, 10]
        db.exec_driver_sql("UPDATE t_ds_user SET state = 0")
        assert listed() == listed(states=[6]) == []
        db.rollback()


def test_the_last_good_run_before_another_is_found_without_those_before_it(made: Engine) -> None:
    found = []
    with made.connect() as db:
        read = rows_read(made, lambda: found.append(with_last_good(db, 1, ENDED_RUNS // 2)))
    assert_few(read)
    ((run, good),) = (each for each in found if each is not None)
    assert (run.id, good.id) == (ENDED_RUNS // 2, ENDED_RUNS // 2 - 1)


def test_what_is_usual_of_a_task_is_found_without_the_other_runs_and_tasks(made: Engine) -> None:
    found: list[dict[str, tuple[timedelta, int]]] = []
    with made.connect() as db:
        name = db.execute(text("SELECT name FROM t_ds_task_instance WHERE id = 1")).scalar_one()
        ask = partial(usual_durations, db, 1, ENDED_RUNS // 2, [name])
        read = rows_read(made, lambda: found.append(ask()))
    assert_few(read)
    ((told, (_, runs)),) = found[0].items()
    assert (told, runs) == (name, 20)


@pytest.mark.parametrize("state", [3, 5, 6])
def test_the_few_runs_that_have_not_succeeded_are_found_without_the_others(
    made: Engine, state: int
) -> None:
    with made.connect() as db:
        assert_few(rows_read(made, lambda: process_instances(db, states=[state])))


@pytest.mark.parametrize("state", [3, 6, 8, 9])
def test_the_few_attempts_that_have_not_succeeded_are_found_without_the_others(
    made: Engine, state: int
) -> None:
    with made.connect() as db:
        assert_few(rows_read(made, lambda: task_instances(db, states=[state], limit=50)))


@pytest.mark.parametrize("read", [instance_slice, task_slice])
def test_a_page_by_number_reads_hardly_more_than_is_before_it(
    made: Engine, read: Callable[..., object]
) -> None:
    with made.connect() as db:
        found = rows_read(made, lambda: read(db, 1, Slice(offset=100, limit=10)))
    # The total takes as many rows as there are, to a bound.
    assert len([each for each in found if "count(" in each]) == 1
    assert_few({each: rows for each, rows in found.items() if "count(" not in each})


@pytest.mark.parametrize("read", [instance_slice, task_slice])
def test_a_total_that_is_known_is_not_counted_again(
    made: Engine, read: Callable[..., tuple[list[object], int]]
) -> None:
    found: list[tuple[list[object], int]] = []
    with made.connect() as db:
        known = Slice(offset=100, limit=10, total=77_000)
        asked = rows_read(made, lambda: found.append(read(db, 1, known)))
    assert not any("count(" in each for each in asked)
    ((rows, total),) = found
    assert (len(rows), total) == (10, 77_000)


@pytest.mark.parametrize("read", [instance_slice, task_slice])
def test_a_page_by_number_that_is_the_last_needs_no_count(
    made: Engine, read: Callable[..., object]
) -> None:
    with made.connect() as db:
        found = rows_read(made, lambda: read(db, 1, Slice(offset=0, limit=100), states=[1]))
    assert not any("count(" in each for each in found)
    assert_few(found)


def test_a_statement_prepared_on_empty_tables_reads_few_rows_of_those_that_follow(
    emptied_url: str, heard: None
) -> None:
    # One connection, which keeps the plans; nothing analyzes the tables in between.
    made = engine(emptied_url, pool_size=1, max_overflow=0)
    tasks, runs = PostgresTaskStore(made), PostgresRunStore(made)
    commands = PostgresCommandStore(made)
    end = AttemptEnd(task_instance_id=1, state=TaskState.SUCCESS, end_time=NOON, exit_code=0)
    step = Step(
        ownership=Ownership(process_instance_id=1, host=MASTER.address, epoch=1),
        decisions=(FinishTask(name="task1", attempt=1, state=TaskState.SUCCESS, at=NOON),),
        at=NOON,
    )

    def work() -> None:
        tasks.claim(WORKER, [FIRST_LIVE, FIRST_LIVE + 1], folders=_FOLDERS, now=NOON)
        tasks.report(WORKER, [end])
        # What is explained is carried out, and then missed.
        with suppress(StoreConflictError):
            runs.save([step])
        with suppress(StoreConflictError):
            commands.take(
                node=MASTER,
                limit=50,
                room=50,
                spare=50,
                live_masters=frozenset,
                planner=lambda _command, _snapshot: a_begin(),
                now=NOON,
                first_step=lambda _run: None,
            )

    with made.begin() as db:
        for table in ("t_ds_process_instance", "t_ds_task_instance", "t_ds_command"):
            db.exec_driver_sql(f"ALTER TABLE {table} SET (autovacuum_enabled = off)")
        db.exec_driver_sql("INSERT INTO t_ds_command (command_type) VALUES (0)")
    work()
    with made.begin() as db:
        for statement in _FILL:
            db.exec_driver_sql(statement)
        db.exec_driver_sql("UPDATE t_ds_command SET command_type = 0")
        # The step that is saved: rows of a database that others have used lie in any order, so the
        # attempt is named, and the run is given back to the master that saves it.
        for saved in (
            f"""UPDATE t_ds_process_instance SET state = {ProcessState.RUNNING:d}, end_time = NULL,
                    host = '{MASTER.address}', owner_epoch = 1 WHERE id = 1""",
            """UPDATE t_ds_task_instance SET settled = false
                WHERE process_instance_id = 1 AND name = 'task1'""",
        ):
            assert db.exec_driver_sql(saved).rowcount == 1
    read = rows_read(made, work)
    prepared = {statement: rows for statement, rows in read.items() if "EXECUTE" in statement}
    with made.connect() as db:
        known = db.exec_driver_sql("SELECT name, statement FROM pg_prepared_statements").all()
    assert len(known) == 7
    unseen = [each for each in known if not any(f"EXECUTE {each.name} " in one for one in prepared)]
    assert unseen == []
    assert_few(prepared)
    made.dispose()


@pytest.mark.parametrize("wanting", ["0", "n"], ids=["starts", "children"])
def test_x83_a_take_reads_few_of_the_commands_that_wait(emptied_url: str, wanting: str) -> None:
    """No date of a complement waits, which a take has to find out as well."""
    made = engine(emptied_url, pool_size=1, max_overflow=0)
    definitions = (
        "INSERT INTO t_ds_process_definition (id, name, project_id, process_definition_json)"
        " SELECT n, 'large' || n, CASE n WHEN 1001 THEN 2 ELSE 1 END, '{}'"
        " FROM generate_series(1, 1001) n"
    )
    insert = (
        "INSERT INTO t_ds_command (command_type, process_definition_id, parent_task_instance_id)"
        f" SELECT 0, {{definition}}, {wanting} FROM generate_series(1, {{number}}) n RETURNING id"
    )
    taken: list[CommandRow] = []

    def take() -> None:
        with made.begin() as db:
            taken[:] = lock_waiting(
                db, limit=50, room=50, spare=60, param_limit_bytes=1_000, served=Served()
            )

    # A plan for few rows, which the connection keeps.
    take()
    with made.begin() as db:
        db.exec_driver_sql(definitions)
        db.exec_driver_sql(insert.format(definition="mod(n, 1000) + 1", number=10_000))
        last = db.exec_driver_sql(insert.format(definition=1001, number=1)).scalar_one()
    assert_few(rows_read(made, take))
    assert (len(taken), taken[1].id) == (50, last)
    made.dispose()


def test_a_take_reads_few_commands_of_a_project_that_holds_its_share(emptied_url: str) -> None:
    made = engine(emptied_url, pool_size=1, max_overflow=0)
    share = SlotShare(percent=80, free=20, held={1: 80})
    with made.begin() as db:
        db.exec_driver_sql(
            "INSERT INTO t_ds_process_definition (name, project_id, process_definition_json)"
            " VALUES ('greedy', 1, '{}'), ('other', 2, '{}')"
        )
        waiting = (
            "INSERT INTO t_ds_command (command_type, process_definition_id, complement_date_id)"
            " SELECT 0, id, {date} FROM t_ds_process_definition, generate_series(1, {number})"
            " WHERE name = '{name}' RETURNING id"
        )
        for date in (0, 1):
            for name, number in (("greedy", 10_000), ("other", 3)):
                db.exec_driver_sql(waiting.format(date=date, number=number, name=name))
    taken: list[CommandRow] = []
    with made.connect() as db:
        read = rows_read(
            made,
            lambda: taken.extend(
                lock_waiting(
                    db,
                    limit=50,
                    room=20,
                    spare=20,
                    param_limit_bytes=1_000,
                    served=Served(),
                    share=RoomShare(live=share, dates=share.copy()),
                )
            ),
        )
        db.rollback()
    assert [row.process_definition_id for row in taken] == [taken[0].process_definition_id] * 6
    assert_few(read)
    made.dispose()
