"""The shapes of answers and requests about drafts and proposals of definitions."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from api.answers import Answer, Document, Said, Shape
from api.definition_answers import ImportFinding, LintMistake
from api.version_answers import Changes


class Draft(Answer):
    """A draft of yours: its text, and what is wrong with it.

    At revision 0 nobody has begun it, and it is what is in force. `merged` names what others have
    changed and you had not seen.
    """

    project_id: int
    definition_id: int | None
    definition: str | None
    revision: int
    base_version: int
    current_version: int | None
    outdated: bool
    update_time: datetime | None
    content: str
    mistakes: list[LintMistake]
    warnings: list[ImportFinding]
    difference: Changes | None
    merged: list[str]


class Proposal(Answer):
    """A proposal; `version` is the one that its approval has put in force."""

    id: int
    project_id: int
    definition_id: int | None
    definition: str
    state: Literal["WAITING", "APPROVED", "REJECTED", "WITHDRAWN", "REPLACED"]
    user: str
    note: str | None
    base_version: int
    create_time: datetime
    decided_by: str | None
    decide_time: datetime | None
    reason: str | None
    version: int | None


class ProposalPage(Answer):
    """A page of proposals, the newest first."""

    items: list[Proposal]
    next: str | None


class ForeignReference(Answer):
    """A task that refers to a definition of another project.

    `starts` is true if the task runs the definition as a sub process, in the version in force at
    that time, and false if the task waits for its runs. `version` is the version in force now.
    """

    task: str
    starts: bool
    project: str
    definition: str
    version: int


class ProposalDetail(Proposal):
    """A proposal with its document, and with its difference to what it was made from.

    `since` is what has changed in the definition meanwhile. `why_not` says why you can't approve it
    now; null if you can. `references` lists the references to definitions of other projects.
    """

    document: Document
    difference: Changes
    outdated: bool
    since: Changes | None
    why_not: str | None
    references: list[ForeignReference]


class NewProposal(Shape):
    """A definition to propose; without `document` your draft, which `If-Match` may name."""

    note: Said | None = None
    document: dict[str, Any] | None = None


class Rejection(Shape):
    """The reason why a proposal is rejected."""

    reason: Said


class Publication(Shape):
    """A note for the version that a draft becomes."""

    note: Said | None = None
