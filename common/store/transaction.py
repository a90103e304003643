"""Transactions on PostgreSQL and the values it can store, shared by all stores.

Adds the word *passing*: an error of the server and not of the work, so that the same work may
succeed another time. Reads and writes no table.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from time import perf_counter
from typing import Any, Final, TypeAlias, TypeVar

import psycopg2
from sqlalchemy import (
    ARRAY,
    ColumnElement,
    Connection,
    Engine,
    Integer,
    Row,
    Select,
    TableValuedAlias,
    any_,
    bindparam,
    cast,
    column,
    func,
    text,
)
from sqlalchemy.exc import DBAPIError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from sqlalchemy.types import TypeEngine

from common.errors import SchedulerError, ServiceUnreachableError
from common.store.connect import is_transient

MESSAGE_LIMIT: Final = 4000

LOCK_NOT_AVAILABLE: Final = "55P03"
_UNIQUE_VIOLATION: Final = "23505"
# Classes of SQLSTATE that say nothing about the work: a transaction left open or read-only (25),
# resources used up (53), a statement cancelled (57), the machine itself (58).
_PASSING_CLASSES: Final = ("25", "53", "57", "58")

Answer = TypeVar("Answer")
AnyRow: TypeAlias = Row[*tuple[Any, ...]]


_OBSERVERS: Final[set[Callable[[float], object]]] = set()


def observe_transactions(observe: Callable[[float], object]) -> None:
    """Have each transaction's seconds told to this function, from now on.

    Daemons pass them to their metrics, which commands would import for nothing.
    """
    _OBSERVERS.add(observe)


class StoreConflictError(SchedulerError):
    """A run's rows are not as its owner believes. Forget the run and load it again.

    Nothing of the transaction was written, for this run or another.
    """


def storable(words: str, limit: int = MESSAGE_LIMIT) -> str:
    """Return the text as PostgreSQL can store it: no NUL, no lone surrogates, at most `limit`."""
    clean = words.replace("\0", "\N{REPLACEMENT CHARACTER}")
    clean = clean.encode("utf-8", "replace").decode("utf-8")
    return clean if len(clean) <= limit else clean[: limit - 1] + "…"


def storable_document(value: Any) -> Any:
    """Return a value of JSON as a `JSONB` column can store it: all its texts are storable."""
    if isinstance(value, str):
        return storable(value)
    if isinstance(value, Mapping):
        return {storable(str(key)): storable_document(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [storable_document(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def unstorable(values: Mapping[str, Any]) -> str | None:
    """Name the text that PostgreSQL can't store, and the reason; None if it can store all."""
    for name, value in values.items():
        if not isinstance(value, str):
            continue
        if "\0" in value:
            return f"{name} holds a NUL character"
        try:
            value.encode("utf-8")
        except UnicodeEncodeError:
            return f"{name} holds half of a surrogate pair, which is not a character"
    return None


@contextmanager
def transaction(engine: Engine) -> Iterator[Connection]:
    """`engine.begin()`, raising passing errors as `ServiceUnreachableError`."""
    with _translate_errors(), engine.begin() as db:
        yield db


@contextmanager
def single(engine: Engine) -> Iterator[Connection]:
    """Open a connection for one statement in autocommit mode.

    BEGIN and COMMIT would each cost a round trip to the server.
    """
    with _translate_errors(), engine.connect() as db:
        # Not by an isolation level of SQLAlchemy's, for whose reset the driver asks the server.
        driver = db.connection.driver_connection
        if driver is None:
            raise ServiceUnreachableError("PostgreSQL: the connection is gone")
        driver.autocommit = True
        try:
            yield db
        finally:
            try:
                if not driver.closed:
                    driver.autocommit = False
            except psycopg2.Error:
                # Whoever had it next would commit each statement of a transaction by itself.
                db.invalidate()
                raise


