"""Makes, shows, tries and removes data sources: the databases that SQL and PROCEDURE tasks use.

A password comes in as a value, is stored encrypted in `connection_params`
(`common.datasource_keys`) and leaves this module only for connecting.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TypeAlias
from urllib.parse import unquote

from common.clock import SystemClock
from common.datasource_keys import (
    DatasourceKeyError,
    DatasourceKeys,
    is_sealed,
    key_file,
)
from common.embedded import addresses as embedded
from common.embedded.postgres_reader import restore_reader
from common.errors import NotAllowedError, NotFoundError, ServiceUnreachableError
from common.model.datasource_urls import split_url
from common.model.grants import GrantKind
from common.model.rights import Action, Principal
from common.model.streams.connections import KAFKA, connection_params
from common.model.streams.consumer import ConsumerPropertyError
from common.store.connect import Connection
from common.store.people import datasources as store
from common.store.people.datasources import DatasourceView
from common.store.people.definitions import DefinitionRow, definitions
from common.store.people.rights import Thing, held
from common.store.reading import allow_reading
from operations.datasource_params import (
    POSTGRESQL,
    DatasourceError,
    connection_url,
    fault_of,
    has_password,
    postgresql_params,
    shown,
    url_params,
)
from operations.environments import encrypt_environments
from operations.errors import UsageError
from operations.grants import grant_new
from operations.limits import MAX_DATASOURCE_NAME_LENGTH, check_name
from operations.references import wanted
from operations.rights import Change, change, check_administrator, check_author, noted
from operations.secret_keys import secret_keys
from operations.secrets import encrypt_secrets
from operations.session import Session, operation
from operations.tags import changed_meanwhile, hashed, names


@dataclass(frozen=True, slots=True, kw_only=True)
class PostgresAddress:
    """A PostgreSQL database by the parts of its address, as DolphinScheduler stores it."""

    address: str
    database: str
    user: str
    other: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaConnection:
    """The properties of Kafka clients, with their secrets."""

    properties: Mapping[str, str] = field(repr=False)


Target: TypeAlias = str | PostgresAddress | KafkaConnection


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownDatasource:
    """A data source without its password.

    `parts` are those of its address that may be shown; `problem` is the reason for which tasks
    can't use it.
    """

    id: int
    name: str
    type: int
    parts: Mapping[str, object]
    note: str | None
    problem: str | None
    create_time: datetime
    update_time: datetime
    tag: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedDatasource:
    """A data source as it is now; `is_new` unless it replaced one of its name."""

    view: ShownDatasource
    is_new: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasourceAnswer:
    """The answer of a data source's server to one question, and how long it took."""

    view: ShownDatasource
    server: str
    milliseconds: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EncryptedDatasource:
    """A data source whose password is encrypted, and True if its row had to be changed."""

    view: ShownDatasource
    changed: bool


@operation
def create_datasource(
    session: Session,
    name: str,
    target: Target,
    *,
    password: str | None,
    type_: int | None,
    note: str | None,
    replace: bool,
    projects: Sequence[str | int] = (),
) -> SavedDatasource:
    """Make a data source of an SQLAlchemy URL without a password, or of an address.

    `type_` overrides the type that the target tells. `NotAllowedError` if there is one of that name
    and `replace` is False. It is granted to `projects`; existing grants are kept.
    """
    check_name(name, longest=MAX_DATASOURCE_NAME_LENGTH)
    kind, params = _params(session, target, password)
    with _administered(session, "datasource.save", name) as made:
        db = made.db
        if has_password(params):
            params = secret_keys(session, db).sealed(params)
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
        made.object_id = saved[0]
        grant_new(db, session.principal, GrantKind.DATASOURCE, saved[0], projects)
        return SavedDatasource(view=_shown(session, _found(db, name)), is_new=saved[1])


def replace_datasource(
    session: Session,
    datasource_id: int,
    target: Target,
    *,
    password: str | None,
    type_: int | None,
    note: str | None,
    expected: str,
) -> ShownDatasource:
    """Give the data source with this id, and this tag, another target.

    Without a password it keeps its own, if its address, database and user stay as they are: nobody
    gets to know a password by sending it to another server.
    """
    with _administered(session, "datasource.save", datasource_id) as made:
        db = made.db
        store.lock_datasources(db)
        before = _found(db, datasource_id)
        made.object_name = before.name
        _check_tag(db, before, expected)
        kind, params = _params(session, target, password)
        is_kafka = isinstance(target, KafkaConnection)
        if not is_kafka and password is None and has_password(before.connection_params):
            kept = _password_of(secret_keys(session, db).opened(before.connection_params))
            if _place(params) != _place(before.connection_params):
                raise UsageError(
                    "password",
                    "has to be given again: it is kept for the same address, database and user",
                )
            kind, params = _params(session, target, kept)
        if has_password(params):
            params = secret_keys(session, db).sealed(params)
        store.update_datasource(
            db,
            before.id,
            type_=kind if type_ is None else type_,
            connection_params=params,
            note=note,
            at=SystemClock().now(),
        )
        return _shown(session, _found(db, before.id))


