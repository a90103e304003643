"""The round-robin between projects in which a master takes commands."""

from __future__ import annotations

from itertools import chain
from typing import Any

import pytest

from common.model.plans import Drop
from common.model.slot_share import RoomShare, SlotShare
from common.store import tables as t
from common.store.master.ports import FirstStep
from tests.builders import NOON
from tests.conformance.store_tables import (
    LATER,
    MASTER,
    Tables,
    a_begin,
    a_command,
    a_definition,
    a_run,
    always,
    call_child,
    take,
)

DROP = always(Drop(reason="only the choice matters"))


def chosen(db: Tables, **bounds: Any) -> list[int]:
    return [one.command_id for one in take(db, DROP, **bounds)]


def of(db: Tables, project: int, number: int = 1, **columns: Any) -> list[int]:
    """Insert commands of a definition of this project; return their ids."""
    definition = a_definition(db, project_id=project)
    values = {"process_definition_id": definition, "update_time": NOON, **columns}
    return [a_command(db, **values) for _ in range(number)]


@pytest.mark.parametrize(
    "columns",
    [{}, {"parent_task_instance_id": 4711}, {"command_type": 5, "complement_date_id": 9}],
    ids=["starts", "children", "dates"],
)
def test_x83_commands_of_a_project_do_not_wait_for_all_that_another_one_has_put_before(
    db: Tables, columns: dict[str, Any]
) -> None:
    large = of(db, 1, 9, **columns)
    small = of(db, 2, 2, update_time=LATER, **columns)
    assert chosen(db, limit=3) == [large[0], small[0], large[1]]
    assert chosen(db, limit=3) == [small[1], *large[2:4]]
    assert chosen(db) == large[4:]


def test_a_plain_take_serves_the_projects_in_turn(db: Tables) -> None:
    large, small = of(db, 1, 4), of(db, 2, 1, update_time=LATER)
    step: FirstStep = lambda _run: None  # noqa: E731
    taken = take(db, always(a_begin()), limit=2, first_step=step)
    assert [one.command_id for one in taken] == [large[0], small[0]]
    taken = take(db, always(a_begin()), limit=2, first_step=step)
    assert [one.command_id for one in taken] == large[1:3]


def test_x83_room_for_one_run_at_a_time_is_given_to_the_projects_in_turn(db: Tables) -> None:
    """A full master has room for one run whenever another one ends."""
    large, small = of(db, 1, 3), of(db, 2, 1, update_time=LATER)
    taken = [number for _ in range(4) for number in chosen(db, room=1)]
    assert taken == [large[0], *small, *large[1:]]


def test_more_projects_than_are_served_at_once_are_served_in_turn(db: Tables) -> None:
    waiting = [of(db, project, 2) for project in range(1, 6)]
    taken = [chosen(db, limit=2) for _ in range(5)]
    first, second = ([each[place] for each in waiting] for place in (0, 1))
    assert list(chain.from_iterable(taken)) == [*first, *second]


def test_x83_the_highest_priority_does_not_go_before_the_turns_of_other_projects(
    db: Tables,
) -> None:
    urgent = of(db, 1, 3, process_instance_priority=0)
    low = of(db, 2, 2, update_time=LATER, process_instance_priority=4)
    assert chosen(db, limit=4) == [urgent[0], low[0], urgent[1], low[1]]


def test_rows_without_a_definition_share_the_turns_of_one_project(db: Tables) -> None:
    garbage = [a_command(db, process_definition_id=None, update_time=NOON) for _ in range(3)]
    good = of(db, 1, 2, update_time=LATER)
    assert chosen(db, limit=4) == [good[0], garbage[0], good[1], garbage[1]]


def test_starts_of_a_project_do_not_wait_for_its_children(db: Tables) -> None:
    children = of(db, 1, 5, parent_task_instance_id=4711)
    starts = of(db, 1, 2, update_time=LATER)
    assert chosen(db, limit=3) == [children[0], starts[0], children[1]]


def test_a_child_of_a_shared_definition_waits_for_the_turn_of_its_root(db: Tables) -> None:
    own = a_definition(db, project_id=1)
    shared = a_definition(db, project_id=2)
    wanting = call_child(db, a_run(db, process_definition_id=own))
    (called,) = (row["id"] for row in db.rows(t.command))
    columns = {"process_definition_id": shared, "parent_task_instance_id": wanting}
    late = a_command(db, update_time=LATER, **columns)
    other = a_command(db, update_time=LATER, **{**columns, "parent_task_instance_id": 4711})
    db.update(t.command, called, update_time=NOON)
    assert chosen(db, limit=3) == [called, other, late]


def test_full_projects_do_not_use_up_the_turns_of_others(db: Tables) -> None:
    for project in (1, 2, 3):
        of(db, project, 3)
    free = [of(db, project)[0] for project in (4, 5)]
    share = SlotShare(percent=80, free=9, held={1: 80, 2: 80, 3: 80})
    taken = db.commands.take(
        node=MASTER,
        limit=2,
        room=9,
        spare=0,
        live_masters=lambda: frozenset([MASTER]),
        planner=DROP,
        now=NOON,
        share=RoomShare(live=share, dates=share.copy()),
    )
    assert [one.command_id for one in taken.handled] == free
