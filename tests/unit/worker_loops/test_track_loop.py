"""The loop that records attempts' facts of their applications, on files and tables in memory."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal

import pytest

from common.errors import ServiceUnreachableError
from common.model.cluster import Node
from common.model.failures import FailureReason
from common.model.spark import LIMIT_BYTES, Progress, SparkFacts, Usage, progress_from
from common.model.states import TaskState
from common.runtime import metrics
from common.store.worker.ports import AttemptFolders
from tests.builders import NOON
from tests.memory.store import MemoryDatabase, MemoryTaskStore
from worker.loops.track_loop import TrackLoop
from worker.processes.spark_facts import read_facts

NODE = Node(address="w:1", incarnation=5)
REBORN = replace(NODE, incarnation=6)
FACTS = SparkFacts(
    application_ids=("app-1",),
    ui_link="http://driver:4040",
    progress=Progress(tasks=10, tasks_done=4, tasks_running=2),
)


class Place:
    """A worker's running attempts in tables, each with a file that the test writes."""

    def __init__(self, folder: Path) -> None:
        self.database = MemoryDatabase()
        self.store = MemoryTaskStore(self.database)
        self.node: Node | None = NODE
        self.live: dict[int, Path] = {}
        self.loop = TrackLoop(
            store=self.store, node=lambda: self.node, live=lambda: dict(self.live)
        )
        self._folder = folder
        self._run = self.database.insert(
            self.database.processes,
            name="run",
            process_definition_id=1,
            state=1,
            command_type=0,
            process_instance_json="{}",
            executor_id=1,
            host="m:1",
            owner_incarnation=1,
        )

    def attempt(self, name: str = "a") -> int:
        task_id = self.database.insert(
            self.database.tasks,
            name=name,
            task_type="PYSPARK",
            process_definition_id=1,
            process_instance_id=self._run,
            task_json="{}",
        )
        folders = AttemptFolders(work="/t", logs="/t/logs")
        self.store.claim(NODE, [task_id], folders=folders, now=NOON)
        self.live[task_id] = self._folder / f"{task_id}.json"
        return task_id

    def write(self, task_id: int, facts: SparkFacts) -> None:
        """Write as an attempt does: a whole new file that takes over the name."""
        new = self.live[task_id].with_suffix(".new")
        new.write_text(facts.to_json())
        new.replace(self.live[task_id])

    def row(self, task_id: int) -> Any:
        return self.database.tasks.the(task_id)

    def updates(self) -> int:
        """The number of rows written by the loop."""
        return len([one for one in self.database.changes if one.transaction == "record_facts"])


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


@pytest.fixture(autouse=True)
def _no_figures_left() -> Iterator[None]:
    yield
    TrackLoop(store=MemoryTaskStore(MemoryDatabase()), node=lambda: NODE, live=dict).run_once()


def test_what_an_attempt_writes_comes_into_its_row(place: Place) -> None:
    task_id = place.attempt()
    place.loop.run_once()
    assert place.row(task_id).app_link is None
    place.write(task_id, FACTS)
    place.loop.run_once()
    row = place.row(task_id)
    assert (row.app_link, row.ui_link) == ("app-1", "http://driver:4040")
    assert progress_from(row.progress) == FACTS.progress


def test_a_file_that_has_not_changed_is_told_once(place: Place) -> None:
    task_id = place.attempt()
    place.write(task_id, FACTS)
    for _ in range(3):
        place.loop.run_once()
    place.write(task_id, FACTS)
    place.loop.run_once()
    assert place.updates() == 1, "the same again is no news, though it is another file"
    place.write(task_id, replace(FACTS, progress=Progress(tasks=10, tasks_done=10)))
    place.loop.run_once()
    assert progress_from(place.row(task_id).progress).tasks_done == 10


def test_several_attempts_are_told_of_together(place: Place) -> None:
    ids = [place.attempt(name) for name in "abc"]
    for task_id in ids:
        place.write(task_id, FACTS)
    transactions: list[str] = []
    place.database.commit_hook = lambda name, moment: transactions.append(f"{moment} {name}")
    place.loop.run_once()
    assert transactions == ["before record_facts", "after record_facts"]
    assert [place.row(task_id).app_link for task_id in ids] == ["app-1"] * 3


def test_it_looks_often_while_there_is_something_to_look_at(place: Place) -> None:
    assert place.loop.run_once() == timedelta(seconds=1)
    task_id = place.attempt()
    assert place.loop.run_once() == timedelta(seconds=0.5)
    del place.live[task_id]
    assert place.loop.run_once() == timedelta(seconds=1)


