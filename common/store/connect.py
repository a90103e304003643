"""Makes the engine of a daemon or the command line, and tells transient errors from others.

Every failure of a connection is raised as one of two errors: `ServiceUnreachableError` (the server
can't be reached, or the connection was lost: try again later) or `ConfigurationError` (the server
refuses this user or database, or the user lacks a right). No error of the engine carries the
password or the values of a statement.

It never retries by itself: after a lost connection nobody knows whether a COMMIT was carried out,
so `retrying` is for work whose repetition is harmless, which fenced and conditional writes are.
"""

from __future__ import annotations

import os
import select
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeVar

import psycopg2
import psycopg2.extensions
from sqlalchemy import URL, create_engine, event, func, make_url

# Re-exported, for callers that only pass them on and need not know the library.
from sqlalchemy import Connection as Connection  # noqa: PLC0414
from sqlalchemy import Engine as Engine  # noqa: PLC0414
from sqlalchemy import select as select_rows
from sqlalchemy.engine import ExceptionContext
from sqlalchemy.exc import ArgumentError, DBAPIError, DisconnectionError, StatementError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from common import libpq
from common.errors import ConfigurationError, ServiceUnreachableError
from common.store.sealed_rows import RowKeys, protect, reader_of_json

Result = TypeVar("Result")

_DRIVER: Final = "postgresql+psycopg2"

SESSION_SETTINGS: Final[Mapping[str, str]] = {
    "timezone": "UTC",
    # A transaction left open by a stopped process (SIGSTOP, a frozen machine) gives its locks back;
    # its owner, should it wake, finds the connection gone and its epoch passed.
    "idle_in_transaction_session_timeout": "1min",
    # Rows are few and statements many: compiling one costs more than it can ever save.
    "jit": "off",
    # Joins are written in the order in which they are best done; with many tables, trying all the
    # others takes longer than the statement.
    "join_collapse_limit": "1",
    # To plan a prepared statement for each of its first values is what it is prepared against.
    "plan_cache_mode": "force_generic_plan",
}
"""The settings of every session that have one value, as the server shows them."""

# A day within what a `datetime` holds, so that it does in every time zone.
EARLIEST: Final = datetime(1, 1, 2, tzinfo=UTC)
LATEST: Final = datetime(9999, 12, 30, tzinfo=UTC)
# Serialization failure, deadlock, lock not available: the same transaction may well succeed next.
_PASSING_STATES: Final = frozenset({"40001", "40P01", "55P03"})
# A prepared statement that is not there, or is there already.
_PREPARED_STATES: Final = frozenset({"26000", "42P05"})
# The server refuses a statement for a missing right. A trigger that refuses a change may have the
# same state; this is the function of the server that a trigger's RAISE comes from.
_NO_RIGHT: Final = "42501"
_RAISED: Final = "exec_stmt_raise"
POOLER_CURE: Final = (
    "connect to PostgreSQL itself, or through a pooler that keeps one server connection for each"
    " client (pool_mode = session of PgBouncer)"
)
CURES: Final[Mapping[str, str]] = {
    "unsupported startup parameter": POOLER_CURE,
    "statement pooling mode": POOLER_CURE,
    "unrecognized configuration parameter": "use PostgreSQL 15 or newer",
}
"""Refusals of poolers and old servers, each with the fix."""
# The server answered, and will answer the same next time: no such role, password or database.
# A refused connection has no SQLSTATE in psycopg2, hence the words of libpq and the server.
_REFUSALS: Final = (
    "authentication failed",
    "no password supplied",
    "no pg_hba.conf entry",
    "does not exist",
    "permission denied for database",
    "is not permitted to log in",
    "server does not support SSL",
    "certificate verify failed",
    "does not match host name",
    "could not read root certificate file",
    "could not read certificate file",
    "could not load private key file",
    "has group or world access",
    *CURES,
)


