"""The values that pages show: looks of states, words, graphs, bars along time."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.console import looks
from api.console.dates import Date, lines_of
from api.console.graph import BOX, Graph, Ranks, Task, graph_of
from api.console.grid import CELL, Cell, Run, grid_of, points_of
from api.console.pages.overview import shown
from api.console.rendering import STYLE
from api.console.timeline import SCALE, Attempt, bars_of
from api.console.week import Fire, days_of, monday_of
from api.console.words import elided, exact_text, moment_text, span_text
from common.dag import build_dag
from common.model.complement_states import DateState
from common.model.concerns import Concern, ConcernKind
from common.model.schedules import FireOutcome
from common.model.states import ProcessState, TaskState

NOW = datetime(2013, 1, 2, 8, 20, tzinfo=UTC)


def test_fires_are_marks_of_the_days_on_the_zones_wall_and_numbers_where_there_are_many() -> None:
    zone = ZoneInfo("America/New_York")
    monday = monday_of(date(2013, 3, 10))
    good = looks.of_fire("fired", ProcessState.SUCCESS)

    def at(*moment: int) -> Fire:
        return Fire(at=datetime(*moment, tzinfo=zone), look=good, run=None)  # type: ignore[arg-type]

    fires = [at(2013, 3, 3, 23), at(2013, 3, 4, 23, 30), at(2013, 3, 10, 3), at(2013, 3, 11)]
    days = days_of(fires, monday, zone)
    assert (monday, len(days)) == (date(2013, 3, 4), 7)
    assert [[mark.time for mark in day.marks] for day in days] == [
        ["23:30"], [], [], [], [], [], ["03:00"],
    ]  # fmt: skip
    many = days_of([at(2013, 3, 5, hour) for hour in range(24)], monday, zone)[1]
    assert (many.marks, many.counts) == ((), ((good, 24),))
    some = days_of([at(2013, 3, 5, hour) for hour in range(5)], monday, zone)[1]
    assert [mark.is_told for mark in some.marks] == [False] * 5


def test_every_state_has_a_look_and_no_two_words_look_alike() -> None:
    assert set(looks.RUNS) == set(ProcessState)
    assert set(looks.TASKS) == set(TaskState)
    assert set(looks.DATES) == set(DateState)
    assert set(looks.FIRES) == set(FireOutcome)
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
    assert [(each.kind, each.ends) for each in graph.curves] == [("taken", "0-1"), ("open", "1-2")]
    assert all(each.d.count("M") == 1 for each in graph.curves)


def test_the_edges_of_a_kind_are_one_path_in_the_order_of_their_ends() -> None:
    graph = graph_of(build_dag({"a": (), "b": ("a",), "c": ("a", "b")}), {})
    assert isinstance(graph, Graph)
    taken, opened = graph.curves
    assert (taken.d, taken.ends) == ("", "")
    begins = {place: f"M{box.x + BOX[0]} " for place, box in enumerate(graph.boxes)}
    tails = [int(each.partition("-")[0]) for each in opened.ends.split()]
    assert sorted(opened.ends.split()) == ["0-1", "0-2", "1-2"]
    curves = opened.d.split("M")[1:]
    assert all(
        f"M{curve}".startswith(begins[tail]) for curve, tail in zip(curves, tails, strict=True)
    )


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


@pytest.mark.parametrize("kind", ConcernKind)
def test_every_kind_of_concern_has_a_look_and_a_page_about_its_object(kind: ConcernKind) -> None:
    found = shown(Concern(kind=kind, id=7, name="n"))
    assert found.look.word
    assert found.link is None or found.link.startswith("/")


def a_run(number: int, state: ProcessState, seconds: float | None = None) -> Run:
    span = None if seconds is None else timedelta(seconds=seconds)
    return Run(id=number, state=state, wanted_state=None, start_time=NOW, span=span)


def a_cell(state: TaskState, seconds: float | None = None) -> Cell:
    return Cell(state, seconds)


def test_a_grid_has_runs_from_left_to_right_and_tasks_in_their_order() -> None:
    grid = grid_of(
        ["land", "join"],
        [
            a_run(3, ProcessState.RUNNING),
            a_run(2, ProcessState.SUCCESS, 10),
            a_run(1, ProcessState.FAILURE, 40),
        ],
        {
            "land": {
                1: a_cell(TaskState.FAILURE, 1),
                2: a_cell(TaskState.SUCCESS, 4),
                3: a_cell(TaskState.SUCCESS, 6),
            },
            "join": {2: a_cell(TaskState.FORCED_SUCCESS, 1)},
            "former": {1: a_cell(TaskState.SUCCESS)},
        },
    )
    assert [(each.run.id, each.x, each.look.word) for each in grid.columns] == [
        (1, 0, "failed"),
        (2, CELL, "success"),
        (3, 2 * CELL, "running"),
    ]
    first, second, third = (each.height for each in grid.columns)
    assert first > second > third > 0
    assert [
        (row.name, [(look.word, places) for look, places in row.places]) for row in grid.rows
    ] == [
        ("land", [("failed", (0,)), ("success", (CELL, 2 * CELL))]),
        ("join", [("forced", (CELL,))]),
        ("former", [("success", (0,))]),
    ]
    assert [{look.word: count for look, count in row.counts} for row in grid.rows] == [
        {"failed": 1, "success": 2},
        {"forced": 1, "not begun": 2},
        {"success": 1, "not begun": 2},
    ]
    assert (grid.ended, grid.succeeded) == (2, 1)
    assert (grid.median, grid.longest) == (timedelta(seconds=10), timedelta(seconds=40))
    assert (grid.slowest, grid.most_failed) == ("land", "land")
    assert grid.rows[0].median == timedelta(seconds=5)


def test_a_killed_task_of_a_stopped_run_counts_as_no_failure_in_a_grid() -> None:
    cells = {"land": {1: a_cell(TaskState.KILL), 2: a_cell(TaskState.KILL)}}
    runs = [a_run(2, ProcessState.STOP), a_run(1, ProcessState.STOP)]
    assert grid_of(["land"], runs, cells).most_failed is None
    cells["join"] = {2: a_cell(TaskState.FAILURE)}
    assert grid_of(["land", "join"], runs, cells).most_failed == "join"


def test_every_look_of_a_task_has_its_marker_in_grids_and_graphs() -> None:
    for look in (*looks.TASKS.values(), looks.NOT_BEGUN):
        assert f".marks.{look.glyph} {{ marker: url(#m-{look.glyph}); }}" in STYLE
        assert f".mark.{look.glyph} {{ marker-start: url(#m-{look.glyph}); }}" in STYLE
        assert look.glyph in {each.glyph for each in looks.MARKS}
    # A glyph has one colour, or a grid would show two states in that of one.
    pairs = {(look.glyph, look.colour) for look in (*looks.TASKS.values(), looks.NOT_BEGUN)}
    assert len({glyph for glyph, _ in pairs}) == len(pairs)
    assert points_of((0, 2 * CELL)) == "9,9 45,9"


def test_a_grid_without_runs_or_without_an_end_tells_nothing_of_them() -> None:
    empty = grid_of(["land"], [], {})
    assert (empty.columns, empty.width, empty.median, empty.slowest) == ((), 0, None, None)
    assert [row.counts for row in empty.rows] == [()]
    first = grid_of(["land"], [a_run(1, ProcessState.RUNNING)], {})
    assert (first.ended, first.longest, first.most_failed) == (0, None, None)


def some_dates(count: int, step: timedelta) -> list[Date]:
    start = datetime(2013, 1, 1, tzinfo=UTC)
    return [
        Date(
            text=f"{start + step * each:%Y-%m-%d %H:%M:%S}",
            state=DateState.PENDING,
            run=None,
            span=None,
            reason=None,
        )
        for each in range(count)
    ]


@pytest.mark.parametrize(
    ("step", "labels", "first"),
    [
        (timedelta(days=1), ["2013-01", "2013-02", "2013-03", "2013-04"], 31),
        (timedelta(hours=1), ["2013-01-01", "2013-01-02", "2013-01-03", "2013-01-04"], 24),
        (timedelta(minutes=1), ["2013-01-01 00", "2013-01-01 01"], 60),
        (timedelta(seconds=10), ["2013-01-01 00"], 100),
    ],
)
def test_dates_stand_in_lines_of_months_days_or_hours(
    step: timedelta, labels: list[str], first: int
) -> None:
    dates = some_dates(100, step)
    lines = lines_of(dates)
    assert [each.label for each in lines][: len(labels)] == labels
    assert len(lines[0].cells) == first
    assert [cell.date for line in lines for cell in line.cells] == dates
    assert all(line.width > line.cells[-1].x for line in lines)


def test_no_dates_are_no_lines() -> None:
    assert lines_of([]) == ()


def test_a_fire_that_has_become_a_run_looks_like_it() -> None:
    assert looks.of_fire(FireOutcome.FIRED, ProcessState.FAILURE).word == "failed"
    assert looks.of_fire(FireOutcome.FIRED, None).word == "fired"
    assert looks.of_fire("?", None).word == looks.of_date("?").word == "unknown"
