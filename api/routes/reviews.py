"""Drafts and proposals: of a definition, and in the same way of a new one in a project."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Final, TypedDict

from fastapi import Path, Response

from api import cursors
from api.asking import Asked, Condition, Content, needed
from api.cursors import After, Limit
from api.definition_answers import SavedDefinition
from api.policy import BASE
from api.review_answers import (
    Draft,
    NewProposal,
    Proposal,
    ProposalDetail,
    ProposalPage,
    Publication,
    Rejection,
)
from api.route import Id, Route, delete, get, post, put
from api.routes.definitions import saved
from operations import drafts as operations
from operations import proposals
from operations.documents.reviews import draft_document, proposal_document, proposal_row
from operations.drafts import Draft as ShownDraft

_LIST: Final = "proposals"
_BODY: Final = {"type": "object", "description": "A definition, as far as it is written."}
_Number = Annotated[int, Path(ge=1, le=2**31 - 1)]


class _Whose(TypedDict, total=False):
    definition: int
    project: int


def _routes(things: str, word: str) -> Iterator[Route]:
    """Yield the routes below definitions, or below projects, which are about new definitions."""

    def whose(number: int) -> _Whose:
        return {"definition": number} if word == "definition" else {"project": number}

    def show_draft(id: Id, session: Asked, response: Response) -> dict[str, Any]:  # noqa: A002
        """Show your draft; before its first save it is what is in force, at revision 0."""
        return _tagged(operations.draft(session, **whose(id)), response)

    def save_draft(
        id: Id,  # noqa: A002
        session: Asked,
        content: Content,
        *,
        response: Response,
        condition: Condition = None,
    ) -> dict[str, Any]:
        """Save your draft as it is typed, in JSON or YAML; its mistakes are told, and it is kept.

        What was saved since you have read it is merged if it is about other tasks and settings,
        and named by a 412 if it is not.
        """
        expected = needed(condition)
        return _tagged(
            operations.save_draft(session, content, expected=expected, **whose(id)), response
        )

    def rebase_draft(
        id: Id,  # noqa: A002
        session: Asked,
        response: Response,
        condition: Condition = None,
    ) -> dict[str, Any]:
        """Merge what has changed in the definition since your draft was begun into the draft."""
        return _tagged(operations.rebase_draft(session, id, expected=needed(condition)), response)

    def discard_draft(
        id: Id,  # noqa: A002
        session: Asked,
        response: Response,
        condition: Condition = None,
    ) -> dict[str, Any]:
        """Throw your draft away; what is in force takes its place."""
        expected = needed(condition)
        return _tagged(operations.discard_draft(session, expected=expected, **whose(id)), response)

    def publish_draft(
        id: Id,  # noqa: A002
        given: Publication,
        session: Asked,
        response: Response,
        condition: Condition = None,
    ) -> dict[str, object]:
        """Put your draft in force as a new version, where the project asks for no review (409)."""
        made = operations.publish_draft(
            session, note=given.note, expected=needed(condition), **whose(id)
        )
        return saved(session, made, response)

    def list_proposals(
        id: Id,  # noqa: A002
        session: Asked,
        limit: Limit = 50,
        after: After = None,
    ) -> dict[str, Any]:
        """List proposals, the newest first."""
        found = proposals.proposals(
            session, limit=limit, before=cursors.read(_LIST, after), **whose(id)
        )
        return {
            "items": [proposal_row(each) for each in found],
            "next": cursors.next_of(_LIST, [each.id for each in found], limit),
        }

    def propose(
        id: Id,  # noqa: A002
        given: NewProposal,
        session: Asked,
        response: Response,
        condition: Condition = None,
    ) -> dict[str, object]:
        """Propose a definition, in the place of what you have proposed before and still waits.

        Somebody else with the role admin in the project approves it. The same thing again is the
        proposal that waits already.
        """
        made = proposals.propose(
            session, document=given.document, note=given.note, expected=condition, **whose(id)
        )
        response.headers["Location"] = f"{BASE}/{things}/{id}/proposals/{made.id}"
        return proposal_row(made)

    def show_proposal(id: Id, proposal: _Number, session: Asked) -> dict[str, object]:  # noqa: A002
        """Show a proposal with its document, its difference, and why you can't approve it."""
        return proposal_document(proposals.proposal_detail(session, proposal, **whose(id)))

    def approve(id: Id, proposal: _Number, session: Asked) -> dict[str, object]:  # noqa: A002
        """Put what somebody else has proposed in force, as a new version.

        409 if it waits no more, or if the definition has changed since it was made; 403 for your
        own.
        """
        return proposal_row(proposals.approve(session, proposal, **whose(id)))

    def reject(
        id: Id,  # noqa: A002
        proposal: _Number,
        given: Rejection,
        session: Asked,
    ) -> dict[str, object]:
        """Reject what somebody else has proposed, and say why."""
        return proposal_row(proposals.reject(session, proposal, reason=given.reason, **whose(id)))

    def withdraw(id: Id, proposal: _Number, session: Asked) -> dict[str, object]:  # noqa: A002
        """Withdraw a proposal of yours, or with the role admin anybody's."""
        return proposal_row(proposals.withdraw(session, proposal, **whose(id)))

    base = f"/{things}/{{id}}"
    yield get(f"{base}/draft", show_draft, Draft)
    yield put(f"{base}/draft", save_draft, Draft, body=_BODY, is_heavy=True)
    if word == "definition":
        rebase = f"{base}/draft/rebase"
        yield post(rebase, rebase_draft, Draft, is_conditional=True, is_heavy=True)
    yield delete(f"{base}/draft", discard_draft, Draft, is_conditional=True)
    yield post(
        f"{base}/draft/publish", publish_draft, SavedDefinition, is_conditional=True, is_heavy=True
    )
    yield get(f"{base}/proposals", list_proposals, ProposalPage)
    yield post(
        f"{base}/proposals", propose, Proposal, status=201, is_conditional=True, is_heavy=True
    )
    yield get(f"{base}/proposals/{{proposal}}", show_proposal, ProposalDetail)
    yield post(f"{base}/proposals/{{proposal}}/approve", approve, Proposal)
    yield post(f"{base}/proposals/{{proposal}}/reject", reject, Proposal)
    yield post(f"{base}/proposals/{{proposal}}/withdraw", withdraw, Proposal)


def _tagged(found: ShownDraft, response: Response) -> dict[str, Any]:
    response.headers["ETag"] = f'"{found.tag}"'
    return draft_document(found)


ROUTES: Final[tuple[Route, ...]] = (
    *_routes("definitions", "definition"),
    *_routes("projects", "project"),
)