def engine(
    url: str,
    *,
    pool_size: int = 5,
    max_overflow: int = 5,
    application_name: str = "orcaflow",
    connect_timeout: timedelta = timedelta(seconds=5),
    statement_timeout: timedelta = timedelta(seconds=30),
    lock_timeout: timedelta = timedelta(seconds=10),
    pool_timeout: timedelta = timedelta(seconds=10),
    by_statement: bool = False,
    connection_factory: type[psycopg2.extensions.connection] | None = None,
    keys: RowKeys | None = None,
) -> Engine:
    """Make a lazy engine: it connects when it is first used.

    A connection that the server has closed, as it does when it is restarted, is replaced before
    it is used: its socket shows that without a round trip. A later loss is noticed by the
    statement that fails on it, and the whole pool is renewed at that moment.
    The time-outs are the server's own, so that a stuck statement ends there too.

    `by_statement`: each statement on a connection that `connect` opens is a transaction of its own,
    which saves the round trips of BEGIN and ROLLBACK around reads. `begin` opens one as ever.

    `connection_factory` is psycopg2's; see `common.store.yielding`. With `keys`, secrets
    of documents are encrypted in the tables (`common.store.sealed_rows`).
    """
    address = _read(url)
    arguments = _arguments(
        url,
        application_name=application_name,
        connect_timeout=connect_timeout,
        statement_timeout=statement_timeout,
        lock_timeout=lock_timeout,
    )
    made = create_engine(
        address,
        creator=lambda: psycopg2.connect(connection_factory=connection_factory, **arguments),
        pool_size=pool_size,
        max_overflow=max_overflow,
        pool_timeout=pool_timeout.total_seconds(),
        pool_pre_ping=False,
        pool_use_lifo=True,  # The warmest connection first; those of a burst are closed by age.
        pool_recycle=3600,
        executemany_mode="values_plus_batch",
        # Otherwise each new connection asks the catalogue for a type that no table here has.
        use_native_hstore=False,
        hide_parameters=True,
        json_deserializer=None if keys is None else reader_of_json(keys),
    )
    if by_statement:
        made = _StatementEngine(made.pool, made.dialect, made.url, hide_parameters=True)
    event.listen(made, "handle_error", _translate_error)
    event.listen(made, "connect", _read_any_moment)
    event.listen(made, "checkout", _check_open)
    if keys is not None:
        event.listen(made, "connect", lambda connection, _: protect(connection, keys))
    return made


def _check_open(connection: Any, _record: object, _proxy: object) -> None:
    """Have the pool replace a connection that the server has closed.

    A server writes nothing to an idle connection but its reason to close it, or a changed setting
    of its own; both are a reason for a new one.
    """
    if not connection.closed:
        socket = select.poll()
        socket.register(connection.fileno(), select.POLLIN)
        if not socket.poll(0):
            return
    raise DisconnectionError("the server has closed this connection")


class _StatementEngine(Engine):
    """An engine whose connections are in autocommit mode, unless `begin` opens a transaction.

    The mode is the driver's alone and set each time that a connection leaves the pool; to set and
    reset it as an isolation level of SQLAlchemy's would ask the server.
    """

    def connect(self) -> Connection:
        """Open a connection on which nothing lasts longer than a statement."""
        return self._opened(autocommit=True)

    @contextmanager
    def begin(self) -> Iterator[Connection]:
        """Open a transaction, which is committed unless it fails."""
        with self._opened(autocommit=False) as db, db.begin():
            yield db

    def _opened(self, *, autocommit: bool) -> Connection:
        db = super().connect()
        try:
            driver: Any = db.connection.driver_connection
            if driver.autocommit is not autocommit:
                driver.autocommit = autocommit
        except BaseException:
            db.invalidate()
            db.close()
            raise
        return db


def is_by_statement(db: Connection) -> bool:
    """Return True if each statement on this connection is a transaction of its own."""
    driver: Any = db.connection.driver_connection
    return bool(driver.autocommit)


def rows_alone(
    db: Connection, statement: str, values: Mapping[str, Any], *, writes: bool = False
) -> list[tuple[Any, ...]]:
    """Read the rows of a statement that is a transaction of its own, as the driver has them.

    Errors are those of any other statement; SQLAlchemy's events hear nothing of it.
    """
    driver: Any = db.connection.driver_connection
    assert driver.autocommit
    try:
        with driver.cursor() as cursor:
            cursor.execute(statement, values)
            found: list[tuple[Any, ...]] = cursor.fetchall()
            return found
    except psycopg2.Error as error:
        if _is_lost(error) and writes:
            # Nothing is written twice: what fails on a lost connection is an empty question.
            db.exec_driver_sql("SELECT")
            db.invalidate(error)
            raise _named(error, db.engine.url) from None
        if _is_lost(error):
            # Asked as any other it fails again, which tells the pool and names the server.
            return [tuple(row) for row in db.exec_driver_sql(statement, dict(values))]
        made = DBAPIError.instance(None, None, error, psycopg2.Error, hide_parameters=True)
        _forget_values(error, made if isinstance(made, StatementError) else None)
        if _lacks_right(error):
            raise _named(error, db.engine.url) from None
        raise made from None


def server_time(db: Connection) -> datetime:
    """Return the time of the database's own clock."""
    now: datetime = db.execute(select_rows(func.clock_timestamp())).scalar_one()
    return now


def _read_any_moment(connection: Any, _record: object) -> None:
    """Have every time in a row read, also those beyond the calendar that somebody typed."""
    psycopg2.extensions.register_type(_MOMENT, connection)


