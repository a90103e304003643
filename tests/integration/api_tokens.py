"""Tokens of the API for tests."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from operations.session import Session
from operations.tokens import create_token


def token_header(owner: Session, name: str, *, role: str) -> dict[str, str]:
    """Create a token of a user for a day; return the header that sends it."""
    made = create_token(
        owner,
        name,
        name="test",
        role=role,
        projects=(),
        life=timedelta(days=1),
        now=datetime.now(UTC),
    )
    return {"Authorization": f"Bearer {made.text}"}
