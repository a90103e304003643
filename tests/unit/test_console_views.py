"""The values that pages show: looks of states, words, graphs, bars along time."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.console import looks
from api.console.graph import Graph, Ranks, Task, graph_of
from api.console.pages.overview import needing
from api.console.timeline import SCALE, Attempt, bars_of
from api.console.words import elided, exact_text, moment_text, span_text
from common.dag import build_dag
from common.model.states import ProcessState, TaskState
from common.store.people.views import ProcessInstanceView

NOW = datetime(2013, 1, 2, 8, 20, tzinfo=UTC)


def test_every_state_has_a_look_and_no_two_words_look_alike() -> None:
    assert set(looks.RUNS) == set(ProcessState)
    assert set(looks.TASKS) == set(TaskState)
    for table in (looks.RUNS, looks.TASKS):
        shapes = {(each.glyph, each.colour): each.word for each in table.values()}
        by_word = {each.word: (each.glyph, each.colour) for each in table.values()}
        assert {"failure", "success", "running"} <= {colour for _, colour in shapes}
        assert len(by_word) == len(table)


def test_a_run_of_which_an_end_is_wanted_is_on_its_way_there() -> None:
    assert looks.of_run(ProcessState.RUNNING, ProcessState.STOP).word == "stopping"
    assert looks.of_run(ProcessState.STOP, ProcessState.STOP).word == "stopped"
    assert looks.of_run(99).word == looks.of_task(99).word == "unknown"
    assert looks.of_task(None).word == "not begun"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 ms"),
        (0.85, "850 ms"),
        (5.84, "5.8 s"),
        (59.96, "1 m 00 s"),
        (100, "1 m 40 s"),
        (7500, "2 h 05 m"),
        (273_600, "3 d 4 h"),
    ],
)
def test_a_span_is_told_as_people_say_it(seconds: float, text: str) -> None:
    assert span_text(timedelta(seconds=seconds)) == text
    assert span_text(None) == ""


def test_a_moment_of_today_is_a_time_and_any_other_has_its_date() -> None:
    assert moment_text(NOW, zone=UTC, now=NOW) == "08:20:00"
    assert moment_text(NOW, zone=UTC, now=NOW + timedelta(days=1)) == "2013-01-02 08:20:00"
    assert moment_text(None, zone=UTC, now=NOW) == ""
    assert exact_text(NOW, zone=UTC) == "2013-01-02 08:20:00.000+00:00"


@given(st.text(max_size=300), st.integers(1, 60))
def test_a_long_name_keeps_both_ends_and_nothing_that_turns_the_line(text: str, most: int) -> None:
    shown = elided(text, most)
    assert len(shown) <= most
    assert shown.isprintable()
    if len(text) > most > 4:
        assert (shown[0] == text[0]) or not text[0].isprintable()
        assert "…" in shown


def test_a_graph_shows_the_state_of_each_task_and_the_edges_taken() -> None:
    dag = build_dag({"land": (), "clean": ("land",), "join": ("clean",)})
    tasks = {
        "land": Task(state=TaskState.SUCCESS, second="SHELL · 5.8 s"),
        "clean": Task(state=TaskState.RUNNING, second="PYSPARK"),
    }
    graph = graph_of(dag, tasks)
    assert isinstance(graph, Graph)
    assert [(each.name, each.look.word, each.second) for each in graph.boxes] == [
        ("land", "success", "SHELL · 5.8 s"),
        ("clean", "running", "PYSPARK"),
        ("join", "not begun", ""),
    ]
    assert [(each.tail, each.kind) for each in graph.curves] == [
        ("land", "taken"),
        ("clean", "open"),
    ]
    assert all(each.d.startswith("M") for each in graph.curves)


def test_a_graph_that_is_too_large_is_told_rank_by_rank() -> None:
    count = 2_100
    dag = build_dag({str(each): () for each in range(count)} | {"end": ("0", "1")})
    tasks = {"0": Task(state=TaskState.FAILURE, second="")}
    ranks = graph_of(dag, tasks)
    assert isinstance(ranks, Ranks)
    assert [len(each.names) for each in ranks.ranks] == [count, 1]
    assert [(look.word, number) for look, number in ranks.ranks[0].counts] == [
        ("not begun", count - 1),
        ("failed", 1),
    ]
    assert (ranks.edges, ranks.left_out) == (2, 0)


def test_bars_lie_within_the_run_and_show_the_time_in_the_queue() -> None:
    start = NOW - timedelta(seconds=100)
    attempt = Attempt(
        name="a",
        number=1,
        state=TaskState.SUCCESS,
        submit_time=start,
        start_time=start + timedelta(seconds=10),
        end_time=start + timedelta(seconds=60),
    )
    short = replace(attempt, start_time=NOW, end_time=NOW)
    waiting = replace(attempt, state=TaskState.SUBMITTED, start_time=None, end_time=None)
    never = replace(waiting, submit_time=None)
    first, last, queued = bars_of([attempt, short, waiting, never], start=start, end=NOW)
    assert (first.queued, first.x, first.width) == (0, 100, 500)
    assert first.span == timedelta(seconds=50)
    assert last.x + last.width <= SCALE
    assert last.width >= 4
    assert (queued.width, queued.span) == (0, None)


def test_a_failed_run_needs_somebody_until_its_definition_has_run_again() -> None:
    failed = a_view(id=5, process_definition_id=1, state=ProcessState.FAILURE)
    mended = failed._replace(id=6, state=ProcessState.SUCCESS)
    other = failed._replace(id=4, process_definition_id=2)
    child = failed._replace(id=7, process_definition_id=3, parent_task_instance_id=9)
    assert needing([failed, other]) == [failed, other]
    assert needing([child, mended, failed, other]) == [other]


def a_view(**values: Any) -> ProcessInstanceView:
    known = dict.fromkeys(ProcessInstanceView._fields, 0) | {"start_time": NOW}
    return ProcessInstanceView(**known | values)  # type: ignore[arg-type]  # A test's choice.
