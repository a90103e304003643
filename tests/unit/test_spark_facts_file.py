"""The facts of an attempt get into their file whole, not too often, and the last ones always."""

from __future__ import annotations

import threading
from pathlib import Path

from common.model.failures import FailureReason
from common.model.spark import Progress, SparkFacts
from worker.spark.progress.facts_file import FactsFile


def read(path: Path) -> SparkFacts:
    return SparkFacts.from_json(path.read_bytes())


def test_what_is_said_first_is_written_at_once(tmp_path: Path) -> None:
    facts = FactsFile(tmp_path / "facts", pause_seconds=3600)
    facts.update(application_ids=("app-1",))
    assert read(tmp_path / "facts").application_ids == ("app-1",)


def test_what_comes_too_soon_waits_and_the_last_is_written(tmp_path: Path) -> None:
    facts = FactsFile(tmp_path / "facts", pause_seconds=3600)
    facts.update(application_ids=("app-1",))
    facts.update(progress=Progress(tasks=1))
    facts.update(progress=Progress(tasks=2))
    assert read(tmp_path / "facts").progress == Progress()
    facts.flush()
    assert read(tmp_path / "facts").progress == Progress(tasks=2)
    assert read(tmp_path / "facts").application_ids == ("app-1",)


def test_what_waits_is_written_without_another_word(tmp_path: Path) -> None:
    others = threading.enumerate()  # Another test may have left one that waits.
    facts = FactsFile(tmp_path / "facts", pause_seconds=0.05)
    facts.update(progress=Progress(tasks=1))
    facts.update(progress=Progress(tasks=2))
    for each in threading.enumerate():
        if isinstance(each, threading.Timer) and each not in others:
            each.join(timeout=30)
    assert read(tmp_path / "facts").progress == Progress(tasks=2)


def test_a_file_that_can_not_be_written_costs_nothing_else(tmp_path: Path) -> None:
    facts = FactsFile(tmp_path / "no" / "such" / "folder" / "facts")
    facts.update(failure=FailureReason.PYTHON_ERROR)
    assert facts.current.failure is FailureReason.PYTHON_ERROR


def test_without_a_file_facts_are_remembered() -> None:
    facts = FactsFile(None)
    facts.update(ui_link="http://localhost:4040")
    facts.flush()
    assert facts.current.ui_link == "http://localhost:4040"


def test_many_threads_may_speak_at_once(tmp_path: Path) -> None:
    facts = FactsFile(tmp_path / "facts", pause_seconds=0)
    names = ("ui_link", "history_link")

    def speak(name: str) -> None:
        for number in range(200):
            facts.update(**{name: f"http://{number}"})

    threads = [threading.Thread(target=speak, args=(name,)) for name in names]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    facts.flush()
    written = read(tmp_path / "facts")
    assert (written.ui_link, written.history_link) == ("http://199", "http://199")
