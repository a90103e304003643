"""A DAG as a picture: a place for each task, a line for each edge, left to right.

More than fourteen ranks fold into rows of one length, read like those of a text; edges from one row
to the next go round by the margins. Lines are given by their corners, in pixels: whoever draws
rounds them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Final, TypeAlias

from common.dag import Dag
from common.drawing.coordinates import GAP, HEIGHT, heights
from common.drawing.layers import Layers, layers_of
from common.drawing.ordering import Effort, ordered
from common.drawing.ranks import ranks_of

WIDTH: Final = 176
RANK_GAP: Final = 56
RANKS_A_ROW: Final = 14
_MARGIN: Final = 28
_STEP: Final = WIDTH + RANK_GAP

Point: TypeAlias = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Place:
    """The upper left corner of a task's box, which is `WIDTH` by `HEIGHT`."""

    x: int
    y: int
    rank: int


@dataclass(frozen=True, slots=True)
class Line:
    """An edge from the right side of one box to the left side of another."""

    tail: str
    head: str
    points: tuple[Point, ...]


@dataclass(frozen=True, slots=True)
class Picture:
    """All of a DAG. `places` is in the order of the DAG's names."""

    width: int
    height: int
    places: Mapping[str, Place]
    lines: tuple[Line, ...]


def picture_of(dag: Dag, effort: Effort = Effort.GOOD) -> Picture:
    """Draw all tasks and edges; the same DAG gives the same picture.

    1,000 tasks take some 0.1 s with QUICK and at most 1 s with GOOD.
    """
    ranks = ranks_of(dag)
    layers = layers_of(dag, ranks)
    order = ordered(layers, effort)
    a_row = ceil(len(order) / ceil(len(order) / RANKS_A_ROW)) if order else 1
    rows = _rows(layers, order, heights(layers, order), a_row)
    rank_of = {vertex: rank for rank, layer in enumerate(order) for vertex in layer}
    middle = {
        vertex: (rows.left(rank) + WIDTH // 2, rows.middles[vertex])
        for vertex, rank in rank_of.items()
    }
    return Picture(
        width=a_row * _STEP - RANK_GAP + 2 * _MARGIN if order else 0,
        height=rows.ends[-1] if order else 0,
        places={
            name: Place(rows.left(ranks[name]), rows.middles[number] - HEIGHT // 2, ranks[name])
            for number, name in enumerate(dag.names)
        },
        lines=tuple(
            Line(tail, head, _corners([(rank_of[each], middle[each]) for each in path], rows))
            for (tail, head), path in layers.paths.items()
        ),
    )


@dataclass(frozen=True, slots=True)
class _Rows:
    ranks: int
    """The number of ranks in each row but the last."""
    middles: Sequence[int]
    ends: Sequence[int]
    """The end of each row, with half of the gap behind it."""

    def left(self, rank: int) -> int:
        return _MARGIN + rank % self.ranks * _STEP


def _rows(
    layers: Layers, order: Sequence[Sequence[int]], middles: Sequence[int], a_row: int
) -> _Rows:
    """Set the rows of ranks below each other."""
    moved = list(middles)
    ends: list[int] = []
    for first in range(0, len(order), a_row):
        row = [vertex for layer in order[first : first + a_row] for vertex in layer]
        halves = {vertex: HEIGHT // 2 if vertex < layers.count else 0 for vertex in row}
        top = min(middles[vertex] - halves[vertex] for vertex in row)
        bottom = max(middles[vertex] + halves[vertex] for vertex in row)
        shift = (ends[-1] if ends else 0) + GAP - top
        for vertex in row:
            moved[vertex] += shift
        ends.append(bottom + shift + GAP)
    return _Rows(a_row, moved, ends)


def _corners(path: Sequence[tuple[int, Point]], rows: _Rows) -> tuple[Point, ...]:
    corners: list[Point] = []
    last = len(path) - 1
    for number, (rank, (x, y)) in enumerate(path):
        if number:
            if rank % rows.ranks == 0:
                end = rows.ends[rank // rows.ranks - 1]
                corners += _round_the_margins(corners[-1], (x, y), end)
            corners.append((x - WIDTH // 2, y))
        if number != last:
            corners.append((x + WIDTH // 2, y))
    return tuple(corners)


def _round_the_margins(start: Point, goal: Point, between: int) -> Iterable[Point]:
    right = start[0] + _MARGIN // 2
    left = goal[0] - WIDTH // 2 - _MARGIN // 2
    return ((right, start[1]), (right, between), (left, between), (left, goal[1]))
