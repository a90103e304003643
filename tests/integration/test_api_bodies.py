"""Bodies of requests: read strictly, and only after their user is known if they are large."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from fastapi.testclient import TestClient

from api.policy import BASE
from operations.session import Session
from operations.tokens import create_token


@pytest.fixture
def admin(owner: Session) -> dict[str, str]:
    """The headers of an administrator."""
    token = create_token(
        owner,
        "admin",
        name="test",
        role="admin",
        projects=(),
        life=timedelta(days=1),
        now=datetime.now(UTC),
    )
    return {"Authorization": f"Bearer {token.text}"}


@pytest.mark.parametrize(
    ("path", "body", "why"),
    [
        ("/instances", b'{"definition_id": 1, "definition_id": 2}', "definition_id"),
        ("/instances", b'{"definition_id": 1, "params": {"a": "b", "a": "c"}}', "a"),
        ("/login", b'{"name": "ada", "name": "eve", "password": "x"}', "name"),
        ("/instances", b'{"definition_id": NaN}', "NaN"),
        ("/instances", b"[" * 5000, "nested"),
    ],
)
def test_json_with_repeated_keys_is_refused_wherever_a_body_is_read_x65(
    client: TestClient, admin: dict[str, str], path: str, body: bytes, why: str
) -> None:
    answer = client.post(
        f"{BASE}{path}", content=body, headers={**admin, "Content-Type": "application/json"}
    )
    assert answer.status_code == 422, answer.text
    assert why in answer.json()["detail"]


@pytest.mark.parametrize("path", ["/instances", "/definitions/lint", "/login"])
def test_a_large_body_is_not_read_before_its_user_is_known_x62(
    client: TestClient, path: str
) -> None:
    parts = iter([b" " * 20_000] * 3)
    answer = client.post(
        f"{BASE}{path}", content=parts, headers={"Content-Type": "application/json"}
    )
    assert answer.status_code == (413 if path == "/login" else 401)
