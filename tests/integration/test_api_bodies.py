"""Request bodies are parsed strictly. Large ones are read only after authentication."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from starlette.types import Message

from api.policy import BASE
from operations.session import Session
from operations.tokens import create_token


@pytest.fixture
def admin(owner: Session) -> dict[str, str]:
    """Return the headers of an administrator."""
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


_JSON = "application/json"
_FORM = "application/x-www-form-urlencoded"
_TO_LOG_IN = 303


@pytest.mark.parametrize(
    ("path", "media_type", "status"),
    [
        (f"{BASE}/instances", _JSON, 401),
        (f"{BASE}/definitions/lint", _JSON, 401),
        (f"{BASE}/login", _JSON, 413),
        ("/dolphinscheduler/projects/default/process/save", _FORM, 401),
        ("/dolphinscheduler/projects/1/process-definition/import", "multipart/form-data", 401),
        ("/dolphinscheduler/login", _FORM, 200),
        ("/druid/indexer/v1/supervisor", _JSON, 401),
        ("/definitions/1/restore", _FORM, _TO_LOG_IN),
        ("/schedules/simulate", _FORM, _TO_LOG_IN),
        ("/login", _FORM, 422),
        ("/language", _FORM, 422),
    ],
)
def test_a_large_body_is_not_read_before_its_user_is_known_x62(
    app: FastAPI, client: TestClient, path: str, media_type: str, status: int
) -> None:
    read, sent = 0, []
    scope = {
        "type": "http",
        "http_version": "1.1",
        "method": "POST",
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": [
            (b"host", b"127.0.0.1:12345"),
            (b"content-type", media_type.encode()),
            (b"transfer-encoding", b"chunked"),
        ],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 12345),
    }

    async def receive() -> Message:
        nonlocal read
        read += 1
        return {"type": "http.request", "body": b" " * 20_000, "more_body": read < 4}

    async def send(message: Message) -> None:
        sent.append(message)

    asyncio.run(app(scope, receive, send))
    assert sent[0]["status"] == status
    assert read == 0
