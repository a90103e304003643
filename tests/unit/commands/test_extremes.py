"""Values that can't be represented: each has a plan or a short refusal."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from common.model.commands import read_command
from common.model.plans import Begin, Complement, Reject
from master.commands import REASON_LIMIT
from tests.unit.commands.planning import (
    LINE,
    OF_TASK_45,
    a_definition,
    a_parent,
    a_row,
    globals_of,
    planned,
    read,
    why,
)


@pytest.mark.parametrize(
    "moment", [datetime(1, 1, 2, tzinfo=UTC), datetime(9999, 12, 30, tzinfo=UTC)]
)
@pytest.mark.parametrize("command_type", [0, 5, 6])
def test_a_time_at_the_ends_of_the_calendar_is_planned_or_refused(
    command_type: int, moment: datetime
) -> None:
    text = '[{"prop": "far", "value": "$[add_months(yyyyMMdd, 999999)] $[yyyyMMdd-9]"}]'
    found = planned(read(command_type=command_type, schedule_time=moment), globals_of(text))
    assert isinstance(found, Begin | Complement | Reject)


def test_a_megabyte_of_nesting_in_any_place_is_refused_and_no_error() -> None:
    deep = "[" * 1_000_000
    definition = a_definition(process_definition_json=deep)
    row = a_row(json.dumps({"StartParams": deep}))
    command = read_command(row, param_limit_bytes=2_000_000)
    reasons = [
        why(planned(read(), definition)),
        why(planned(command, a_definition())),
        why(planned(read(), globals_of(deep))),
        why(planned(read(LINE, **OF_TASK_45), a_definition(), parent=a_parent(input_pool=deep))),
    ]
    assert all(len(reason) < 1_000 for reason in reasons)


def test_a_refusal_quotes_no_more_than_people_read() -> None:
    names = ",".join(f"x{number}" for number in range(100_000))
    row = a_row(json.dumps({"StartNodeNameList": names}))
    reason = why(planned(read_command(row, param_limit_bytes=10**6), a_definition()))
    assert reason.startswith("none of the start nodes 'x0', 'x1'")
    assert len(reason) == REASON_LIMIT
