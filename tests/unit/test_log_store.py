"""The store of logs: what is in it while an attempt runs and after it, and who may go on with it."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from common.errors import ConfigurationError
from common.log_store.layout import BLOCK_BYTES, Block, block_of, read_name, readable
from common.log_store.process import LogStoreError, LogStoreProcess
from common.model.states import TaskState
from common.store.worker.ports import AttemptEnd
from tests.simulation.virtual_clock import VirtualClock
from worker.loops.log_store_loop import LogStoreLoop
from worker.processes.live_attempts import SettledLog

PATIENCE = timedelta(seconds=60)
BIG = os.urandom(BLOCK_BYTES // 1024) * 1024 + b"the rest\n"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LogStoreProcess]:
    made = LogStoreProcess(f"file://{tmp_path_factory.mktemp('store')}", cluster="c0ffee")
    yield made
    made.close()


class Log:
    """The log of an attempt on a worker's disk, with ids of its own."""

    _last = 100

    def __init__(self, logs: Path, store: LogStoreProcess) -> None:
        type(self)._last += 1
        self.instance, self.task = 7, self._last
        self.logs, self.store = logs, store
        self.path = logs / "3" / "7" / f"{self.task}.log"
        self.path.parent.mkdir(parents=True, exist_ok=True)

    def keep(self, **changes: object) -> dict[str, Any]:
        item = {"instance": self.instance, "task": self.task, "ended": "upto" not in changes}
        item |= {"upto": 0, "holds": False, "fresh": False, **changes}
        (answer,) = self.store.keep(self.logs, [item], patience=PATIENCE)
        return answer

    def read(self, start: int = 0, most: int = 1 << 20) -> tuple[bytes, int, bool] | None:
        found = self.store.read(self.instance, self.task, start=start, most=most, patience=PATIENCE)
        return found and (found.body, found.size, found.has_ended)

    def whole(self) -> bytes:
        body = b""
        while (found := self.read(len(body))) is not None and found[0]:
            body += found[0]
        return body


@pytest.fixture
def log(tmp_path: Path, store: LogStoreProcess) -> Log:
    return Log(tmp_path, store)


def names(store: LogStoreProcess, log: Log) -> list[Path]:
    root = Path(store._url.removeprefix("file://"))
    return sorted((root / "c0ffee" / "7" / str(log.task)).glob("*"))


def test_a_log_is_kept_as_it_grows_and_whole_at_its_end(log: Log) -> None:
    assert log.read() is None
    log.path.write_bytes(b"one\ntwo\n")
    log.keep(upto=4)
    assert log.read() == (b"one\n", 4, False)
    assert log.read(4) == (b"", 4, False)
    log.keep(upto=8)
    assert log.read(4) == (b"two\n", 8, False)
    assert log.read(0, 3) == (b"one", 8, False)
    assert log.keep() == {"task": log.task, "kept": 8}
    assert log.read(4) == (b"two\n", 8, True)
    (left,) = names(log.store, log)
    assert (left.name.endswith(".last"), left.stat().st_mode & 0o111) == (True, 0)


def test_what_was_changed_after_it_was_kept_is_as_on_the_disk_at_the_end(log: Log) -> None:
    log.path.write_bytes(BIG + BIG)
    log.keep(upto=len(BIG))
    assert log.whole() == BIG
    log.path.write_bytes(b"x" + BIG[1:] + BIG)
    log.keep()
    assert log.whole() == b"x" + BIG[1:] + BIG
    # The middle was cut out: there is less of it than there was.
    log.path.write_bytes(BIG[:100])
    log.keep()
    assert log.whole() == BIG[:100]
    log.path.write_bytes(b"")
    log.keep()
    assert log.read() == (b"", 0, True)
    assert len(names(log.store, log)) == 1


def test_a_writer_that_was_killed_is_followed_by_another(
    log: Log, store: LogStoreProcess, tmp_path: Path
) -> None:
    log.path.write_bytes(BIG)
    log.keep(upto=BLOCK_BYTES)
    assert store._process is not None
    os.kill(store._process.pid, signal.SIGKILL)
    # It had written part of a block, and both of two that begin at one place.
    (first,) = names(store, log)
    (first.parent / f".1-{first.name}").write_bytes(b"torn")
    (first.parent / block_of(b"older", start=0, is_last=False).name).write_bytes(b"older")
    assert log.read(BLOCK_BYTES - 3) == (BIG[BLOCK_BYTES - 3 : BLOCK_BYTES], BLOCK_BYTES, False)
    log.keep()
    assert log.whole() == BIG


def test_what_may_be_masked_at_the_end_is_not_kept_before(log: Log) -> None:
    log.path.write_bytes(b"x" * 5_000_000 + b"\n${setValue(password=hunter2)}\nmore\n")
    log.keep(upto=5_000_020, holds=True)
    kept = log.read(4_999_995)
    assert kept == (b"xxxxx\n$", 5_000_002, False)
    # The mark stands across the end of what was kept.
    log.keep(upto=5_000_034, holds=True)
    assert log.read(4_999_995) == kept