def _moment(written: str | bytes | None, cursor: Any) -> Any:
    """Read a time of PostgreSQL, clamped to what a `datetime` holds in every time zone."""
    if written is None:
        return None
    try:
        read = psycopg2.extensions.PYDATETIMETZ(written, cursor)
    except (ValueError, OverflowError):
        return EARLIEST if str(written).endswith("BC") else LATEST
    if 1 < read.year < 9999:  # To compare times with their zones takes as long as to read one.
        return read
    return read if EARLIEST <= read <= LATEST else EARLIEST if read < EARLIEST else LATEST


_TIMESTAMPTZ: Final = 1184
_MOMENT: Final = psycopg2.extensions.new_type((_TIMESTAMPTZ,), "MOMENT", _moment)


def answers(made: Engine) -> None:
    """Send a small query; raise `ServiceUnreachableError` if the server does not answer."""
    answer_of(made, "SELECT 1")


def answer_of(made: Engine, query: str, **values: object) -> Any:
    """Return the single value of a query.

    Raises `ServiceUnreachableError` if the server does not answer, and `ConfigurationError` if it
    refuses the query.
    """
    try:
        with made.connect() as db:
            ((value,),) = rows_alone(db, query, values)
            return value
    except (DBAPIError, PoolTimeoutError):
        raise ServiceUnreachableError(
            f"PostgreSQL at {_place(made.url)} did not answer in time"
        ) from None


def connect(
    url: str,
    *,
    application_name: str = "orcaflow",
    connect_timeout: timedelta = timedelta(seconds=5),
) -> Any:
    """Open an autocommit psycopg2 connection outside any pool, for `common.store.listen`."""
    address = _read(url)
    arguments = _arguments(url, application_name=application_name, connect_timeout=connect_timeout)
    try:
        connection = psycopg2.connect(**arguments)
    except psycopg2.Error as error:
        raise _named(error, address) from None
    connection.autocommit = True
    return connection


def is_transient(error: BaseException) -> bool:
    """Return True if the same work may succeed when repeated from its first statement."""
    if isinstance(error, ServiceUnreachableError | PoolTimeoutError):
        return True
    if isinstance(error, DBAPIError):
        return error.connection_invalidated or is_transient_original(error.orig)
    return is_transient_original(error)


def is_transient_original(error: BaseException | None) -> bool:
    """`is_transient` for what psycopg2 itself raised."""
    return isinstance(error, psycopg2.Error) and (
        error.pgcode in _PASSING_STATES or _is_lost(error)
    )


def retrying(
    work: Callable[[], Result],
    *,
    attempts: int = 5,
    first_wait: timedelta = timedelta(milliseconds=20),
    longest_wait: timedelta = timedelta(seconds=1),
    sleep: Callable[[float], None] = time.sleep,
) -> Result:
    """Repeat `work` until it succeeds, fails for good, or has failed `attempts` (at most 5) times.

    `work` opens its own transaction and must be idempotent. The last error is raised as it is. The
    waits grow exponentially with jitter.
    """
    # Here: only repeated work needs it, and the command line starts sooner without it.
    from tenacity import Retrying, retry_if_exception, stop_after_attempt, wait_random_exponential

    again = Retrying(
        stop=stop_after_attempt(min(attempts, 5)),
        wait=wait_random_exponential(
            multiplier=first_wait.total_seconds(), max=longest_wait.total_seconds()
        ),
        retry=retry_if_exception(is_transient),
        sleep=sleep,
        reraise=True,
    )
    return again(work)


def place_of(url: str) -> str:
    """`host:port/database`, fit for a person's eyes and for logs."""
    return _place(_read(url))


def _read(url: str) -> URL:
    # The parser's own errors may quote a piece of the URL, and that piece may be the password:
    # one with a slash or an at-sign in it, unescaped, is just how a URL goes wrong.
    try:
        address = make_url(url)
    except (ArgumentError, ValueError):
        raise ConfigurationError(
            "database.url can't be read; it should look like "
            f"{_DRIVER}://user:password@host:5432/database, with special characters in the "
            "password escaped (%40 for @, %2F for /)"
        ) from None
    if address.drivername in ("postgresql", "postgres"):
        # In SQLAlchemy 2.1 the plain name means another driver.
        address = address.set(drivername=_DRIVER)
    if address.drivername != _DRIVER:
        raise ConfigurationError(
            f"database.url names the driver {address.drivername!r}; only {_DRIVER!r} is supported"
        )
    return address


def _place(address: URL) -> str:
    return libpq.place(_parameters(address.render_as_string(hide_password=False)))


def _parameters(url: str) -> dict[str, str]:
    try:
        return libpq.parameters(url)
    except ValueError as error:
        raise ConfigurationError(f"database.url can't be read: {error}") from None


