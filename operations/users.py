"""Makes, lists, changes, disables and grants rights to users. Every change stands in the audit.

There is no deletion: runs, versions and the audit name their users. One administrator who is
enabled always remains.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Final

from common.errors import NotAllowedError, NotFoundError
from common.model.rights import DATABASE, NOBODYS_NAME, NOTHING, ROLES, Action
from common.store.people import users as store
from common.store.people.identities import IdentityView, identities_of
from common.store.people.rights import is_administrator
from common.store.people.tenants import tenants
from common.store.people.users import GrantView, UserView
from operations import passwords
from operations.errors import UsageError
from operations.log_ins import hashed_in_turn
from operations.projects import project_given
from operations.repeating import Once, first_answer, keep_answer
from operations.rights import administered, change, check_administrator
from operations.row_tags import check_row_tag, row_tag
from operations.session import operation
from operations.tenant_checks import check_account

if TYPE_CHECKING:
    from common.store.connect import Connection
    from operations.session import Session

NO_ROLE: Final = "none"
ROLE_WORDS: Final = (*ROLES, NO_ROLE)
# Shown beside others, typed into shells and sent in headers: no blanks, nothing that steers.
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.@+-]{0,63}")


@dataclass(frozen=True, slots=True, kw_only=True)
class UserDetail:
    """A user with the grants in projects."""

    view: UserView
    grants: tuple[GrantView, ...]
    identities: tuple[IdentityView, ...] = ()

    @property
    def tag(self) -> str:
        """The tag to change the user by."""
        view = self.view
        return row_tag(view.id, view.name, view.is_admin, view.is_enabled, view.tenant)


@operation
def list_users(
    session: Session, *, name: str | None = None, after: int = 0, limit: int | None = None
) -> list[UserDetail]:
    """Users by id with their grants: all, those behind an id, or the one of this name."""
    with session.engine.connect() as db:
        check_administrator(db, session.principal)
        if name is not None:
            return details_of(db, [_found(db, name)])
        return details_of(db, store.users(db, after=after, limit=limit))


def user_detail(session: Session, user_id: int) -> UserDetail:
    """A user with the grants."""
    with session.engine.connect() as db:
        check_administrator(db, session.principal)
        return detail_of(db, _found(db, user_id))


@operation
def create_user(
    session: Session,
    name: str,
    *,
    is_admin: bool,
    password: str | None,
    tenant: str | None,
    once: Once | None = None,
) -> UserDetail:
    """Make a user; `NotAllowedError` if there is one whose name differs by its case alone.

    Without a password the user can use tokens and nothing else.
    """
    check_name(name)
    if password is not None:
        passwords.check_new(password, user_name=name)
    with administered(session, "user.create", name) as made:
        if once is not None:
            answered = first_answer(made.db, session.principal, once)
            if answered is not None:
                made.object_id, made.detail = answered, "as before"
                return detail_of(made.db, _found(made.db, answered))
        # Not before it is known that an administrator asks: it costs a fifth of a second.
        password_hash = None if password is None else hashed_in_turn(password)
        store.lock_users(made.db)
        user_id = store.create_user(
            made.db,
            name,
            is_admin=is_admin,
            password_hash=password_hash,
            tenant_id=1 if tenant is None else _tenant_named(session, made.db, tenant),
        )
        if user_id is None:
            raise NotAllowedError(f"there is a user {name!r} already: orcaflow user list")
        made.object_id = user_id
        made.detail = "administrator" if is_admin else None
        if once is not None:
            keep_answer(made.db, session.principal, once, user_id)
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


@operation
def edit_user(
    session: Session,
    user: str | int,
    *,
    is_admin: bool | None,
    tenant: str | None,
    at: datetime,
    expected: str | None = None,
) -> UserDetail:
    """Make a user an administrator or an ordinary one, or give another tenant.

    The last administrator who is enabled stays one. `expected` is the tag that the user has to have
    (`ChangedMeanwhileError`).
    """
    with administered(session, "user.edit", user) as made:
        store.lock_users(made.db)
        view = _found(made.db, user)
        made.object_id, made.object_name = view.id, view.name
        check_row_tag(detail_of(made.db, view).tag, expected, f"user {view.name!r}")
        if is_admin is False:
            _check_others(made.db, view)
        words = {True: "administrator", False: "no administrator"}
        told = [words[is_admin]] if is_admin is not None else []
        made.detail = ", ".join([*told, *([f"tenant {tenant}"] if tenant is not None else [])])
        store.edit_user(
            made.db,
            view.id,
            is_admin=is_admin,
            tenant_id=None if tenant is None else _tenant_named(session, made.db, tenant),
            at=at,
        )
        return detail_of(made.db, _found(made.db, view.id))


@dataclass(frozen=True, slots=True, kw_only=True)
class Switched:
    """A user who is enabled or disabled; not `changed` if it was so already."""

    user_id: int
    name: str
    changed: bool


@operation
def set_enabled(session: Session, user: str | int, *, enabled: bool, at: datetime) -> Switched:
    """Enable or disable a user, whose tokens and sessions are refused from then on.

    The last administrator who is enabled stays so.
    """
    with administered(session, "user.enable" if enabled else "user.disable", user) as made:
        store.lock_users(made.db)
        view = _found(made.db, user)
        made.object_id, made.object_name = view.id, view.name
        if not enabled:
            _check_others(made.db, view)
        changed = store.set_enabled(made.db, view.id, enabled=enabled, at=at)
        return Switched(user_id=view.id, name=view.name, changed=changed)


@operation
def set_password(session: Session, user: str | int, *, password: str, at: datetime) -> None:
    """Set a user's password; sessions that were begun with another one end."""
    if isinstance(user, str):
        passwords.check_new(password, user_name=user)
    with administered(session, "user.password", user) as made:
        view = _found(made.db, user)
        made.object_id, made.object_name = view.id, view.name
        passwords.check_new(password, user_name=view.name)
        password_hash = hashed_in_turn(password)
        kept = session.principal.session_hash
        store.set_password(made.db, view.id, password_hash=password_hash, at=at, kept=kept)


