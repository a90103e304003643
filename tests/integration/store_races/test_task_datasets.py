"""Tasks write and publish by their worker's socket, against PostgreSQL."""

from __future__ import annotations

import json
import os
import socket
import uuid
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy import Engine, text

from common.clock import SystemClock
from common.model.locks import LockType
from common.model.states import TaskState
from common.runtime import metrics
from common.store.streams.offsets import offsets_of_dataset as offsets
from common.store.streams.segments import used_segments
from common.store.worker.datasets import PostgresDatasetStore
from common.store.worker.ports import AttemptEnd
from common.store.worker.tasks import PostgresTaskStore
from orcaflow.datasets import (
    Allocation,
    DatasetConflictError,
    DatasetError,
    Files,
    LockLostError,
    Range,
    allocate,
    ask_lock,
    publish,
    segments,
)
from tests.builders import NOON
from tests.integration.dataset_desk import (
    Desk,
    an_attempt,
    desk,
    lock,
    some_files,
    written,
)
from tests.integration.store_races.racing import WORKER, a_run, a_submit, claim, save
from worker.loops.dataset_loop import DatasetLoop

DAY = "2026-11-20/P1D"
NEXT_DAY = "2026-11-21/P1D"


@pytest.fixture
def ds() -> str:
    return f"ds-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def server(tmp_path: Path, here: Engine, monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    with desk(tmp_path, here, monkeypatch) as made:
        yield made


def attempts_of_a_task(made: Engine) -> Iterator[int]:
    """Attempts of one task of one run; the next begins when the one before has failed."""
    owned = a_run(made)
    former = None
    for number in range(1, 4):
        if former is not None:
            fail(made, former)
        saved = save(made, owned, a_submit("load", attempt=number, retry_times=number - 1))
        former = saved.offers[0].task_instance_id
        assert claim(made, WORKER, [former]) == [former]
        yield former


def fail(made: Engine, task_id: int) -> None:
    ended = AttemptEnd(task_instance_id=task_id, state=TaskState.FAILURE, end_time=NOON)
    assert PostgresTaskStore(made).report(WORKER, [ended]) == {task_id}


def files_of(made: Engine, ds: str) -> list[str]:
    with made.connect() as db:
        return [name for each in used_segments(db, ds) for name in each.files]


def published(place: Allocation, name: str = "part.parquet") -> str:
    return f"{place.dataset}/{place.path.name}/{name}"


def test_what_a_task_has_written_appears_when_it_is_published(
    here: Engine, server: Desk, ds: str
) -> None:
    task_id = an_attempt(here)
    lock(here, task_id, ds, LockType.APPEND)
    server.enter(task_id)
    place = allocate(ds)
    names = [written(place, "one.parquet"), written(place, "deeper/two.parquet")]
    assert segments(ds).segments == ()
    labels = {"outcome": "published"}
    before = metrics.REGISTRY.get_sample_value("ds_publications_total", labels) or 0
    outcome = publish(place, [Files(DAY, names, rows=7)], key="main")
    assert len(outcome.segments) == 1
    assert metrics.REGISTRY.get_sample_value("ds_publications_total", labels) == before + 1
    found = segments(ds, "2026-11-20T06:00/PT1H")
    assert (found.start, found.end) == ("2026-11-20T06:00:00.000Z", "2026-11-20T07:00:00.000Z")
    (stored,) = found.segments
    assert [Path(name).read_text() for name in stored.files] == ["rows", "rows"]
    assert (stored.rows, stored.bytes, stored.number) == (7, 8, 0)
    assert segments(ds, NEXT_DAY).segments == ()


def test_an_append_of_an_earlier_attempt_is_not_added_again(
    here: Engine, server: Desk, ds: str
) -> None:
    tries = attempts_of_a_task(here)
    first = next(tries)
    lock(here, first, ds, LockType.APPEND)
    server.enter(first)
    before = allocate(ds)
    publish(before, [some_files(before, DAY)], key="main")
    # Its answer was lost: who asks again is told the same, and nothing is removed.
    assert publish(before, [some_files(before, DAY)], key="main").again is False
    second = next(tries)
    lock(here, second, ds, LockType.APPEND, interval="2026-11-20/P2D")
    server.enter(second)
    after = allocate(ds)
    parts = [some_files(after, DAY), some_files(after, NEXT_DAY, "other.parquet")]
    assert publish(after, parts, key="main").again is True
    assert files_of(here, ds) == [published(before)]
    assert not after.path.exists()
    assert before.path.exists()
    # Another writer of the same task is other work.
    more = allocate(ds)
    assert publish(more, [some_files(more, NEXT_DAY)], key="more").again is False
    assert files_of(here, ds) == [published(before), published(more)]


