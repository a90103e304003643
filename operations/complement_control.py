"""Complements paused, resumed, cancelled and retried, once they are made.

Each function writes in one transaction what masters then act on; none waits for that.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from datetime import datetime

from common.errors import NotAllowedError
from common.model.complement_states import ComplementState
from common.model.rights import Action
from common.store.connect import Connection
from common.store.people import complement_requests as store
from common.store.people.complement_requests import Retried
from common.store.people.rights import Thing
from operations.documents.instances import name_of
from operations.rights import change, seen
from operations.session import Session, operation
from operations.stored_complements import complement_with_id


@operation
def pause(session: Session, complement_id: int, *, now: datetime) -> None:
    """Have no further date begin; one that is paused already stays so."""
    allowed = (ComplementState.READY_PAUSE, ComplementState.PAUSE)
    with _ordered(session, "pause", complement_id) as db:
        if not store.pause_complement(db, complement_id, at=now):
            _refuse(db, complement_id, "paused", unless=allowed)


@operation
def resume(session: Session, complement_id: int, *, now: datetime) -> None:
    """Have a paused complement go on; one that runs already stays so."""
    with _ordered(session, "resume", complement_id) as db:
        if not store.resume_complement(db, complement_id, at=now):
            _refuse(db, complement_id, "resumed", unless=(ComplementState.RUNNING,))


@operation
def cancel(session: Session, complement_id: int, *, now: datetime) -> None:
    """Have no further date begin, and those that run be stopped; a cancelled one stays so."""
    allowed = (ComplementState.READY_STOP, ComplementState.STOP)
    with _ordered(session, "cancel", complement_id) as db:
        if not store.cancel_complement(db, complement_id, at=now):
            _refuse(db, complement_id, "cancelled", unless=allowed)


@operation
def retry(session: Session, complement_id: int, *, now: datetime) -> Retried:
    """Have the failed dates run again. Raises `NotAllowedError` without any failed date."""
    with _ordered(session, "retry", complement_id) as db:
        retried = store.retry_complement(db, complement_id, at=now)
        if retried is None:
            _refuse(db, complement_id, "retried")
            raise AssertionError("a state that allows it was refused")
        if not retried.dates:
            raise NotAllowedError(
                f"complement {complement_id} has no failed date to run again"
                f" (orcaflow complement show {complement_id})"
            )
    return retried


@contextmanager
def _ordered(session: Session, word: str, complement_id: int) -> Iterator[Connection]:
    """The transaction of an order to a complement, which its audit line is a part of."""
    with change(session, f"complement.{word}", "complement", object_id=complement_id) as made:
        held = seen(made.db, session.principal, Action.OPERATE, Thing.COMPLEMENT, complement_id)
        made.project_id = held.project_id
        yield made.db


def _refuse(
    db: Connection, complement_id: int, asked: str, *, unless: Collection[ComplementState] = ()
) -> None:
    """Raise `NotAllowedError` with the state that forbids it, unless it is one of these."""
    view = complement_with_id(db, complement_id)
    if view.state in unless:
        return
    name = repr(view.definition_name)
    cures = {
        ComplementState.SUBMITTED: f"it waits for complement {view.after_id}",
        ComplementState.RUNNING: "it goes on",
        ComplementState.READY_PAUSE: f"resume it first: orcaflow complement resume {view.id}",
        ComplementState.PAUSE: f"resume it first: orcaflow complement resume {view.id}",
        ComplementState.READY_STOP: "it is being cancelled",
        ComplementState.STOP: f"begin another: orcaflow complement {name} … --reprocess failed",
        ComplementState.FAILURE: f"run what failed again: orcaflow complement retry {view.id}",
        ComplementState.SUCCESS: f"begin another: orcaflow complement {name} …",
    }
    cure = next((text for state, text in cures.items() if state == view.state), "")
    raise NotAllowedError(
        f"complement {view.id} can't be {asked}: it is {name_of(ComplementState, view.state)};"
        f" {cure}"
    )