@contextmanager
def _translate_errors() -> Iterator[None]:
    begun = perf_counter()
    try:
        yield
    except (DBAPIError, PoolTimeoutError) as error:
        if not passes(error):
            raise
        raise ServiceUnreachableError(
            f"PostgreSQL could not carry a transaction out just now: {refusal(error)}"
        ) from error
    finally:
        for observe in _OBSERVERS:
            observe(perf_counter() - begun)


def passes(error: Exception) -> bool:
    """Return True if the server failed and not the work, which may succeed another time."""
    original = error.orig if isinstance(error, DBAPIError) else error
    code = original.pgcode if isinstance(original, psycopg2.Error) else None
    return is_transient(error) or (code is not None and code.startswith(_PASSING_CLASSES))


def repeatable(
    engine: Engine,
    work: Callable[[Connection], Answer],
    *,
    begin: Callable[[Engine], AbstractContextManager[Connection]] = single,
) -> Answer:
    """Do idempotent work, once more if the first connection turned out to be lost.

    One statement, unless `begin` is `transaction`.
    """

    def attempt() -> Answer:
        with begin(engine) as db:
            return work(db)

    # Not by `retrying`, which takes as long as the statement, and nearly none fails.
    try:
        return attempt()
    except Exception as error:
        if not is_transient(error):
            raise
    return attempt()


def lock_in_time(db: Connection, ids_of: Select[int], ids: Collection[int]) -> frozenset[int]:
    """Lock these rows for an update; return the ids that stay locked elsewhere, and are not locked.

    A daemon stands still within a transaction that holds those: their work has to wait, and must
    delay nothing else. `ids_of` selects the ids of the rows named by the parameter `ids`, in order
    of id.
    """
    wanted = {"ids": sorted(set(ids))}
    without_waiting = ids_of.with_for_update(key_share=True, skip_locked=True)
    locked = frozenset(db.scalars(without_waiting, wanted))
    missing = [row_id for row_id in wanted["ids"] if row_id not in locked]
    # A row that is not there is locked by nobody.
    others = {"ids": list(db.scalars(ids_of, {"ids": missing}))} if missing else {"ids": []}
    if not others["ids"]:
        return frozenset()
    try:
        with db.begin_nested():
            db.execute(text("SET LOCAL lock_timeout = '1s'"))
            db.execute(ids_of.with_for_update(key_share=True), others)
    except OperationalError as error:
        if getattr(error.orig, "pgcode", None) != LOCK_NOT_AVAILABLE:
            raise
        return frozenset(others["ids"]) - frozenset(db.scalars(without_waiting, others))
    return frozenset()


def refusal(error: Exception) -> str:
    """Return the cause in PostgreSQL's own words, without the statement or its values."""
    original = error.orig if isinstance(error, DBAPIError) else error
    if not isinstance(original, psycopg2.Error):
        return " ".join(str(original).split())
    words = original.diag.message_primary or " ".join(str(original).split())
    # Only here is the detail short and about keys; elsewhere it may quote the whole row.
    if original.pgcode == _UNIQUE_VIOLATION and original.diag.message_detail:
        words = f"{words}: {original.diag.message_detail}"
    return words


def any_of(parameter: str) -> ColumnElement[Any]:
    """`= ANY(…)` over a list of ids, so that the statement is the same for every length."""
    return any_(cast(bindparam(parameter), ARRAY(Integer)))


def possible_ids(ids: Iterable[int]) -> list[int]:
    """Return the ids that a row can have, each once; znodes and files may hold any others."""
    return [row_id for row_id in dict.fromkeys(ids) if 0 < row_id < 2**31]


def unnested(alias: str, /, **columns: TypeEngine[Any] | type[TypeEngine[Any]]) -> TableValuedAlias:
    """Rows that travel as one array a column; the parameters are called `<alias>_<column>`."""
    arrays = [cast(bindparam(f"{alias}_{key}"), ARRAY(kind)) for key, kind in columns.items()]
    shape = [column(key, kind) for key, kind in columns.items()]
    return func.unnest(*arrays).table_valued(*shape).render_derived(name=alias)
