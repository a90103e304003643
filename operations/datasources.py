"""Makes, shows, tries and removes data sources: the databases that SQL and PROCEDURE tasks use.

A password comes in as a value, is stored encrypted in `connection_params`
(`common.datasource_keys`) and leaves this module only for connecting.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from common.clock import SystemClock
from common.datasource_keys import (
    DatasourceKeyError,
    DatasourceKeys,
    is_sealed,
    key_file,
)
from common.embedded import addresses as embedded
from common.errors import NotAllowedError, NotFoundError, ServiceUnreachableError
from common.store.connect import Connection
from common.store.people import datasources as store
from common.store.people.datasources import DatasourceView
from common.store.people.definitions import definitions
from common.store.reading import allow_reading
from operations.datasource_params import (
    POSTGRESQL,
    DatasourceError,
    connection_url,
    has_password,
    postgresql_params,
    url_params,
)
from operations.errors import UsageError
from operations.limits import MAX_DATASOURCE_NAME_LENGTH, check_name
from operations.references import wanted
from operations.rights import noted
from operations.session import Session


@dataclass(frozen=True, slots=True, kw_only=True)
class PostgresAddress:
    """A PostgreSQL database by the parts of its address, as DolphinScheduler stores it."""

    address: str
    database: str
    user: str
    other: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedDatasource:
    """A data source as it is now; `is_new` unless it replaced one of its name."""

    view: DatasourceView
    is_new: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasourceAnswer:
    """The answer of a data source's server to one question, and how long it took."""

    view: DatasourceView
    server: str
    milliseconds: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EncryptedDatasource:
    """A data source whose password is encrypted, and True if its row had to be changed."""

    view: DatasourceView
    changed: bool


def create_datasource(
    session: Session,
    name: str,
    target: str | PostgresAddress,
    *,
    password: str | None,
    type_: int | None,
    note: str | None,
    replace: bool,
) -> SavedDatasource:
    """Make a data source of an SQLAlchemy URL without a password, or of an address.

    `type_` overrides the type that the target tells. `NotAllowedError` if there is one of that name
    and it is not to be replaced.
    """
    check_name(name, longest=MAX_DATASOURCE_NAME_LENGTH)
    try:
        if isinstance(target, str):
            kind, params = url_params(target, password=password, data_dir=_data_dir(session))
        else:
            kind = POSTGRESQL
            params = postgresql_params(
                address=target.address,
                database=target.database,
                user=target.user,
                password=password,
                other=target.other,
            )
    except DatasourceError as error:
        raise UsageError(None, str(error)) from error
    with noted(session, "datasource.save", name) as db:
        if has_password(params):
            params = _keys(session, db).sealed(params)
        saved = store.save_datasource(
            db,
            name=name,
            type_=kind if type_ is None else type_,
            connection_params=params,
            note=note,
            replace=replace,
            at=SystemClock().now(),
        )
        if saved is None:
            raise NotAllowedError(
                f"there is a data source {name!r} already; --replace brings it to this"
            )
        return SavedDatasource(view=_found(db, name), is_new=saved[1])


def create_own_datasource(
    session: Session, name: str, *, note: str | None, replace: bool
) -> SavedDatasource:
    """Make a data source of the cluster's own database, for a role that reads and can't write.

    `UsageError` where the database is no embedded one: its roles are its administrator's business.
    """
    check_name(name, longest=MAX_DATASOURCE_NAME_LENGTH)
    if session.config.database.url:
        raise UsageError(
            None,
            "database.url names a server of yours, so no role can be made there; make one that may"
            " only read (`db upgrade` gives a role named orcaflow_reader its rights), and give"
            " --address, --database and --user",
        )
    reader = embedded.postgres_address(session.config.home).seen_by(embedded.READER)
    password = reader.password()
    with session.engine.begin() as db:
        allow_reading(db)
    return create_datasource(
        session,
        name,
        PostgresAddress(
            address=f"{reader.host}:{reader.port}", database=reader.dbname, user=reader.user
        ),
        password=password,
        type_=None,
        note=note,
        replace=replace,
    )


