"""User values that reach a library cannot select a file, a host or a lexer."""

from __future__ import annotations

from typing import Any

import pytest

from api.console.highlighting import highlighted
from common.model.worker_needs import read_worker_need
from common.zones import UnknownZoneError, zone_named
from operations.errors import UsageError
from operations.times import read_zone


@pytest.mark.parametrize(
    "name",
    [
        *("../../../etc/passwd", "/etc/localtime", "Europe/../../../../etc/passwd", "."),
        *("localtime", "posixrules", "", "Europe", "tzdata.zi", "zone.tab", "Europe/Berlin\0"),
        *("Europe/Berlin/", "//etc/passwd", "UTC" * 10_000, "\udcff"),
    ],
)
def test_a_zone_is_a_name_of_the_database_and_never_a_file(name: str) -> None:
    with pytest.raises(UnknownZoneError):
        zone_named(name)


@pytest.mark.parametrize("name", ["right/UTC", "right/Europe/Berlin", "posix/Europe/Berlin"])
def test_a_zone_with_leap_seconds_and_a_double_are_not_chosen_but_stored_ones_are_read(
    name: str,
) -> None:
    with pytest.raises(UsageError, match="no zone of the tz database"):
        read_zone(name)
    assert zone_named(name).key == name


@pytest.mark.parametrize(
    "entry",
    [
        {"dataset": "flights", "host": "w:1234"},
        {"__class__": "x"},
        {"dataset": ["flights"]},
        {"dataset": {"$ne": ""}},
        {"availabilityGroup": "a\0b"},
        {"capacity": -1},
        {"capacity": True},
        {"capacity": 1e300},
        {"dataset": "x" * 300},
        "flights",
        [True],
    ],
)
def test_a_choice_of_workers_has_three_keys_with_plain_values(entry: Any) -> None:
    mistakes: list[str] = []
    assert read_worker_need(entry, "task a, workerSelect", mistakes) is None
    assert mistakes
    assert all(each.startswith("task a, workerSelect") for each in mistakes)


@pytest.mark.parametrize(
    "task_type", ["../x", "brainfuck", "console", "raw", "", "HTTP\0", "SQL" * 99]
)
def test_a_task_type_names_no_lexer(task_type: str) -> None:
    assert highlighted("if x: pass", task_type) == [("", "if x: pass")]
