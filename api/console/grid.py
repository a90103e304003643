"""The grid of a definition: its last runs as columns, its tasks as rows, states in cells. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from statistics import median
from typing import Final, NamedTuple

from api.console.looks import NOT_BEGUN, Look, of_run, of_task
from common.model.states import TaskState

CELL: Final = 18
"""The width of a column, and the height of a row."""
BAR: Final = 40
"""The height of the longest run's bar."""
_LEAST: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A run of the grid. It has no `span` before it ends."""

    id: int
    state: int
    wanted_state: int | None
    start_time: datetime
    span: timedelta | None


class Cell(NamedTuple):
    """The state of a task in a run, and for how many seconds it ran."""

    state: int
    seconds: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A run: where its column begins, and the bar of its duration."""

    run: Run
    look: Look
    x: int
    height: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A task: the places of its cells by their looks, and what is told of all of them.

    `places` leaves out the runs in which it has not begun; `median` is that of its successes.
    """

    name: str
    places: tuple[tuple[Look, tuple[int, ...]], ...]
    counts: tuple[tuple[Look, int], ...]
    median: timedelta | None
    failures: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """Runs from left to right as they came, tasks from top to bottom."""

    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    looks: tuple[Look, ...]
    """Those of the cells, one for each glyph."""
    width: int
    ended: int
    succeeded: int
    median: timedelta | None
    longest: timedelta | None
    slowest: str | None
    """The task with the largest median, None without one."""
    most_failed: str | None


def grid_of(
    names: Sequence[str], runs: Sequence[Run], cells: Mapping[str, Mapping[int, Cell]]
) -> Grid:
    """Lay out runs, of which the newest come first, and tasks in this order.

    `cells` is by task and run. Tasks that only former versions have come last, by their names.
    """
    inorder = list(reversed(runs))
    former = sorted(set(cells).difference(names))
    ids = [each.id for each in inorder]
    rows = tuple(_row(name, ids, cells.get(name, {})) for name in (*names, *former))
    spans = [each.span for each in inorder if each.span is not None]
    looks = {each.id: of_run(each.state, each.wanted_state) for each in inorder}
    longest = max(spans, default=None)
    good = [each.span for each in inorder if each.span and looks[each.id].colour == "success"]
    timed = [each for each in rows if each.median is not None]
    failing = [each for each in rows if each.failures]
    return Grid(
        columns=tuple(
            Column(run=run, look=looks[run.id], x=place * CELL, height=_height(run.span, longest))
            for place, run in enumerate(inorder)
        ),
        rows=rows,
        looks=tuple({look.glyph: look for row in rows for look, _ in row.places}.values()),
        width=len(inorder) * CELL,
        ended=len(spans),
        succeeded=len(good),
        median=_median(good),
        longest=longest,
        slowest=max(timed, key=lambda each: each.median or timedelta()).name if timed else None,
        most_failed=max(failing, key=lambda each: each.failures).name if failing else None,
    )


def points_of(places: Sequence[int]) -> str:
    """Return the middles of cells as the points of a figure."""
    middle = CELL // 2
    return " ".join(f"{place + middle},{middle}" for place in places)


def _row(name: str, runs: Sequence[int], cells: Mapping[int, Cell]) -> Row:
    places: dict[int, list[int]] = defaultdict(list)
    good = []
    for place, run in enumerate(runs):
        cell = cells.get(run)
        if cell is None:
            continue
        state, seconds = cell
        places[state].append(place * CELL)
        if seconds is not None and of_task(state).colour == "success":
            good.append(max(seconds, 0.0))
    by_look: dict[Look, list[int]] = defaultdict(list)
    for state, found in places.items():
        by_look[of_task(state)] += found
    counts = [(look, len(found)) for look, found in by_look.items()]
    absent = len(runs) - sum(count for _, count in counts)
    if absent:
        counts.append((NOT_BEGUN, absent))
    return Row(
        name=name,
        places=tuple((look, tuple(found)) for look, found in by_look.items()),
        counts=tuple(counts),
        median=timedelta(seconds=median(good)) if good else None,
        # A killed task was stopped: by a user, or because another task failed.
        failures=sum(
            len(found)
            for state, found in places.items()
            if state != TaskState.KILL and of_task(state).colour == "failure"
        ),
    )


def _median(spans: Sequence[timedelta]) -> timedelta | None:
    if not spans:
        return None
    return timedelta(seconds=median(each.total_seconds() for each in spans))


def _height(span: timedelta | None, longest: timedelta | None) -> int:
    if span is None or not longest:
        return _LEAST
    return max(_LEAST, round(span / longest * BAR))
