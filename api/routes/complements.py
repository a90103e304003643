"""Complements and their dates: planned, made, listed, shown, and steered."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from fastapi import Query

from api import cursors
from api.answers import state_of
from api.asking import Asked
from api.complement_answers import (
    Complement,
    ComplementDetail,
    ComplementList,
    ComplementPage,
    ComplementRequest,
    DatePage,
    Moment,
    PlanList,
    RetriedComplement,
)
from api.cursors import After, Limit
from api.repeating import IdempotencyKey, once_of
from api.route import Id, Route, get, post
from common.clock import SystemClock
from common.model.complement_states import (
    ComplementState,
    DateState,
    Downstream,
    OnFailure,
    Reprocess,
    RunOrder,
)
from common.model.date_rules import DateRule
from common.model.states import FailureStrategy, Priority, TaskDependType, WarningType
from common.store.people.complement_views import ComplementView
from operations import complement_control
from operations.complement_plans import typical_of
from operations.complementing import ComplementOptions, create, plan
from operations.documents.complements import complement_row, date_row, plan_row
from operations.errors import UsageError
from operations.lookup import state_named
from operations.session import Session
from operations.stored_complements import details, find

_MOST_PLANNED: Final = 50_000
_clock = SystemClock()


def make(
    given: ComplementRequest,
    session: Asked,
    idempotency_key: IdempotencyKey = None,
) -> dict[str, Any]:
    """Run past dates of an ONLINE definition, then those of the definitions that wait for it.

    A request that is sent again with its `Idempotency-Key` makes no second complement.
    """
    once = once_of(idempotency_key, "complement", given)
    made = create(session, given.definition_id, _options(given), now=_clock.now(), once=once)
    return {"items": [_row(each) for each in made]}


def look_ahead(given: ComplementRequest, session: Asked) -> dict[str, Any]:
    """Plan a complement: the dates that would run, and for how long. Nothing is made."""
    found = plan(session, given.definition_id, _options(given))
    if sum(len(each.dates) for each in found) > _MOST_PLANNED:
        raise UsageError("dates", f"no more than {_MOST_PLANNED:,} dates are planned over HTTP")
    return {"items": [{**plan_row(each, ends_at=None), "after": each.new.after} for each in found]}


def list_complements(
    session: Asked,
    definition_id: Annotated[int | None, Query(ge=1, le=2**31 - 1)] = None,
    state: Annotated[list[str] | None, Query(max_length=20)] = None,
    limit: Limit = 50,
    after: After = None,
) -> dict[str, Any]:
    """List the complements that you may see, the newest first; of the given states only."""
    states = [ComplementState(state_named(ComplementState, each)) for each in state or ()]
    found = find(
        session,
        definition_id=definition_id,
        states=states or None,
        limit=limit,
        before=cursors.read("complements", after),
    )
    return {
        "items": [_row(each) for each in found],
        "next": cursors.next_of("complements", [each.id for each in found], limit),
    }


def show_complement(id: Id, session: Asked) -> dict[str, Any]:  # noqa: A002  # The path's name.
    """Show a complement with the number of its dates by state."""
    found = details(session, id, limit=1)
    return {
        **_row(found.view),
        "followers": list(found.followers),
        "typical_duration": typical_of(session, found.view),
    }


def list_dates(
    id: Id,  # noqa: A002
    session: Asked,
    *,
    state: Annotated[list[DateState] | None, Query(max_length=10)] = None,
    order: Annotated[Literal["telling", "position"], Query()] = "telling",
    since: Annotated[
        Moment | None, Query(description="Only dates that were changed after this.")
    ] = None,
    limit: Limit = 100,
    after: After = None,
) -> dict[str, Any]:
    """List dates of a complement: failed ones first, then those that run, then the next ones.

    In the order of their positions all of them can be read, page by page.
    """
    behind = cursors.read("dates", after)
    if order == "telling" and behind is not None:
        raise UsageError("after", "goes with order=position")
    if order == "position" and behind is None:
        behind = -1
    found = details(session, id, states=state, limit=limit, behind=behind, since=since)
    zone = found.view.timezone_id
    now = _clock.now()
    positions = [each.position for each in found.dates]
    return {
        "items": [
            date_row(each, timezone_id=zone, date_rule=found.view.date_rule, now=now)
            | {"id": each.id, "update_time": each.update_time}
            for each in found.dates
        ],
        "next": cursors.next_of("dates", positions, limit) if order == "position" else None,
    }


def pause(id: Id, session: Asked) -> dict[str, Any]:  # noqa: A002
    """Begin no further date of a complement."""
    complement_control.pause(session, id, now=_clock.now())
    return _shown(session, id)


def resume(id: Id, session: Asked) -> dict[str, Any]:  # noqa: A002
    """Go on with a paused complement."""
    complement_control.resume(session, id, now=_clock.now())
    return _shown(session, id)


def cancel(id: Id, session: Asked) -> dict[str, Any]:  # noqa: A002
    """Begin no further date of a complement, and stop those that run."""
    complement_control.cancel(session, id, now=_clock.now())
    return _shown(session, id)


def retry(id: Id, session: Asked) -> dict[str, Any]:  # noqa: A002
    """Run the failed dates of a complement again."""
    retried = complement_control.retry(session, id, now=_clock.now())
    shown = _shown(session, id)
    return {**shown, "retried": retried.dates, "followers": list(retried.followers)}


def _shown(session: Session, number: int) -> dict[str, object]:
    return _row(details(session, number, limit=1).view)


def _row(view: ComplementView) -> dict[str, object]:
    row = complement_row(view, now=_clock.now())
    return row | {"state": state_of(row)}


def _options(given: ComplementRequest) -> ComplementOptions:
    return ComplementOptions(
        first=given.first,
        last=given.last,
        dates=tuple(given.dates),
        zone=given.zone,
        parallelism=given.parallelism,
        order=RunOrder(given.order),
        on_failure=OnFailure(given.on_failure),
        reprocess=Reprocess(given.reprocess),
        date_rule=None if given.date_rule is None else DateRule(given.date_rule),
        downstream=Downstream(given.downstream),
        confirmed=given.confirmed,
        start_nodes=tuple(given.start_nodes),
        task_depend_type=TaskDependType[given.depend],
        failure_strategy=FailureStrategy[given.failure_strategy],
        priority=Priority[given.priority],
        worker_group=given.worker_group,
        environment=given.environment,
        start_params=given.params,
        warning_type=WarningType[given.warning_type],
    )


ROUTES: Final[tuple[Route, ...]] = (
    get("/complements", list_complements, ComplementPage, is_quick=True),
    post("/complements", make, ComplementList, status=201),
    post("/complements/plan", look_ahead, PlanList, is_heavy=True),
    get("/complements/{id}", show_complement, ComplementDetail),
    get("/complements/{id}/dates", list_dates, DatePage, is_quick=True),
    post("/complements/{id}/pause", pause, Complement),
    post("/complements/{id}/resume", resume, Complement),
    post("/complements/{id}/cancel", cancel, Complement),
    post("/complements/{id}/retry", retry, RetriedComplement),
)
