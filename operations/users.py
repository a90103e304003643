"""Makes, lists, disables and grants rights to users. Every change stands in the audit."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Final

from common.errors import NotAllowedError, NotFoundError
from common.model.rights import DATABASE, NOTHING, ROLES
from common.store.people import users as store
from common.store.people.identities import IdentityView, identities_of
from common.store.people.tenants import tenants
from common.store.people.users import GrantView, UserView
from operations import passwords
from operations.errors import UsageError
from operations.rights import change, check_administrator

if TYPE_CHECKING:
    from common.store.connect import Connection
    from operations.session import Session

NO_ROLE: Final = "none"
NOBODYS_NAME: Final = "unknown"
"""Stands in the audit for whoever was not let in."""
ROLE_WORDS: Final = (*ROLES, NO_ROLE)
# Shown beside others, typed into shells and sent in headers: no blanks, nothing that steers.
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.@+-]{0,63}")


@dataclass(frozen=True, slots=True, kw_only=True)
class UserDetail:
    """A user with the grants in projects."""

    view: UserView
    grants: tuple[GrantView, ...]
    identities: tuple[IdentityView, ...] = ()


def list_users(session: Session) -> list[UserDetail]:
    """All users, by id, with their grants."""
    with session.engine.connect() as db:
        check_administrator(db, session.principal)
        return [detail_of(db, view) for view in store.users(db)]


def create_user(
    session: Session, name: str, *, is_admin: bool, password: str | None, tenant: str | None
) -> UserDetail:
    """Make a user; `NotAllowedError` if there is one whose name differs by its case alone.

    Without a password the user can use tokens and nothing else.
    """
    check_name(name)
    password_hash = None
    if password is not None:
        passwords.check_new(password, user_name=name)
        password_hash = passwords.hashed(password)
    with change(session, "user.create", "user", object_name=name) as made:
        check_administrator(made.db, session.principal)
        store.lock_users(made.db)
        user_id = store.create_user(
            made.db,
            name,
            is_admin=is_admin,
            password_hash=password_hash,
            tenant_id=1 if tenant is None else _tenant_named(made.db, tenant),
        )
        if user_id is None:
            raise NotAllowedError(f"there is a user {name!r} already: orcaflow user list")
        made.object_id = user_id
        made.detail = "administrator" if is_admin else None
        return detail_of(made.db, _found(made.db, name))


def check_name(name: str) -> None:
    """Raise `UsageError` for what no user can be called."""
    if not _NAME.fullmatch(name):
        raise UsageError(
            "name",
            f"{name!r:.100} is no user's name: letters and digits, then also _ . @ + and -,"
            " 64 at most",
        )
    if name.lower() in (DATABASE.user_name, NOBODYS_NAME):
        raise UsageError("name", f"{name!r} stands for no user in the audit")


def set_enabled(session: Session, name: str, *, enabled: bool, at: datetime) -> bool:
    """Enable or disable a user, whose tokens and sessions are refused from then on.

    False if it was so already.
    """
    action = "user.enable" if enabled else "user.disable"
    with change(session, action, "user", object_name=name) as made:
        check_administrator(made.db, session.principal)
        view = _found(made.db, name)
        made.object_id = view.id
        return store.set_enabled(made.db, view.id, enabled=enabled, at=at)


def set_password(session: Session, name: str, *, password: str, at: datetime) -> None:
    """Set a user's password; sessions that were begun with another one end."""
    passwords.check_new(password, user_name=name)
    password_hash = passwords.hashed(password)
    with change(session, "user.password", "user", object_name=name) as made:
        check_administrator(made.db, session.principal)
        view = _found(made.db, name)
        made.object_id = view.id
        store.set_password(made.db, view.id, password_hash=password_hash, at=at)


def grant(session: Session, name: str, *, project: str, role: str) -> UserDetail:
    """Give a user this role in a project, in the place of any other; `none` takes it away."""
    if role not in ROLE_WORDS:
        raise UsageError("role", f"{role!r} is no role; known are {', '.join(ROLE_WORDS)}")
    with change(session, "user.grant", "user", object_name=name) as made:
        check_administrator(made.db, session.principal)
        view = _found(made.db, name)
        made.object_id = view.id
        store.lock_user(made.db, view.id)
        (project_id,) = projects_named(made.db, [project])
        made.project_id = project_id
        made.detail = role
        store.set_grant(made.db, view.id, project_id, ROLES.get(role, NOTHING))
        return detail_of(made.db, view)


def own_detail(session: Session) -> UserDetail:
    """The user who asks, with the grants."""
    with session.engine.connect() as db:
        found = store.users(db, user_id=session.principal.user_id)
        if not found:
            raise NotFoundError("your user is gone")
        return detail_of(db, found[0])


def user_named(db: Connection, name: str) -> UserView:
    """The user of this name; `NotFoundError` proposes one that is near."""
    return _found(db, name)


def projects_named(db: Connection, names: Sequence[str]) -> list[int]:
    """The ids of projects by their names; `NotFoundError` for the first that is not there."""
    found = []
    for name in names:
        number = store.project_named(db, name) if "\0" not in name else None
        if number is None:
            known = store.project_names(db)
            near = difflib.get_close_matches(name, known, n=1)
            perhaps = f"; did you mean {near[0]!r}?" if near else f"; there is {', '.join(known)}"
            raise NotFoundError(f"there is no project {name!r:.200}{perhaps:.300}")
        found.append(number)
    return found


def _tenant_named(db: Connection, code: str) -> int:
    found = tenants(db, code=code) if "\0" not in code else []
    if not found:
        raise NotFoundError(f"there is no tenant {code!r:.200}; see `orcaflow tenant list`")
    return found[0].id


def _found(db: Connection, name: str) -> UserView:
    found = store.users(db, name=name) if "\0" not in name else []
    if found:
        return found[0]
    near = difflib.get_close_matches(name, [each.name for each in store.users(db)], n=1)
    perhaps = f"; did you mean {near[0]!r}?" if near else "; see `orcaflow user list`"
    raise NotFoundError(f"there is no user {name!r:.200}{perhaps}")


def detail_of(db: Connection, view: UserView) -> UserDetail:
    return UserDetail(
        view=view,
        grants=tuple(store.grants_of(db, view.id)),
        identities=tuple(identities_of(db, view.id)),
    )
