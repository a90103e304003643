"""A connection to a data source, whose running statement is cancelled in the server on TERM.

Closing a connection does not end a statement: the server notices only when it has rows to send. So
the work runs on a thread of its own, and the main thread waits for a signal; on TERM it asks the
driver to cancel, and ends like a killed program. Where PostgreSQL can, it is asked besides to look
every two seconds whether this program still lives, for the case that it is killed outright.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, time
from pathlib import Path
from typing import Any, NoReturn

import sqlalchemy
from sqlalchemy.engine import URL, Connection, CursorResult, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError, SQLAlchemyError
from sqlalchemy.pool import NullPool

from common.params.values import Value, bound
from worker.result_table import ResultTooLargeError
from worker.runners.job import FAILED, OK, Job, JobError

_CANCEL_SECONDS = 3.0
_CONNECT_SECONDS = 10
_WORK_IS_DONE = signal.SIGUSR1
_AWAITED = frozenset({signal.SIGTERM, signal.SIGINT, _WORK_IS_DONE})
_AUTOCOMMIT = frozenset({"postgresql", "sqlite", "mysql", "mariadb", "oracle", "mssql"})
_WITH_CLIENT_CHECK = 140_000
_IDLE = 0


class _Notices(logging.Handler):
    """Keeps what SQLAlchemy takes from PostgreSQL's driver and logs."""

    def __init__(self, level: int) -> None:
        super().__init__(level)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


class Database:
    """One connection, on which statements run one after the other."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.dialect = connection.dialect.name
        self._paramstyle = connection.dialect.paramstyle
        self._notices = _Notices(logging.INFO)
        logger = logging.getLogger("sqlalchemy.dialects.postgresql")
        logger.setLevel(logging.INFO)
        logger.addHandler(self._notices)

    def run(self, place: str, texts: Sequence[str], values: Sequence[Value]) -> CursorResult[Any]:
        """Run one statement; between two of its texts there is a value to bind."""
        given = [self._driver_value(bound((kind, text))) for kind, text in values]
        with failing(place):
            if not given:
                # Without parameters the driver leaves every % alone.
                options = {"no_parameters": True}
                return self._connection.exec_driver_sql(texts[0], execution_options=options)
            statement, parameters = self._rendered(texts, given)
            return self._connection.exec_driver_sql(statement, parameters)

    def commit(self) -> None:
        """Commit where statements don't do so themselves; elsewhere BEGIN is the author's own."""
        if self.dialect not in _AUTOCOMMIT:
            with failing("commit"):
                self._connection.commit()

    def notices(self) -> list[str]:
        """Return the server's notices since the last call, as of RAISE NOTICE."""
        lines, self._notices.lines = self._notices.lines, []
        return lines

    def in_transaction(self) -> bool:
        """True if a statement has begun a transaction; False where that can't be known."""
        info = getattr(self._connection.connection.dbapi_connection, "info", None)
        return info is not None and info.transaction_status != _IDLE

    def _driver_value(self, value: object) -> object:
        if self.dialect == "sqlite" and isinstance(value, date | time | datetime):
            # It has no such types; text in this form compares as times do.
            return value.isoformat(" ") if isinstance(value, datetime) else value.isoformat()
        return value

    def _rendered(
        self, texts: Sequence[str], values: list[object]
    ) -> tuple[str, tuple[object, ...] | dict[str, object]]:
        match self._paramstyle:
            case "format" | "pyformat":
                return "%s".join(text.replace("%", "%%") for text in texts), tuple(values)
            case "qmark":
                return "?".join(texts), tuple(values)
            case style:
                mark = ":p" if style == "named" else (":" if style == "numeric" else "$")
                marked = [
                    f"{text}{mark}{number}" for number, text in enumerate(texts[:-1], start=1)
                ]
                statement = "".join((*marked, texts[-1]))
                if style == "named":
                    named = {f"p{number}": value for number, value in enumerate(values, start=1)}
                    return statement, named
                return statement, tuple(values)


class failing:  # noqa: N801  # Read as a word of the sentence `with failing(place)`.
    """Turns what a driver raises into a `JobError` that names the place.

    A result that is too large becomes one too, in its own words.
    """

    def __init__(self, place: str) -> None:
        self._place = place

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, DBAPIError):
            # The outer error repeats the statement with its parameters.
            raise JobError(f"{self._place}: {str(error.orig).strip()}") from None
        if isinstance(error, SQLAlchemyError):
            raise JobError(f"{self._place}: {error}") from None
        if isinstance(error, ResultTooLargeError):
            raise JobError(str(error)) from None


