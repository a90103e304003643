"""STREAM tasks without a supervisor: the bounds of their ranges, and their specifications."""

from __future__ import annotations

import copy
import json
from datetime import UTC, datetime
from typing import Any

import pytest

from common.model.streams.bounded import (
    Bound,
    is_supervised,
    mistake_between,
    read_bound,
    read_range_spec,
)
from common.model.streams.reading import Rules
from common.model.task_type import ValueFaultError
from tests.unit.stream_specs import SMALL

SECRET = "hunter2-sasl"


def test_a_bound_is_offsets_a_time_or_a_word() -> None:
    assert read_bound({"0": 7, "3": "9"}) == Bound(offsets={0: 7, 3: 9})
    assert read_bound("2026-11-20") == Bound(time=datetime(2026, 11, 20, tzinfo=UTC))
    assert read_bound("2026-11-20T04:00:00+04:00").time == datetime(2026, 11, 20, tzinfo=UTC)
    assert read_bound("Latest") == Bound(word="latest")


@pytest.mark.parametrize(
    "value", [7, True, [], {}, "", "soon", {"x": 1}, {"0": -1}, {"0": None}, {"-1": 0}, {"0": [1]}]
)
def test_what_is_no_bound_is_refused_with_what_is_one(value: Any) -> None:
    with pytest.raises(ValueFaultError, match="offsets by partition"):
        read_bound(value)


@pytest.mark.parametrize(
    ("start", "end", "mistake"),
    [
        ({"0": 1}, {"0": 1}, ""),
        ("2026-11-20", "2026-11-21", ""),
        ("latest", {"0": 1}, ""),
        ({"0": 1}, {"1": 1}, "must name the partitions of params.from"),
        ({"0": 2}, {"0": 1}, "partition 0 would end before its start"),
        ("2026-11-21", "2026-11-20", "must not be before params.from"),
    ],
)
def test_bounds_fit_each_other(start: Any, end: Any, mistake: str) -> None:
    assert mistake_between(read_bound(start), read_bound(end)) == mistake


def test_a_specification_names_only_listed_variables_and_no_mistake_shows_a_secret() -> None:
    document = copy.deepcopy(SMALL)
    assert read_range_spec(document).schema.dataset == "flights"
    consumer = document["spec"]["ioConfig"]["consumerProperties"]
    consumer["sasl.password"] = {"type": "environment", "variable": "KAFKA_PASSWORD"}
    with pytest.raises(ValueFaultError, match="KAFKA_PASSWORD, which is not in the setting"):
        read_range_spec(document, rules=Rules(variables=()))
    assert read_range_spec(document, rules=Rules(variables=("KAFKA_PASSWORD",)))
    consumer["sasl.password"] = SECRET
    document["spec"]["ioConfig"]["taskCount"] = "many"
    with pytest.raises(ValueFaultError, match=r"ioConfig\.taskCount") as caught:
        read_range_spec(document)
    assert SECRET not in str(caught.value)
    for other in ([], "x", {"type": "NoopSupervisorSpec", "id": "flights"}):
        with pytest.raises(ValueFaultError, match="must be"):
            read_range_spec(other)


def test_a_task_with_a_range_of_its_own_is_no_supervisor_s() -> None:
    assert is_supervised("STREAM", json.dumps({"params": {"supervisor": "flights"}}))
    assert not is_supervised("STREAM", json.dumps({"params": {"spec": SMALL}}))
    assert not is_supervised("SHELL", "{}")
    assert is_supervised("STREAM", "no JSON")
