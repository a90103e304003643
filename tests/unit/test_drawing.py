"""Drawings of DAGs: ranks, crossings, places that don't overlap, lines from box to box."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.dag import Dag, build_dag
from common.drawing.blocks import Ribbon, blocks_of, needs_blocks
from common.drawing.coordinates import GAP, HEIGHT
from common.drawing.layers import dummies_of, layers_of
from common.drawing.ordering import Effort, crossings
from common.drawing.picture import RANKS_A_ROW, WIDTH, Picture, picture_of
from common.drawing.ranks import ranks_of
from tests.bench.drawing import crossed, layered, scattered

FLIGHTS = build_dag(
    {
        "land": (),
        "clean_flights": ("land",),
        "clean_weather": ("land",),
        "join": ("clean_flights", "clean_weather"),
        "by_carrier": ("join",),
        "by_hour": ("join",),
        "report": ("by_carrier", "by_hour"),
    }
)


@st.composite
def dags(draw: st.DrawFn) -> Dag:
    count = draw(st.integers(0, 24))
    return build_dag(
        {
            f"t{number}": draw(
                st.lists(st.sampled_from([f"t{each}" for each in range(number)]), max_size=3)
                if number
                else st.just([])
            )
            for number in range(count)
        }
    )


def test_the_picture_of_a_small_dag_is_this_one() -> None:
    picture = picture_of(FLIGHTS)
    assert {name: (each.x, each.y) for name, each in picture.places.items()} == {
        "land": (28, 52),
        "clean_flights": (260, 20),
        "clean_weather": (260, 84),
        "join": (492, 52),
        "by_carrier": (724, 20),
        "by_hour": (724, 84),
        "report": (956, 52),
    }
    assert (picture.width, picture.height) == (1160, 148)
    assert [each.points for each in picture.lines if each.tail == "land"] == [
        ((204, 74), (260, 42)),
        ((204, 74), (260, 106)),
    ]


def test_nothing_has_an_empty_picture() -> None:
    assert picture_of(build_dag({})) == Picture(width=0, height=0, places={}, lines=())


def test_a_source_stands_just_before_what_waits_for_it() -> None:
    dag = build_dag({"a": (), "b": ("a",), "late": (), "c": ("b", "late"), "alone": ()})
    assert ranks_of(dag) == {"a": 0, "b": 1, "late": 1, "c": 2, "alone": 0}


def test_crossings_are_those_that_one_can_count() -> None:
    dag = build_dag({"a": (), "b": (), "c": (), "x": ("b", "c"), "y": ("a",), "z": ("a", "b")})
    layers = layers_of(dag, ranks_of(dag))
    number = {name: place for place, name in enumerate(dag.names)}
    order = [[number[each] for each in layer] for layer in (("a", "b", "c"), ("x", "y", "z"))]
    assert crossings(layers, order) == 5
    assert crossed(dag, Effort.GOOD) == 0


@pytest.mark.parametrize("seed", [1, 2])
def test_large_drawings_cross_no_more_than_wanted(seed: int) -> None:
    """Limits of the design; elkjs 0.9.3 drew these with 6,700 to 6,800 crossings in layers."""
    assert crossed(layered(seed), Effort.GOOD) <= 5_000
    assert crossed(layered(seed), Effort.QUICK) <= 6_500
    assert crossed(scattered(seed), Effort.GOOD) <= 10_000


@given(dags())
def test_sifting_never_crosses_more(dag: Dag) -> None:
    assert crossed(dag, Effort.GOOD) <= crossed(dag, Effort.QUICK)


@given(dags(), st.sampled_from(Effort))
def test_any_dag_is_drawn_without_overlaps(dag: Dag, effort: Effort) -> None:
    picture = picture_of(dag, effort)
    assert picture == picture_of(dag, effort)
    assert tuple(picture.places) == dag.names
    by_column: dict[tuple[int, int], list[int]] = {}
    for place in picture.places.values():
        assert place.x >= 0
        assert place.x + WIDTH <= picture.width
        assert GAP <= place.y <= picture.height - HEIGHT - GAP
        by_column.setdefault((place.rank, place.x), []).append(place.y)
    for column in by_column.values():
        assert all(other - one >= HEIGHT + GAP for one, other in pairwise(sorted(column)))


@given(dags())
def test_each_edge_is_one_line_from_box_to_box(dag: Dag) -> None:
    picture = picture_of(dag)
    edges = {(name, other) for name in dag.names for other in dag.downstream[name]}
    assert {(line.tail, line.head) for line in picture.lines} == edges
    assert len(picture.lines) == len(edges)
    for line in picture.lines:
        tail, head = picture.places[line.tail], picture.places[line.head]
        assert tail.rank < head.rank
        assert line.points[0] == (tail.x + WIDTH, tail.y + HEIGHT // 2)
        assert line.points[-1] == (head.x, head.y + HEIGHT // 2)


@given(dags())
def test_a_passing_edge_touches_no_box(dag: Dag) -> None:
    picture = picture_of(dag)
    for line in picture.lines:
        for (x, y), (end, level) in list(pairwise(line.points))[1:-1]:
            if y != level or end <= x:
                continue  # A curve between two ranks, or the way round by the margins.
            for place in picture.places.values():
                apart = end <= place.x or x >= place.x + WIDTH
                assert apart or not place.y <= y <= place.y + HEIGHT


def test_a_long_chain_folds_into_rows_of_one_length() -> None:
    count = RANKS_A_ROW + 2
    chain = build_dag({str(each): (str(each - 1),) if each else () for each in range(count)})
    places = picture_of(chain).places
    rows = sorted({place.y for place in places.values()})
    assert [sum(place.y == row for place in places.values()) for row in rows] == [8, 8]
    (fold,) = (line for line in picture_of(chain).lines if line.head == "8")
    last, first = places["7"], places["8"]
    assert fold.points[0] == (last.x + WIDTH, last.y + HEIGHT // 2)
    assert all(x > last.x + WIDTH or x < first.x for x, _ in fold.points[1:-1])
    assert last.y + HEIGHT < fold.points[2][1] == fold.points[3][1] < first.y


def test_a_dense_graph_is_drawn_as_blocks() -> None:
    wide = {
        f"{layer}-{place}": [f"{layer - 1}-{each}" for each in range(30)] if layer else []
        for layer in range(8)
        for place in range(30)
    }
    wide["last"] = [*(f"7-{each}" for each in range(30)), "0-0"]
    dag = build_dag(wide)
    assert needs_blocks(dag)
    blocks = blocks_of(dag)
    assert [len(each) for each in blocks.members] == [*[30] * 8, 1]
    assert blocks.ribbons == (*(Ribbon(each, each + 1, 900) for each in range(7)), Ribbon(7, 8, 30))
    assert blocks.left_out == 1, "the edge from 0-0 to the last is behind the others"


@pytest.mark.parametrize(
    ("dag", "wanted"),
    [
        (FLIGHTS, False),
        (build_dag({str(each): () for each in range(2_000)}), False),
        (build_dag({str(each): () for each in range(2_001)}), True),
        (
            build_dag(
                {str(n): tuple({str(n - 1), str(max(0, n - 400))}) if n else () for n in range(450)}
            ),
            True,
        ),
    ],
)
def test_what_cannot_be_read_task_by_task_is_drawn_as_blocks(dag: Dag, wanted: bool) -> None:
    assert needs_blocks(dag) is wanted


@given(dags())
def test_dummies_are_counted_before_they_are_made(dag: Dag) -> None:
    ranks = ranks_of(dag)
    layers = layers_of(dag, ranks)
    assert dummies_of(dag, ranks) == len(layers.left) - layers.count
