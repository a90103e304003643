"""The examples of topologies, on a few flights, against plain Python."""

from __future__ import annotations

import importlib
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.topologies import Kept

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "topologies"
NAMES = ("word_count", "airports", "top_airports")
FLIGHTS = [
    "2013-01-01T05:00,JFK,BOS,AA,75",
    "2013-01-01T05:00,EWR,LAX,UA,-3",
    "2013-01-01T06:00,JFK,LAX,AA,",
    "2013-01-01T06:00,LGA,BOS,DL,90",
    "2013-01-02T06:00,JFK,BOS,AA,5",
    "2013-01-02 broken",
    "2013-01-02T06:00,JFK,BOS,AA,many",
]
EVENTS = [(line, "0.csv") for line in FLIGHTS]


@pytest.fixture
def examples(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, ModuleType]]:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    yield {name: importlib.import_module(name) for name in NAMES}
    for name in NAMES:
        sys.modules.pop(name, None)


def test_words_are_counted(
    examples: dict[str, ModuleType], capsys: pytest.CaptureFixture[str]
) -> None:
    trial = examples["word_count"].topology().test({"lines": [("The cat. The dog!", "a")]})
    states = {key: count for task in trial.tasks("count") for key, count in task.states.items()}
    assert states == {("the",): 2, ("cat",): 1, ("dog",): 1}
    assert "2 the" in capsys.readouterr().out


def test_airports_are_counted_by_day_and_late_flights_go_to_their_desks(
    examples: dict[str, ModuleType], tmp_path: Path
) -> None:
    made: Any = examples["airports"].made(str(tmp_path / "events"), str(tmp_path / "results"))
    trial = made.test({"events": EVENTS})
    states = {key: kept for task in trial.tasks("by_day") for key, kept in task.states.items()}
    assert states == {
        ("JFK", "2013-01-01"): (2, 75),
        ("EWR", "2013-01-01"): (1, -3),
        ("LGA", "2013-01-01"): (1, 90),
        ("JFK", "2013-01-02"): (1, 5),
    }
    desks = [[record.values for record in task.received] for task in trial.tasks("desks")]
    assert desks == [[], [("JFK", "BOS", 75)], [("LGA", "BOS", 90)]]
    broken = Counter(line for line, _ in trial.received("broken"))
    assert broken == Counter([FLIGHTS[5], FLIGHTS[6]])


def test_the_worst_destinations_of_each_hour_are_told(examples: dict[str, ModuleType]) -> None:
    made: Any = examples["top_airports"].made("events", Kept())
    last = dict(made.test({"events": EVENTS}).emitted("top"))
    assert last == {
        "2013-01-01T05:00": "BOS +75.0, LAX -3.0",
        "2013-01-01T06:00": "BOS +82.5, LAX -1.5",
        "2013-01-02T06:00": "BOS +5.0",
    }
