"""py4j's text protocol: values as py4j's own client writes and reads them, and hostile ids."""

from __future__ import annotations

import base64
import json

import pytest
from py4j.protocol import get_command_part, get_return_value

from common.py4j.wire import (
    Thing,
    WireError,
    answer,
    argument,
    failure,
    member,
    read_thing,
)

A_MAP = Thing(fields={"code": 2**40, "name": "a\\nb\n", "none": None}, is_map=True)


@pytest.mark.parametrize("value", ["", "a\nb\\n\r\\", "ü ✓", 0, -1, 2**40, True, False, None, 1.5])
def test_a_value_is_read_as_the_client_wrote_it(value: object) -> None:
    part = get_command_part(value).removesuffix("\n")
    assert argument(part) == value
    assert type(argument(part)) is type(value)


@pytest.mark.parametrize("value", ["", "a\nb\\n\r\\", "ü ✓", 0, -1, 2**40, True, False, None, 1.5])
def test_the_client_reads_an_answer_as_it_was_meant(value: str | float | None) -> None:
    line = answer(value)
    assert line.endswith("\n")
    assert line.count("\n") == 1
    # The connection takes the first letter and the end of the line off.
    assert get_return_value(line[1:-1], None) == value


def test_an_error_is_one_line() -> None:
    assert failure("one\ntwo") == "!xsone\\ntwo\n"


@pytest.mark.parametrize("part", ["", "rt", "re", "jQQ==", "Lx", f"L{'9' * 30}", "dx", "f1;X"])
def test_a_reference_and_what_is_no_value_are_refused(part: str) -> None:
    with pytest.raises(WireError):
        argument(part)


def test_a_thing_is_found_by_its_id_alone() -> None:
    found = read_thing(A_MAP.id)
    assert found == A_MAP
    assert [member(found, "get", [key]) for key in A_MAP.fields] == list(A_MAP.fields.values())
    assert (member(found, "size", []), member(found, "get", ["other"])) == (3, None)
    thing = read_thing(Thing(fields={"id": 7, "type": {"descp": "mysql"}}).id)
    kind = member(thing, "getType", [])
    assert isinstance(kind, Thing)
    assert (member(thing, "getId", []), member(kind, "getDescp", [])) == (7, "mysql")


def an_id(document: object) -> str:
    return "x" + base64.urlsafe_b64encode(json.dumps(document).encode()).decode()


@pytest.mark.parametrize(
    "foreign",
    [
        *("o1", "t", "x", "x!!", "xbm8=", "j", f"x{'A' * 9000}"),
        *(an_id([]), an_id({"fields": 1, "map": True}), "x" + "W1tb" * 1500),
    ],
)
def test_an_id_that_was_never_given_is_refused(foreign: str) -> None:
    with pytest.raises(WireError):
        read_thing(foreign)


@pytest.mark.parametrize(
    ("method", "arguments"),
    [("getClass", ["x"]), ("put", ["a", 1]), ("forName", ["x"]), ("__init__", []), ("", [])],
)
def test_a_thing_has_no_method_but_its_own(method: str, arguments: list[object]) -> None:
    with pytest.raises(WireError):
        member(A_MAP, method, arguments)


def test_a_value_in_a_forged_id_is_never_anything_but_a_plain_one() -> None:
    with pytest.raises(WireError):
        member(read_thing(an_id({"map": True, "fields": {"a": [1]}})), "get", ["a"])
