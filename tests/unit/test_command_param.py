"""The parameters of a command: reading hostile text, and the one stored form."""

from __future__ import annotations

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.errors import BadCommandError
from common.masking import mask_json, secrets_in_json
from common.model.command_param import (
    CommandParam,
    ParamKey,
    child_command_text,
    example,
    marked,
    start_values,
    stored_start_values,
)

TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=20)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=5,
)
KEYS = TEXTS | st.sampled_from([str(key) for key in ParamKey])


@given(st.dictionaries(KEYS, VALUES, max_size=6))
def test_what_was_read_is_written_so_that_it_is_read_as_it_was(document: dict[str, object]) -> None:
    param = CommandParam.parse(json.dumps(document))
    assert CommandParam.parse(param.text()) == param
    assert CommandParam.of_instance(param.text()) == param
    assert CommandParam.parse(param.text()).text() == param.text()
    assert set(param) == {key for key, value in document.items() if value is not None}


@given(st.dictionaries(KEYS, TEXTS, max_size=6), st.randoms())
def test_equal_parameters_have_one_text(document: dict[str, str], random: object) -> None:
    items = list(document.items())
    random.shuffle(items)  # type: ignore[attr-defined]
    assert CommandParam(dict(items)).text() == CommandParam(document).text()


@given(st.text(max_size=40) | VALUES.map(json.dumps))
def test_no_text_raises_anything_but_the_one_error(text: str) -> None:
    for read in (CommandParam.parse, CommandParam.of_instance, start_values):
        with contextlib.suppress(BadCommandError):
            read(text)
    assert isinstance(CommandParam.as_stored(text), CommandParam)
    assert isinstance(stored_start_values(text), dict)


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("{", "command_param is not JSON: .* at line 1 column 2"),
        ("[1]", "command_param must be a JSON object, not list"),
        ('"x"', "command_param must be a JSON object, not str"),
        ("[" * 100_000, "command_param is nested too deeply"),
        ('{"n": ' + "9" * 5_000 + "}", "command_param can't be read"),
    ],
)
def test_a_text_that_is_no_object_is_refused_with_its_mistake(text: str, cause: str) -> None:
    with pytest.raises(BadCommandError, match=cause):
        CommandParam.parse(text)


def test_the_keys_that_are_known_come_first_and_unknown_ones_are_kept() -> None:
    param = CommandParam.parse('{"z": 1.10, "StartParams": {"x": 1.10}, "ProcessInstanceId": 12}')
    assert param.text() == (
        '{"ProcessInstanceId": "12", "StartParams": "{\\"x\\": \\"1.10\\"}", "z": "1.10"}'
    )
    assert param.row_text() == (
        '{"ProcessInstanceId": "12", "StartParams": {"x": "1.10"}, "z": "1.10"}'
    )


def test_built_parameters_are_read_as_they_were_meant() -> None:
    param = CommandParam.of(
        process_instance_id=12,
        start_node_names=("b", "a"),
        start_params={"day": "1", "ü": ""},
        timezone_id="Europe/Berlin",
        execution_type="SERIAL_WAIT",
    )
    found = CommandParam.parse(param.row_text())
    assert found == param
    assert found.instance_id() == 12
    assert found.start_node_names == ("b", "a")
    assert start_values(found.start_params) == {"day": "1", "ü": ""}
    assert found.timezone_id == "Europe/Berlin"
    assert CommandParam.of().text() == "{}"


@pytest.mark.parametrize("text", ["0", "-1", "1.5", "x", "²", "9" * 5_000, str(2**31)])
def test_an_id_that_no_instance_can_have_is_refused(text: str) -> None:
    with pytest.raises(BadCommandError, match="ProcessInstanceId must be the id of an instance"):
        CommandParam({ParamKey.PROCESS_INSTANCE_ID: text}).instance_id()


def test_a_command_for_a_child_has_its_ids_as_numbers_and_the_child_s_own_row_as_text() -> None:
    text = child_command_text(
        relation_id=3,
        parent_process_instance_id=12,
        parent_task_instance_id=45,
        child_id=0,
        definition_name=None,
    )
    assert json.loads(text) == {
        "id": 3,
        "parentProcessInstanceId": 12,
        "parentTaskInstanceId": 45,
        "processInstanceId": 0,
    }
    assert json.loads(CommandParam.parse(text).of_child(14).text()) == {
        "id": "3",
        "parentProcessInstanceId": "12",
        "parentTaskInstanceId": "45",
        "processInstanceId": "14",
    }


def test_an_example_shows_the_keys_as_a_person_would_type_them() -> None:
    assert example({ParamKey.PROCESS_INSTANCE_ID: 12, ParamKey.START_NODE_NAMES: "a,b"}) == (
        'command_param {"ProcessInstanceId": 12, "StartNodeNameList": "a,b"}'
    )


def test_a_marked_start_up_parameter_is_a_secret_with_a_value() -> None:
    param = CommandParam.of(start_params=marked({"place": "hunter2", "day": "1"}, {"place"}))
    for text in (param.text(), param.row_text()):
        read = CommandParam.parse(text)
        assert start_values(read.start_params) == {"place": "hunter2", "day": "1"}
        assert secrets_in_json(text) == ("hunter2",)
        shown = CommandParam.parse(mask_json(text)).start_params
        assert start_values(shown) == {"place": "******", "day": "1"}


@pytest.mark.parametrize(
    "value",
    [
        {"prop": "other", "value": "v", "secret": True},
        {"prop": "place", "value": "v", "secret": False},
        {"prop": "place", "value": "v", "secret": True, "type": "VARCHAR"},
        {"prop": "place", "secret": True},
        ["v"],
    ],
)
def test_another_object_is_a_value_of_its_own(value: object) -> None:
    assert start_values(json.dumps({"place": value})) == {"place": json.dumps(value)}
