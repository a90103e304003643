"""However many wait, a loop's repeated question is answered with a page: rows are counted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import Engine, event, text

from common.model.cluster import Node
from common.model.plans import Drop
from common.model.rights import DATABASE
from common.store.connect import engine
from common.store.master.commands import PostgresCommandStore
from common.store.master.dependents import PostgresDependentStore
from common.store.master.holds import PostgresHoldStore
from common.store.master.ports import PAGE
from common.store.master.runs import PostgresRunStore
from common.store.people.reasons import facts_of, moment
from common.task_types import known_task_types
from tests.builders import NOON

MASTER = Node(address="10.0.0.1:5678", incarnation=1)
MANY = 10_000
LATER = NOON + timedelta(days=3650)

_FILL = (
    f"""INSERT INTO t_ds_process_instance (name, process_definition_id, state, command_type,
            process_instance_json, executor_id, host, owner_incarnation, owner_epoch)
        SELECT 'live' || n, 1, 1, 0, '{{"tasks":[]}}', 1, '10.0.0.1:5678', 1, 1
        FROM generate_series(1, {MANY}) n""",
    "INSERT INTO t_ds_process_definition (id, name, project_id) VALUES (1, 'filled', 1)",
    "INSERT INTO t_ds_task_group (name, group_size) VALUES ('full', 5), ('free', 3)",
    "INSERT INTO t_ds_grant VALUES (4, 1, 1), (4, 2, 1)",
    # In the queue, held for a full pool, waiting for other runs, ended with a pool of variables.
    *(
        f"""INSERT INTO t_ds_task_instance (name, task_type, process_definition_id,
                process_instance_id, task_json, state, submit_time, start_time, end_time, var_pool)
            SELECT '{name}', '{task_type}', 1, id, '{{}}', {state}, now(), now(), {end}, {pool}
            FROM t_ds_process_instance"""
        for name, task_type, state, end, pool in (
            ("queued", "SHELL", 0, "NULL", "NULL"),
            ("held", "SHELL", 11, "NULL", "NULL"),
            ("waiting", "DEPENDENT", 1, "NULL", "NULL"),
            ("ended", "SHELL", 7, "now()", "repeat('x', 1000)"),
        )
    ),
    """INSERT INTO t_ds_task_instance (name, task_type, process_definition_id,
            process_instance_id, task_json, state, submit_time)
       SELECT 'holder', 'SHELL', 1, id, '{}', 0, now() FROM t_ds_process_instance
       ORDER BY id LIMIT 5""",
    """INSERT INTO t_ds_task_group_queue (task_id, task_name, group_id, process_id, status)
       SELECT id, name, 1, process_instance_id, CASE state WHEN 0 THEN 1 ELSE -1 END
       FROM t_ds_task_instance WHERE name IN ('held', 'holder')""",
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


def rows_fetched(made: Engine, work: Callable[[], object]) -> list[int]:
    """The number of rows that each query of this work brings back."""
    fetched: list[int] = []

    def note(_db: Any, cursor: Any, *_: Any) -> None:
        if cursor.description is not None:
            fetched.append(cursor.rowcount)

    event.listen(made, "after_cursor_execute", note)
    try:
        work()
    finally:
        event.remove(made, "after_cursor_execute", note)
    assert fetched
    return fetched


@pytest.mark.parametrize(
    ("ask", "looks"),
    [
        (lambda made: PostgresRunStore(made).owned(MASTER), []),
        (lambda made: PostgresRunStore(made).reports(MASTER), []),
        # Whether there is any is asked before.
        (lambda made: PostgresRunStore(made).unclaimed(MASTER, submitted_before=LATER), [1]),
        (lambda made: PostgresDependentStore(made).waiting(MASTER), []),
    ],
    ids=["owned", "reports", "unclaimed", "dependents"],
)
def test_a_question_of_each_second_is_answered_with_one_page(
    made: Engine, ask: Callable[[Engine], Any], looks: list[int], heard: None
) -> None:
    assert rows_fetched(made, lambda: ask(made)) == [*looks, PAGE]


def test_the_pages_together_hold_every_row_once(made: Engine) -> None:
    store, last, seen = PostgresRunStore(made), 0, 0
    while page := store.reports(MASTER, after=last, limit=3000):
        seen += len(page)
        assert page[0].task_instance_id > last
        last = page[-1].task_instance_id
    assert seen == MANY


def test_a_release_reads_only_a_page_of_those_that_wait_for_a_full_pool(made: Engine) -> None:
    fetched = rows_fetched(made, lambda: PostgresHoldStore(made).release(now=NOON))
    assert max(fetched) <= PAGE
    assert sum(fetched) <= 2 * PAGE + 20


def test_slots_go_to_the_first_in_line_behind_ten_thousand_that_wait_for_others(
    made: Engine,
) -> None:
    with made.begin() as db:
        last = db.exec_driver_sql(
            "INSERT INTO t_ds_task_instance (name, task_type, process_definition_id,"
            " process_instance_id, task_json, state, submit_time)"
            " SELECT 'last' || n, 'SHELL', 1, (SELECT max(id) FROM t_ds_process_instance), '{}',"
            " 11, now() FROM generate_series(1, 4) n RETURNING id"
        )
        ids = sorted(row.id for row in last)
        for task_id in ids:
            db.exec_driver_sql(
                "INSERT INTO t_ds_task_group_queue (task_id, task_name, group_id, process_id,"
                f" status) VALUES ({task_id}, 'last', 2, 1, -1)"
            )
    store = PostgresHoldStore(made)
    released = store.release(now=NOON)
    assert [offer.task_instance_id for offer in released.offers] == ids[:3]
    with made.begin() as db:
        db.exec_driver_sql(f"UPDATE t_ds_task_instance SET state = 11 WHERE id = {ids[3]}")
        db.exec_driver_sql("UPDATE t_ds_task_group SET group_size = 7 WHERE id = 1")
    fetched = rows_fetched(made, lambda: store.release(now=NOON))
    assert max(fetched) <= PAGE


def test_without_room_a_stop_is_found_and_no_command_that_waits_for_room_is_read(
    made: Engine,
) -> None:
    """Without statistics, too: the table of commands is empty whenever it is analyzed."""
    with made.begin() as db:
        db.exec_driver_sql(
            "INSERT INTO t_ds_command (command_type, process_definition_id)"
            f" SELECT 0, 1 FROM generate_series(1, {MANY})"
        )
        stop = db.exec_driver_sql(
            "INSERT INTO t_ds_command (command_type, process_definition_id)"
            " VALUES (9, 1) RETURNING id"
        ).scalar_one()
    scans: list[str] = []

    def note(_db: Any, cursor: Any, statement: str, values: Any, *_: Any) -> None:
        settings, _, called = statement.rpartition(";")
        if called.startswith("EXECUTE"):
            with cursor.connection.cursor() as other:
                other.execute(f"{settings}; EXPLAIN {called}", values)
                scans.extend(line for (line,) in other if "on t_ds_command" in line)

    event.listen(made, "before_cursor_execute", note)
    try:
        taken = PostgresCommandStore(made).take(
            node=MASTER,
            limit=50,
            room=0,
            spare=0,
            live_masters=lambda: frozenset({MASTER}),
            planner=lambda *_: Drop(reason="only the choice matters"),
            now=NOON,
        )
    finally:
        event.remove(made, "before_cursor_execute", note)
    assert [each.command_id for each in taken.handled] == [stop]
    for name in ("about_runs", "start_lane", "child_lane"):
        assert any(f"t_ds_command_{name}_idx" in line for line in scans)
    assert [line for line in scans if "Seq Scan" in line or "picking" in line] == []


def test_why_counts_the_queue_and_does_not_read_it(made: Engine) -> None:
    def explain(run_id: int) -> int:
        with moment(made) as db:
            facts = facts_of(
                db,
                run_id,
                members=None,
                now=NOON,
                task_types=known_task_types(),
                principal=DATABASE,
                exec_threads=10,
            )
        assert facts is not None
        (queued,) = [each for each in facts.runs[run_id].attempts if each.name == "queued"]
        return facts.queue[queued.id].ahead

    with made.connect() as db:
        first, last = db.exec_driver_sql("SELECT min(id), max(id) FROM t_ds_process_instance").one()
    assert explain(first) == 0
    ahead: list[int] = []
    fetched = rows_fetched(made, lambda: ahead.append(explain(last)))
    assert ahead[0] >= MANY
    # The attempts of the run, and the holders of its pools.
    assert max(fetched) <= 20


def test_x120_commands_that_take_long_to_plan_delay_those_of_another_project_by_one_batch(
    emptied_url: str,
) -> None:
    """The time of a batch is over with its first command, so a batch contains one command."""
    made = engine(emptied_url)
    with made.begin() as db:
        db.exec_driver_sql(
            "INSERT INTO t_ds_process_definition (id, name, project_id)"
            " VALUES (1, 'slow', 1), (2, 'other', 2), (3, 'third', 3)"
        )
        db.exec_driver_sql(
            "INSERT INTO t_ds_command (id, command_type, process_definition_id)"
            " VALUES (1, 0, 1), (2, 0, 1), (3, 0, 1), (4, 0, 3), (5, 0, 3), (6, 0, 2)"
        )
    store = PostgresCommandStore(made, batch_seconds=0)

    def take() -> list[int]:
        taken = store.take(
            node=MASTER,
            limit=50,
            room=50,
            spare=50,
            live_masters=lambda: frozenset({MASTER}),
            planner=lambda *_: Drop(reason="only the choice matters"),
            now=NOON,
        )
        return [each.command_id for each in taken.handled]

    assert [take() for _ in range(7)] == [[1], [6], [4], [2], [5], [3], []]
    made.dispose()
