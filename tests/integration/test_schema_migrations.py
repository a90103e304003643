"""Migrations of a database with rows in it: nothing is lost, and live runs continue."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from sqlalchemy import Connection, Engine, insert, inspect, select, text
from sqlalchemy.exc import IntegrityError

from common.model.cluster import Node
from common.model.commands import CommandOutcome
from common.model.decisions import FinishProcess
from common.model.instances import Ownership
from common.model.offers import Offer
from common.model.rights import DATABASE, ROLES, Principal
from common.model.states import ProcessState
from common.model.streams.partitions import TopicPartition
from common.model.streams.progress import DatasetProgress, Feeding
from common.model.topologies import Code, Wanted
from common.model.topology_graphs import TopologyGraph
from common.model.upstream import DatasetQuestion
from common.store import schema, tables
from common.store.connect import connect, engine
from common.store.listen import Channel
from common.store.master.commands import PostgresCommandStore
from common.store.master.dataset_progress import progress_of
from common.store.master.failover import PostgresFailoverStore
from common.store.master.ports import LoadedRun, Step
from common.store.master.runs import PostgresRunStore
from common.store.master.supervisors import PostgresSupervisorStore
from common.store.people.drafts import add_draft, find_draft
from common.store.people.ledger import CommandView, find_command
from common.store.people.offers import offers
from common.store.people.projects import Review, review_of
from common.store.people.rights import Thing, held
from common.store.people.runs import log_tail
from common.store.people.supervisors import add_version, make_supervisor, supervisors
from common.store.people.topologies import add_version as add_topology_version
from common.store.people.topologies import make_topology, topologies
from common.store.people.users import holder_of, tokens, users
from common.store.streams.offsets import put_offsets
from common.store.worker.ports import Kept, LogTail
from common.store.worker.tasks import PostgresTaskStore
from master.commands import plan
from master.commands.origin import Origin
from operations.tokens import principal_of
from tests.builders import NOON, a_definition_json, read_graph
from tests.integration.former_databases import bring_to

MASTER = Node(address="10.0.0.1:5678", incarnation=2**40)
LATER = NOON + timedelta(minutes=1)
ORIGIN = Origin(zone=ZoneInfo("UTC"), graph=read_graph)


@pytest.fixture
def former(new_database: Callable[..., str]) -> Any:
    """A database of revision 0001 with a waiting command, a live and an ended process instance."""
    made = engine(new_database())
    with made.begin() as db:
        bring_to(db, "0001")
        db.execute(
            insert(tables.process_definition).values(
                id=3,
                name="flights",
                process_definition_json=a_definition_json("a >> b"),
                release_state=1,
            )
        )
        db.execute(
            text(
                "INSERT INTO t_ds_command (id, command_type, process_definition_id, command_param)"
                ' VALUES (41, 0, 3, \'{"StartParams": {"day": "1"}}\')'
            )
        )
        for run_id, state, end in (
            (7, ProcessState.RUNNING, None),
            (8, ProcessState.SUCCESS, NOON),
        ):
            db.execute(
                text(
                    "INSERT INTO t_ds_process_instance (id, name, process_definition_id, state,"
                    " start_time, end_time, host, owner_incarnation, owner_epoch, command_type,"
                    " command_param, process_instance_json, executor_id, history_cmd) VALUES"
                    " (:id, 'flights-1', 3, :state, :now, :end, :host, :incarnation, 1, 0, '{}',"
                    " :json, 1, 'START_PROCESS')"
                ),
                {
                    "id": run_id,
                    "state": int(state),
                    "now": NOON,
                    "end": end,
                    "host": MASTER.address if end is None else None,
                    "incarnation": MASTER.incarnation if end is None else None,
                    "json": a_definition_json("a >> b"),
                },
            )
        db.execute(
            text("SELECT setval(pg_get_serial_sequence('t_ds_process_instance', 'id'), 100)")
        )
        db.execute(
            text(
                "INSERT INTO t_ds_error_command (command_id, command_type, process_definition_id,"
                " process_instance_id, start_time, message) VALUES"
                " (38, NULL, NULL, NULL, 'infinity', NULL), (39, 7, 3, 8, :now, 'it still runs')"
            ),
            {"now": NOON},
        )
        assert "command_id" not in columns_of(db, "t_ds_process_instance")
    yield made
    made.dispose()


def columns_of(db: Connection, name: str) -> set[str]:
    return {column["name"] for column in inspect(db).get_columns(name)}


def command_ids(made: Engine) -> dict[int, int | None]:
    run = tables.process_instance.c
    with made.connect() as db:
        return {row.id: row.command_id for row in db.execute(select(run.id, run.command_id))}


def the_command(made: Engine, command_id: int) -> CommandView:
    with made.connect() as db:
        found = find_command(db, command_id)
    assert found is not None
    return found


def test_a_former_database_is_refused_until_it_is_upgraded_and_keeps_its_rows(
    former: Engine,
) -> None:
    with pytest.raises(schema.SchemaMismatchError, match="orcaflow db upgrade"):
        schema.check(former)
    with former.connect() as db:
        before = db.execute(text("SELECT * FROM t_ds_process_instance ORDER BY id")).mappings()
        rows = [dict(row) for row in before]
    assert schema.upgrade(former, os_user="tester") == list(schema.REVISIONS[1:])
    schema.check(former)
    assert schema.upgrade(former, os_user="tester") == []
    with former.connect() as db:
        after = db.execute(text("SELECT * FROM t_ds_process_instance ORDER BY id")).mappings()
        assert [dict(row) for row in after] == [
            row
            | {"command_id": None, "definition_version": None}
            | {"business_time": None, "duration_from": None}
            for row in rows
        ]


def test_an_attempt_that_ran_during_an_upgrade_is_not_missed_by_anybody(former: Engine) -> None:
    with former.begin() as db:
        db.execute(
            text(
                "INSERT INTO t_ds_task_instance (id, name, task_type, process_definition_id,"
                " process_instance_id, task_json, state, host, worker_incarnation)"
                " VALUES (5, 'a', 'SHELL', 3, 7, '{}', 1, 'w:1', 9)"
            )
        )
    schema.upgrade(former, os_user="tester")
    worker = Node(address="w:1", incarnation=9)
    failover, tasks = PostgresFailoverStore(former), PostgresTaskStore(former)
    assert tasks.kept("w:1", [5]) == {5: Kept(kill_wanted=False, lost=False)}
    assert failover.fail_tasks_over(worker, now=LATER) == 0
    assert failover.mark_lost(worker, now=LATER) == 1
    assert failover.fail_tasks_over(worker, now=LATER) == 1


def test_attempts_that_never_had_a_worker_miss_none_after_an_upgrade(
    new_database: Callable[..., str],
) -> None:
    made = engine(new_database())
    with made.begin() as db:
        bring_to(db, "0004")
        db.execute(
            text(
                "INSERT INTO t_ds_process_instance (id, name, process_definition_id, state,"
                " end_time, command_type, command_param, process_instance_json, executor_id)"
                " VALUES (7, 'flights-1', 3, 5, now(), 0, '{}', '{}', 1)"
            )
        )
        for task_id, kind, incarnation in ((5, "SUB_PROCESS", None), (6, "SHELL", 9)):
            db.execute(
                text(
                    "INSERT INTO t_ds_task_instance (id, name, task_type, process_definition_id,"
                    " process_instance_id, task_json, state, host, worker_incarnation, settled,"
                    " end_time, lost_at) VALUES (:id, :kind, :kind, 3, 7, '{}', 9, :host,"
                    " :incarnation, true, now(), now())"
                ),
                {
                    "id": task_id,
                    "kind": kind,
                    "incarnation": incarnation,
                    "host": None if incarnation is None else "w:1",
                },
            )
    schema.upgrade(made, os_user="tester")
    task = tables.task_instance.c
    with made.connect() as db:
        missed = db.scalars(select(task.id).where(task.lost_at.is_not(None))).all()
        rows = db.scalars(select(task.id).order_by(task.id)).all()
    assert (rows, missed) == ([5, 6], [6])
    made.dispose()


def test_people_of_before_keep_their_rights_and_their_old_secrets_let_nobody_in(
    new_database: Callable[..., str],
) -> None:
    made = engine(new_database())
    with made.begin() as db:
        bring_to(db, "0005")
        db.execute(
            text(
                "INSERT INTO t_ds_user (id, user_name, user_password, user_type)"
                " VALUES (7, 'ada', '7ad2410b2f4c074479a8937a28a22b8f', 1);"
                " INSERT INTO t_ds_relation_project_user (user_id, project_id, perm)"
                " VALUES (7, 1, 7);"
                " INSERT INTO t_ds_session (id, user_id) VALUES ('s', 7);"
                " INSERT INTO t_ds_access_token (user_id, token, expire_time)"
                " VALUES (7, '5925f9a1', now() + INTERVAL '1 day')"
            )
        )
    schema.upgrade(made, os_user="tester")
    ada = Principal(user_id=7, user_name="ada")
    with made.connect() as db:
        (found,) = users(db, name="ada")
        grants = held(db, ada, Thing.PROJECT, 1)
        (token,) = tokens(db)
        assert holder_of(db, "5925f9a1") is not None
    assert (found.is_enabled, found.has_password) == (True, False)
    assert grants is not None
    assert grants.actions == ROLES["author"]
    assert (token.scopes, token.projects, token.last_used) == (15, None, None)
    # Only what has the form of a new token is looked up, and by its hash.
    assert principal_of(made, "5925f9a1", address=None, request=None) is None
    made.dispose()


def test_definitions_of_before_have_their_id_as_code_or_that_of_their_export(
    new_database: Callable[..., str],
) -> None:
    made = engine(new_database())
    exported = 12_345_678_901_234
    texts = {
        3: '{"tasks": []}',
        4: f'{{"tasks": [], "code": {exported}}}',
        5: f'{{"code": {exported}, "tasks": []}}',
        6: '{"code": 3}',
        7: '{"code": no JSON',
        8: '{"code": 99999999999999999999}',
    }
    with made.begin() as db:
        bring_to(db, "0007")
        for number, document in texts.items():
            db.execute(
                text(
                    "INSERT INTO t_ds_process_definition (id, name, process_definition_json)"
                    " VALUES (:id, 'd' || :id, :document)"
                ),
                {"id": number, "document": document},
            )
    schema.upgrade(made, os_user="tester")
    definition = tables.process_definition
    with made.begin() as db:
        rows = db.execute(select(definition.c.id, definition.c.code)).all()
        project = db.scalar(select(tables.project.c.code).where(tables.project.c.id == 1))
        # As the former version, and whoever types rows, does.
        db.execute(text("INSERT INTO t_ds_process_definition (id, name) VALUES (50, 'typed')"))
        typed = db.scalar(select(definition.c.code).where(definition.c.id == 50))
    assert {row.id: row.code for row in rows} == {number: number for number in texts} | {
        4: exported
    }
    assert (project, typed) == (1, 50)
    made.dispose()


def test_an_upgrade_waits_briefly_for_a_table_again_and_again(former: Engine) -> None:
    """A migration that waits for its lock without end would hold everybody else up."""
    with former.connect() as busy:
        busy.execute(text("LOCK TABLE t_ds_task_instance IN ACCESS SHARE MODE"))
        with pytest.raises(schema.SchemaBusyError, match="pg_stat_activity"):
            schema.upgrade(former, os_user="tester", patience=timedelta())
        pauses: list[float] = []

        def pause(seconds: float) -> None:
            pauses.append(seconds)
            busy.rollback()

        assert schema.upgrade(former, os_user="tester", pause=pause) == list(schema.REVISIONS[1:])
    assert len(pauses) == 1
    schema.check(former)


def test_a_command_that_waited_during_an_upgrade_begins_a_run_that_names_it(former: Engine) -> None:
    schema.upgrade(former, os_user="tester")
    assert the_command(former, 41).outcome is None
    done = PostgresCommandStore(former).take(
        node=MASTER,
        limit=10,
        room=10,
        spare=10,
        live_masters=lambda: frozenset({MASTER}),
        planner=lambda command, snapshot: plan(command, snapshot, now=LATER, origin=ORIGIN),
        now=LATER,
    )
    (handled,) = done.handled
    assert handled.ownership is not None
    run_id = handled.ownership.process_instance_id
    assert command_ids(former) == {7: None, 8: None, run_id: 41}
    taken = the_command(former, 41)
    assert (taken.outcome, taken.process_instance_id) == (CommandOutcome.TAKEN, run_id)


def test_commands_that_were_refused_before_an_upgrade_are_in_the_ledger(former: Engine) -> None:
    schema.upgrade(former, os_user="tester")
    refused = the_command(former, 39)
    assert (refused.outcome, refused.reason) == (CommandOutcome.REFUSED, "it still runs")
    assert (refused.process_instance_id, refused.definition_name) == (8, "flights")
    assert refused.start_time == NOON
    odd = the_command(former, 38)
    assert (odd.outcome, odd.command_type, odd.start_time) == (CommandOutcome.REFUSED, None, None)
    with former.connect() as db:
        assert find_command(db, 40) is None


def test_a_run_of_revision_0002_still_answers_for_its_command(
    new_database: Callable[..., str],
) -> None:
    made = engine(new_database())
    with made.begin() as db:
        bring_to(db, "0002")
        db.execute(
            text(
                "INSERT INTO t_ds_process_instance (id, name, process_definition_id, state,"
                " end_time, command_type, command_param, process_instance_json, executor_id, command_id)"
                " VALUES (7, 'flights-1', 3, 7, now(), 0, '{}', '{}', 1, 5)"
            )
        )
    schema.upgrade(made, os_user="tester")
    taken = the_command(made, 5)
    assert (taken.outcome, taken.process_instance_id) == (CommandOutcome.TAKEN, 7)
    made.dispose()


def test_a_run_that_was_live_during_an_upgrade_goes_on_with_its_owner(former: Engine) -> None:
    schema.upgrade(former, os_user="tester")
    runs = PostgresRunStore(former)
    owned = Ownership(process_instance_id=7, host=MASTER.address, epoch=1)
    assert runs.owned(MASTER) == {owned}
    (loaded,) = runs.load([owned])
    assert isinstance(loaded, LoadedRun)
    end = FinishProcess(state=ProcessState.SUCCESS)
    assert runs.save([Step(ownership=owned, decisions=(end,), at=LATER)]).lost == frozenset()
    assert command_ids(former)[7] is None


def test_a_worker_s_row_of_before_stays_and_is_believed_by_nobody(
    new_database: Callable[..., str],
) -> None:
    made = engine(new_database())
    with made.begin() as db:
        bring_to(db, "0007")
        db.execute(
            text(
                "INSERT INTO t_ds_worker_server (host, port, res_info) VALUES ('w', 1, '{}'),"
                " ('w', 1, '{}'), ('w', 2, '{\"cpuUsage\": 0.1}')"
            )
        )
    schema.upgrade(made, os_user="tester")
    node, other = Node(address="w:1", incarnation=2**40), Node(address="w:2", incarnation=2**40)
    offer = Offer(slots=4, version="1", groups=("g" * 200, "h" * 200), group_ids=frozenset({3}))
    with made.connect() as db:
        assert offers(db, {node, other}) == {}
    PostgresTaskStore(made).record_offer(node, offer)
    with made.connect() as db:
        assert offers(db, {node, other}) == {node: offer}
        rows = db.execute(text("SELECT host, port FROM t_ds_worker_server ORDER BY port")).all()
    assert [tuple(row) for row in rows] == [("w", 1), ("w", 2)]
    made.dispose()


def test_an_attempt_of_before_has_no_last_words_and_may_get_some(
    new_database: Callable[..., str],
) -> None:
    made = engine(new_database())
    with made.begin() as db:
        bring_to(db, "0006")
        db.execute(
            text(
                "INSERT INTO t_ds_process_instance (id, name, process_definition_id, state,"
                " command_type, executor_id, process_instance_json, end_time)"
                " VALUES (3, 'x', 1, 6, 0, 1, '{}', now());"
                " INSERT INTO t_ds_task_instance (id, name, task_type, process_definition_id,"
                " process_instance_id, task_json, state, end_time)"
                " VALUES (4, 'a', 'SHELL', 1, 3, '{}', 6, now())"
            )
        )
    schema.upgrade(made, os_user="tester")
    with made.connect() as db:
        assert log_tail(db, 4) is None
    assert PostgresTaskStore(made).keep_tails([LogTail(task_instance_id=4, size=3, tail=b"end")])
    with made.connect() as db:
        kept = log_tail(db, 4)
    assert kept is not None
    assert (kept.size, kept.tail) == (3, b"end")
    made.dispose()


_PUBLISHED = """
    INSERT INTO t_ds_process_definition (id, name, project_id) VALUES (3, 'flights', 5);
    INSERT INTO t_ds_process_instance (id, name, process_definition_id, state, end_time,
        command_type, command_param, process_instance_json, executor_id)
        VALUES (7, 'flights-1', 3, 7, now(), 0, '{}', '{}', 1);
    INSERT INTO t_ds_task_instance (id, name, task_type, process_definition_id,
        process_instance_id, task_json, state, end_time)
        VALUES (9, 'a', 'SHELL', 3, 7, '{}', 7, now());
    INSERT INTO t_ds_segment (dataset, "interval", version, partition_num, files, rows, bytes,
        task_id, origin_version, origin_num)
        SELECT name, '[2026-11-20, 2026-11-21)'::tstzrange, 'v', 0, '[]'::jsonb, 0, 0, task, 'v', 0
        FROM (VALUES ('flights', 9), ('old', NULL)) AS made (name, task);