def test_a_replacement_of_a_later_attempt_replaces_that_of_an_earlier_one(
    here: Engine, server: Desk, ds: str
) -> None:
    tries = attempts_of_a_task(here)
    first = next(tries)
    lock(here, first, ds, LockType.REPLACE)
    server.enter(first)
    before = allocate(ds)
    parts = [some_files(before, DAY)]
    publish(before, parts, replaces=DAY)
    (former,) = segments(ds).segments
    assert publish(before, parts, replaces=DAY).again is False
    second = next(tries)
    lock(here, second, ds, LockType.REPLACE)
    server.enter(second)
    after = allocate(ds)
    hours = [some_files(after, f"2026-11-20T0{hour}:00/PT1H", f"{hour}.parquet") for hour in (1, 2)]
    publish(after, hours, replaces=DAY)
    assert files_of(here, ds) == [published(after, "1.parquet"), published(after, "2.parquet")]
    assert all(each.version > former.version for each in segments(ds).segments)
    # By the same attempt, under the same lock, once more.
    again = allocate(ds)
    publish(again, [some_files(again, DAY)], replaces=DAY)
    assert files_of(here, ds) == [published(again)]
    publish(allocate(ds), [], replaces=DAY)
    assert files_of(here, ds) == []


def test_a_stream_s_task_takes_locks_as_it_goes_and_publishes_many_times(
    here: Engine, server: Desk, ds: str
) -> None:
    server.enter(an_attempt(here))
    version = ask_lock(ds, DAY, stream=True)
    assert ask_lock(ds, DAY, stream=True) == version
    place = allocate(ds)
    for number in range(2):
        part = some_files(place, DAY, f"{number}.parquet")
        ends = Range(
            stream="events",
            starts={0: 5 * number},
            ends={0: 5 * number + 5},
            max_event_times={0: "2026-11-20T04:00Z"},
        )
        publish(place, [part], sequence=f"s_{number}", stream_range=ends)
        assert publish(place, [part], sequence=f"s_{number}", stream_range=ends).again is False
    with here.connect() as db:
        (reached,) = offsets(db, ds)
    assert (reached.stream, reached.offset) == ("events", 10)
    stale = Range(stream="events", starts={0: 0}, ends={0: 7})
    more = [some_files(place, DAY, "stale.parquet")]
    with pytest.raises(DatasetConflictError, match="partition 0 is at 10, not at 0"):
        publish(place, more, sequence="s_9", stream_range=stale)
    server.enter(an_attempt(here))
    assert ask_lock(ds, DAY, kind="EXCLUSIVE") is None


def test_a_missing_lock_is_named_with_its_cure(here: Engine, server: Desk, ds: str) -> None:
    task_id = an_attempt(here)
    server.enter(task_id)
    with pytest.raises(DatasetError, match=r'"locks": \[\{"dataset": "ds-'):
        allocate(ds)
    lock(here, task_id, ds, LockType.APPEND)
    place = allocate(ds)
    with pytest.raises(DatasetConflictError, match=r'"interval": "2026-11-21T00:00.*"APPEND"'):
        publish(place, [some_files(place, NEXT_DAY)], key="main")
    with pytest.raises(DatasetConflictError, match='"type": "REPLACE"'):
        publish(place, [some_files(place, DAY)], replaces=DAY)
    assert files_of(here, ds) == []


def test_nothing_is_published_under_a_revoked_lock_or_by_an_ended_attempt(
    here: Engine, server: Desk, ds: str
) -> None:
    revoked, more_important = an_attempt(here), an_attempt(here)
    lock(here, revoked, ds, LockType.EXCLUSIVE)
    server.enter(revoked)
    place = allocate(ds)
    lock(here, more_important, ds, LockType.EXCLUSIVE, priority=75)
    with pytest.raises(LockLostError, match="priority 50"):
        publish(place, [some_files(place, DAY)], replaces=DAY)
    server.enter(more_important)
    place = allocate(ds)
    fail(here, more_important)
    with pytest.raises(DatasetConflictError, match="is not running any more"):
        publish(place, [some_files(place, DAY)], replaces=DAY)
    assert files_of(here, ds) == []


_NOT_TAKEN = {
    "link.parquet": "no ordinary file",
    "folder/part.parquet": "no ordinary file",
    "pipe.parquet": "no ordinary file",
    "other_name.parquet": "no ordinary file",
    "missing.parquet": "is not in the write's folder",
    "../part.parquet": "must be relative",
    "/etc/passwd.parquet": "must be relative",
    "a//b.parquet": "must be relative",
    "part.csv": "must be a file .parquet",
    "a\0.parquet": "is no name of a file",
    "x" * 501 + ".parquet": "is no name of a file",
}


