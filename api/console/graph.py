"""The graph of a run or a definition as a page draws it: boxes with their states, curves. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, TypeAlias

from api.console.looks import Look, of_task
from api.console.words import elided
from common.dag import Dag, build_dag
from common.drawing.blocks import Blocks, blocks_of, needs_blocks
from common.drawing.coordinates import HEIGHT
from common.drawing.ordering import Effort
from common.drawing.picture import WIDTH, Picture, Point, picture_of

_NAME: Final = 21
_SECOND: Final = 27
_MOST_FOR_GOOD: Final = 400
_Shape: TypeAlias = tuple[tuple[str, tuple[str, ...]], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A task of a graph as its box tells it; `state` is None before the first attempt."""

    state: int | None
    second: str
    """The second line of the box."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    """A task's box."""

    name: str
    title: str
    second: str
    look: Look
    x: int
    y: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Curves:
    """The edges of one kind as one path, since a browser takes long for thousands of figures.

    An edge is `taken` once its tail has ended well, else `open`. In `d` each begins with an M, and
    `ends` has the places of its tail and its head among the boxes, in the same order.
    """

    kind: str
    d: str
    ends: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Graph:
    """A graph that is drawn task by task."""

    width: int
    height: int
    boxes: tuple[Box, ...]
    curves: tuple[Curves, Curves]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rank:
    """The tasks of one rank of a graph that is drawn as blocks: how many are in each state."""

    number: int
    names: tuple[str, ...]
    counts: tuple[tuple[Look, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranks:
    """A graph that is too large to be drawn task by task."""

    ranks: tuple[Rank, ...]
    edges: int
    left_out: int


def graph_of(dag: Dag, tasks: Mapping[str, Task]) -> Graph | Ranks:
    """Draw a graph with the states of its tasks; one that is not in `tasks` has not begun."""
    shape = tuple((name, dag.upstream[name]) for name in dag.names)
    drawn = _drawn(shape)
    if isinstance(drawn, Blocks):
        return _ranks(drawn, tasks)
    looks = {name: of_task(_state(tasks, name)) for name in dag.names}
    taken = {name for name, look in looks.items() if look.colour == "success"}
    return Graph(
        width=drawn.picture.width,
        height=drawn.picture.height,
        boxes=tuple(
            Box(
                name=name,
                title=elided(name, _NAME),
                second=elided(tasks[name].second if name in tasks else "", _SECOND),
                look=looks[name],
                x=place.x,
                y=place.y,
            )
            for name, place in drawn.picture.places.items()
        ),
        curves=(
            _curves("taken", [each for each in drawn.edges if each.tail in taken]),
            _curves("open", [each for each in drawn.edges if each.tail not in taken]),
        ),
    )


def _state(tasks: Mapping[str, Task], name: str) -> int | None:
    return tasks[name].state if name in tasks else None


def _curves(kind: str, edges: Sequence[_Edge]) -> Curves:
    return Curves(
        kind=kind,
        d="".join(each.d for each in edges),
        ends=" ".join(each.ends for each in edges),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Edge:
    tail: str
    d: str
    ends: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Drawing:
    picture: Picture
    edges: tuple[_Edge, ...]


@lru_cache(maxsize=64)
def _drawn(shape: _Shape) -> _Drawing | Blocks:
    dag = build_dag(dict(shape))
    if needs_blocks(dag):
        return blocks_of(dag)
    picture = picture_of(dag, Effort.GOOD if len(shape) <= _MOST_FOR_GOOD else Effort.QUICK)
    place_of = {name: place for place, name in enumerate(picture.places)}
    edges = (
        _Edge(
            tail=line.tail,
            d=_path(line.points),
            ends=f"{place_of[line.tail]}-{place_of[line.head]}",
        )
        for line in picture.lines
    )
    return _Drawing(picture=picture, edges=tuple(edges))


def _ranks(blocks: Blocks, tasks: Mapping[str, Task]) -> Ranks:
    ranks = []
    for number, names in enumerate(blocks.members):
        counts = Counter(of_task(_state(tasks, name)) for name in names)
        ranks.append(Rank(number=number, names=names, counts=tuple(counts.most_common())))
    return Ranks(
        ranks=tuple(ranks),
        edges=sum(each.edges for each in blocks.ribbons),
        left_out=blocks.left_out,
    )


def _path(points: Sequence[Point]) -> str:
    """Return corners as a path that is smooth between ranks, and straight where it passes them."""
    (x, y), *others = points
    parts = [f"M{x} {y}"]
    for end, level in others:
        if level != y and end > x:
            middle = (x + end) // 2
            parts.append(f"C{middle} {y} {middle} {level} {end} {level}")
        else:
            parts.append(f"L{end} {level}")
        x, y = end, level
    return "".join(parts)


BOX: Final = (WIDTH, HEIGHT)