"""


def test_a_dataset_of_before_may_get_a_supervisor(new_database: Callable[..., str]) -> None:
    made = engine(new_database())
    with made.begin() as db:
        bring_to(db, "0013")
        db.execute(
            text(
                'INSERT INTO t_ds_dataset_offsets (dataset, stream, partition, "offset")'
                " VALUES ('flights', 'events', 0, 7)"
            )
        )
        db.exec_driver_sql(_PUBLISHED)
    schema.upgrade(made, os_user="tester")
    with made.begin() as db:
        owners = db.execute(text("SELECT name, project_id FROM t_ds_dataset")).all()
        assert [tuple(each) for each in owners] == [("flights", 5)]
        assert supervisors(db, DATABASE) == []
        assert make_supervisor(db, "flights", project_id=1, process_definition_id=3)
        add_version(db, "flights", version=1, document={}, suspended=False, user_id=1)
    store = PostgresSupervisorStore(made)
    (lease,) = store.claim(MASTER, lease=timedelta(hours=1), limit=10)
    rows = store.load(lease)
    assert rows is not None
    assert (rows.stored, rows.tasks) == ({0: ("events", 7)}, ())
    made.dispose()


def test_offsets_of_before_stand_since_the_migration_and_are_called_out(
    new_database: Callable[..., str],
) -> None:
    url = new_database()
    made = engine(url)
    with made.begin() as db:
        bring_to(db, "0021")
        db.execute(
            text(
                'INSERT INTO t_ds_dataset_offsets (dataset, stream, partition, "offset",'
                " max_event_time) VALUES ('flights', 'events', 0, 7, '2026-11-20T04:00Z')"
            )
        )
        before = db.scalar(select(text("now()")))
    schema.upgrade(made, os_user="tester")
    question = DatasetQuestion(dataset="flights")
    (progress,) = progress_of(made, [question])
    assert isinstance(progress, DatasetProgress)
    partition = progress.partitions[0]
    latest = datetime(2026, 11, 20, 4, tzinfo=UTC)
    assert (progress.feeding, partition.offset) == (Feeding.ENDED, 7)
    assert (partition.latest_event, partition.since >= before) == (latest, True)
    listener = connect(url)
    with listener.cursor() as cursor:
        cursor.execute(f"LISTEN {Channel.DATASET}")
    moved = 'UPDATE t_ds_dataset_offsets SET "offset" = 8'
    begun = (
        "INSERT INTO t_ds_stream_task (name, supervisor, version, epoch, group_id, base_sequence,"
        " assignment, command_id) VALUES ('a', 'other', 1, 1, 0, 'b', '{}', 1)"
    )
    for statement in (moved, begun):
        with made.begin() as db:
            db.exec_driver_sql(statement)
    with listener.cursor() as cursor:
        cursor.execute("SELECT 1")
    assert [notify.payload for notify in listener.notifies] == ["flights", "other"]
    (later,) = progress_of(made, [question])
    assert isinstance(later, DatasetProgress)
    assert later.partitions[0].since > partition.since
    listener.close()
    made.dispose()


def test_offsets_of_one_topic_stay_beside_those_of_several(
    new_database: Callable[..., str],
) -> None:
    url = new_database()
    made = engine(url)
    with made.begin() as db:
        bring_to(db, "0025")
        db.exec_driver_sql(
            'INSERT INTO t_ds_dataset_offsets (dataset, stream, partition, "offset")'
            " VALUES ('flights', 'events', 0, 7)"
        )
    schema.upgrade(made, os_user="tester")
    listener = connect(url)
    with listener.cursor() as cursor:
        cursor.execute(f"LISTEN {Channel.DATASET}")
    eu = TopicPartition("eu", 0)
    with made.begin() as db:
        put_offsets(db, "clicks", {eu: 5}, stream=".*", replace=False)
        # The statement of the former version, whose daemons may still run.
        db.exec_driver_sql(
            'INSERT INTO t_ds_dataset_offsets (dataset, stream, partition, "offset")'
            " VALUES ('flights', 'events', 0, 8) ON CONFLICT (dataset, partition)"
            ' DO UPDATE SET "offset" = excluded."offset"'
        )
    with listener.cursor() as cursor:
        cursor.execute("SELECT 1")
    assert [notify.payload for notify in listener.notifies] == ["clicks", "flights"]
    listener.close()
    questions = [DatasetQuestion(dataset="flights"), DatasetQuestion(dataset="clicks")]
    flights, clicks = progress_of(made, questions)
    assert isinstance(flights, DatasetProgress)
    assert isinstance(clicks, DatasetProgress)
    assert [(each, at.offset) for each, at in flights.partitions.items()] == [(0, 8)]
    assert [(each, at.offset) for each, at in clicks.partitions.items()] == [(eu, 5)]
    made.dispose()


def test_a_database_of_before_takes_topologies(new_database: Callable[..., str]) -> None:
    made = engine(new_database())
    with made.begin() as db:
        bring_to(db, "0022")
    schema.upgrade(made, os_user="tester")
    code = Code(main="words.yaml", files={"words.yaml": ""})
    graph = TopologyGraph(name="words", hash="spark", config=(), parts=())
    with made.begin() as db:
        assert make_topology(
            db, "words", project_id=1, process_definition_id=3, wanted=Wanted(number=2)
        )
        # It is shown from its first version on, which the same transaction adds.
        assert topologies(db, DATABASE) == []
        assert add_topology_version(db, "words", version=1, code=code, graph=graph, user_id=1)
        (found,) = topologies(db, DATABASE)
    assert (found.name, found.version, found.wanted) == ("words", 1, Wanted(number=2))
    made.dispose()


def test_projects_and_definitions_of_before_take_a_review_drafts_and_proposals(
    new_database: Callable[..., str],
) -> None:
    made = engine(new_database())
    with made.begin() as db:
        bring_to(db, "0023")
        # As the code of before writes it.
        db.execute(text("INSERT INTO t_ds_process_definition (id, name) VALUES (3, 'nightly')"))
    schema.upgrade(made, os_user="tester")
    with made.begin() as db:
        assert review_of(db, 1) == Review(name="default", since=None)
        assert add_draft(
            db,
            DATABASE,
            project_id=1,
            definition_id=3,
            base_version=1,
            base_tag="v1-0",
            content="{",
            at=NOON,
        )
        found = find_draft(db, DATABASE, project_id=1, definition_id=3)
        assert found is not None
        assert (found.revision, found.content) == (1, "{")
        db.execute(text("DELETE FROM t_ds_process_definition WHERE id = 3"))
        assert find_draft(db, DATABASE, project_id=1, definition_id=3) is None
    made.dispose()


def test_a_database_of_before_keeps_its_data_sources_and_takes_connections_to_kafka(
    new_database: Callable[..., str],
) -> None:
    made = engine(new_database())
    row = "INSERT INTO t_ds_datasource (name, type, connection_params) VALUES (:name, :type, '{}')"
    with made.begin() as db:
        bring_to(db, "0025")
        db.execute(text(row), {"name": "dw", "type": 1})
    with made.connect() as db, pytest.raises(IntegrityError, match="type_check"):
        db.execute(text(row), {"name": "events", "type": 100})
    schema.upgrade(made, os_user="tester")
    with made.begin() as db:
        db.execute(text(row), {"name": "events", "type": 100})
        found = db.execute(text("SELECT name, type FROM t_ds_datasource ORDER BY id")).all()
    assert [tuple(each) for each in found] == [("dw", 1), ("events", 100)]
    with made.connect() as db, pytest.raises(IntegrityError, match="type_check"):
        db.execute(text(row), {"name": "other", "type": 8})
    made.dispose()
