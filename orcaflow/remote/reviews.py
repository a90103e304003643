"""The operations on proposals that an api-server answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Final

from common.model.proposals import ProposalState
from common.store.people.proposals import ProposalRow
from operations.bindings import ForeignReference
from operations.definition_files import InvalidFilesError, Mistake, Place
from operations.draft_texts import PLACE
from operations.proposals import Proposal
from orcaflow.remote.client import Client, RefusedDefinitionError
from orcaflow.remote.definitions import definition_named, difference_of
from orcaflow.remote.people import project_id


def propose(
    client: Client,
    definition: str | None = None,
    *,
    project: str | int | None = None,
    document: Mapping[str, Any] | None = None,
    note: str | None = None,
) -> ProposalRow:
    """Propose a document, or one's draft."""
    place = _place(client, definition, project)
    try:
        return _row(client.post(place, {"note": note, "document": document}))
    except RefusedDefinitionError as error:
        rows = error.rows or [{}]
        raise InvalidFilesError([_mistake(each, definition) for each in rows]) from None


def approve(
    client: Client,
    proposal: int,
    definition: str | None = None,
    *,
    project: str | int | None = None,
) -> ProposalRow:
    """Approve a proposal."""
    return _row(client.post(f"{_place(client, definition, project)}/{proposal}/approve", None))


def reject(
    client: Client,
    proposal: int,
    definition: str | None = None,
    *,
    project: str | int | None = None,
    reason: str,
) -> ProposalRow:
    """Reject a proposal."""
    body = {"reason": reason}
    return _row(client.post(f"{_place(client, definition, project)}/{proposal}/reject", body))


def withdraw(
    client: Client,
    proposal: int,
    definition: str | None = None,
    *,
    project: str | int | None = None,
) -> ProposalRow:
    """Withdraw a proposal."""
    return _row(client.post(f"{_place(client, definition, project)}/{proposal}/withdraw", None))


def proposals(
    client: Client, definition: str | None = None, *, project: str | int | None = None, limit: int
) -> list[ProposalRow]:
    """List the newest proposals first."""
    found = client.get(_place(client, definition, project), {"limit": limit})
    return [_row(each) for each in found["items"]]


def proposal_detail(
    client: Client,
    proposal: int,
    definition: str | None = None,
    *,
    project: str | int | None = None,
) -> Proposal:
    """Return a proposal with its difference."""
    found = client.get(f"{_place(client, definition, project)}/{proposal}")
    since = found["since"]
    return Proposal(
        row=_row(found),
        document=found["document"],
        difference=difference_of(found["difference"]),
        is_outdated=found["outdated"],
        since=None if since is None else difference_of(since),
        why_not=found["why_not"],
        references=tuple(ForeignReference(**each) for each in found["references"]),
    )


def _place(client: Client, definition: str | None, project: str | int | None) -> str:
    if definition is not None:
        return f"/definitions/{definition_named(client, definition).id}/proposals"
    return f"/projects/{project_id(client, project or 'default')}/proposals"


def _row(row: Mapping[str, Any]) -> ProposalRow:
    decided = row["decide_time"]
    return ProposalRow(
        id=row["id"],
        project_id=row["project_id"],
        definition_id=row["definition_id"],
        name=row["definition"],
        user_id=0,
        user_name=row["user"],
        base_version=row["base_version"],
        base_tag=None,
        draft_revision=None,
        note=row["note"],
        state=ProposalState[row["state"]],
        decided_by=row["decided_by"],
        reason=row["reason"],
        decide_time=None if decided is None else datetime.fromisoformat(decided),
        version=row["version"],
        create_time=datetime.fromisoformat(row["create_time"]),
    )


def _mistake(row: Mapping[str, Any], definition: str | None) -> Mistake:
    place = Place(file=PLACE, definition=row.get("definition") or definition)
    return Mistake(place=place, text=str(row.get("text") or row.get("message") or "is refused"))


ANSWERS: Final[Mapping[str, Callable[..., Any]]] = {
    "proposals.approve": approve,
    "proposals.proposal_detail": proposal_detail,
    "proposals.proposals": proposals,
    "proposals.propose": propose,
    "proposals.reject": reject,
    "proposals.withdraw": withdraw,
}
