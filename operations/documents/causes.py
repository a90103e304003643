"""Causes as documents: the fields of `orcaflow instance why … -o json`."""

from __future__ import annotations

from collections.abc import Sequence

from common.why import Cause


def cause_rows(causes: Sequence[Cause]) -> list[dict[str, object]]:
    """Each cause before those behind it, with its depth below the first."""
    return [
        {
            "cause": cause.cause.value,
            "subject": cause.subject,
            "since": cause.since,
            "next": cause.next,
            "next_at": cause.next_at,
            "text": cause.text,
            "depth": depth,
        }
        for top in causes
        for depth, cause in top.flat()
    ]
