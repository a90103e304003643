"""Drafts and proposals as documents: the fields of `orcaflow definition proposals -o json`."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from operations.documents.definition_versions import changes_document

if TYPE_CHECKING:
    from common.store.people.proposals import ProposalRow
    from operations.drafts import Draft
    from operations.findings import Finding
    from operations.proposals import Proposal

PROPOSAL_COLUMNS = ("id", "definition", "state", "user", "create_time", "decided_by", "note")


def proposal_row(row: ProposalRow) -> dict[str, object]:
    """A proposal without its document."""
    return {
        "id": row.id,
        "project_id": row.project_id,
        "definition_id": row.definition_id,
        "definition": row.name,
        "state": row.state.name,
        "user": row.user_name,
        "note": row.note,
        "base_version": row.base_version,
        "create_time": row.create_time,
        "decided_by": row.decided_by,
        "decide_time": row.decide_time,
        "reason": row.reason,
        "version": row.version,
    }


def proposal_document(found: Proposal) -> dict[str, object]:
    """A proposal with all that somebody needs who decides about it."""
    return {
        **proposal_row(found.row),
        "document": dict(found.document),
        "difference": changes_document(found.difference),
        "outdated": found.is_outdated,
        "since": None if found.since is None else changes_document(found.since),
        "why_not": found.why_not,
        "references": [asdict(each) for each in found.references],
    }


def draft_document(found: Draft) -> dict[str, object]:
    """A draft with its text and its mistakes."""
    row = found.target.row
    return {
        "project_id": found.target.project_id,
        "definition_id": found.target.definition_id,
        "definition": found.target.name,
        "revision": found.revision,
        "base_version": found.base_version,
        "current_version": None if row is None else row.version,
        "outdated": found.is_outdated,
        "update_time": found.update_time,
        "content": found.content,
        "mistakes": [
            {key: each.row()[key] for key in ("definition", "node", "key", "problem")}
            for each in found.looked.mistakes
        ],
        "warnings": [_finding_row(each) for each in found.looked.findings],
        "difference": None if found.difference is None else changes_document(found.difference),
        "merged": list(found.merged),
    }


def _finding_row(each: Finding) -> dict[str, object]:
    return {
        "node": each.node,
        "key": each.key,
        "problem": each.problem,
        "cure": each.cure or None,
    }
