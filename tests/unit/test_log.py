"""The log is one JSON object per line, keeps secrets, and survives a full disk."""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from common.runtime import log as logs

log = logging.getLogger("test.log")


@pytest.fixture
def written(tmp_path: Path) -> Iterator[Path]:
    """The log of a daemon; the changes that configuring it made in this process are undone."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    hooks = sys.excepthook, threading.excepthook
    root.handlers = []
    yield logs.configure(home=tmp_path, name="master-server", port=5678)
    for handler in list(root.handlers):
        root.removeHandler(handler)
        handler.close()
    root.handlers = handlers
    root.setLevel(level)
    logging.captureWarnings(False)
    sys.excepthook, threading.excepthook = hooks


def events(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="ascii").splitlines()]


def test_an_event_is_a_line_with_its_fields(written: Path, tmp_path: Path) -> None:
    log.info("task dispatched", extra={"task_instance_id": 7, "worker": "127.0.0.1:1234"})
    log.debug("not wanted")
    assert written == tmp_path / "logs" / "master-server-5678.log"
    (event,) = events(written)
    assert event["message"] == "task dispatched"
    assert event["task_instance_id"] == 7
    assert event["worker"] == "127.0.0.1:1234"
    assert event["level"] == "info"
    assert event["logger"] == "test.log"
    assert event["daemon"] == "master-server-5678"
    assert event["timestamp"].endswith("Z")
    assert event["thread_name"] == threading.current_thread().name


def test_an_error_is_logged_with_its_trace_in_the_same_line(written: Path) -> None:
    try:
        raise ValueError("broken")
    except ValueError:
        log.exception("run parked", extra={"process_instance_id": 3})
    (event,) = events(written)
    assert "ValueError: broken" in event["exception"]
    assert event["process_instance_id"] == 3


def test_control_characters_can_not_forge_lines_or_steer_a_terminal(written: Path) -> None:
    log.info("named %s", "a\nb\x1b[2J\u202e", extra={"name_of_task": "\r{}\x00"})
    text = written.read_text(encoding="ascii")
    assert text.count("\n") == 1
    assert "\x1b" not in text
    (event,) = events(written)
    assert event["message"] == "named a\nb\x1b[2J\u202e"


@pytest.mark.parametrize(
    "text",
    [
        "postgresql+psycopg2://me:hunter2@db/orcaflow",
        "can't reach amqp://me:hunt@er2hunter2@broker",
        "host=db password=hunter2 port=1",
        "host=db password='it\\'s hunter2' port=1",
        'refused: {"token": "hunter2", "x": 1}',
        "AWS_SECRET_ACCESS_KEY=hunter2",
    ],
)
def test_what_looks_like_a_secret_is_masked_in_every_text(written: Path, text: str) -> None:
    try:
        raise ValueError(text)
    except ValueError:
        log.exception("failed: %s", text, extra={"detail": text, "nested": {"list": [text]}})
    assert "hunter2" not in written.read_text(encoding="ascii")
    (event,) = events(written)
    assert "***" in event["message"]


def test_fields_that_are_called_a_secret_are_masked_whatever_they_hold(written: Path) -> None:
    log.info("connected", extra={"db_password": 42, "env": {"API_KEY": "x", "PATH": "/bin"}})
    (event,) = events(written)
    assert event["db_password"] == "***"
    assert event["env"] == {"API_KEY": "***", "PATH": "/bin"}


def test_an_uncaught_error_of_a_thread_is_logged(written: Path) -> None:
    def fail() -> None:
        raise ValueError("nobody caught me")

    thread = threading.Thread(target=fail, name="doomed")
    thread.start()
    thread.join()
    (event,) = events(written)
    assert event["in_thread"] == "doomed"
    assert "nobody caught me" in event["exception"]


def test_a_log_is_rotated_by_size_and_old_ones_are_dropped(tmp_path: Path) -> None:
    handler = logs.RotatingLog(tmp_path / "a.log", max_bytes=1000, files=2)
    for number in range(100):
        handler.emit(logging.LogRecord("x", logging.INFO, "", 0, f"{number:0100}", None, None))
    handler.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.log", "a.log.1", "a.log.2"]
    assert all(path.stat().st_size <= 1000 for path in tmp_path.iterdir())


def test_a_log_that_was_there_before_counts_when_it_is_rotated(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_text("x" * 900)
    handler = logs.RotatingLog(path, max_bytes=1000, files=2)
    for number in range(2):
        handler.emit(logging.LogRecord("x", logging.INFO, "", 0, f"{number:060}", None, None))
    handler.close()
    assert (tmp_path / "a.log.1").stat().st_size == 961
    assert path.read_text() == f"{1:060}\n"


def test_a_full_disk_costs_lines_and_is_reported_when_it_is_over(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    # Writing to it fails as on a full disk, by the real operating system.
    path.symlink_to("/dev/full")
    handler = logs.RotatingLog(path, max_bytes=0)
    record = logging.LogRecord("x", logging.INFO, "", 0, "one", None, None)
    handler.emit(record)
    handler.emit(record)
    path.unlink()
    space = os.open(path, os.O_WRONLY | os.O_CREAT)
    assert handler.stream is not None
    os.dup2(space, handler.stream.fileno())
    os.close(space)
    handler.emit(record)
    handler.emit(record)
    handler.close()
    assert path.read_text() == "one\nlog lines were lost\none\n"