def run_on_database(job: Job, work: Callable[[Job, Database], None]) -> NoReturn:
    """Connect, do the work, and end the program; on TERM cancel what runs and end as killed."""
    connected: list[Any] = []
    codes: list[int] = []
    stopping = threading.Event()
    main_thread = threading.get_ident()

    def body() -> None:
        try:
            with _connected(job.document["target"], connected) as connection:
                work(job, Database(connection))
            code = OK
        except BaseException as error:  # noqa: BLE001  # The thread's only way to tell of it.
            code = FAILED if stopping.is_set() else job.fail(error)
        codes.append(code)
        signal.pthread_kill(main_thread, _WORK_IS_DONE)

    # Blocked here and so in the thread too, they come to nobody but to `sigwait`.
    signal.pthread_sigmask(signal.SIG_BLOCK, _AWAITED)
    thread = threading.Thread(target=body, daemon=True)
    thread.start()
    while True:
        number = signal.sigwait(_AWAITED)
        if number != _WORK_IS_DONE:
            code = 128 + number
            stopping.set()
            for each in connected:
                cancel(job, each)
                thread.join(_CANCEL_SECONDS)
            break
        if codes:
            code = codes[0]
            break
    sys.stdout.flush()
    sys.stderr.flush()
    # A thread that hangs in a driver must not keep the program.
    os._exit(code)


def cancel(job: Job, raw: Any) -> None:
    """Cancel what a driver's connection is doing, if the driver can."""
    how = getattr(raw, "cancel", None) or getattr(raw, "interrupt", None)
    if how is None:
        job.say("stopped; this database can't be told to cancel the statement")
        return
    try:
        how()
        job.say("stopped; the statement was cancelled in the database")
    except Exception as error:  # noqa: BLE001  # Any driver's; there is nothing more to be done.
        job.say(f"stopped; the statement could not be cancelled: {error}")


def _connected(target: Mapping[str, Any], connected: list[Any]) -> Connection:
    place = f"data source {target['name']!r}"
    url = _url(place, target)
    options: dict[str, Any] = {}
    if target["dialect"] in _AUTOCOMMIT:
        options["isolation_level"] = "AUTOCOMMIT"
    if target["dialect"] == "sqlite":
        options["connect_args"] = {"check_same_thread": False, "timeout": 60}
    elif target["dialect"] == "postgresql" and "connect_timeout" not in url.query:
        # A server that takes the connection and then says nothing would hold the task for ever.
        options["connect_args"] = {"connect_timeout": _CONNECT_SECONDS}
    try:
        engine = sqlalchemy.create_engine(url, poolclass=NullPool, **options)
    except (NoSuchModuleError, ImportError) as error:
        raise JobError(
            f"{place}: the driver for {url.drivername} is not installed on this worker ({error})"
        ) from None
    except ArgumentError as error:
        raise JobError(f"{place}: {error}") from None
    with failing(f"{place} can't be reached"):
        connection = engine.connect()
    raw = connection.connection.dbapi_connection
    connected.append(raw)
    if target["dialect"] == "postgresql":
        _prepare_postgresql(place, connection, raw)
    return connection


def _prepare_postgresql(place: str, connection: Connection, raw: Any) -> None:
    info = getattr(raw, "info", None)
    if info is None:
        return
    if info.parameter_status("standard_conforming_strings") == "off":
        # Statements were taken apart by the standard's rules for quotation marks.
        raise JobError(f"{place}: standard_conforming_strings must be on")
    if info.server_version >= _WITH_CLIENT_CHECK:
        try:
            connection.exec_driver_sql("SET client_connection_check_interval = 2000")
        except DBAPIError:
            return  # Not every system can.


def _url(place: str, target: Mapping[str, Any]) -> URL:
    if not target["url"]:
        return URL.create(
            "postgresql+psycopg2",
            username=target["user"] or None,
            password=target["password"] or None,
            host=target["host"],
            port=target["port"],
            database=target["database"],
            query=target["query"],
        )
    try:
        url = make_url(target["url"])
    except ArgumentError:
        raise JobError(f"{place}: url is malformed") from None
    if target["dialect"] == "sqlite" and url.database and url.database != ":memory:":
        # Relative to what tasks share: the attempt's own directory goes with it.
        folder = Path(os.environ.get("ORCAFLOW_DATA_DIR", ".")).resolve()
        path = Path(folder, url.database).resolve()
        if not path.is_relative_to(folder):
            raise JobError(f"{place}: its file leads out of the folder of shared data")
        url = url.set(database=str(path))
    return url
