"""Shows locks on intervals of datasets: those that are held, and those that tasks wait for."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from common.store.people.locks import WaitingLock, waiting_locks
from common.store.people.rights import seen_instances
from common.store.streams.locks import HeldLock, LockHolder, held_locks
from operations.session import Session, operation

if TYPE_CHECKING:
    from common.store.connect import Connection

__all__ = ["LockHolder", "LockView", "list_locks"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LockView:
    """Locks of one moment, in order of dataset and time."""

    held: tuple[HeldLock, ...]
    waiting: tuple[WaitingLock, ...]


@operation
def list_locks(session: Session, *, dataset: str | None = None) -> LockView:
    """All locks, or those on one dataset; revoked ones too, until their holders are gone.

    They are those of tasks that the principal may see, with these tasks alone.
    """
    # PostgreSQL takes no NUL, and so has no row with one.
    if dataset is not None and "\0" in dataset:
        return LockView(held=(), waiting=())
    datasets = None if dataset is None else (dataset,)
    with session.engine.connect() as db:
        found = LockView(
            held=held_locks(db, datasets), waiting=waiting_locks(db, datasets=datasets)
        )
        return found if session.principal.sees_all else _shown(db, session, found)


def _shown(db: Connection, session: Session, found: LockView) -> LockView:
    holders = [
        *(one for each in found.held for one in each.holders),
        *(each.holder for each in found.waiting),
    ]
    runs = {each.process_instance_id for each in holders}
    seen = seen_instances(db, session.principal, runs)
    held = (
        replace(each, holders=tuple(one for one in each.holders if one.process_instance_id in seen))
        for each in found.held
    )
    return LockView(
        held=tuple(each for each in held if each.holders),
        waiting=tuple(each for each in found.waiting if each.holder.process_instance_id in seen),
    )
