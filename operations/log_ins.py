"""Log-ins, by a password or a one-time link, the sessions that they begin, the price of guesses.

A session is 256 random bits, of which the table has the SHA-256. It ends after twelve hours without
a request, after a week at the latest, with any change of its user's password, and by a log-out.
Five wrong passwords of a user from one address block further ones for a while that doubles. Wider
limits count all tries from an address and all tries of a user. They do not apply to a user who is
logged in at the address, because people share addresses, and any attacker could lock them out.
Every log-in stands in the audit, in its own transaction.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import re
import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from common.errors import NotAllowedError, NotFoundError
from common.model.rights import EVERYTHING, NOBODYS_NAME, Principal
from common.store.people import audit, users
from common.store.people import log_ins as store
from common.store.people.log_ins import SessionView
from operations import passwords
from operations.errors import ForbiddenError, UsageError
from operations.rights import change, limits_nothing, noted, refusing

if TYPE_CHECKING:
    from common.store.connect import Connection, Engine
    from operations.session import Session

LINK_GOOD_FOR: Final = timedelta(seconds=30)
_RANDOM_BYTES: Final = 32
_FORM: Final = re.compile(r"[A-Za-z0-9_-]{43}")
_KEY: Final = re.compile(r"[0-9a-f]{16}")
_LONGEST_NAME: Final = 64
_NETWORK_BITS: Final = 64
"""The part of an IPv6 address that is counted, since one customer has all addresses below it."""
# 64 MiB a hash: two at a time are the most that the server may spend on strangers, and those that
# wait for their turn hold threads of other requests.
_hashing: Final = threading.BoundedSemaphore(2)
_queueing: Final = threading.BoundedSemaphore(8)
_BUSY_SECONDS: Final = 1
# Of no password: an unknown user costs the same time as a known one.
_NOBODYS: Final = (
    "$argon2id$v=19$m=65536,t=3,p=4$Qyc89yShvVRSG8i1FBD2eg"
    "$hEkQKmRyi4XN2P3/VZti4yxjiY53nvE5sld+JkGLH30"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Limit:
    """A number of wrong tries. Each further try is followed by a block, and these double."""

    free: int
    first_block: timedelta
    longest_block: timedelta


_OF_USER_AT_ADDRESS: Final = _Limit(
    free=5, first_block=timedelta(seconds=30), longest_block=timedelta(hours=1)
)
_OF_USER: Final = _Limit(
    free=30, first_block=timedelta(seconds=30), longest_block=timedelta(minutes=5)
)
_OF_ADDRESS: Final = _Limit(
    free=30, first_block=timedelta(seconds=10), longest_block=timedelta(seconds=10)
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Try:
    """A try that was counted. `known` has the hash that the password must match."""

    known: store.PasswordHolder | None
    pair: str
    wider: tuple[tuple[str, _Limit], ...]


class LogInBlockedError(NotAllowedError):
    """Too many log-ins came for this account or from this address. Wait, as it says."""

    def __init__(self, message: str, *, retry_after: int) -> None:
        super().__init__(message)
        self.retry_after: Final = retry_after


@dataclass(frozen=True, slots=True, kw_only=True)
class MadeLink:
    """A link that was made, with its text, which is nowhere else."""

    user_name: str
    text: str = field(repr=False)


def log_in(
    engine: Engine,
    name: str,
    password: str,
    *,
    address: str | None,
    request: str | None = None,
) -> str | None:
    """Begin a session and return its text; None if name and password are not a user's.

    `LogInBlockedError` while the user or the address is blocked, also with the right password. A
    try is counted before its password is looked at, so that many at once gain nothing.
    """
    with _turn():
        counted = _counted(engine, name, address)
        known = counted.known
        with _hashing:
            fits, stored = _fits(known, password)
            weak = known is not None and fits and passwords.is_outdated(stored)
            stronger = passwords.hashed(password) if weak else None
    text = new_text()
    with engine.begin() as db:
        # Whoever has changed the password meanwhile has ended all sessions.
        if known is None or not fits or not store.is_unchanged(db, known):
            who = Principal(
                user_id=0 if known is None else known.user_id,
                # No name that nobody has: people type passwords into that field.
                user_name=NOBODYS_NAME if known is None else known.user_name,
                address=address,
                request=request,
            )
            note(db, who, "session.begin", refused=True, detail="wrong name or password")
            return None
        if stronger is not None:
            store.rehash(db, known.user_id, stronger)
        _forgive(db, counted)
        who = Principal(
            user_id=known.user_id, user_name=known.user_name, address=address, request=request
        )
        begin(db, text, who, detail="by password")
    return text


def count_try(engine: Engine, address: str | None) -> None:
    """Count a try from this address before its outcome is known; `LogInBlockedError` if blocked."""
    if address is not None:
        with engine.begin() as db:
            _charge(db, _place(address), _OF_ADDRESS)


def forgive_try(db: Connection, address: str | None) -> None:
    """Take back a try that was right, in the transaction of its session; those before it count."""
    if address is not None:
        store.uncharge(db, _place(address), free=_OF_ADDRESS.free)


def take_back_try(engine: Engine, address: str | None) -> None:
    """Take back a try that nobody could judge."""
    with engine.begin() as db:
        forgive_try(db, address)


def new_text() -> str:
    return secrets.token_urlsafe(_RANDOM_BYTES)


def begin(
    db: Connection, text: str, who: Principal, *, detail: str, longest: timedelta = store.LONGEST
) -> None:
    """Begin the session of this text, with its line of the audit."""
    store.begin_session(db, _hash(text), who.user_id, address=who.address, longest=longest)
    note(db, who, "session.begin", refused=False, detail=detail)


def note(db: Connection, who: Principal, action: str, *, refused: bool, detail: str) -> None:
    """Add a line of the audit about a session."""
    audit.add_line(
        db,
        who,
        action=action,
        object_type="session",
        object_id=None,
        object_name=None,
        project_id=None,
        refused=refused,
        detail=detail,
    )


def change_own_password(session: Session, *, old: str, new: str, at: datetime) -> None:
    """Set the password of the user who asks, who knows the old one; other sessions end.

    A wrong old one counts as a log-in that failed: `LogInBlockedError` while those are blocked.
    """
    who = session.principal
    with refusing(session, "user.password", "user", who.user_id):
        if not limits_nothing(who):
            raise ForbiddenError(
                "a token with limits changes no password; log in, or ask by another"
            )
    passwords.check_new(new, user_name=who.user_name)
    with _turn():
        counted = _counted(session.engine, who.user_name, who.address)
        known = counted.known
        with _hashing:
            fits, _ = _fits(known, old)
            made_hash = passwords.hashed(new) if fits else ""
    with change(
        session, "user.password", "user", object_id=who.user_id, object_name=who.user_name
    ) as made:
        if known is None or not fits or not store.is_unchanged(made.db, known):
            raise UsageError("old", "is not your password")
        _forgive(made.db, counted)
        made.detail = "by its user"
        users.set_password(
            made.db, who.user_id, password_hash=made_hash, at=at, kept=who.session_hash
        )


def hashed_in_turn(password: str) -> str:
    """Return the hash of a password; `LogInBlockedError` while many are made."""
    with _turn(), _hashing:
        return passwords.hashed(password)


def make_link(session: Session, user: str | None = None) -> MadeLink:
    """Make a link that logs a user in, once, within thirty seconds.

    Without a name it is an administrator. For the owner of the database alone, who may do
    everything anyway.
    """
    text = new_text()
    with noted(session, "session.link", user) as db:
        if user is None:
            found = store.first_administrator(db)
            if found is None:
                raise NotFoundError("no administrator is enabled; orcaflow user list shows them")
        else:
            views = users.users(db, name=user) if "\0" not in user else []
            if not views:
                raise NotFoundError(f"there is no user {user!r:.200}; see `orcaflow user list`")
            if not views[0].is_enabled:
                raise NotAllowedError(f"user {user} is disabled; orcaflow user enable {user}")
            found = store.SessionHolder(user_id=views[0].id, user_name=views[0].name)
        store.add_link(db, _link_hash(text), found.user_id, good_for=LINK_GOOD_FOR)
    return MadeLink(user_name=found.user_name, text=text)


def open_link(engine: Engine, link: str, *, address: str | None, request: str | None) -> str | None:
    """Begin the session of a link and return its text; None if it was used, is old or unknown."""
    if not _FORM.fullmatch(link):
        return None
    text = new_text()
    with engine.begin() as db:
        found = store.take_link(db, _link_hash(link))
        if found is None:
            return None
        who = Principal(
            user_id=found.user_id, user_name=found.user_name, address=address, request=request
        )
        begin(db, text, who, detail="by a link of the command line")
    return text


def log_out(
    engine: Engine, session: str, *, address: str | None = None, request: str | None = None
) -> None:
    """End a session; nothing if there is none."""
    if not _FORM.fullmatch(session):
        return
    with engine.begin() as db:
        holder = store.holder_of_session(db, _hash(session))
        if store.end_session(db, _hash(session)) and holder is not None:
            who = Principal(
                user_id=holder.user_id,
                user_name=holder.user_name,
                address=address,
                request=request,
            )
            note(db, who, "session.end", refused=False, detail="logged out")


def principal_of_session(
    engine: Engine, session: str, *, address: str | None, request: str | None
) -> Principal | None:
    """Return the principal of a session; None if it has ended, or is none."""
    if not _FORM.fullmatch(session):
        return None
    session_hash = _hash(session)
    with engine.connect() as db:
        holder = store.holder_of_session(db, session_hash)
    if holder is None:
        return None
    if holder.is_due:
        with engine.begin() as db:
            store.note_use(db, session_hash)
    return Principal(
        user_id=holder.user_id,
        user_name=holder.user_name,
        scope=EVERYTHING,
        session_hash=session_hash,
        address=address,
        request=request,
    )


def principal_with_key(engine: Engine, user_id: int, key: str) -> Principal | None:
    """Return the principal of the user's session with this key; None if it has ended.

    A key proves nothing: the caller has checked a signature that names it.
    """
    with engine.connect() as db:
        session_hash = store.session_with_key(db, user_id, key)
        holder = None if session_hash is None else store.holder_of_session(db, session_hash)
    if holder is None or holder.user_id != user_id:
        return None
    return Principal(user_id=user_id, user_name=holder.user_name, session_hash=session_hash)


def list_sessions(session: Session) -> list[SessionView]:
    """The sessions of the user who asks, the last used first."""
    _check_whole_user(session.principal)
    with session.engine.connect() as db:
        return store.sessions_of(db, session.principal.user_id)


def own_key(principal: Principal) -> str | None:
    """The key of the session by which the principal asks; None with a token."""
    return None if principal.session_hash is None else store.key_of(principal.session_hash)


def _check_whole_user(who: Principal) -> None:
    """Refuse a token with limits: its user may have given it to a program."""
    if not limits_nothing(who.without_choice):
        raise ForbiddenError("a token with limits neither lists nor ends sessions; log in")


def end_own_session(session: Session, key: str) -> None:
    """End a session of the user who asks; `NotFoundError` if there is none with this key."""
    with change(session, "session.end", "session") as made:
        _check_whole_user(session.principal)
        made.detail = "ended by its user"
        if not _KEY.fullmatch(key) or not store.end_session_of(
            made.db, session.principal.user_id, key
        ):
            raise NotFoundError("you have no such session; GET /api/v1/sessions lists yours")


def csrf_token(session: str) -> str:
    """The proof that a request comes from a page that could read an answer of this session."""
    return hmac.new(session.encode(), b"orcaflow csrf", hashlib.sha256).hexdigest()


def is_csrf_token(session: str, given: str) -> bool:
    """Return True for the proof of this session."""
    expected = csrf_token(session)
    return hmac.compare_digest(expected.encode(), given.encode("utf-8", "replace"))


@contextmanager
def _turn() -> Iterator[None]:
    if not _queueing.acquire(blocking=False):
        raise LogInBlockedError(
            "many log in at this moment; try again in a second", retry_after=_BUSY_SECONDS
        )
    try:
        yield
    finally:
        _queueing.release()


def _counted(engine: Engine, name: str, address: str | None) -> _Try:
    """Count a try, and read the hash that the password has to have."""
    account = f"user:{hashlib.sha256(name.lower().encode('utf-8', 'replace')).hexdigest()}"
    # A shorter digest, so that both fit into the column.
    place = "" if address is None else hashlib.sha256(_place(address).encode()).hexdigest()[:32]
    pair = f"{account}@{place}"
    with engine.begin() as db:
        wider: list[tuple[str, _Limit]] = []
        is_a_name = _is_a_name(name)
        if address is None or not (is_a_name and store.is_logged_in(db, name, address)):
            wider.append((account, _OF_USER))
            if address is not None:
                wider.append((_place(address), _OF_ADDRESS))
        for subject, limit in ((pair, _OF_USER_AT_ADDRESS), *wider):
            _charge(db, subject, limit)
        known = store.password_of(db, name) if is_a_name else None
    return _Try(known=known, pair=pair, wider=tuple(wider))


def _fits(known: store.PasswordHolder | None, password: str) -> tuple[bool, str]:
    """Compare a password, which costs the same for nobody's; and return the hash that it was."""
    fits = len(password) <= passwords.LONGEST
    stored = _NOBODYS if known is None else known.password_hash
    fits = passwords.matches(stored, password if fits else "") and fits
    return fits and known is not None, stored


