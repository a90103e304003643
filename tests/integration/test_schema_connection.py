"""`common.store.connect` with a real server that refuses, vanishes or blocks."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import Integer, bindparam, cast, func, make_url, select, text
from sqlalchemy.exc import DBAPIError

from common.errors import ConfigurationError, ServiceUnreachableError
from common.ports import free_port
from common.store.connect import (
    EARLIEST,
    LATEST,
    connect,
    engine,
    is_by_statement,
    is_transient,
    place_of,
    retrying,
)
from common.store.fixed_statement import FixedRead, FixedStatement
from common.store.listen import Channel, Notifications
from common.store.transaction import single

SECRET = "s3cr3t-p@ss/word"


def _with(url: str, *, password: str | None = None, port: int | None = None) -> str:
    address = make_url(url)
    if password is not None:
        address = address.set(password=password)
    if port is not None:
        address = address.set(port=port)
    return address.render_as_string(hide_password=False)


def test_a_wrong_password_is_a_configuration_mistake_and_stays_secret(database_url: str) -> None:
    url = _with(database_url, password=SECRET)
    for refused in (lambda: engine(url).connect(), lambda: connect(url)):
        with pytest.raises(ConfigurationError, match="refused the connection") as caught:
            refused()
        assert SECRET not in str(caught.value)
    assert SECRET not in repr(engine(url))


def test_a_server_that_is_not_there_is_named_by_host_and_port(database_url: str) -> None:
    port = free_port()
    url = _with(database_url, password=SECRET, port=port)
    for unreachable in (lambda: engine(url).connect(), lambda: connect(url)):
        with pytest.raises(ServiceUnreachableError, match=f":{port}/") as caught:
            unreachable()
        assert SECRET not in str(caught.value)
        assert is_transient(caught.value)


def _behind_a_dead_one(url: str, **more: str) -> tuple[str, str]:
    """Return a URL of two hosts of which only the second answers, and the text that names both."""
    address = make_url(url)
    dead, alive = f"127.0.0.1:{free_port()}", f"{address.host}:{address.port}"
    several = address.set(host=None, port=None).update_query_dict({"host": (dead, alive), **more})
    return several.render_as_string(hide_password=False), f"{dead},{alive}/{address.database}"


def test_of_several_hosts_one_that_answers_is_enough_for_every_connection(
    database_url: str,
) -> None:
    url, named = _behind_a_dead_one(database_url)
    assert place_of(url) == named
    made = engine(url)
    with made.connect() as db:
        assert db.scalar(text("SELECT 1")) == 1
    made.dispose()
    connect(url).close()
    with Notifications(url, (Channel.COMMAND,)) as listening:
        (reminder,) = listening.wait(timedelta(minutes=1))
        assert reminder.is_reminder
        assert listening.is_connected


def test_of_several_hosts_only_one_of_the_wanted_kind_is_used(database_url: str) -> None:
    url, named = _behind_a_dead_one(database_url, target_session_attrs="standby")
    for unreachable in (lambda: engine(url).connect(), lambda: connect(url)):
        with pytest.raises(ServiceUnreachableError, match=named) as caught:
            unreachable()
        assert "hot standby" in str(caught.value)


def test_by_statement_a_read_is_no_transaction_and_a_change_is_one(database_url: str) -> None:
    # One connection, which changes its mode with each use.
    made = engine(database_url, pool_size=1, max_overflow=0, by_statement=True)
    count = text("SELECT count(*) FROM made_by_statement")
    began = text("SELECT now() = statement_timestamp()")
    with made.begin() as db:
        db.execute(text("CREATE TABLE made_by_statement (id integer)"))
        assert db.scalar(began) is False

    def fail_halfway() -> None:
        with made.begin() as db:
            db.execute(text("INSERT INTO made_by_statement VALUES (1)"))
            raise ValueError("changed my mind")

    with pytest.raises(ValueError, match="changed my mind"):
        fail_halfway()
    with made.connect() as db:
        assert (db.scalar(began), db.scalar(began), db.scalar(count)) == (True, True, 0)
        assert is_by_statement(db)
    with made.begin() as db:
        db.execute(text("INSERT INTO made_by_statement VALUES (2)"))
        assert not is_by_statement(db)
    with made.connect() as db:
        assert db.scalar(count) == 1
    with made.begin() as db:
        db.execute(text("DROP TABLE made_by_statement"))
    made.dispose()


@pytest.mark.parametrize(
    ("typed", "read"),
    [
        ("2026-01-02 03:04:05.000006+00", datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC)),
        ("20000-01-01", LATEST),
        ("infinity", LATEST),
        ("9999-12-31 23:59:59+00", LATEST),
        ("-infinity", EARLIEST),
        ("0044-03-15 12:00 BC", EARLIEST),
        ("0001-01-01 00:00+00", EARLIEST),
        (None, None),
    ],
)
def test_every_time_that_a_row_can_hold_can_be_read(
    database_url: str, typed: str | None, read: datetime | None
) -> None:
    made = engine(database_url)
    with made.connect() as db:
        assert db.scalar(text("SELECT CAST(:typed AS timestamptz)"), {"typed": typed}) == read
    made.dispose()


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://user:{SECRET}@host/db",
        f"postgresql://user:{SECRET}@host:port/db",
        "no url at all",
        f"mysql://user:{SECRET}@host/db",
    ],
)
def test_a_url_that_cannot_be_used_is_refused_without_being_quoted(url: str) -> None:
    try:
        place = place_of(url)
    except ConfigurationError as error:
        place = str(error)
    assert "s3cr3t" not in place


def test_a_lost_connection_is_named_and_the_next_statement_gets_a_new_one(
    database_url: str,
) -> None:
    made = engine(database_url, pool_size=1)
    with pytest.raises(ServiceUnreachableError) as caught, made.begin() as db:
        db.execute(text("SELECT pg_terminate_backend(pg_backend_pid())"))
    assert is_transient(caught.value)
    with made.begin() as db:
        assert db.scalar(text("SELECT 1")) == 1
    made.dispose()


def test_a_connection_without_its_prepared_statements_is_replaced(database_url: str) -> None:
    made = engine(database_url, pool_size=1, max_overflow=0)
    seven = FixedStatement(select(cast(bindparam("number"), Integer)), prepared=True)
    for disturbance in (
        "DEALLOCATE ALL",
        # As if a former answer had been lost.
        "DEALLOCATE ALL; PREPARE {name} AS SELECT 1",
    ):
        with made.begin() as db:
            assert seven.execute(db, {"number": 7}).scalar() == 7
            name = db.exec_driver_sql("SELECT name FROM pg_prepared_statements").scalar()
        with made.begin() as db:
            if "PREPARE" in disturbance:
                db.info.clear()
            db.exec_driver_sql(disturbance.format(name=name))
        with pytest.raises(ServiceUnreachableError) as caught, made.begin() as db:
            seven.execute(db, {"number": 7})
        assert is_transient(caught.value)
        with made.begin() as db:
            assert seven.execute(db, {"number": 7}).scalar() == 7
    made.dispose()


def test_the_settings_of_a_plan_end_before_the_transaction_goes_on(database_url: str) -> None:
    made = engine(database_url, pool_size=1, max_overflow=0)
    off = text("SELECT count(*) FROM pg_settings WHERE name LIKE 'enable_%' AND setting = 'off'")
    number = select(cast(bindparam("number"), Integer))
    by_index = FixedStatement(number, prepared=True)
    with made.begin() as db:
        before = db.scalar(off)
        FixedStatement(number, prepared=True, by_index=False).execute(db, {"number": 7})
        assert db.scalar(off) == before
        assert [tuple(row) for row in by_index.rows_within(db, {"number": 7})] == [(7,)]
        assert db.scalar(off) == before
        # They are there for the plan.
        by_index.execute(db, {"number": 7})
        assert db.scalar(off) > before
    made.dispose()


def test_a_write_whose_prepared_statement_is_gone_fails_and_is_prepared_again(
    database_url: str,
) -> None:
    made = engine(database_url, pool_size=1, max_overflow=0)
    seven = FixedStatement(select(cast(bindparam("number"), Integer).label("seven")), prepared=True)
    for _ in range(2):
        with single(made) as db:
            assert [each.seven for each in seven.rows(db, {"number": 7})] == [7]
            db.exec_driver_sql("DEALLOCATE ALL")
        with pytest.raises(ServiceUnreachableError) as caught, single(made) as db:
            seven.rows(db, {"number": 7})
        assert is_transient(caught.value)
    made.dispose()


def test_rows_that_the_driver_reads_fail_as_any_others_do(database_url: str) -> None:
    made = engine(
        database_url,
        pool_size=1,
        max_overflow=0,
        statement_timeout=timedelta(milliseconds=50),
        by_statement=True,
    )
    seven = FixedRead(select(cast(bindparam("number"), Integer).label("seven")))
    slow = FixedRead(select(func.pg_sleep(bindparam("seconds"))))
    for disturbance in ("DEALLOCATE ALL", "SELECT pg_terminate_backend(pg_backend_pid())"):
        with made.connect() as db:
            assert [each.seven for each in seven.rows(db, {"number": 7})] == [7]
            with suppress(ServiceUnreachableError):
                db.exec_driver_sql(disturbance)
        if "DEALLOCATE" in disturbance:
            with pytest.raises(ServiceUnreachableError) as caught, made.connect() as db:
                seven.rows(db, {"number": 7})
            assert is_transient(caught.value)
    with made.connect() as db:
        driver: Any = db.connection.driver_connection
        driver.close()
        with pytest.raises(ServiceUnreachableError):
            seven.rows(db, {"number": 7})
    with made.connect() as db:
        with pytest.raises(DBAPIError, match="57014") as refused:
            slow.rows(db, {"seconds": 12345})
        assert "12345" not in str(refused.value)
        assert seven.rows(db, {"number": 7})[0].seven == 7
    made.dispose()


def test_a_server_without_a_free_connection_is_unreachable_until_one_is_free(
    database_url: str,
) -> None:
    made = engine(database_url)
    limit = f"ALTER DATABASE {make_url(database_url).database} CONNECTION LIMIT"
    first = connect(database_url)
    with first.cursor() as cursor:
        cursor.execute(f"{limit} 1")
        with pytest.raises(ServiceUnreachableError, match="too many connections") as caught:
            made.connect()
        assert is_transient(caught.value)
        cursor.execute(f"{limit} -1")
    made.connect().close()
    made.dispose()
    first.close()


def test_a_lock_that_is_held_passes_and_a_mistake_does_not(database_url: str) -> None:
    made = engine(database_url)
    held = text("SELECT pg_advisory_xact_lock(7)")
    with made.begin() as holder:
        holder.execute(held)
        with made.connect() as db:
            db.execute(text("SET LOCAL lock_timeout = '1ms'"))
            with pytest.raises(DBAPIError) as waited:
                db.execute(held)
    assert is_transient(waited.value)
    with pytest.raises(DBAPIError) as mistaken, made.begin() as db:
        db.execute(text("SELECT 1 / :zero"), {"zero": 0})
    assert not is_transient(mistaken.value)
    made.dispose()


def test_the_values_of_a_failed_statement_are_not_in_its_error(database_url: str) -> None:
    made = engine(database_url)
    with pytest.raises(DBAPIError) as caught, made.begin() as db:
        db.execute(text("SELECT 1 FROM no_such_table WHERE 'x' = :value"), {"value": SECRET})
    assert SECRET not in str(caught.value)
    made.dispose()


def test_what_the_url_itself_asks_of_the_session_is_kept(database_url: str) -> None:
    asked = {"options": "-c search_path=elsewhere", "application_name": "mine"}
    url = make_url(database_url).update_query_dict(asked).render_as_string(hide_password=False)
    settings = "SELECT current_setting('search_path'), current_setting('application_name')"
    made = engine(url)
    with made.begin() as db:
        assert tuple(db.execute(text(settings)).one()) == ("elsewhere", "mine")
    made.dispose()
    with connect(url).cursor() as cursor:
        cursor.execute(settings)
        assert cursor.fetchone() == ("elsewhere", "mine")


def test_times_come_back_aware_and_in_utc(database_url: str) -> None:
    made = engine(database_url)
    with made.begin() as db:
        now = db.scalar(text("SELECT now()"))
    assert now.utcoffset().total_seconds() == 0
    made.dispose()


def test_passing_failures_are_retried_five_times_and_no_more() -> None:
    waits: list[float] = []
    calls: list[int] = []

    def fails() -> None:
        calls.append(1)
        raise ServiceUnreachableError("gone")

    with pytest.raises(ServiceUnreachableError):
        retrying(fails, attempts=50, sleep=waits.append)
    assert len(calls) == 5
    assert len(waits) == 4


def test_work_that_fails_for_good_is_done_once() -> None:
    calls: list[int] = []

    def fails() -> None:
        calls.append(1)
        raise ValueError("a mistake")

    with pytest.raises(ValueError, match="a mistake"):
        retrying(fails, sleep=lambda _: None)
    assert len(calls) == 1


def test_work_that_succeeds_in_the_end_gives_its_result() -> None:
    failures = [ServiceUnreachableError("gone"), ServiceUnreachableError("gone")]

    def succeeds_third() -> str:
        if failures:
            raise failures.pop()
        return "done"

    assert retrying(succeeds_third, sleep=lambda _: None) == "done"
