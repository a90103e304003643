"""Makes, shows, resizes and removes pools: slots that tasks share, whatever runs them.

A pool belongs to no project. Its maker, administrators and members of projects that may use it can
see it. Authors create pools; the maker and administrators change them.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from common.clock import SystemClock
from common.errors import NotAllowedError, NotFoundError
from common.model.grants import GrantKind
from common.model.rights import Principal
from common.store.connect import Connection
from common.store.people import pools as store
from common.store.people.pools import PoolView
from common.store.people.rights import is_administrator, seen_instances
from operations.errors import ForbiddenError
from operations.grants import grant_new
from operations.limits import (
    MAX_POOL_DESCRIPTION_LENGTH,
    MAX_POOL_NAME_LENGTH,
    check_description,
    check_name,
    check_pool_size,
)
from operations.repeating import Once, first_answer, keep_answer
from operations.rights import Change, change, check_author
from operations.row_tags import check_row_tag, row_tag
from operations.session import Session, operation


def pool_tag(pool: PoolView) -> str:
    """The tag to change a pool by; slots that are taken and given back leave it as it is."""
    return row_tag(pool.id, pool.name, pool.size, pool.description)


@operation
def create_pool(
    session: Session,
    name: str,
    *,
    size: int,
    description: str | None,
    projects: Sequence[str | int] = (),
    once: Once | None = None,
) -> int:
    """Create a pool, grant it to `projects`, and return its id.

    `NotAllowedError` if the name is taken.
    """
    check_name(name, longest=MAX_POOL_NAME_LENGTH)
    check_pool_size(size)
    check_description(description, longest=MAX_POOL_DESCRIPTION_LENGTH)
    with change(session, "pool.create", "pool", object_name=name) as asked:
        if not session.principal.owns_database:
            check_author(asked.db, session.principal)
        if once is not None:
            answered = first_answer(asked.db, session.principal, once)
            if answered is not None:
                asked.object_id, asked.detail = answered, "as before"
                return answered
        made = store.create_pool(
            asked.db,
            name,
            size=size,
            description=description,
            user_id=session.principal.user_id,
        )
        if made is None:
            raise NotAllowedError(
                f"there is a pool {name!r} already; change it: orcaflow pool resize {name!r}"
                f" --size {size}"
            )
        asked.object_id = made
        grant_new(asked.db, session.principal, GrantKind.POOL, made, projects)
        if once is not None:
            keep_answer(asked.db, session.principal, once, made)
    return made


def check_maker(session: Session) -> None:
    """Refuse whoever may make no pool."""
    if session.principal.owns_database:
        return
    with session.engine.connect() as db:
        check_author(db, session.principal)


def may_change(session: Session, pool: PoolView) -> bool:
    """Return True for whoever may resize and remove a pool."""
    try:
        with session.engine.connect() as db:
            _check_owner(db, session.principal, pool)
    except ForbiddenError:
        return False
    return True


@operation
def list_pools(
    session: Session,
    *,
    name: str | None = None,
    after: int | None = None,
    limit: int | None = None,
) -> list[PoolView]:
    """Pools with the numbers of slots that are taken, and of attempts that wait.

    Lists the pools that the principal sees: all by name, with `after` the larger ids by id, or the
    pool with this name.
    """
    with session.engine.connect() as db:
        if name is not None:
            return [_found(db, name, seen_by=session.principal, with_users=False)]
        return store.pools(db, seen_by=session.principal, after=after, limit=limit)


@operation
def pool_given(session: Session, pool: str | int) -> PoolView:
    """The pool of this name or id; `NotFoundError` proposes another one that is spelt like it.

    It has those of its users that the principal may see.
    """
    with session.engine.connect() as db:
        return _shown(db, session, _found(db, pool, seen_by=session.principal))


@operation
def resize_pool(
    session: Session, pool: str | int, *, size: int, expected: str | None = None
) -> PoolView:
    """Give a pool another size. Holders of its slots go on, even if it becomes smaller.

    `expected` is the tag that the pool has to have (`ChangedMeanwhileError`).
    """
    check_pool_size(size)
    with _of_pool(session, "pool.resize", pool, expected) as (made, found):
        store.resize_pool(made.db, found.name, size=size, at=SystemClock().now())
        made.detail = f"from {found.size} to {size}"
        return _found(made.db, found.id)


@operation
def remove_pool(session: Session, pool: str | int, *, expected: str | None = None) -> PoolView:
    """Remove a pool; `NotAllowedError` while an attempt holds or awaits its slots.

    `expected` is the tag that the pool has to have (`ChangedMeanwhileError`).
    """
    with _of_pool(session, "pool.remove", pool, expected) as (made, found):
        if found.users:
            shown = _shown(made.db, session, found).users
            first = shown[0] if shown else None
            by = (
                "by tasks of other projects"
                if first is None
                else f"task {first.task_name!r} of process instance {first.process_instance_id}"
                f" {'holds' if first.holds else 'waits for'} its slots"
            )
            raise NotAllowedError(
                f"pool {found.name!r} is in use{':' if shown else ''} {by}"
                f" ({len(found.users)} in all: orcaflow pool show {found.name!r})"
            )
        store.remove_pool(made.db, found.name)
    return found


def _shown(db: Connection, session: Session, found: PoolView) -> PoolView:
    """The pool with those of its users that the principal may see."""
    if session.principal.owns_database:
        return found
    runs = {each.process_instance_id for each in found.users}
    seen = seen_instances(db, session.principal, runs)
    return replace(
        found, users=tuple(each for each in found.users if each.process_instance_id in seen)
    )


@contextmanager
def _of_pool(
    session: Session, action: str, pool: str | int, expected: str | None
) -> Iterator[tuple[Change, PoolView]]:
    """Open the transaction of a change of a pool, and lock it."""
    with change(
        session,
        action,
        "pool",
        object_id=pool if isinstance(pool, int) else None,
        object_name=pool if isinstance(pool, str) else None,
    ) as made:
        named = _found(made.db, pool, seen_by=session.principal)
        store.lock_pool(made.db, named.name)
        found = _found(made.db, named.id)
        made.object_id, made.object_name = found.id, found.name
        _check_owner(made.db, session.principal, found)
        check_row_tag(pool_tag(found), expected, f"pool {found.name!r}")
        yield made, found


def _check_owner(db: Connection, who: Principal, pool: PoolView) -> None:
    if is_administrator(db, who):
        return
    check_author(db, who)
    if pool.user_id != who.user_id:
        raise ForbiddenError(
            "others use it too: this is for whoever made it, and for administrators"
        )


def _found(
    db: Connection,
    given: str | int,
    *,
    seen_by: Principal | None = None,
    with_users: bool = True,
) -> PoolView:
    near: list[str] = []
    if isinstance(given, int):
        found = store.pools(db, seen_by=seen_by, pool_id=given, with_users=with_users)
    else:
        # PostgreSQL takes no NUL, and so has no row with one.
        found = (
            store.pools(db, seen_by=seen_by, name=given, with_users=with_users)
            if "\0" not in given
            else []
        )
    if found:
        return found[0]
    if isinstance(given, str):
        names = [pool.name for pool in store.pools(db, seen_by=seen_by)]
        near = difflib.get_close_matches(given, names, n=1)
    perhaps = f"; did you mean {near[0]!r}?" if near else "; see `orcaflow pool list`"
    raise NotFoundError(f"there is no pool {given!r:.200}{perhaps}")
