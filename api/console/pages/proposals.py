"""Proposals of definitions: made from one's draft, listed, shown, and decided by somebody else.

Those of definitions that are to be made have the same pages below their project.
"""

from __future__ import annotations

from typing import Final, TypedDict

from fastapi import Response
from fastapi.responses import RedirectResponse

from api import cursors
from api.console.differences import shown
from api.console.rendering import rendered
from api.console.table import Page, Serve, Visit, order, page
from api.marking import marked
from api.policy import Policy
from common.model.proposals import ProposalState
from common.model.rights import Action
from common.store.people.drafts import author_of
from common.store.people.rights import Thing
from operations import proposals as operations
from operations.definitions import definition_detail
from operations.drafts import draft, publish_draft
from operations.errors import ChangedMeanwhileError, UsageError
from operations.projects import find_project, project_detail
from operations.rights import may

_LIMIT: Final = 50
_LIST: Final = "proposals"
_WORDS: Final = {
    ProposalState.WAITING: marked("waiting for approval"),
    ProposalState.APPROVED: marked("approved"),
    ProposalState.REJECTED: marked("rejected"),
    ProposalState.WITHDRAWN: marked("withdrawn"),
    ProposalState.REPLACED: marked("replaced by a newer one"),
}


class _Whose(TypedDict, total=False):
    definition: int
    project: int


def look_ahead(visit: Visit) -> Response:
    """Show what one's draft would change, what is risky first, before it is proposed."""
    return _look_ahead(visit)


def propose(visit: Visit) -> Response:
    """Propose one's draft as it was shown; what it was made from has to be in force still."""
    try:
        made = operations.propose(
            visit.session, visit.id, note=visit.form.get("note") or None, expected=_tag(visit)
        )
    except ChangedMeanwhileError:
        return _look_ahead(visit, is_late=True)
    return RedirectResponse(f"/definitions/{visit.id}/proposal?number={made.id}", status_code=303)


def publish(visit: Visit) -> Response:
    """Put one's draft in force as it was shown, where the project asks for no review."""
    try:
        publish_draft(
            visit.session, visit.id, note=visit.form.get("note") or None, expected=_tag(visit)
        )
    except ChangedMeanwhileError:
        return _look_ahead(visit, is_late=True)
    return RedirectResponse(f"/definitions/{visit.id}/versions", status_code=303)


def _look_ahead(visit: Visit, *, is_late: bool = False) -> Response:
    found = draft(visit.session, visit.id)
    row = definition_detail(visit.session, visit.id).row
    project = find_project(visit.session, project_id=row.project_id)
    return rendered(
        "propose.html",
        zone=visit.session.zone,
        visit=visit,
        status=409 if is_late else 200,
        definition=row,
        draft=found,
        # As a condition names it.
        tag=f'"{found.tag}"',
        is_late=is_late,
        has_review=project.review_since is not None,
        note=visit.form.get("note", ""),
        mistakes=[each.row() for each in found.looked.mistakes],
        warnings=[str(each) for each in found.looked.findings],
        difference=None if found.difference is None else shown(found.difference),
    )


def _pages(things: str, thing: str) -> tuple[Page, ...]:
    def whose(visit: Visit) -> _Whose:
        return {"definition": visit.id} if thing == "definition" else {"project": visit.id}

    def place(visit: Visit) -> str:
        return f"/{things}/{visit.id}"

    def name(visit: Visit) -> str:
        if thing == "definition":
            return definition_detail(visit.session, visit.id).row.name
        return project_detail(visit.session, visit.id).view.name

    def show_all(visit: Visit) -> Response:
        before = cursors.read(_LIST, visit.query.get("after"))
        found = operations.proposals(visit.session, limit=_LIMIT, before=before, **whose(visit))
        return rendered(
            "proposals.html",
            zone=visit.session.zone,
            visit=visit,
            things=things,
            place=place(visit),
            name=name(visit),
            rows=found,
            words=_WORDS,
            next=cursors.next_of(_LIST, [each.id for each in found], _LIMIT),
        )

    def show(visit: Visit) -> Response:
        number = visit.query.get("number")
        if number is None:
            return show_all(visit)
        return shown_proposal(visit, _number(number))

    def shown_proposal(visit: Visit, number: int) -> Response:
        found = operations.proposal_detail(visit.session, number, **whose(visit))
        waits = found.row.state is ProposalState.WAITING
        kind = Thing.DEFINITION if thing == "definition" else Thing.PROJECT
        decides = may(visit.session, Action.ADMIN, kind, visit.id)
        is_own = found.row.user_id == author_of(visit.session.principal)
        return rendered(
            "proposal.html",
            zone=visit.session.zone,
            visit=visit,
            things=things,
            place=place(visit),
            name=name(visit),
            found=found,
            row=found.row,
            words=_WORDS,
            waits=waits,
            may_reject=waits and decides and not is_own,
            may_withdraw=waits and (is_own or decides),
            difference=shown(found.difference),
            since=None if found.since is None else shown(found.since),
        )

    def approve(visit: Visit) -> Response:
        number = _number(visit.form.get("number", ""))
        done = operations.approve(visit.session, number, **whose(visit))
        return RedirectResponse(
            f"/definitions/{done.definition_id}/proposal?number={number}", status_code=303
        )

    def reject(visit: Visit) -> Response:
        number = _number(visit.form.get("number", ""))
        reason = visit.form.get("reason", "")
        operations.reject(visit.session, number, reason=reason, **whose(visit))
        return RedirectResponse(f"{place(visit)}/proposal?number={number}", status_code=303)

    def withdraw(visit: Visit) -> Response:
        number = _number(visit.form.get("number", ""))
        operations.withdraw(visit.session, number, **whose(visit))
        return RedirectResponse(f"{place(visit)}/proposal?number={number}", status_code=303)

    view = Policy(takes=Action.VIEW, thing=thing)
    admin = Policy(takes=Action.ADMIN, thing=thing)
    own = Policy(takes=Action.ADMIN, thing=thing, own=True)
    base = f"/{things}/{{id}}"
    orders: tuple[tuple[str, Policy, Serve], ...] = (
        ("approve", admin, approve),
        ("reject", admin, reject),
        ("withdraw", own, withdraw),
    )
    return (
        page(f"{base}/proposals", view, show_all),
        page(f"{base}/proposal", view, show),
        *(order(f"{base}/{word}", policy, serve) for word, policy, serve in orders),
    )


def _number(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 10 and int(text) > 0):
        raise UsageError("number", f"{text!r:.50} is no number of a proposal")
    return int(text)


def _tag(visit: Visit) -> str:
    tag = visit.form.get("tag")
    if not tag:
        raise UsageError("tag", "is missing: load the page again")
    return tag


_AUTHOR: Final = Policy(takes=Action.AUTHOR, thing="definition")
PAGES: Final = (
    page("/definitions/{id}/propose", _AUTHOR, look_ahead),
    order("/definitions/{id}/propose", _AUTHOR, propose),
    order("/definitions/{id}/publish", _AUTHOR, publish),
    *_pages("definitions", "definition"),
    *_pages("projects", "project"),
)
