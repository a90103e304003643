"""Users, their grants in projects and their API tokens, as people keep them.

Each function works within a transaction of its caller. Passwords and tokens come as hashes.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache
from typing import Any, Final

from sqlalchemy import (
    Connection,
    Select,
    bindparam,
    delete,
    func,
    insert,
    literal,
    or_,
    select,
    update,
)

from common.model.rights import Action
from common.store.fixed_statement import FixedRead
from common.store.tables import access_token, project, relation_project_user, session, tenant, user

_ENABLED: Final = 1
_DISABLED: Final = 0
_ADMINISTRATOR: Final = 0
_GENERAL: Final = 1
_LAST_USED_EVERY: Final = timedelta(minutes=1)
_IS_USE_DUE: Final = or_(
    access_token.c.last_used.is_(None), access_token.c.last_used < func.now() - _LAST_USED_EVERY
)
# An argon2id hash says so; other texts were stored by other programs and let nobody in.
HASH_PREFIX: Final = "$argon2id$"


@dataclass(frozen=True, slots=True, kw_only=True)
class UserView:
    """A user. `has_password` is False for one who can use tokens alone."""

    id: int
    name: str
    is_admin: bool
    is_enabled: bool
    has_password: bool
    tenant: str | None
    create_time: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class GrantView:
    """The actions that a user's grants in a project add up to."""

    project_id: int
    project_name: str | None
    actions: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenView:
    """An API token, without its hash. `projects` None is all of its user's."""

    id: int
    user_id: int | None
    user_name: str | None
    name: str | None
    scopes: int
    projects: tuple[int, ...] | None
    expire_time: datetime | None
    last_used: datetime | None
    create_time: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenHolder:
    """The user of a presented token, with the limits of the token."""

    user_id: int
    user_name: str
    token_id: int
    scopes: int
    projects: tuple[int, ...] | None
    is_use_due: bool
    """Its last use on record is long ago: `note_use` has something to do."""


def users(
    db: Connection,
    *,
    name: str | None = None,
    user_id: int | None = None,
    after: int = 0,
    limit: int | None = None,
) -> list[UserView]:
    """List users by id, those behind an id, or the one of this name or id."""
    statement = _USERS.where(user.c.id > after).order_by(user.c.id).limit(limit)
    if user_id is not None:
        statement = statement.where(user.c.id == user_id)
    if name is not None:
        statement = statement.where(user.c.user_name == name)
    return [
        UserView(
            id=row.id,
            name=row.user_name,
            is_admin=row.user_type == _ADMINISTRATOR,
            is_enabled=row.state == _ENABLED,
            has_password=row.has_password,
            tenant=row.tenant_code,
            create_time=row.create_time,
        )
        for row in db.execute(statement)
    ]


def lock_user(db: Connection, user_id: int) -> None:
    """Serialize changes of a user's grants and tokens."""
    db.execute(select(user.c.id).where(user.c.id == user_id).with_for_update())


def create_user(
    db: Connection, name: str, *, is_admin: bool, password_hash: str | None, tenant_id: int
) -> int | None:
    """Insert a user and return its id; None if there is one of that name."""
    taken = db.scalar(select(user.c.id).where(func.lower(user.c.user_name) == name.lower()))
    if taken is not None:
        return None
    made: int = db.execute(
        insert(user)
        .values(
            user_name=name,
            user_type=_ADMINISTRATOR if is_admin else _GENERAL,
            user_password=password_hash,
            tenant_id=tenant_id,
        )
        .returning(user.c.id)
    ).scalar_one()
    return made


def lock_users(db: Connection) -> None:
    """Serialize the making of users, so that no two names differ by their case alone."""
    db.execute(select(func.pg_advisory_xact_lock(func.hashtext("orcaflow users"))))


def set_enabled(db: Connection, user_id: int, *, enabled: bool, at: datetime) -> bool:
    """Enable or disable a user, whose sessions end then; False if it was so already."""
    wanted = _ENABLED if enabled else _DISABLED
    changed = db.execute(
        update(user)
        .where(user.c.id == user_id)
        .where(user.c.state != wanted)
        .values(state=wanted, update_time=at)
    ).rowcount
    if not enabled:
        end_sessions(db, user_id)
    return changed == 1


def enabled_administrators(db: Connection) -> list[int]:
    """List the ids of those who may do everything."""
    return list(
        db.scalars(
            select(user.c.id)
            .where(user.c.user_type == _ADMINISTRATOR)
            .where(user.c.state == _ENABLED)
            .order_by(user.c.id)
        )
    )


def edit_user(
    db: Connection,
    user_id: int,
    *,
    is_admin: bool | None,
    tenant_id: int | None,
    at: datetime,
) -> bool:
    """Set what is given, and return True if it was otherwise."""
    wanted: dict[str, int] = {}
    if is_admin is not None:
        wanted["user_type"] = _ADMINISTRATOR if is_admin else _GENERAL
    if tenant_id is not None:
        wanted["tenant_id"] = tenant_id
    if not wanted:
        return False
    changed = db.execute(
        update(user)
        .where(user.c.id == user_id)
        .where(or_(*(user.c[name] != value for name, value in wanted.items())))
        .values(**wanted, update_time=at)
    )
    return changed.rowcount == 1


def set_password(
    db: Connection, user_id: int, *, password_hash: str, at: datetime, kept: str | None = None
) -> None:
    """Store the hash of a new password, and end the user's sessions but the one that is kept."""
    db.execute(
        update(user).where(user.c.id == user_id).values(user_password=password_hash, update_time=at)
    )
    end_sessions(db, user_id, kept=kept)