def _params(session: Session, target: Target, password: str | None) -> tuple[int, str]:
    try:
        if isinstance(target, KafkaConnection):
            return KAFKA, connection_params(target.properties)
        if isinstance(target, str):
            return url_params(target, password=password, data_dir=_data_dir(session))
        return POSTGRESQL, postgresql_params(
            address=target.address,
            database=target.database,
            user=target.user,
            password=password,
            other=target.other,
        )
    except (DatasourceError, ConsumerPropertyError) as error:
        raise UsageError(None, str(error)) from error


def _place(connection_params: str) -> tuple[object, ...]:
    parts = shown(connection_params)
    return tuple(parts.get(key) for key in ("kind", "address", "database", "user"))


def _password_of(connection_params: str) -> str | None:
    """The password of parameters that are decrypted."""
    given = json.loads(connection_params)
    url = given.get("url")
    if isinstance(url, str) and url:
        found = split_url(url).password
        return None if found is None else unquote(found)
    return str(given.get("password") or "") or None


@contextmanager
def _administered(session: Session, action: str, given: str | int) -> Iterator[Change]:
    """Open the transaction of an order of administrators, with its line of the audit."""
    with change(
        session,
        action,
        "datasource",
        object_id=given if isinstance(given, int) else None,
        object_name=given if isinstance(given, str) else None,
    ) as made:
        check_administrator(made.db, session.principal)
        yield made


@operation
def create_own_datasource(
    session: Session,
    name: str,
    *,
    note: str | None,
    replace: bool,
    projects: Sequence[str | int] = (),
) -> SavedDatasource:
    """Create a data source of the cluster's database, for a role that reads and can't write.

    The role gets its password and settings back, if a task has changed them. `UsageError` unless
    the database is the embedded one: an administrator creates the roles of other servers.
    """
    check_name(name, longest=MAX_DATASOURCE_NAME_LENGTH)
    if session.config.database.url:
        raise UsageError(
            None,
            "database.url names a server of yours, so no role can be made there; make one that may"
            " only read (`db upgrade` gives a role named orcaflow_reader its rights), and give"
            " --address, --database and --user",
        )
    with session.engine.connect() as db:
        # Before anything is given rights.
        check_administrator(db, session.principal)
    server = embedded.postgres_address(session.config.home)
    restore_reader(server)
    reader = server.seen_by(embedded.READER)
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
        projects=projects,
    )


@operation
def list_datasources(session: Session) -> list[ShownDatasource]:
    """List the data sources that an author sees, by name."""
    who = session.principal
    with session.engine.connect() as db:
        check_author(db, who)
        return [_shown(session, each) for each in store.datasources(db, seen_by=who)]


def datasource_page(session: Session, *, after: int, limit: int) -> list[ShownDatasource]:
    """List the data sources that an author sees with ids above `after`, by id."""
    with session.engine.connect() as db:
        check_author(db, session.principal)
        rows = store.datasource_page(db, seen_by=session.principal, after=after, limit=limit)
    return [_shown(session, each) for each in rows]


def datasource_with_id(session: Session, datasource_id: int) -> ShownDatasource:
    """The data source with this id, for authors."""
    with session.engine.connect() as db:
        check_author(db, session.principal)
        return _shown(session, _found(db, datasource_id, seen_by=session.principal))


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasourceUsers:
    """The definitions that name a data source, by id and name; `unseen` is the number of others."""

    definitions: tuple[tuple[int, str], ...]
    unseen: int


def users_of_datasource(session: Session, datasource_id: int) -> DatasourceUsers:
    """The definitions that use the data source, for authors; foreign ones are only counted."""
    who = session.principal
    with session.engine.connect() as db:
        check_author(db, who)
        found = _found(db, datasource_id, seen_by=who)
        users = _users(db, found)
        seen = [each for each in users if _is_seen(db, who, each.id)]
    return DatasourceUsers(
        definitions=tuple((each.id, each.name) for each in seen), unseen=len(users) - len(seen)
    )