def test_what_stands_in_place_of_a_log_is_not_kept(log: Log) -> None:
    assert log.keep() == {"task": log.task, "missing": True}
    log.path.symlink_to("/etc/passwd")
    assert log.keep() == {"task": log.task, "missing": True}


def test_the_logs_of_a_deleted_run_are_dropped(log: Log, store: LogStoreProcess) -> None:
    log.path.write_bytes(b"hello\n")
    log.keep(fresh=True)
    store.drop(log.instance)
    store.drop(log.instance)
    assert log.read() is None


def test_a_store_that_does_not_answer_holds_nobody_up(log: Log, store: LogStoreProcess) -> None:
    log.path.write_bytes(b"hello\n")
    log.keep()
    assert store._process is not None
    os.kill(store._process.pid, signal.SIGSTOP)
    with pytest.raises(LogStoreError, match="does not answer in time"):
        store.read(log.instance, log.task, start=0, most=1, patience=timedelta(milliseconds=10))
    assert log.read() == (b"hello\n", 6, True)


@pytest.mark.parametrize(
    "url",
    [
        "s3://AKIA1234:hunter2hunter2@bucket/x?nonsense=1",
        "s3://AKIA1234:hunter2/hunter2@bucket/x",
        "file://elsewhere/x",
    ],
)
def test_a_store_that_can_not_be_is_told_without_its_secrets(url: str) -> None:
    store = LogStoreProcess(url, cluster="c")
    try:
        with pytest.raises(LogStoreError, match="refuses") as told:
            store.read(1, 1, start=0, most=1, patience=PATIENCE)
    finally:
        store.close()
    assert "hunter2" not in str(told.value)


@pytest.mark.parametrize("url", ["/srv/logs", "http://AKIA:hunter2@x/", ""])
def test_what_is_no_url_of_a_store_is_refused(url: str) -> None:
    with pytest.raises(ConfigurationError, match="file:///srv/logs") as told:
        LogStoreProcess(url, cluster="c")
    assert "hunter2" not in str(told.value)


def test_names_tell_all_and_others_are_none() -> None:
    block = block_of(b"hello", start=12, is_last=True)
    assert read_name(block.name) == block
    assert [read_name(each) for each in ("x", "../1", block.name + ".tmp", "." + block.name)] == [
        None
    ] * 4


def test_a_log_is_read_up_to_a_gap() -> None:
    a, longer, b = Block(0, 3, "a" * 32), Block(0, 4, "b" * 32), Block(4, 2, "c" * 32)
    last = Block(0, 2, "d" * 32, is_last=True)
    assert readable([a, b]) == [a]
    assert readable([b, a, longer]) == [longer, b]
    assert readable([b, a, longer, last]) == [last]
    assert readable([b]) == []


class Keeper:
    """Keeps what it is told; `failing` says for how many requests it is away."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, object, object]] = []
        self.failing = 0

    def keep(
        self, logs: Path, items: Sequence[Mapping[str, object]], *, patience: timedelta
    ) -> list[dict[str, Any]]:
        if self.failing:
            self.failing -= 1
            raise LogStoreError("away")
        for each in items:
            upto = "all" if each["ended"] else each["upto"]
            self.asked.append((int(str(each["task"])), upto, each["fresh"]))
        return [{"task": each["task"], "kept": 1} for each in items]

    def take(self) -> list[tuple[int, object, object]]:
        asked, self.asked = self.asked, []
        return asked


class Tables:
    """All attempts below a hundred have a row."""

    def log_places(self, ids: Sequence[int]) -> dict[int, int]:
        return {each: 7 for each in ids if each < 100}


def _end(task: int) -> AttemptEnd:
    return AttemptEnd(task_instance_id=task, state=TaskState.SUCCESS, end_time=VirtualClock().now())


def test_the_loop_keeps_what_runs_and_goes_on_after_a_kill(tmp_path: Path) -> None:
    keeper, clock, running = Keeper(), VirtualClock(), {1, 2}

    def loop() -> LogStoreLoop:
        return LogStoreLoop(
            keeper,
            Tables(),  # type: ignore[arg-type]
            logs=tmp_path,
            marks=tmp_path / "unstored" / "1",
            running=lambda: running,
            clock=clock,
        )

    first = loop()
    first.settled({1: SettledLog(10, puts_out=False), 2: SettledLog(0, puts_out=True)})
    first.run_once()
    assert keeper.take() == [(1, 10, False)]
    clock.move_to(timedelta(seconds=20))
    first.run_once()
    assert keeper.take() == []  # It has not grown.
    running.clear()
    first.reported([_end(1), _end(2), _end(500)])
    keeper.failing = 1
    assert first.run_once() > timedelta()
    # The worker is killed and started again, and finds an attempt that still runs.
    running.add(9)
    again = loop()
    again.left_behind([9])
    assert again.run_once() > timedelta()
    assert sorted(keeper.take()) == [(1, "all", False), (2, "all", False)]
    running.clear()
    again.reported([_end(9), _end(10)])
    again.run_once()
    assert keeper.take() == [(9, "all", False), (10, "all", True)]
    assert list((tmp_path / "unstored" / "1").iterdir()) == []