def list_datasources(session: Session) -> list[DatasourceView]:
    """All data sources."""
    with session.engine.connect() as db:
        return store.datasources(db)


def encrypt_datasources(session: Session, *, new_key: bool) -> list[EncryptedDatasource]:
    """Encrypt the passwords of all rows by the first key, or with `new_key` by one made now."""
    with noted(session, "datasource.encrypt", None) as db:
        store.lock_datasources(db)
        keys = _keys(session, db)
        if new_key:
            keys.add()
        done = []
        for each in store.datasources(db):
            try:
                params = keys.sealed(each.connection_params)
            except DatasourceKeyError as error:
                raise DatasourceKeyError(f"data source {each.name!r:.100}: {error}") from None
            changed = params != each.connection_params
            if changed and not store.replace_connection_params(
                db, each.id, before=each.connection_params, after=params, at=SystemClock().now()
            ):
                raise NotAllowedError(
                    f"data source {each.name!r:.100} was changed by somebody else just now; try"
                    " again"
                )
            done.append(EncryptedDatasource(view=each, changed=changed))
        return done


def _data_dir(session: Session) -> str:
    return str(session.config.data_dir)


def _keys(session: Session, db: Connection) -> DatasourceKeys:
    """Return the keys, with a first one made unless another host's has encrypted rows already."""
    keys = DatasourceKeys(key_file(session.config))
    if not keys.exist() and not any(
        is_sealed(each.connection_params) for each in store.datasources(db)
    ):
        keys.make()
    return keys


def remove_datasource(session: Session, name: str) -> DatasourceView:
    """Remove a data source and return what it was; `NotAllowedError` if a definition names it."""
    with noted(session, "datasource.remove", name) as db:
        found = _found(db, name)
        users = [
            each.name
            for each in definitions(db)
            if _refers(each.process_definition_json, found.id, name)
        ]
        if users:
            raise NotAllowedError(
                f"data source {name!r} is used by {', '.join(map(repr, users[:10]))}"
                + (f" and {len(users) - 10} more" if len(users) > 10 else "")
            )
        store.remove_datasource(db, found.id)
    return found


def try_datasource(session: Session, name: str) -> DatasourceAnswer:
    """Connect from this computer and ask for one row; `ServiceUnreachableError` if that fails."""
    with session.engine.connect() as db:
        found = _found(db, name)
    params = DatasourceKeys(key_file(session.config)).opened(found.connection_params)
    url = connection_url(found.type, params, data_dir=_data_dir(session))
    scheme, _, path = url.partition(":///")
    if scheme.startswith("sqlite") and path and not path.startswith(":memory:"):
        name_of_file, mark, options = path.partition("?")
        # As the worker does: a relative one is looked for among what tasks share.
        file = Path(_data_dir(session), name_of_file)
        # SQLite makes a file that is not there, and would find nothing wrong with it.
        if not file.is_file():
            raise ServiceUnreachableError(f"there is no file {str(file)!r:.300} on this computer")
        url = f"{scheme}:///{file}{mark}{options}"
    clock = SystemClock()
    begun = clock.monotonic()
    server = store.try_database(url)
    return DatasourceAnswer(
        view=found,
        server=server,
        milliseconds=round((clock.monotonic() - begun) * 1000),
    )


def _found(db: Connection, name: str) -> DatasourceView:
    found = store.datasources(db, name=name) if "\0" not in name else []
    if len(found) == 1:
        return found[0]
    if found:
        ids = ", ".join(str(each.id) for each in found)
        raise NotAllowedError(f"{name!r:.100} is ambiguous: data sources {ids}")
    near = difflib.get_close_matches(name, [each.name for each in store.datasources(db)], n=1)
    perhaps = f"; did you mean {near[0]!r}?" if near else "; see `orcaflow datasource list`"
    raise NotFoundError(f"there is no data source {name!r:.100}{perhaps}")


def _refers(text: str | None, datasource_id: int, name: str) -> bool:
    try:
        document = json.loads(text or "{}")
    except (ValueError, RecursionError):
        return False
    if not isinstance(document, dict):
        return False
    found = wanted(document)
    return datasource_id in found.datasource_ids or name in found.datasource_names
