"""Notifications of the triggers of a real database, and `Notifications` as their reader."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from datetime import timedelta

import pytest
from sqlalchemy import Engine, make_url, text

from common.errors import ConfigurationError
from common.model.states import TaskState
from common.store.connect import engine
from common.store.listen import Channel, Notification, Notifications, read_task_report

LONG = timedelta(seconds=30)
NO_TIME = timedelta()


@pytest.fixture
def db_engine(migrated_url: str) -> Iterator[Engine]:
    made = engine(migrated_url)
    yield made
    made.dispose()


@pytest.fixture
def notifications(migrated_url: str, db_engine: Engine) -> Iterator[Notifications]:
    """Listens to everything, with its connection open and its first reminder read."""
    with Notifications(
        migrated_url, tuple(Channel), application_name=f"heard-{id(db_engine)}"
    ) as notifications:
        assert [news.is_reminder for news in notifications.wait(LONG)] == [True]
        yield notifications


def _do(db_engine: Engine, *statements: str) -> None:
    with db_engine.begin() as db:
        for statement in statements:
            db.execute(text(statement))


def _a_process_with_tasks(db_engine: Engine, *, tasks: int) -> tuple[int, list[int]]:
    with db_engine.begin() as db:
        process_id = db.scalar(
            text(
                "INSERT INTO t_ds_process_instance (name, process_definition_id, state, "
                "command_type, process_instance_json, executor_id) "
                "VALUES ('p', 1, 1, 0, '{}', 1) RETURNING id"
            )
        )
        task_ids = db.scalars(
            text(
                "INSERT INTO t_ds_task_instance (name, task_type, process_definition_id, "
                "process_instance_id, task_json, state) SELECT 't' || n, 'SHELL', 1, :process, "
                "'{}', 0 FROM generate_series(1, :tasks) n RETURNING id"
            ),
            {"process": process_id, "tasks": tasks},
        ).all()
    assert isinstance(process_id, int)
    return process_id, list(task_ids)


def test_a_committed_command_is_heard_and_a_rolled_back_one_is_not(
    db_engine: Engine, notifications: Notifications
) -> None:
    with db_engine.connect() as db:
        db.execute(text("INSERT INTO t_ds_command (command_type) VALUES (0)"))
        db.rollback()
    assert notifications.wait(NO_TIME) == []
    _do(db_engine, "INSERT INTO t_ds_command (command_type) VALUES (0), (0), (6)")
    assert notifications.wait(LONG) == [Notification(channel=Channel.COMMAND, payload="")]


def test_a_definition_that_goes_online_is_heard_as_a_command(
    db_engine: Engine, notifications: Notifications
) -> None:
    _do(db_engine, "INSERT INTO t_ds_process_definition (name) VALUES ('heard online')")
    _do(
        db_engine,
        "UPDATE t_ds_process_definition SET release_state = 1 WHERE name = 'heard online'",
    )
    assert notifications.wait(LONG) == [Notification(channel=Channel.COMMAND, payload="")]
    _do(
        db_engine,
        "UPDATE t_ds_process_definition SET release_state = 0 WHERE name = 'heard online'",
        "DELETE FROM t_ds_process_definition WHERE name = 'heard online'",
    )
    assert notifications.wait(NO_TIME) == []


def test_finished_attempts_are_heard_with_their_process_unless_already_settled(
    db_engine: Engine, notifications: Notifications
) -> None:
    process_id, (started, settled, first, second) = _a_process_with_tasks(db_engine, tasks=4)
    _do(
        db_engine,
        "UPDATE t_ds_task_instance SET state = 1, host = 'h', worker_incarnation = 1 "
        f"WHERE id = {started}",
        "UPDATE t_ds_task_instance SET state = 9, end_time = now(), settled = true "
        f"WHERE id = {settled}",
        f"UPDATE t_ds_task_instance SET state = 7, end_time = now() WHERE id = {first}",
        "UPDATE t_ds_task_instance SET state = 7, end_time = now(), var_pool = '[]' "
        f"WHERE id = {second}",
        f"UPDATE t_ds_task_instance SET settled = true WHERE id = {first}",
    )
    news = notifications.wait(LONG)
    assert {one.channel for one in news} == {Channel.TASK}
    reports = [read_task_report(one.payload) for one in news]
    assert {one.process_instance_id for one in reports} == {process_id}
    assert sorted(one.task_instance_id for one in reports) == [first, second]
    assert {(one.attempt, one.state) for one in reports} == {(1, TaskState.SUCCESS)}
    # Its outputs may be long: the notification says only that there are some.
    assert [one.task_instance_id for one in reports if one.has_output] == [second]
    assert {one.var_pool for one in reports} == {None}
    with db_engine.begin() as db:
        query = text("SELECT name, end_time FROM t_ds_task_instance WHERE id = :id")
        for one in reports:
            row = db.execute(query, {"id": one.task_instance_id}).one()
            assert (one.name, one.end_time) == (row.name, row.end_time)


@pytest.mark.parametrize(
    "payload", ["", "7:8", "[1, 2]", '{"a": 1}', "[" * 5000, "[1,2,3,99,5,6,7]"]
)
def test_what_is_no_report_is_refused(payload: str) -> None:
    with pytest.raises(ValueError):
        read_task_report(payload)


def test_the_end_of_what_the_master_runs_itself_is_heard_like_a_workers(
    db_engine: Engine, notifications: Notifications
) -> None:
    _, (child,) = _a_process_with_tasks(db_engine, tasks=1)
    _do(
        db_engine,
        f"UPDATE t_ds_task_instance SET state = 1, task_type = 'SUB_PROCESS' WHERE id = {child}",
    )
    assert notifications.wait(NO_TIME) == []
    _do(
        db_engine,
        f"UPDATE t_ds_task_instance SET state = 6, end_time = now() WHERE id = {child}",
    )
    (notification,) = notifications.wait(LONG)
    report = read_task_report(notification.payload)
    assert (report.task_instance_id, report.state) == (child, TaskState.FAILURE)


def test_a_pool_of_another_size_is_heard(db_engine: Engine, notifications: Notifications) -> None:
    _do(
        db_engine,
        "INSERT INTO t_ds_task_group (name, group_size) VALUES ('heard', 2)",
        "UPDATE t_ds_task_group SET description = 'a', group_size = 2 WHERE name = 'heard'",
    )
    assert notifications.wait(NO_TIME) == []
    _do(db_engine, "UPDATE t_ds_task_group SET group_size = 3 WHERE name = 'heard'")
    assert notifications.wait(LONG) == [Notification(channel=Channel.HOLD, payload="")]
    _do(db_engine, "DELETE FROM t_ds_task_group WHERE name = 'heard'")


def test_a_wanted_stop_and_the_end_of_a_process_are_heard_once_each(
    db_engine: Engine, notifications: Notifications
) -> None:
    process_id, _ = _a_process_with_tasks(db_engine, tasks=1)
    wanted = f"UPDATE t_ds_process_instance SET wanted_state = 5 WHERE id = {process_id}"
    _do(db_engine, wanted, wanted)
    assert notifications.wait(LONG) == [
        Notification(channel=Channel.WANTED, payload=str(process_id))
    ]
    _do(
        db_engine,
        f"UPDATE t_ds_process_instance SET state = 4 WHERE id = {process_id}",
        "UPDATE t_ds_process_instance SET state = 5, end_time = now(), wanted_state = NULL "
        f"WHERE id = {process_id}",
    )
    assert notifications.wait(LONG) == [
        Notification(channel=Channel.PROCESS, payload=str(process_id))
    ]


def test_a_lost_connection_is_made_anew_and_reminds_of_what_was_missed(
    db_engine: Engine, notifications: Notifications
) -> None:
    with db_engine.begin() as db:
        ended = db.execute(
            text(
                "SELECT pg_terminate_backend(pid, 30000) FROM pg_stat_activity "
                "WHERE application_name LIKE :name"
            ),
            {"name": f"heard-{id(db_engine)}:%"},
        ).all()
    assert ended == [(True,)]
    _do(db_engine, "INSERT INTO t_ds_command (command_type) VALUES (0)")
    news = notifications.wait(LONG)
    assert [one.is_reminder for one in news] == [True]
    _do(db_engine, "INSERT INTO t_ds_command (command_type) VALUES (0)")
    assert notifications.wait(LONG) == [Notification(channel=Channel.COMMAND, payload="")]


def test_a_waiting_thread_is_woken_from_another(notifications: Notifications) -> None:
    answers: list[list[Notification]] = []
    waiting = threading.Thread(
        target=lambda: answers.append(notifications.wait(timedelta(hours=1)))
    )
    waiting.start()
    notifications.wake()
    waiting.join(30)
    assert answers == [[]]
    notifications.wake()
    notifications.wake()
    assert notifications.wait(timedelta(hours=1)) == []


def test_a_wake_does_not_swallow_news(db_engine: Engine, notifications: Notifications) -> None:
    _do(db_engine, "INSERT INTO t_ds_command (command_type) VALUES (0)")
    notifications.wake()
    news = [*notifications.wait(LONG), *notifications.wait(LONG)]
    assert news == [Notification(channel=Channel.COMMAND, payload="")]


def test_an_absent_server_is_waited_for_and_a_wrong_password_is_told(database_url: str) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        closed = make_url(database_url).set(host="127.0.0.1", port=listener.getsockname()[1])
        with Notifications(
            closed.render_as_string(hide_password=False), (Channel.COMMAND,)
        ) as absent:
            assert absent.wait(timedelta(milliseconds=60)) == []
            assert not absent.is_connected
            absent.wake()
            assert absent.wait(timedelta(hours=1)) == []
    wrong = make_url(database_url).set(password="wrong").render_as_string(hide_password=False)
    with (
        Notifications(wrong, (Channel.COMMAND,)) as refused,
        pytest.raises(ConfigurationError),
    ):
        refused.wait(LONG)


def test_closing_twice_is_closing_once(database_url: str) -> None:
    notifications = Notifications(database_url, (Channel.COMMAND,))
    notifications.wait(LONG)
    notifications.close()
    notifications.close()
    assert not notifications.is_connected
