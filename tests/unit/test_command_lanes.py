"""The lanes of commands, and the project that is served next."""

from __future__ import annotations

import pytest

from common.store.master.lanes import Served, lane_of
from common.store.tables import CommandLane
from tests.memory.rows import CommandRecord
from tests.memory.waiting import in_turns
from tests.unit.commands.planning import a_row


@pytest.mark.parametrize(
    ("columns", "lane"),
    [
        ({}, CommandLane.START),
        ({"command_type": None}, CommandLane.START),
        ({"parent_task_instance_id": 7}, CommandLane.CHILD),
        ({"parent_task_instance_id": 7, "complement_date_id": 8}, CommandLane.CHILD),
        ({"complement_date_id": 8}, CommandLane.DATE),
        ({"command_type": 2, "parent_task_instance_id": 7}, None),
        ({"command_type": 9, "complement_date_id": 8}, None),
    ],
)
def test_each_command_is_in_one_lane_or_before_all(
    columns: dict[str, int | None], lane: CommandLane | None
) -> None:
    assert lane_of(a_row(**columns)) == lane


def test_a_take_begins_behind_the_project_that_was_served_last() -> None:
    served = Served()
    assert served.after() == {"after_start": 0, "after_child": 0, "after_date": 0}
    served.note([a_row(project_id=3), a_row(project_id=5)])
    # A stop does not count, and children are counted separately.
    served.note(
        [a_row(command_type=9, project_id=8), a_row(project_id=6, parent_task_instance_id=7)]
    )
    assert served.after() == {"after_start": 5, "after_child": 6, "after_date": 0}


@pytest.mark.parametrize(
    ("after", "expected"),
    [(0, "a1 b1 c1 a2 c2 a3"), (1, "b1 c1 a1 c2 a2 a3"), (3, "a1 b1 c1 a2 c2 a3")],
)
def test_the_projects_take_turns_until_one_has_no_more_commands(after: int, expected: str) -> None:
    names = ["a1", "a2", "a3", "b1", "c1", "c2"]
    rows = [
        CommandRecord(id=number, command_type=0, project_id=" abc".index(name[0]))
        for number, name in enumerate(names)
    ]
    assert " ".join(names[row.id] for row in in_turns(rows, after=after)) == expected
