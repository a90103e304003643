"""Shows locks on intervals of datasets: those that are held, and those that tasks wait for."""

from __future__ import annotations

from dataclasses import dataclass

from common.store.people.locks import WaitingLock, waiting_locks
from common.store.streams.locks import HeldLock, LockHolder, held_locks
from operations.session import Session

__all__ = ["LockHolder", "LockView", "list_locks"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LockView:
    """Locks of one moment, in order of dataset and time."""

    held: tuple[HeldLock, ...]
    waiting: tuple[WaitingLock, ...]


def list_locks(session: Session, *, dataset: str | None = None) -> LockView:
    """All locks, or those on one dataset; revoked ones too, until their holders are gone."""
    # PostgreSQL takes no NUL, and so has no row with one.
    if dataset is not None and "\0" in dataset:
        return LockView(held=(), waiting=())
    datasets = None if dataset is None else (dataset,)
    with session.engine.connect() as db:
        return LockView(held=held_locks(db, datasets), waiting=waiting_locks(db, datasets=datasets))
