"""Log-ins of people whom a provider knows, by an OpenID Connect ID token that was checked.

An *identity* is an issuer and its own name for somebody, its subject. A user has it because an
administrator linked the two, or because a first log-in made the user; never because names or
addresses look alike. Roles in projects that the table of groups names follow the groups at each
log-in; other grants stay as they are. Nobody becomes an administrator here.
"""

from __future__ import annotations

import hashlib
import logging
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from common.errors import NotAllowedError, NotFoundError
from common.model.rights import (
    DATABASE,
    NOBODYS_NAME,
    NOTHING,
    ROLES,
    Action,
    Principal,
    role_of,
)
from common.store.people import audit, projects, users
from common.store.people import identities as store
from operations import log_ins
from operations.errors import ForbiddenError, UsageError
from operations.rights import administered
from operations.session import operation
from operations.users import UserDetail, check_name, detail_of, user_given

if TYPE_CHECKING:
    from common.store.connect import Connection, Engine
    from common.store.people.identities import KnownUser
    from operations.session import Session

LONGEST_ISSUER: Final = 255
LONGEST_SUBJECT: Final = 255
USED_IS_KEPT: Final = timedelta(hours=1)
"""For so long a log-in is known to have been used: longer than its ID token is accepted."""
_USERS_TENANT: Final = 1

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Somebody as a provider tells: `name` for a user that is to be made, and the groups."""

    issuer: str
    subject: str
    name: str | None = None
    groups: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """The users that a first log-in may make, the roles of groups, and the length of a session.

    `roles` has pairs of a project's name and a role for each group.
    """

    creates_users: bool
    roles: Mapping[str, tuple[tuple[str, str], ...]]
    longest: timedelta


def log_in(
    engine: Engine,
    identity: Identity,
    admission: Admission,
    *,
    flow: str,
    address: str | None,
    request: str | None = None,
) -> str:
    """Begin the session of an identity's user and return its text.

    `flow` is the secret of this log-in, which is good for one session. `ForbiddenError` says why
    somebody is not let in; that stands in the audit too.
    """
    text = log_ins.new_text()
    try:
        with engine.begin() as db:
            if not store.use_once(db, _used_hash(flow), kept_for=USED_IS_KEPT):
                raise ForbiddenError("this log-in was used already; begin another at /oidc/login")
            found = _user_of(db, identity, admission, address=address, request=request)
            if not found.is_enabled:
                raise ForbiddenError(f"user {found.user_name} is disabled; ask an administrator")
            who = Principal(
                user_id=found.user_id, user_name=found.user_name, address=address, request=request
            )
            _follow_groups(db, who, identity.groups, admission.roles)
            log_ins.forgive_try(db, address)
            log_ins.begin(db, text, who, detail="by OpenID Connect", longest=admission.longest)
    except ForbiddenError as error:
        refuse(
            engine,
            f"{error} ({identity.issuer}, {identity.subject!r})",
            address=address,
            request=request,
        )
        raise
    return text


def refuse(engine: Engine, reason: str, *, address: str | None, request: str | None) -> None:
    """Note in the audit that somebody whom the provider sent was not let in."""
    nobody = Principal(user_id=0, user_name=NOBODYS_NAME, address=address, request=request)
    with engine.begin() as db:
        log_ins.note(db, nobody, "session.begin", refused=True, detail=f"OpenID Connect: {reason}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Linked:
    """A user with another identity, that of this issuer."""

    detail: UserDetail
    issuer: str


@operation
def link(session: Session, user: str | int, *, issuer: str | None, subject: str) -> Linked:
    """Let whom the provider knows by this subject log in as this user.

    Without an issuer it is the provider of the settings.
    """
    if issuer is None:
        issuer = session.config.oidc.issuer
    if not _is_stored_as_is(subject, LONGEST_SUBJECT):
        raise UsageError("subject", f"is 1 to {LONGEST_SUBJECT} printable characters")
    if not _is_stored_as_is(issuer, LONGEST_ISSUER):
        raise UsageError(
            "issuer", "is the address of a provider, as https://login.example.org; set oidc.issuer"
        )
    with administered(session, "user.link", user) as made:
        view = user_given(made.db, user)
        made.object_id, made.object_name = view.id, view.name
        made.detail = f"{issuer}, {subject!r}"
        users.lock_user(made.db, view.id)
        if not store.add_identity(made.db, issuer, subject, view.id):
            known = store.known_user(made.db, issuer, subject)
            whose = "another user" if known is None else f"user {known.user_name}"
            raise NotAllowedError(
                f"{subject!r} of {issuer} is {whose} already; orcaflow user unlink NAME ends that"
            )
        return Linked(detail=detail_of(made.db, view), issuer=issuer)


@operation
def unlink(session: Session, user: str | int) -> int:
    """Take all identities of a user away, and end the user's sessions; return their number."""
    with administered(session, "user.unlink", user) as made:
        view = user_given(made.db, user)
        made.object_id, made.object_name = view.id, view.name
        removed = store.remove_identities(made.db, view.id)
        if not removed:
            raise NotFoundError(f"user {view.name} has no identity; see `orcaflow user list`")
        users.end_sessions(made.db, view.id)
        return removed