@operation
def grant(session: Session, user: str | int, *, project: str | int, role: str) -> UserDetail:
    """Give a user this role in a project, in the place of any other; `none` takes it away.

    It takes the role `admin` there. Whoever has no more than that is shown no other grant.
    """
    if role not in ROLE_WORDS:
        raise UsageError("role", f"{role!r} is no role; known are {', '.join(ROLE_WORDS)}")
    with change(
        session,
        "user.grant",
        "user",
        object_id=user if isinstance(user, int) else None,
        object_name=user if isinstance(user, str) else None,
    ) as made:
        found = project_given(made.db, session.principal, Action.ADMIN, project)
        made.project_id = found
        everywhere = is_administrator(made.db, session.principal)
        view = _found(made.db, user, proposes=everywhere)
        made.object_id, made.object_name = view.id, view.name
        store.lock_user(made.db, view.id)
        made.detail = role
        store.set_grant(made.db, view.id, found, ROLES.get(role, NOTHING))
        detail = detail_of(made.db, view)
        if everywhere:
            return detail
        here = tuple(each for each in detail.grants if each.project_id == found)
        return UserDetail(view=view, grants=here)


def own_detail(session: Session) -> UserDetail:
    """Return the user of the session, with the roles in the projects that the token covers."""
    principal = session.principal.without_choice
    with session.engine.connect() as db:
        found = store.users(db, user_id=principal.user_id)
        if not found:
            raise NotFoundError("your user is gone")
        whole = detail_of(db, found[0])
    projects = principal.projects
    covered = (each for each in whole.grants if projects is None or each.project_id in projects)
    return replace(whole, grants=tuple(covered))


def user_given(db: Connection, given: str | int) -> UserView:
    """The user of this name or id; `NotFoundError` proposes one that is near."""
    return _found(db, given)


def _check_others(db: Connection, view: UserView) -> None:
    """Refuse to be left without an administrator, under the lock of users."""
    if store.enabled_administrators(db) == [view.id]:
        raise NotAllowedError(
            f"user {view.name!r} is the last administrator who is enabled; make another one first:"
            " orcaflow user create NAME --admin"
        )


def _tenant_named(session: Session, db: Connection, code: str) -> int:
    found = tenants(db, code=code) if "\0" not in code else []
    if not found:
        raise NotFoundError(f"there is no tenant {code!r:.200}; see `orcaflow tenant list`")
    check_account(session.config, code, "tenant")
    return found[0].id


def _found(db: Connection, given: str | int, *, proposes: bool = True) -> UserView:
    if isinstance(given, int):
        found = store.users(db, user_id=given)
    else:
        found = store.users(db, name=given) if "\0" not in given else []
    if found:
        return found[0]
    near: list[str] = []
    if proposes and isinstance(given, str):
        near = difflib.get_close_matches(given, [each.name for each in store.users(db)], n=1)
    perhaps = f"; did you mean {near[0]!r}?" if near else "; see `orcaflow user list`"
    raise NotFoundError(f"there is no user {given!r:.200}{perhaps}")


def detail_of(db: Connection, view: UserView) -> UserDetail:
    return details_of(db, [view])[0]


def details_of(db: Connection, views: Sequence[UserView]) -> list[UserDetail]:
    numbers = [each.id for each in views]
    grants, identities = store.grants_of(db, numbers), identities_of(db, numbers)
    return [
        UserDetail(view=each, grants=tuple(grants[each.id]), identities=tuple(identities[each.id]))
        for each in views
    ]