def test_only_ordinary_files_of_the_own_folder_are_published(
    here: Engine, server: Desk, ds: str, tmp_path: Path
) -> None:
    task_id = an_attempt(here)
    lock(here, task_id, ds, LockType.APPEND)
    server.enter(task_id)
    place = allocate(ds)
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    (foreign / "part.parquet").write_text("a secret")
    (place.path / "link.parquet").symlink_to(foreign / "part.parquet")
    (place.path / "folder").symlink_to(foreign)
    os.mkfifo(place.path / "pipe.parquet")
    (place.path / "other_name.parquet").hardlink_to(foreign / "part.parquet")
    for name, problem in _NOT_TAKEN.items():
        with pytest.raises(DatasetError, match=problem):
            publish(place, [Files(DAY, [name], rows=1)], key="main")
    assert files_of(here, ds) == []


def test_a_write_of_another_attempt_is_not_published(here: Engine, server: Desk, ds: str) -> None:
    first, second = an_attempt(here), an_attempt(here)
    for task_id in (first, second):
        lock(here, task_id, ds, LockType.APPEND)
    server.enter(first)
    place = allocate(ds)
    part = some_files(place, DAY)
    server.enter(second)
    with pytest.raises(DatasetError, match="there is no write"):
        publish(place, [part], key="main")


def asked(server: Desk, sent: bytes) -> dict[str, str]:
    with socket.socket(socket.AF_UNIX) as link:
        folder = os.open(server.server.path.parent, os.O_PATH)
        link.connect(f"/proc/self/fd/{folder}/{server.server.path.name}")
        os.close(folder)
        link.settimeout(30)
        link.sendall(sent)
        answer = b""
        # What it has not read of a refused request makes the other end hang up like that.
        with suppress(ConnectionResetError):
            while part := link.recv(65_536):
                answer += part
    found: dict[str, str] = json.loads(answer.partition(b"\n")[2] or b"{}")
    return found


def test_only_a_running_attempt_is_answered_whatever_is_sent(
    here: Engine, server: Desk, ds: str
) -> None:
    task_id = an_attempt(here)
    server.enter(task_id)
    token = os.environ["ORCAFLOW_DATASETS_TOKEN"]
    assert asked(server, b"GET / HTTP/1.1\r\n\r\n")["reason"] == "this is no request"
    assert asked(server, b"x" * 1000)["reason"] == "this is no request"
    own = f"{task_id} {token}"
    assert "8,388,608 bytes" in asked(server, f"{own} 99999999\n".encode())["reason"]
    assert "not valid JSON" in asked(server, f"{own} 2\n[[".encode())["reason"]
    deep = b"[" * 100_000
    assert asked(server, f"{own} {len(deep)}\n".encode() + deep)["outcome"] == "refused"
    assert asked(server, f"{own} 2\n[]".encode())["reason"] == "a request is a JSON object"
    other = f"{task_id + 1} {token} 2\n{{}}"
    assert "the token is not that" in asked(server, other.encode())["reason"]
    server.running.clear()
    assert "does not run here" in asked(server, f"{own} 2\n{{}}".encode())["reason"]


@dataclass(frozen=True)
class StoppedClock:
    at: datetime

    def now(self) -> datetime:
        return self.at

    def monotonic(self) -> float:
        return 0.0


def test_files_of_ended_attempts_that_nothing_names_are_removed_after_a_grace(
    here: Engine, server: Desk, ds: str
) -> None:
    places: dict[str, Allocation] = {}
    for name in ("published", "replaced", "left", "live"):
        task_id = an_attempt(here)
        lock(here, task_id, ds, LockType.REPLACE)
        server.enter(task_id)
        places[name] = allocate(ds)
        part = some_files(places[name], DAY)
        if name in ("published", "replaced"):
            publish(places[name], [part], replaces=DAY)
        if name != "live":
            fail(here, task_id)
    foreign = server.folders.root / ds / f"{'f' * 12}-1-{'0' * 16}"
    foreign.mkdir()
    removed: list[str] = []

    def sweep(*, hours: int, unused_days: int = 0) -> list[str]:
        removed.clear()
        clock = StoppedClock(SystemClock().now() + timedelta(hours=hours))
        DatasetLoop(
            PostgresDatasetStore(here),
            server.folders,
            remove=lambda path: removed.append(path.name),
            clock=clock,
            unused_days=unused_days,
        ).run_once()
        return removed

    assert sweep(hours=0) == []
    assert sweep(hours=2) == [places["left"].path.name]
    # The rows of a replaced segment go first, and its files with those that nothing names.
    assert sweep(hours=2, unused_days=3) == [places["left"].path.name]
    with here.begin() as db:
        db.execute(text("UPDATE t_ds_segment SET created = now() - interval '4 days'"))
    gone = {places["left"].path.name, places["published"].path.name}
    assert set(sweep(hours=2, unused_days=3)) == gone
    assert files_of(here, ds) == [published(places["replaced"])]