def end_sessions(db: Connection, user_id: int, *, kept: str | None = None) -> None:
    """Delete the sessions of a user but the one with the hash that is kept."""
    db.execute(
        delete(session).where(session.c.user_id == user_id).where(session.c.id != (kept or ""))
    )


def grants_of(db: Connection, user_ids: Collection[int]) -> dict[int, list[GrantView]]:
    """List grants of users by project; several rows of one project count as their sum."""
    rows = db.execute(
        select(
            relation_project_user.c.user_id,
            relation_project_user.c.project_id,
            project.c.name,
            func.bit_or(relation_project_user.c.perm).label("actions"),
        )
        .join_from(
            relation_project_user, project, project.c.id == relation_project_user.c.project_id
        )
        .where(relation_project_user.c.user_id.in_(user_ids))
        .group_by(
            relation_project_user.c.user_id, relation_project_user.c.project_id, project.c.name
        )
        .order_by(relation_project_user.c.project_id)
    )
    found: dict[int, list[GrantView]] = {each: [] for each in user_ids}
    for row in rows:
        found[row.user_id].append(
            GrantView(project_id=row.project_id, project_name=row.name, actions=row.actions)
        )
    return found


def set_grant(db: Connection, user_id: int, project_id: int, actions: Action) -> None:
    """Make these the user's only actions in the project, under the lock of the user."""
    db.execute(
        delete(relation_project_user)
        .where(relation_project_user.c.user_id == user_id)
        .where(relation_project_user.c.project_id == project_id)
    )
    if actions:
        db.execute(
            insert(relation_project_user).values(
                user_id=user_id, project_id=project_id, perm=int(actions)
            )
        )


def create_token(
    db: Connection,
    user_id: int,
    *,
    name: str,
    token_hash: str,
    scopes: Action,
    projects: Sequence[int] | None,
    expire_time: datetime,
) -> int:
    """Insert a token by its hash; return its id."""
    made: int = db.execute(
        insert(access_token)
        .values(
            user_id=user_id,
            name=name,
            token=token_hash,
            scopes=int(scopes),
            projects=None if projects is None else list(projects),
            expire_time=expire_time,
        )
        .returning(access_token.c.id)
    ).scalar_one()
    return made


def tokens(
    db: Connection,
    *,
    user_id: int | None = None,
    token_id: int | None = None,
    after: int = 0,
    limit: int | None = None,
) -> list[TokenView]:
    """List tokens by id, those behind an id, those of a user, or the one with this id."""
    statement = (
        select(
            access_token.c.id,
            access_token.c.user_id,
            user.c.user_name,
            access_token.c.name,
            access_token.c.scopes,
            access_token.c.projects,
            access_token.c.expire_time,
            access_token.c.last_used,
            access_token.c.create_time,
        )
        .outerjoin_from(access_token, user, user.c.id == access_token.c.user_id)
        .where(access_token.c.id > after)
        .order_by(access_token.c.id)
        .limit(limit)
    )
    if user_id is not None:
        statement = statement.where(access_token.c.user_id == user_id)
    if token_id is not None:
        statement = statement.where(access_token.c.id == token_id)
    return [
        TokenView(
            id=row.id,
            user_id=row.user_id,
            user_name=row.user_name,
            name=row.name,
            scopes=row.scopes,
            projects=None if row.projects is None else tuple(row.projects),
            expire_time=row.expire_time,
            last_used=row.last_used,
            create_time=row.create_time,
        )
        for row in db.execute(statement)
    ]


def delete_token(db: Connection, token_id: int) -> bool:
    return db.execute(delete(access_token).where(access_token.c.id == token_id)).rowcount == 1


def holder_of(db: Connection, token_hash: str) -> TokenHolder | None:
    """Read the holder of a token that has not expired and whose user is enabled."""
    rows = _holder().rows(db, {"token": token_hash})
    if not rows:
        return None
    (row,) = rows
    return TokenHolder(
        user_id=row.user_id,
        user_name=row.user_name,
        token_id=row.id,
        scopes=row.scopes,
        projects=None if row.projects is None else tuple(row.projects),
        is_use_due=row.is_use_due,
    )


@cache
def _holder() -> FixedRead:
    return FixedRead(
        select(
            user.c.id.label("user_id"),
            user.c.user_name,
            access_token.c.id,
            access_token.c.scopes,
            access_token.c.projects,
            _IS_USE_DUE.label("is_use_due"),
        )
        .join_from(access_token, user, user.c.id == access_token.c.user_id)
        .where(access_token.c.token == bindparam("token"))
        .where(access_token.c.expire_time > func.now())
        .where(user.c.state == _ENABLED)
        .order_by(access_token.c.id)
        .limit(1)
    )


def note_use(db: Connection, token_id: int) -> None:
    """Note the moment of a token's use, once a minute at most."""
    db.execute(
        update(access_token)
        .where(access_token.c.id == token_id)
        .where(_IS_USE_DUE)
        .values(last_used=func.now())
    )


_USERS: Final[Select[Any]] = select(
    user.c.id,
    user.c.user_name,
    user.c.user_type,
    user.c.state,
    func.coalesce(func.starts_with(user.c.user_password, HASH_PREFIX), literal(value=False)).label(
        "has_password"
    ),
    tenant.c.tenant_code,
    user.c.create_time,
).outerjoin_from(user, tenant, tenant.c.id == user.c.tenant_id)