def _user_of(
    db: Connection,
    identity: Identity,
    admission: Admission,
    *,
    address: str | None,
    request: str | None,
) -> KnownUser:
    """Return the user of an identity, who is made now if that is allowed."""
    found = store.known_user(db, identity.issuer, identity.subject)
    if found is not None:
        return found
    cure = f"orcaflow user link NAME --subject {shlex.quote(identity.subject)}"
    if not admission.creates_users:
        raise ForbiddenError(f"nobody here is linked to you; ask an administrator for: {cure}")
    name = identity.name or ""
    try:
        check_name(name)
    except UsageError as error:
        raise ForbiddenError(
            f"the provider's name for you can't be a user's here ({error.message}); ask an"
            f" administrator for: {cure}"
        ) from None
    # Two first log-ins of one identity at once make one user.
    users.lock_users(db)
    found = store.known_user(db, identity.issuer, identity.subject)
    if found is not None:
        return found
    user_id = users.create_user(
        db, name, is_admin=False, password_hash=None, tenant_id=_USERS_TENANT
    )
    if user_id is None:
        # Whoever chooses a name at the provider must not become somebody else by it.
        raise ForbiddenError(
            f"there is a user {name} already who is not linked to you; ask an administrator for:"
            f" {cure}"
        )
    store.add_identity(db, identity.issuer, identity.subject, user_id)
    who = Principal(user_id=user_id, user_name=name, address=address, request=request)
    audit.add_line(
        db,
        who,
        action="user.create",
        object_type="user",
        object_id=user_id,
        object_name=name,
        project_id=None,
        refused=False,
        detail=f"by a first log-in: {identity.issuer}, {identity.subject!r}",
    )
    return store.KnownUser(user_id=user_id, user_name=name, is_enabled=True)


def _follow_groups(
    db: Connection,
    who: Principal,
    groups: tuple[str, ...],
    roles: Mapping[str, tuple[tuple[str, str], ...]],
) -> None:
    """Give the user the roles of the groups, in those projects that the table names, no others."""
    if not roles:
        return
    wanted: dict[str, Action] = {}
    for group, grants in roles.items():
        for project, role in grants:
            given = ROLES[role] if group in groups else NOTHING
            wanted[project] = wanted.get(project, NOTHING) | given
    now = users.grants_of(db, [who.user_id])[who.user_id]
    held = {each.project_id: each.actions for each in now}
    for project, actions in wanted.items():
        ids = projects.project_ids(db, DATABASE, project)
        if not ids:
            log.warning("project of a group's role is missing", extra={"project": project})
            continue
        project_id = ids[0]
        if held.get(project_id, 0) == int(actions):
            continue
        users.set_grant(db, who.user_id, project_id, actions)
        audit.add_line(
            db,
            who,
            action="user.grant",
            object_type="user",
            object_id=who.user_id,
            object_name=who.user_name,
            project_id=project_id,
            refused=False,
            detail=f"{role_of(actions) or 'none'}, by groups",
        )


def _is_stored_as_is(text: str, longest: int) -> bool:
    return 0 < len(text) <= longest and text.isprintable()


def _used_hash(flow: str) -> str:
    """Never that of a session or a link with the same text."""
    return hashlib.sha256(b"oidc:" + flow.encode()).hexdigest()