def _forgive(db: Connection, counted: _Try) -> None:
    """Take back a try that was right, and the wrong ones of this user from this address."""
    store.forget_failures(db, [counted.pair])
    for subject, limit in counted.wider:
        # The tries of others count on: an attacker may have an account too.
        store.uncharge(db, subject, free=limit.free)


def _charge(db: Connection, subject: str, limit: _Limit) -> None:
    left = store.charge(
        db,
        subject,
        free=limit.free,
        first_block=limit.first_block,
        longest_block=limit.longest_block,
    )
    if left is not None:
        seconds = max(1, round(left.total_seconds()))
        raise LogInBlockedError(
            f"too many wrong log-ins; try again in {seconds} s", retry_after=seconds
        )


def _place(address: str) -> str:
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return f"address:{address:.60}"
    if isinstance(found, ipaddress.IPv6Address):
        if found.ipv4_mapped is None:
            return f"address:{ipaddress.IPv6Network((int(found), _NETWORK_BITS), strict=False)}"
        found = found.ipv4_mapped
    return f"address:{found}"


def _is_a_name(name: str) -> bool:
    return 0 < len(name) <= _LONGEST_NAME and "\0" not in name and name.isprintable()


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _link_hash(text: str) -> str:
    """Never that of a session with the same text."""
    return hashlib.sha256(b"link:" + text.encode()).hexdigest()
