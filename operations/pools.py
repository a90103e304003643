"""Makes, shows, resizes and removes pools: slots that tasks share, whatever runs them."""

from __future__ import annotations

import difflib

from common.clock import SystemClock
from common.errors import NotAllowedError, NotFoundError
from common.store.connect import Connection
from common.store.people import pools as store
from common.store.people.pools import PoolView
from operations.limits import MAX_POOL_NAME_LENGTH, check_name, check_pool_size
from operations.rights import noted
from operations.session import Session


def create_pool(session: Session, name: str, *, size: int, description: str | None) -> int:
    """Make a pool and return its id; `NotAllowedError` if there is one of that name."""
    check_name(name, longest=MAX_POOL_NAME_LENGTH)
    check_pool_size(size)
    with noted(session, "pool.create", name) as db:
        made = store.create_pool(db, name, size=size, description=description)
        if made is None:
            raise NotAllowedError(
                f"there is a pool {name!r} already; change it: orcaflow pool resize {name!r}"
                f" --size {size}"
            )
    return made


def list_pools(session: Session) -> list[PoolView]:
    """All pools, with the attempts that hold and await their slots."""
    with session.engine.connect() as db:
        return store.pools(db)


def pool_named(session: Session, name: str) -> PoolView:
    """The pool of this name; `NotFoundError` proposes another one that is spelt like it."""
    with session.engine.connect() as db:
        return _found(db, name)


def resize_pool(session: Session, name: str, *, size: int) -> PoolView:
    """Give a pool another size. Holders of its slots go on, even if it becomes smaller."""
    check_pool_size(size)
    with noted(session, "pool.resize", name) as db:
        _found(db, name)
        store.resize_pool(db, name, size=size, at=SystemClock().now())
        return _found(db, name)


def remove_pool(session: Session, name: str) -> None:
    """Remove a pool; `NotAllowedError` while an attempt holds or awaits its slots."""
    with noted(session, "pool.remove", name) as db:
        _found(db, name)
        store.lock_pool(db, name)
        pool = _found(db, name)
        if pool.users:
            first = pool.users[0]
            raise NotAllowedError(
                f"pool {name!r} is in use: task {first.task_name!r} of process instance"
                f" {first.process_instance_id} {'holds' if first.holds else 'waits for'} its slots"
                f" ({len(pool.users)} in all: orcaflow pool show {name!r})"
            )
        store.remove_pool(db, name)


def _found(db: Connection, name: str) -> PoolView:
    # PostgreSQL takes no NUL, and so has no row with one.
    found = store.pools(db, name=name) if "\0" not in name else []
    if found:
        return found[0]
    near = difflib.get_close_matches(name, [pool.name for pool in store.pools(db)], n=1)
    perhaps = f"; did you mean {near[0]!r}?" if near else "; see `orcaflow pool list`"
    raise NotFoundError(f"there is no pool {name!r:.200}{perhaps}")
