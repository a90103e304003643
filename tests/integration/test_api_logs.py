"""Logs over HTTP: bytes, last lines, downloads and streams, from files, workers and last words."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from sqlalchemy import Engine, insert, update

from api.live.streams import MOST_OF_USER, Streams
from api.pace import Pace
from api.policy import BASE
from api.server import _HttpServer
from common.clock import SystemClock
from common.config import ApiConfig, Config
from common.log_access import read_key
from common.log_store.process import LogStoreProcess
from common.model.states import ProcessState, TaskState
from common.store import tables as t
from common.store.cluster import cluster_token
from operations.session import Session
from operations.stored_logs import close_stores
from operations.tokens import create_token, revoke_token
from tests.integration.answering_server import Server as Liar
from tests.integration.cli_rows import a_definition, an_attempt, an_instance
from tests.log_workers import serving

LOG = "eins\n\x1b[31mzwei\x1b[0m\nfünf\n".encode()


@pytest.fixture
def streams(app: FastAPI) -> Iterator[Streams]:
    before, app.state.streams = app.state.streams, Streams()
    yield app.state.streams
    app.state.streams = before


@pytest.fixture
def admin(owner: Session, streams: Streams) -> dict[str, str]:
    """The headers of an administrator, whose streams are not ended at once."""
    return {"Authorization": f"Bearer {a_token(owner)[1]}"}


def a_token(owner: Session) -> tuple[int, str]:
    life, now = timedelta(days=1), datetime.now(UTC)
    made = create_token(owner, "admin", name="t", role="admin", projects=(), life=life, now=now)
    return made.view.id, made.text


def a_task(db: Engine, state: TaskState = TaskState.FAILURE, **values: Any) -> tuple[int, int]:
    """A run with an attempt: their ids."""
    number = a_definition(db)
    ended = ProcessState.RUNNING if state is TaskState.RUNNING else ProcessState.FAILURE
    run = an_instance(db, ended, process_definition_id=number)
    return run, an_attempt(db, run, state, process_definition_id=number, **values)


def set_row(db: Engine, task: int, **values: Any) -> None:
    with db.begin() as connection:
        connection.execute(
            update(t.task_instance).where(t.task_instance.c.id == task).values(**values)
        )


def a_file(home: Path, db: Engine, run: int, task: int, content: bytes) -> Path:
    path = home / "tasks" / "logs" / "1" / str(run) / f"{task}.log"
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    set_row(db, task, log_path=str(path))
    return path


def told(answer: httpx.Response) -> tuple[bytes, str, str, str]:
    assert answer.status_code in (200, 206), answer.text
    at = (answer.headers[f"log-{each}"] for each in ("start", "size", "ended"))
    return (answer.content, *at)  # type: ignore[return-value]


def events(body: str) -> list[tuple[str, int, dict[str, Any]]]:
    found = []
    for each in body.strip().split("\n\n"):
        kind, number, data = (line.partition(": ")[2] for line in each.split("\n"))
        found.append((kind, int(number), json.loads(data)))
    return found


def test_a_log_is_read_by_its_bytes_and_its_last_lines(
    client: TestClient, admin: dict[str, str], config: Config, db: Engine
) -> None:
    run, task = a_task(db, TaskState.RUNNING)
    a_file(config.home, db, run, task, LOG)
    size = str(len(LOG))

    def ask(query: str) -> httpx.Response:
        return client.get(f"{BASE}/tasks/{task}/log{query}", headers=admin)

    assert told(ask("")) == (LOG, "0", size, "false")
    set_row(db, task, state=int(TaskState.SUCCESS), end_time=datetime.now(UTC))
    assert told(ask("")) == (LOG, "0", size, "true")
    assert told(ask("?from=5&max=3")) == (LOG[5:8], "5", size, "false")
    assert told(ask("?from=999")) == (b"", size, size, "true")
    assert told(ask("?lines=1")) == ("fünf\n".encode(), str(len(LOG) - 6), size, "true")
    assert told(ask("?lines=0"))[0] == b""
    assert ask("").headers["content-type"] == "text/plain; charset=utf-8"
    for query in ("?from=-1", "?max=262145", "?lines=1&from=2", "?path=/etc/passwd", "?from=x"):
        assert ask(query).status_code == 422, query


@pytest.mark.parametrize(
    ("asked", "status", "body", "where"),
    [
        (None, 200, LOG, None),
        ("bytes=5-", 206, LOG[5:], f"bytes 5-{len(LOG) - 1}/{len(LOG)}"),
        ("bytes=5-8", 206, LOG[5:9], f"bytes 5-8/{len(LOG)}"),
        ("bytes=-5", 206, LOG[-5:], f"bytes {len(LOG) - 5}-{len(LOG) - 1}/{len(LOG)}"),
        ("bytes=5-999999", 206, LOG[5:], f"bytes 5-{len(LOG) - 1}/{len(LOG)}"),
        ("bytes=-999999", 206, LOG, f"bytes 0-{len(LOG) - 1}/{len(LOG)}"),
        ("bytes=9999-", 416, None, f"bytes */{len(LOG)}"),
        ("bytes=9-2", 416, None, f"bytes */{len(LOG)}"),
        # What is no range of bytes is none at all, as HTTP has it.
        ("lines=1-2", 200, LOG, None),
        ("bytes=-", 200, LOG, None),
    ],
)
def test_a_log_is_downloaded_in_whole_or_in_part(
    *,
    client: TestClient,
    admin: dict[str, str],
    config: Config,
    db: Engine,
    asked: str | None,
    status: int,
    body: bytes | None,
    where: str | None,
) -> None:
    run, task = a_task(db)
    a_file(config.home, db, run, task, LOG)
    headers = admin if asked is None else {**admin, "Range": asked}
    answer = client.get(f"{BASE}/tasks/{task}/log/download", headers=headers)
    assert (answer.status_code, answer.headers.get("content-range")) == (status, where)
    if body is not None:
        assert answer.content == body
        assert answer.headers["content-disposition"] == f'attachment; filename="task-{task}.log"'


def test_a_long_log_is_downloaded_piece_by_piece(
    client: TestClient, admin: dict[str, str], config: Config, db: Engine
) -> None:
    run, task = a_task(db)
    content = b"".join(b"%07d\n" % each for each in range(100_000))
    a_file(config.home, db, run, task, content)
    path = f"{BASE}/tasks/{task}/log/download"
    assert client.get(path, headers=admin).content == content
    part = client.get(path, headers={**admin, "Range": "bytes=9-700000"})
    assert part.content == content[9:700_001]
    # A stream tells the same, and ends with its task.
    answer = client.get(f"{BASE}/tasks/{task}/log/stream?from=8", headers=admin)
    found = events(answer.text)
    assert "".join(each["text"] for kind, _, each in found if kind == "log") == content[8:].decode()
    assert found[-1] == ("end", len(content), {"reason": "ended", "state": "FAILURE"})


def test_a_stream_is_followed_while_the_task_writes_and_goes_on_after_a_break(
    app: FastAPI, admin: dict[str, str], config: Config, db: Engine, streams: Streams
) -> None:
    app.state.config, app.state.engine = config, db
    app.state.pace = Pace(per_second=0, clock=SystemClock())
    run, task = a_task(db, TaskState.RUNNING)
    log = a_file(config.home, db, run, task, LOG)
    with served(app) as url:
        address = f"{url}{BASE}/tasks/{task}/log/stream"
        with httpx.stream("GET", address, headers=admin, timeout=60) as answer:
            assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
            lines = answer.iter_lines()

            def following() -> tuple[str, int, dict[str, Any]]:
                while (first := next(lines)) == "event: ping":
                    assert (next(lines), next(lines)) == ("data: {}", "")
                (found,) = events("\n".join([first, next(lines), next(lines)]))
                assert next(lines) == ""
                return found

            assert following() == ("log", len(LOG), {"text": LOG.decode()})
            with log.open("ab") as writer:
                # A character in two parts, and an escape that is none of a colour.
                writer.write("se\x1b]8;;http://evil\x07chs ü".encode()[:-1])
                writer.flush()
                kind, at, found = following()
                assert (kind, found) == ("log", {"text": "sechs "})
                writer.write("ü".encode()[-1:] + b"\n")
            assert following()[2] == {"text": "ü\n"}
            end = datetime.now(UTC)
            set_row(db, task, state=int(TaskState.SUCCESS), end_time=end)
            assert following()[2] == {"reason": "ended", "state": "SUCCESS"}
        again = httpx.get(address, headers={**admin, "Last-Event-ID": str(at)}, timeout=60)
        assert events(again.text)[0] == ("log", log.stat().st_size, {"text": "ü\n"})
    assert streams.seats._taken.total() == 0


def test_a_revoked_token_ends_its_stream_of_a_log_and_a_user_has_ten_of_them(
    app: FastAPI, owner: Session, config: Config, db: Engine, streams: Streams
) -> None:
    app.state.config, app.state.engine = config, db
    app.state.pace = Pace(per_second=0, clock=SystemClock())
    run, task = a_task(db, TaskState.RUNNING)
    a_file(config.home, db, run, task, LOG)
    number, token = a_token(owner)
    headers = {"Authorization": f"Bearer {token}"}
    for _ in range(MOST_OF_USER - 1):
        streams.seats.take(1)
    with served(app) as url:
        address = f"{url}{BASE}/tasks/{task}/log/stream"
        with httpx.stream("GET", address, headers=headers, timeout=60) as answer:
            lines = answer.iter_lines()
            assert next(lines) == "event: log"
            refused = httpx.get(address, headers=headers, timeout=60)
            assert (refused.status_code, refused.headers["retry-after"]) == (429, "5")
            revoke_token(owner, number)
            assert 'data: {"reason":"unauthenticated"}' in list(lines)


@contextmanager
def served(app: FastAPI) -> Iterator[str]:
    app.state.patience_seconds = 60
    http = _HttpServer(app, ApiConfig(port=0))
    http.start()
    try:
        yield f"http://127.0.0.1:{http._socket.getsockname()[1]}"
    finally:
        http.stop()


def test_a_log_of_another_host_comes_from_its_worker_and_then_from_the_last_words(
    client: TestClient, admin: dict[str, str], config: Config, db: Engine, tmp_path: Path
) -> None:
    run, task = a_task(db)
    other = tmp_path / "other" / "tasks" / "logs"
    log = other / "1" / str(run) / f"{task}.log"
    log.parent.mkdir(parents=True)
    log.write_bytes(LOG)
    path = f"{BASE}/tasks/{task}/log"
    key = read_key(config.home / "keys" / "log.key", makes=True)
    with serving(other, key=key, cluster=cluster_token(db)) as address:
        set_row(db, task, host=address, log_path=str(log))
        size = str(len(LOG))
        assert told(client.get(f"{path}?from=5&max=4", headers=admin)) == (
            *(LOG[5:9], "5"),
            *(size, "false"),
        )
        assert told(client.get(f"{path}?lines=1", headers=admin))[0] == "fünf\n".encode()
        assert client.get(f"{path}/download", headers=admin).content == LOG
        # What stands in the place of the log is not handed over (X1).
        log.unlink()
        log.symlink_to("/etc/passwd")
        assert client.get(path, headers=admin).status_code == 404
    gone = client.get(path, headers=admin)
    assert gone.status_code == 404
    assert f"worker {address} does not answer" in gone.json()["detail"]
    with db.begin() as connection:
        words = {"task_instance_id": task, "size": 40, "tail": b"last\nwords\n"}
        connection.execute(insert(t.task_log_tail).values(words))
    assert told(client.get(path, headers=admin)) == (b"last\nwords\n", "29", "40", "true")
    assert told(client.get(f"{path}?from=34", headers=admin)) == (b"words\n", "34", "40", "true")
    stream = events(client.get(f"{path}/stream", headers=admin).text)
    assert stream == [
        ("gap", 29, {"from": 0, "to": 29}),
        ("log", 40, {"text": "last\nwords\n"}),
        ("end", 40, {"reason": "ended", "state": "FAILURE"}),
    ]


def test_a_log_whose_host_is_gone_is_downloaded_from_the_store(
    client: TestClient, app: FastAPI, admin: dict[str, str], config: Config, db: Engine
) -> None:
    url = f"file://{config.home}/store"
    app.state.config = replace(config, log_store=url)
    read_key(config.home / "keys" / "log.key", makes=True)
    run, task = a_task(db)
    set_row(db, task, host="127.0.0.1:1", log_path=f"/gone/tasks/logs/1/{run}/{task}.log")
    logs = config.home / "other"
    log = logs / "1" / str(run) / f"{task}.log"
    log.parent.mkdir(parents=True)
    log.write_bytes(LOG * 100)
    with closing(LogStoreProcess(url, cluster=cluster_token(db))) as writer:
        item = {"instance": run, "task": task, "ended": True, "upto": 0, "holds": False}
        writer.keep(logs, [item | {"fresh": True}], patience=timedelta(seconds=60))
    log.unlink()
    path, size = f"{BASE}/tasks/{task}/log", str(len(LOG) * 100)
    try:
        with client:
            download = client.get(f"{path}/download", headers=admin)
            assert told(download) == (LOG * 100, "0", size, "true")
            part = client.get(f"{path}/download", headers=admin | {"Range": "bytes=5-8"})
            assert (part.status_code, told(part)[0]) == (206, LOG[5:9])
            end = client.get(f"{path}?lines=1", headers=admin)
            assert told(end)[0] == "fünf\n".encode()
            missing = client.get(f"{path}/download", headers=admin | {"Range": "bytes=99999-"})
            assert (missing.status_code, missing.headers["content-range"]) == (
                416,
                f"bytes */{size}",
            )
            other = an_attempt(db, run, TaskState.FAILURE, name="b")
            set_row(db, other, host="127.0.0.1:1", log_path=f"/gone/tasks/logs/1/{run}/{other}.log")
            gone = client.get(f"{BASE}/tasks/{other}/log/download", headers=admin)
            assert gone.status_code == 404
            assert "the store of logs" in gone.json()["detail"]
    finally:
        close_stores()


def test_a_worker_that_lies_or_says_nothing_keeps_nobody_waiting(
    client: TestClient,
    admin: dict[str, str],
    config: Config,
    db: Engine,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read_key(config.home / "keys" / "log.key", makes=True)
    run, task = a_task(db)
    monkeypatch.setattr("operations.attempt_logs.PATIENCE", timedelta(milliseconds=50))
    liar = Liar()
    try:
        set_row(db, task, host=f"127.0.0.1:{liar.port}", log_path=f"/tasks/logs/1/{run}/{task}.log")
        path = f"{BASE}/tasks/{task}/log"
        monkeypatch.setattr("operations.worker_logs.PATH", "/flood")
        lies = client.get(path, headers=admin)
        assert lies.status_code == 404
        assert "answers something else than was asked for" in lies.json()["detail"]
        monkeypatch.setattr("operations.worker_logs.PATH", "/endless")
        for end in ("", "?lines=5", "/download", "/stream"):
            silent = client.get(f"{path}{end}", headers=admin)
            assert (silent.status_code, "answers too slowly" in silent.text) == (404, True), end
    finally:
        liar.close()


def test_x1_a_path_that_is_no_log_is_not_read(
    client: TestClient, admin: dict[str, str], config: Config, db: Engine
) -> None:
    """X1."""
    run, task = a_task(db)
    log = a_file(config.home, db, run, task, LOG)
    root = config.home / "tasks" / "logs"
    secret = config.home / "secret"
    secret.write_text("secret")
    log.unlink()
    log.symlink_to(secret)
    paths = [
        *("/etc/passwd", f"{root}/../../secret", f"{root}/1/../../../secret", f"{root}/%2e%2e/x"),
        *(f"{root}/..%5csecret", str(log), str(root), "", "secret", f"{root}/1/{run}"),
    ]
    for path in paths:
        set_row(db, task, log_path=path)
        for end in ("", "/download", "/stream"):
            answer = client.get(f"{BASE}/tasks/{task}/log{end}", headers=admin)
            assert answer.status_code == 404, (path, answer.text)
            assert "secret" not in answer.text.replace(path, "")
            assert "root:" not in answer.text


def test_an_attempt_without_a_log_is_waited_for_by_its_stream_alone(
    client: TestClient, admin: dict[str, str], config: Config, db: Engine
) -> None:
    run, task = a_task(db, TaskState.RUNNING)
    path = f"{BASE}/tasks/{task}/log"
    answer = client.get(path, headers=admin)
    assert (answer.status_code, "no worker has started it" in answer.text) == (404, True)
    assert client.get(f"{path}/download", headers=admin).status_code == 404
    found: list[str] = []
    following = threading.Thread(
        target=lambda: found.append(client.get(f"{path}/stream", headers=admin).text)
    )
    following.start()
    a_file(config.home, db, run, task, LOG)
    set_row(db, task, state=int(TaskState.SUCCESS), end_time=datetime.now(UTC))
    following.join(60)
    assert [kind for kind, _, _ in events(found[0])] == ["log", "end"]
