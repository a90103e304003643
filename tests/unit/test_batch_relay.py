"""The relay of batches between a server's Python and a task's process; both are here."""

from __future__ import annotations

import pickle
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from worker.spark.streaming import batch_relay, kafka_source
from worker.spark.streaming.batch_relay import BatchCall, BatchFailedError, BatchRelay


class Session:
    """A session in which each frame is its name."""

    session_id = "query"

    def _create_remote_dataframe(self, relation: str) -> str:
        return f"frame {relation}"


def records(relation: str) -> Any:
    return SimpleNamespace(
        sparkSession=SimpleNamespace(session_id="query"),
        _plan=SimpleNamespace(_relation_id=relation),
    )


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    # Longer than an address may be.
    made = tmp_path / ("long" * 30)
    made.mkdir()
    yield made
    connection = batch_relay._connections.pop(str(made), None)
    if connection is not None:
        connection.close()


def ignore(_frame: Any, _number: int) -> None:
    """Write nothing."""


def relay(folder: Path, write: Callable[[Any, int], None]) -> BatchRelay:
    session: Any = Session()
    return BatchRelay(session, folder, write)


def test_batches_are_written_by_the_task_and_failures_are_told(folder: Path) -> None:
    written = []

    def write(frame: Any, number: int) -> None:
        if number == 2:
            raise ValueError("no room\nis left")
        written.append((frame, number))

    made = relay(folder, write)
    call: BatchCall = pickle.loads(pickle.dumps(made.call))
    call(records("a"), 0)
    call(records("b"), 1)
    with pytest.raises(BatchFailedError, match="ValueError: no room\nis left"):
        call(records("c"), 2)
    call(records("d"), 3)
    assert written == [("frame a", 0), ("frame b", 1), ("frame d", 3)]
    made.close()
    made.close()


def test_a_task_that_is_gone_fails_the_batch(folder: Path) -> None:
    listener = socket.socket(socket.AF_UNIX)
    with batch_relay._address(folder) as address:
        listener.bind(address)
    listener.listen()

    def die() -> None:
        connection, _ = listener.accept()
        with connection:
            connection.recv(10_000)

    task = threading.Thread(target=die)
    task.start()
    with pytest.raises(BatchFailedError, match="the process of the task is gone"):
        BatchCall(str(folder))(records("a"), 0)
    task.join()
    listener.close()


def test_nobody_waits_for_a_query_that_is_over(folder: Path) -> None:
    before = threading.active_count()
    made = relay(folder, ignore)
    made.close()
    for thread in threading.enumerate():
        if thread.name == "batches":
            thread.join(60)
    assert threading.active_count() == before
    # The next query of the task has the same address.
    relay(folder, ignore).close()


def test_a_process_keeps_connections_to_the_last_topics_of_living_tasks_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed: list[str] = []

    class Topic:
        def __init__(self, name: str, properties: object, *, has_pattern: bool) -> None:
            assert not has_pattern
            self.name = name

        def close(self) -> None:
            closed.append(self.name)

    monkeypatch.setattr(kafka_source, "Topic", Topic)
    monkeypatch.setattr(kafka_source, "_topics", {})

    def use(name: str) -> object:
        path = tmp_path / name
        path.write_text('{"given": {}, "connection": {}}')
        return kafka_source._topic(name, str(path))

    first = use("a")
    for name in "bcd":
        use(name)
    assert use("a") is first
    assert closed == []
    use("e")
    assert closed == ["b"]
    # Its task has ended.
    (tmp_path / "d").unlink()
    use("f")
    assert closed == ["b", "d"]
