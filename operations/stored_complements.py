"""Complements as they are stored: found by id, by definition and by state. Nothing is written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from common.errors import NotFoundError
from common.model.complement_states import ComplementState, DateState
from common.model.rights import Action
from common.store.connect import Connection
from common.store.people.complement_views import (
    ComplementDateView,
    ComplementView,
    complements,
    complements_after,
    complements_with_ids,
    dates_of_complement,
)
from common.store.people.rights import Thing
from operations.errors import ForbiddenError
from operations.lookup import definition_named
from operations.rights import seen
from operations.session import Session, operation


@dataclass(frozen=True, slots=True, kw_only=True)
class ComplementDetails:
    """A complement with dates of it, and the ids of those that wait for it."""

    view: ComplementView
    dates: tuple[ComplementDateView, ...]
    followers: tuple[int, ...]


@operation
def find(
    session: Session,
    *,
    definition_name: str | None = None,
    definition_id: int | None = None,
    states: Sequence[ComplementState] | None = None,
    limit: int,
    before: int | None = None,
) -> list[ComplementView]:
    """Complements, the newest first; None means of all definitions, and in any state.

    A name is for the owner of the database alone. `before`: only those with smaller ids.
    """
    with session.engine.connect() as db:
        if definition_name is not None:
            if not session.principal.owns_database:
                raise ForbiddenError(
                    "only the command line looks for names, at the database itself"
                )
            definition_id = definition_named(db, session.principal, definition_name).id
        return complements(
            db,
            definition_id=definition_id,
            states=None if states is None else [int(each) for each in states],
            limit=limit,
            principal=session.principal,
            before=before,
        )


@operation
def details(
    session: Session,
    complement_id: int,
    *,
    states: Sequence[DateState] | None = None,
    limit: int | None = None,
    behind: int | None = None,
    since: datetime | None = None,
) -> ComplementDetails:
    """A complement with at most `limit` of its dates: failed, live and next ones first.

    `behind`: instead the next ones behind that position, in the order in which they run; `since`:
    only those that were changed after that time.
    """
    with session.engine.connect() as db:
        seen(db, session.principal, Action.VIEW, Thing.COMPLEMENT, complement_id)
        view = complement_with_id(db, complement_id)
        dates = dates_of_complement(
            db, complement_id, states=states, limit=limit, behind=behind, since=since
        )
        followers = complements_after(db, complement_id)
    return ComplementDetails(
        view=view, dates=tuple(dates), followers=tuple(each.id for each in followers)
    )


@operation
def with_id(session: Session, complement_id: int) -> ComplementView:
    """The complement as it is now. Raises `NotFoundError`."""
    with session.engine.connect() as db:
        seen(db, session.principal, Action.VIEW, Thing.COMPLEMENT, complement_id)
        return complement_with_id(db, complement_id)


def complement_with_id(db: Connection, complement_id: int) -> ComplementView:
    """The complement with an id. Raises `NotFoundError`."""
    (found,) = complements_of(db, [complement_id])
    return found


def complements_of(db: Connection, ids: Sequence[int]) -> list[ComplementView]:
    """The complements with these ids. Raises `NotFoundError` for the smallest that is missing."""
    found = complements_with_ids(db, ids)
    missing = sorted(set(ids) - {view.id for view in found})
    if missing:
        raise NotFoundError(f"there is no complement {missing[0]}; see `orcaflow complement list`")
    return found
