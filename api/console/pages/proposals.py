"""Proposals of definitions: made from one's draft, listed, shown, and decided by somebody else.

Those of definitions that are to be made have the same pages below their project.
"""

from __future__ import annotations

from typing import Final

from fastapi import Response
from fastapi.responses import RedirectResponse

from api import cursors
from api.console.differences import shown
from api.console.rendering import rendered
from api.console.subjects import KINDS, ServeOne, Subject, about
from api.console.table import Page, Visit, order, page
from api.marking import marked
from api.policy import Policy
from common.model.proposals import ProposalState
from common.model.rights import Action
from common.store.people.drafts import author_of
from common.store.people.rights import Thing
from operations import proposals as operations
from operations.drafts import draft, publish_draft
from operations.errors import ChangedMeanwhileError, UsageError
from operations.projects import find_project
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


def look_ahead(visit: Visit, subject: Subject) -> Response:
    """Show what one's draft would change, what is risky first, before it is proposed."""
    return _look_ahead(visit, subject)


def propose(visit: Visit, subject: Subject) -> Response:
    """Propose one's draft as it was shown; what it was made from has to be in force still."""
    note, tag = visit.form.get("note") or None, _tag(visit)
    try:
        made = operations.propose(visit.session, note=note, expected=tag, **subject.whose)
    except ChangedMeanwhileError:
        return _look_ahead(visit, subject, is_late=True)
    return RedirectResponse(f"{subject.place}/proposal?number={made.id}", status_code=303)


def publish(visit: Visit, subject: Subject) -> Response:
    """Put one's draft in force as it was shown, where the project asks for no review."""
    note, tag = visit.form.get("note") or None, _tag(visit)
    try:
        made = publish_draft(visit.session, note=note, expected=tag, **subject.whose)
    except ChangedMeanwhileError:
        return _look_ahead(visit, subject, is_late=True)
    return RedirectResponse(f"/definitions/{made.id}/versions", status_code=303)


def _look_ahead(visit: Visit, subject: Subject, *, is_late: bool = False) -> Response:
    found = draft(visit.session, **subject.whose)
    project = find_project(visit.session, project_id=found.target.project_id)
    return rendered(
        "propose.html",
        zone=visit.session.zone,
        visit=visit,
        status=409 if is_late else 200,
        subject=subject,
        name=subject.name(visit.session),
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


def show_all(visit: Visit, subject: Subject) -> Response:
    """Show the proposals, the newest first."""
    before = cursors.read(_LIST, visit.query.get("after"))
    found = operations.proposals(visit.session, limit=_LIMIT, before=before, **subject.whose)
    return rendered(
        "proposals.html",
        zone=visit.session.zone,
        visit=visit,
        subject=subject,
        name=subject.name(visit.session),
        rows=found,
        words=_WORDS,
        next=cursors.next_of(_LIST, [each.id for each in found], _LIMIT),
    )


def show(visit: Visit, subject: Subject) -> Response:
    """Show the proposal of this `number`, with what it changes; without one, all."""
    number = visit.query.get("number")
    if number is None:
        return show_all(visit, subject)
    found = operations.proposal_detail(visit.session, _number(number), **subject.whose)
    waits = found.row.state is ProposalState.WAITING
    decides = may(visit.session, Action.ADMIN, subject.thing, subject.id)
    is_own = found.row.user_id == author_of(visit.session.principal)
    return rendered(
        "proposal.html",
        zone=visit.session.zone,
        visit=visit,
        subject=subject,
        name=subject.name(visit.session),
        found=found,
        row=found.row,
        words=_WORDS,
        waits=waits,
        may_reject=waits and decides and not is_own,
        may_withdraw=waits and (is_own or decides),
        difference=shown(found.difference),
        since=None if found.since is None else shown(found.since),
    )


def approve(visit: Visit, subject: Subject) -> Response:
    """Put a proposal in force."""
    number = _number(visit.form.get("number", ""))
    done = operations.approve(visit.session, number, **subject.whose)
    return RedirectResponse(
        f"/definitions/{done.definition_id}/proposal?number={number}", status_code=303
    )


def reject(visit: Visit, subject: Subject) -> Response:
    """Reject a proposal, with a reason."""
    number, reason = _number(visit.form.get("number", "")), visit.form.get("reason", "")
    operations.reject(visit.session, number, reason=reason, **subject.whose)
    return RedirectResponse(f"{subject.place}/proposal?number={number}", status_code=303)


def withdraw(visit: Visit, subject: Subject) -> Response:
    """Take a proposal back."""
    number = _number(visit.form.get("number", ""))
    operations.withdraw(visit.session, number, **subject.whose)
    return RedirectResponse(f"{subject.place}/proposal?number={number}", status_code=303)


def _pages(thing: Thing, things: str) -> tuple[Page, ...]:
    view = Policy(takes=Action.VIEW, thing=thing.value)
    author = Policy(takes=Action.AUTHOR, thing=thing.value)
    admin = Policy(takes=Action.ADMIN, thing=thing.value)
    own = Policy(takes=Action.ADMIN, thing=thing.value, own=True)
    base = f"/{things}/{{id}}"
    shows: tuple[tuple[str, Policy, ServeOne], ...] = (
        ("propose", author, look_ahead),
        ("proposals", view, show_all),
        ("proposal", view, show),
    )
    orders: tuple[tuple[str, Policy, ServeOne], ...] = (
        ("propose", author, propose),
        ("publish", author, publish),
        ("approve", admin, approve),
        ("reject", admin, reject),
        ("withdraw", own, withdraw),
    )
    return (
        *(page(f"{base}/{word}", right, about(thing, things, do)) for word, right, do in shows),
        *(order(f"{base}/{word}", right, about(thing, things, do)) for word, right, do in orders),
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


PAGES: Final = tuple(each for thing, things in KINDS for each in _pages(thing, things))