@pytest.mark.parametrize("moment", ["before", "after"])
def test_what_the_tables_did_not_answer_is_told_again(
    place: Place, moment: Literal["before", "after"]
) -> None:
    task_id = place.attempt()
    place.write(task_id, FACTS)

    def hook(_name: str, when: Literal["before", "after"]) -> None:
        if when == moment:
            raise ServiceUnreachableError("PostgreSQL is away")

    place.database.commit_hook = hook
    with pytest.raises(ServiceUnreachableError):
        place.loop.run_once()
    place.database.commit_hook = lambda _name, _when: None
    place.loop.run_once()
    assert place.row(task_id).app_link == "app-1"


def test_a_new_incarnation_tells_again_what_the_former_one_may_not_have_told(place: Place) -> None:
    task_id = place.attempt()
    place.write(task_id, FACTS)
    place.node = REBORN
    place.loop.run_once()
    assert place.row(task_id).app_link is None, "it does not hold the attempt yet"
    place.node = None
    assert place.loop.run_once() == timedelta(seconds=1)
    place.store.adopt(REBORN, [task_id])
    place.node = REBORN
    place.loop.run_once()
    assert place.row(task_id).app_link == "app-1"


def test_an_attempt_that_has_ended_is_not_told_of(place: Place) -> None:
    task_id = place.attempt()
    place.write(task_id, FACTS)
    place.database.update(
        place.database.tasks, task_id, state=int(TaskState.SUCCESS), end_time=NOON
    )
    place.loop.run_once()
    assert place.row(task_id).app_link is None


def test_the_figures_say_how_far_the_workers_applications_are(place: Place) -> None:
    first, second, _silent = (place.attempt(name) for name in "abc")
    place.write(first, FACTS)
    place.write(second, FACTS)
    place.loop.run_once()
    value = metrics.REGISTRY.get_sample_value
    assert value("ds_spark_attempts") == 2
    assert [
        value("ds_spark_tasks", {"state": state}) for state in ("running", "done", "waiting")
    ] == [4, 8, 8]
    place.live.clear()
    place.loop.run_once()
    assert value("ds_spark_attempts") == value("ds_spark_tasks", {"state": "done"}) == 0


# Files that anybody may have written


def test_all_that_a_file_says_is_read(tmp_path: Path) -> None:
    facts = replace(FACTS, usage=Usage(run_seconds=1.5), failure=FailureReason.FETCH_FAILED)
    file = tmp_path / "facts"
    file.write_text(facts.to_json())
    assert read_facts(file) == facts


def test_a_link_a_second_name_a_pipe_and_a_folder_say_nothing(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text(FACTS.to_json())
    (tmp_path / "link").symlink_to(secret)
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    for name in ("link", "pipe", "folder", "absent"):
        assert read_facts(tmp_path / name) == SparkFacts(), name
    (tmp_path / "second").hardlink_to(secret)
    assert read_facts(tmp_path / "second") == SparkFacts()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[" * 50_000,
        b'{"progress": ' + b"9" * 10_000 + b"}",
        b"\xff\xfe\x00",
        b'{"application_ids": ["app-1"], "x": "' + b"y" * LIMIT_BYTES + b'"}',
    ],
)
def test_a_spoilt_file_says_nothing_and_stops_nothing(place: Place, content: bytes) -> None:
    spoilt, sound = place.attempt("spoilt"), place.attempt("sound")
    place.live[spoilt].write_bytes(content)
    place.write(sound, FACTS)
    place.loop.run_once()
    assert (place.row(spoilt).app_link, place.row(sound).app_link) == (None, "app-1")


def test_a_file_that_is_spoilt_later_takes_nothing_back(place: Place) -> None:
    task_id = place.attempt()
    place.write(task_id, FACTS)
    place.loop.run_once()
    place.live[task_id].write_bytes(b"")
    place.loop.run_once()
    assert place.row(task_id).app_link == "app-1"


def test_facts_that_the_tables_refuse_keep_no_others_back(place: Place) -> None:
    bad, good = place.attempt("bad"), place.attempt("good")
    refused: list[list[int]] = []

    def record(node: Node, facts: Any) -> None:
        if bad in facts:
            refused.append(sorted(facts))
            raise ValueError("a trigger of somebody's")
        MemoryTaskStore.record_facts(place.store, node, facts)

    place.store.record_facts = record  # type: ignore[method-assign]
    for task in (bad, good):
        place.write(task, FACTS)
    place.loop.run_once()
    assert refused == [[bad, good], [bad]]
    assert place.row(good).ui_link == FACTS.ui_link