def _arguments(
    url: str,
    *,
    application_name: str,
    connect_timeout: timedelta,
    statement_timeout: timedelta = timedelta(),
    lock_timeout: timedelta = timedelta(),
) -> dict[str, Any]:
    """Return libpq's arguments; settings in the URL itself take precedence over ours."""
    given = _parameters(url)
    settings = {
        **SESSION_SETTINGS,
        "statement_timeout": _milliseconds(statement_timeout),
        "lock_timeout": _milliseconds(lock_timeout),
    }
    options = [f"-c {name}={value}" for name, value in settings.items()]
    least_seconds = 2  # libpq's own.
    arguments: dict[str, Any] = {
        "application_name": f"{application_name}:{os.getpid()}",
        # PGCLIENTENCODING or a setting of the role could choose an encoding that lacks letters.
        "client_encoding": "UTF8",
        # Of several hosts the next one may be alive.
        "connect_timeout": least_seconds
        if libpq.has_several_hosts(given)
        else max(least_seconds, round(connect_timeout.total_seconds())),
        # A host that vanishes is noticed within about twenty seconds, or within eight if it does
        # not confirm what was sent.
        "keepalives_idle": 10,
        "keepalives_interval": 5,
        "keepalives_count": 4,
        "tcp_user_timeout": 8_000,
        **given,
    }
    # Of a setting that is named twice the server takes the last.
    options.append(given.get("options", ""))
    return {**arguments, "options": " ".join(options).strip()}


def _milliseconds(duration: timedelta) -> int:
    return round(duration.total_seconds() * 1000)


def _translate_error(context: ExceptionContext) -> None:
    """Raise the project's own error for anything that concerns the connection itself.

    SQLAlchemy has noted by then that the connection was lost, and drops it and its pool.
    """
    error = context.original_exception
    if not isinstance(error, psycopg2.Error):
        return
    _forget_values(error, context.sqlalchemy_exception)
    if _has_no_plan(error):
        context.is_disconnect = True
    lost = context.is_disconnect or _is_lost(error)
    if lost or (context.connection is None and isinstance(error, psycopg2.OperationalError)):
        address = context.engine.url if context.engine is not None else None
        raise _named(error, address) from None
    if _lacks_right(error):
        raise _named(error, None if context.engine is None else context.engine.url) from None


def _forget_values(error: psycopg2.Error, outer: StatementError | None) -> None:
    """Keep only the server's first sentence, which names the constraint, the table or the type.

    The others quote the statement with the values that psycopg2 put into it, and the failing row.
    """
    primary = error.diag.message_primary
    if primary is None:
        return
    error.args = (primary,)
    if outer is not None:
        outer.args = (f"({type(error).__name__} {error.pgcode}) {primary}",)


def _has_no_plan(error: psycopg2.Error) -> bool:
    """True if the session can't use its prepared statements any more: the next one makes its own.

    Somebody has dropped one or made one, or has changed a column while the daemons ran.
    """
    return error.pgcode in _PREPARED_STATES or (
        error.pgcode == "0A000" and "cached plan" in (error.diag.message_primary or "")
    )


def _is_lost(error: psycopg2.Error) -> bool:
    """True if the server ended the session, or nothing that speaks SQL is there any more."""
    if error.pgcode is not None:
        # Shut down or crashed; connection failure; idle for too long inside a transaction.
        return error.pgcode.startswith(("57P0", "08", "25P03")) or _has_no_plan(error)
    return isinstance(error, psycopg2.OperationalError | psycopg2.InterfaceError)


def _lacks_right(error: psycopg2.Error) -> bool:
    """True if the server refused a statement because the role lacks a right."""
    return error.pgcode == _NO_RIGHT and error.diag.source_function != _RAISED


def _named(
    error: psycopg2.Error, address: URL | None
) -> ServiceUnreachableError | ConfigurationError:
    place = "" if address is None else f" at {_place(address)}"
    words = " ".join(str(error).split()) or type(error).__name__
    if address is not None and address.password:
        words = words.replace(str(address.password), "***")
    if _lacks_right(error):
        return ConfigurationError(
            f"PostgreSQL{place} refused a statement ({words}): `orcaflow db check` lists the rights"
            " that the role lacks"
        )
    if not _has_no_plan(error) and any(refusal in words for refusal in _REFUSALS):
        cure = next((cure for refusal, cure in CURES.items() if refusal in words), None)
        said = f": {words}" if cure is None else f" ({words}): {cure}"
        return ConfigurationError(f"PostgreSQL{place} refused the connection{said}")
    return ServiceUnreachableError(f"PostgreSQL{place} can't be reached: {words}")
