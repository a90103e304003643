"""Data sources (`t_ds_datasource`): saved, removed and listed by people, and tried from here.

`connection_params` holds a password: it never gets into an error or a log line.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from sqlalchemy import (
    URL,
    Connection,
    NullPool,
    Select,
    create_engine,
    delete,
    func,
    insert,
    make_url,
    select,
    text,
    update,
)
from sqlalchemy.exc import ArgumentError, NoSuchModuleError, SQLAlchemyError

from common.errors import ServiceUnreachableError
from common.model.grants import GrantKind
from common.model.rights import Principal
from common.parameter_keys import AsItIs
from common.store.people.grants import is_shown
from common.store.tables import datasource

_DATASOURCE_LOCK = "orcaflow data sources"


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasourceView:
    """A data source. `connection_params` holds a password: it is masked before it is shown."""

    id: int
    name: str
    note: str | None
    type: int
    connection_params: str = field(repr=False)
    create_time: datetime
    update_time: datetime


def datasources(
    db: Connection,
    *,
    seen_by: Principal | None = None,
    name: str | None = None,
    datasource_id: int | None = None,
) -> list[DatasourceView]:
    """List all data sources by name, or those of this name, or of this id."""
    shown = is_shown(GrantKind.DATASOURCE, seen_by)
    statement = select(datasource).where(shown).order_by(datasource.c.name, datasource.c.id)
    if name is not None:
        statement = statement.where(datasource.c.name == name)
    if datasource_id is not None:
        statement = statement.where(datasource.c.id == datasource_id)
    return _views(db, statement)


def datasource_page(
    db: Connection, *, seen_by: Principal, after: int, limit: int
) -> list[DatasourceView]:
    """List the data sources that a principal sees, by id, starting after the id `after`."""
    own = datasource.c.id
    shown = select(datasource).where(is_shown(GrantKind.DATASOURCE, seen_by))
    return _views(db, shown.where(own > after).order_by(own).limit(limit))


def _views(db: Connection, statement: Select[Any]) -> list[DatasourceView]:
    return [
        DatasourceView(
            id=row.id,
            name=row.name,
            note=row.note,
            type=row.type,
            connection_params=row.connection_params,
            create_time=row.create_time,
            update_time=row.update_time,
        )
        for row in db.execute(statement)
    ]


def datasource_names(db: Connection) -> dict[int, str]:
    """Return the names of all data sources, by id."""
    return {
        row.id: row.name
        for row in db.execute(select(datasource.c.id, datasource.c.name).order_by(datasource.c.id))
    }


def update_datasource(
    db: Connection,
    datasource_id: int,
    *,
    type_: int,
    connection_params: str,
    note: str | None,
    at: datetime,
) -> bool:
    """Change a data source; False if it is gone."""
    changed = db.execute(
        update(datasource)
        .where(datasource.c.id == datasource_id)
        .values(type=type_, connection_params=connection_params, note=note, update_time=at)
    )
    return changed.rowcount == 1


def lock_datasources(db: Connection) -> None:
    """Keep others from saving data sources until the transaction ends."""
    db.execute(text("SELECT pg_advisory_xact_lock(hashtext(:lock))"), {"lock": _DATASOURCE_LOCK})


def replace_connection_params(
    db: Connection, datasource_id: int, *, before: str, after: str, at: datetime
) -> bool:
    """Change a row that is as it was read; False if it is not."""
    changed = db.execute(
        update(datasource)
        .where(datasource.c.id == datasource_id)
        .where(datasource.c.connection_params == AsItIs(before))
        .values(connection_params=AsItIs(after), update_time=at)
    )
    return changed.rowcount == 1


def save_datasource(
    db: Connection,
    *,
    name: str,
    type_: int,
    connection_params: str,
    note: str | None,
    replace: bool,
    at: datetime,
) -> tuple[int, bool] | None:
    """Save a data source; return its id and True if it is new, or None if its name is taken.

    With `replace` the one of that name is updated, the oldest should there be several.
    """
    lock_datasources(db)
    known: int | None = db.scalar(
        select(func.min(datasource.c.id)).where(datasource.c.name == name)
    )
    values = {
        "type": type_,
        "connection_params": connection_params,
        "note": note,
        "update_time": at,
    }
    if known is None:
        made: int = db.execute(
            insert(datasource)
            .values(name=name, create_time=at, **values)
            .returning(datasource.c.id)
        ).scalar_one()
        return made, True
    if not replace:
        return None
    db.execute(update(datasource).where(datasource.c.id == known).values(**values))
    return known, False


def remove_datasource(db: Connection, datasource_id: int) -> bool:
    return db.execute(delete(datasource).where(datasource.c.id == datasource_id)).rowcount == 1


def try_database(url: str, *, timeout_seconds: int = 10) -> str:
    """Connect to an external database and query a row; return its product and version.

    Raises `ServiceUnreachableError` with the driver's message, without the password.
    """
    try:
        address = make_url(url)
        arguments = {"connect_timeout": timeout_seconds} if _knows_connect_timeout(address) else {}
        engine = create_engine(address, poolclass=NullPool, connect_args=arguments)
    except (ArgumentError, NoSuchModuleError, ImportError) as error:
        # The text of an ArgumentError may hold the whole URL.
        words = "the URL can't be read" if isinstance(error, ArgumentError) else str(error)
        raise ServiceUnreachableError(f"no connection can be made: {words}") from None
    try:
        with engine.connect() as db:
            db.execute(select(1))
            found = db.dialect.server_version_info or ()
            return " ".join([db.dialect.name, ".".join(map(str, found))]).strip()
    except SQLAlchemyError as error:
        cause = str(getattr(error, "orig", None) or error).strip().splitlines()
        raise ServiceUnreachableError(
            _without_password(f"no connection: {cause[0] if cause else error}", address)
        ) from None
    finally:
        engine.dispose()


def _knows_connect_timeout(address: URL) -> bool:
    return address.get_backend_name() == "postgresql" and "connect_timeout" not in address.query


def _without_password(words: str, address: URL) -> str:
    password = address.password
    return words.replace(str(password), "***") if password else words