def _is_seen(db: Connection, principal: Principal, definition_id: int) -> bool:
    if principal.owns_database:
        return True
    found = held(db, principal, Thing.DEFINITION, definition_id)
    return found is not None and bool(found.actions & Action.VIEW)


def _users(db: Connection, found: DatasourceView) -> list[DefinitionRow]:
    return [
        each
        for each in definitions(db)
        if _refers(each.process_definition_json, found.id, found.name)
    ]


def encrypt_datasources(session: Session, *, new_key: bool) -> list[EncryptedDatasource]:
    """Encrypt the passwords of all rows by the first key, or with `new_key` by one made now.

    Variables of environments are encrypted too, and with `new_key` all secret parameters. The
    answer lists only data sources.
    """
    with noted(session, "datasource.encrypt", None) as db:
        store.lock_datasources(db)
        keys = secret_keys(session, db)
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
            done.append(EncryptedDatasource(view=_shown(session, each), changed=changed))
        encrypt_environments(session, db)
    if new_key and keys.are_for_parameters():
        encrypt_secrets(session)
    return done


def _data_dir(session: Session) -> str:
    return str(session.config.data_dir)


@operation
def remove_datasource(
    session: Session, given: str | int, *, expected: str | None = None
) -> ShownDatasource:
    """Remove the data source of this name or id, and return what it was.

    `NotAllowedError` if a definition names it; `expected` is the tag that it has to have.
    """
    with _administered(session, "datasource.remove", given) as made:
        db = made.db
        found = _found(db, given)
        made.object_id, made.object_name = found.id, found.name
        if expected is not None:
            store.lock_datasources(db)
            found = _found(db, found.id)
            _check_tag(db, found, expected)
        users = [each.name for each in _users(db, found)]
        if users:
            raise NotAllowedError(
                f"data source {found.name!r} is used by {', '.join(map(repr, users[:10]))}"
                + (f" and {len(users) - 10} more" if len(users) > 10 else "")
            )
        store.remove_datasource(db, found.id)
    return _shown(session, found)


@operation
def try_datasource(
    session: Session, given: str | int, *, patience_seconds: int = 10
) -> DatasourceAnswer:
    """Connect from this computer and ask for one row; `ServiceUnreachableError` if that fails.

    For administrators: it tells whether something answers at an address. The audit has a line of
    each try, whatever comes of it: the server is asked after that is committed.
    """
    with _administered(session, "datasource.test", given) as made:
        found = _found(made.db, given)
        made.object_id, made.object_name = found.id, found.name
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
    server = store.try_database(url, timeout_seconds=patience_seconds)
    return DatasourceAnswer(
        view=_shown(session, found),
        server=server,
        milliseconds=round((clock.monotonic() - begun) * 1000),
    )


def datasource_tag(view: DatasourceView) -> str:
    """The tag of a data source: another one after each change, that of its password too."""
    settings: dict[str, object] = {"id": view.id, "name": view.name, "changed": view.update_time}
    if is_sealed(view.connection_params):
        # Nobody guesses by it what is encrypted.
        settings["params"] = view.connection_params
    return f"d{view.id}-{hashed(settings)}"


def _check_tag(db: Connection, found: DatasourceView, expected: str) -> None:
    now = datasource_tag(found)
    if not names(expected, now):
        raise changed_meanwhile(
            db,
            f"data source {found.name!r:.100} is not as it was when you read it",
            "datasource",
            found.id,
            actions=("datasource.save",),
            update_time=found.update_time,
            tag=now,
        )


def _shown(session: Session, view: DatasourceView) -> ShownDatasource:
    return ShownDatasource(
        id=view.id,
        name=view.name,
        type=view.type,
        parts=shown(view.connection_params),
        note=view.note,
        problem=fault_of(view.connection_params, data_dir=_data_dir(session)),
        create_time=view.create_time,
        update_time=view.update_time,
        tag=datasource_tag(view),
    )


def _found(db: Connection, given: str | int, *, seen_by: Principal | None = None) -> DatasourceView:
    if isinstance(given, int):
        rows = store.datasources(db, seen_by=seen_by, datasource_id=given)
        if not rows:
            raise NotFoundError(f"there is no data source {given}; see `orcaflow datasource list`")
        return rows[0]
    name = given
    found = store.datasources(db, seen_by=seen_by, name=name) if "\0" not in name else []
    if len(found) == 1:
        return found[0]
    if found:
        ids = ", ".join(str(each.id) for each in found)
        raise NotAllowedError(f"{name!r:.100} is ambiguous: data sources {ids}")
    names = [each.name for each in store.datasources(db, seen_by=seen_by)]
    near = difflib.get_close_matches(name, names, n=1)
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
