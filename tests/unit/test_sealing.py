"""Secrets are found in place in JSON, and are decrypted to the same text."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.datasource_keys import DatasourceKeys
from common.errors import NotAllowedError
from common.masking import CONSUMER_PROPERTIES, is_secret, mask_value
from common.model.command_param import marked
from common.parameter_keys import AsItIs, ParameterKeys, Whole
from common.sealed_tokens import MARK, may_hold_secrets
from common.sealing import secret_spans
from tests.integration.planted_secrets import Planted, a_document, consumer_properties

NAMES = ("password", "api_key", "name", "value", "prop", "url", "token", "x", "params")


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> ParameterKeys:
    file = DatasourceKeys(tmp_path_factory.mktemp("keys") / "datasource.key")
    file.make(for_parameters=True)
    return ParameterKeys(file)


def secrets_of(text: str) -> list[str]:
    return [text[begin:end] for begin, end, _ in secret_spans(text)]


def prop(name: str, value: object) -> dict[str, object]:
    return {"prop": name, "direct": "IN", "type": "VARCHAR", "value": value}


def test_a_secret_is_the_value_of_a_name_that_sounds_secret() -> None:
    document = {
        "name": "get_token",
        "preTasks": ["get_token"],
        "globalParams": [prop("db_password", "first"), prop("day", "second")],
        "StartParams": json.dumps({"api_key": "third", "n": 1.10}),
        "consumerProperties": {"sasl.password": {"type": "default", "password": "fourth"}},
        "credentials": ["fifth", 6],
    }
    found = secrets_of(json.dumps(document))
    assert found == ["first", "third", "fourth", "fifth", "6"]


@pytest.mark.parametrize("ensure_ascii", [True, False])
def test_everything_that_a_front_end_masks_is_encrypted(
    keys: ParameterKeys, ensure_ascii: bool
) -> None:
    planted = Planted()
    streams = {CONSUMER_PROPERTIES: consumer_properties(planted, "supervisor")}
    document = a_document(planted, "définition", "x") | {"spec": {"ioConfig": streams}}
    nested = {"text": json.dumps({"text": json.dumps(streams)}), "document": document}
    assert planted.shown_in(json.dumps(mask_value(nested)).encode()) == []
    text = json.dumps(nested, ensure_ascii=ensure_ascii)
    sealed = keys.sealed(text)
    assert planted.shown_in(sealed.encode()) == []
    assert keys.opened(sealed) == text


def test_an_escape_or_a_second_key_hides_no_secret() -> None:
    assert secrets_of('{"p\\u0061ssword": "hush"}') == ["hush"]
    assert secrets_of('{"password": "hush", "password": "other"}') == ["hush", "other"]
    assert secrets_of('{"url": "http:\\/\\/me:hu\\u0073h@host"}') == ["hu\\u0073h"]
    assert may_hold_secrets('{"p\\u0061ss": 1}')


@pytest.mark.parametrize("depth", [20, 400, 100_000])
def test_a_deep_document_within_a_text_hides_no_secret(keys: ParameterKeys, depth: int) -> None:
    inner = "[" * depth + '{"password": "planted"}' + "]" * depth
    document = {"StartParams": inner}
    assert "planted" not in json.dumps(mask_value(document))
    sealed = keys.sealed(json.dumps(document))
    assert "planted" not in sealed
    assert json.loads(keys.opened(sealed)) == document


def test_a_provider_hides_nothing_next_to_the_name_of_a_variable() -> None:
    given = {"type": "environment", "variable": "KAFKA", "other": "hush"}
    assert secrets_of(json.dumps({CONSUMER_PROPERTIES: {"sasl.password": given}})) == ["hush"]


def test_the_name_of_a_property_may_stand_behind_its_value() -> None:
    assert secrets_of('[{"value": "hush", "prop": "token"}]') == ["hush"]


def test_an_output_that_is_marked_as_secret_is_one() -> None:
    marked, other = prop("address", "me:hush@db") | {"secret": True}, prop("n", "plain")
    assert secrets_of(json.dumps([marked, other | {"secret": False}])) == ["me:hush@db"]


def test_a_placeholder_a_reference_a_mask_and_a_data_source_s_own_value_are_no_secrets() -> None:
    for value in (
        "${other}",
        "$[yyyyMMdd]",
        "$ENV{ORCAFLOW_SECRET_X}",
        "******",
        "aes256gcm:01234567:AAAA",
        "",
    ):
        assert secrets_of(json.dumps({"password": value})) == []


def test_copies_of_a_secret_in_other_parameters_are_secrets_too() -> None:
    resolved = [prop("password", "hunter2"), prop("address", "me:hunter2@db"), prop("n", "n")]
    assert secrets_of(json.dumps(resolved)) == ["hunter2", "hunter2"]
    # The JSON text has `\nhunt`. Encrypting `nhunt` there would cut the escape and break the JSON.
    newline = [prop("password", "nhunt"), prop("text", "a\nhunt")]
    assert secrets_of(json.dumps(newline)) == ["nhunt"]


def test_copies_of_a_marked_start_up_value_are_secrets_too() -> None:
    start = json.dumps(marked({"place": "hunter2", "copy": "me:hunter2@db"}, {"place"}))
    for text in (start, json.dumps({"StartParams": start})):
        assert secrets_of(text) == ["hunter2", "hunter2"]


@pytest.mark.parametrize("text", ["", "{", "[]", "}", '{"password"', "[1,", "password=x", '"x"'])
def test_a_text_that_is_no_document_has_no_secrets(text: str) -> None:
    assert secrets_of(text) == []


_LEAVES = st.one_of(st.text(max_size=8), st.integers(), st.floats(allow_nan=False), st.booleans())


def _nested(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.sampled_from(NAMES), inner, max_size=4),
        inner.map(json.dumps),
        inner.map(lambda each: json.dumps(each, ensure_ascii=False, indent=1)),
        st.builds(prop, st.sampled_from(NAMES), inner),
    )


@given(st.recursive(_LEAVES, _nested, max_leaves=20))
def test_a_sealed_document_is_a_document_and_opens_to_the_letter(
    keys: ParameterKeys, document: Any
) -> None:
    text = json.dumps([document])
    sealed = keys.sealed(text)
    json.loads(sealed)
    assert keys.opened(sealed) == text
    assert keys.sealed(text) == sealed
    assert keys.resealed(sealed) == sealed


@given(st.dictionaries(st.sampled_from(NAMES), st.text(alphabet='#"\\é\n', min_size=4)))
def test_no_value_of_a_secret_name_is_left(keys: ParameterKeys, document: dict[str, str]) -> None:
    sealed = json.loads(keys.sealed(json.dumps(document)))
    assert all(MARK in value for name, value in sealed.items() if is_secret(name))


def test_without_a_key_everything_stays_as_it_is(tmp_path: Path) -> None:
    keys = ParameterKeys(DatasourceKeys(tmp_path / "none"))
    text = '{"password": "hush"}'
    assert keys.sealed(text) == text
    assert keys.opened(text) == text
    assert keys.trouble(text) is None


def test_a_host_without_the_key_names_the_cure(keys: ParameterKeys, tmp_path: Path) -> None:
    sealed = keys.sealed('{"password": "hush"}')
    none = ParameterKeys(DatasourceKeys(tmp_path / "none"))
    assert none.opened(sealed) == sealed
    reason = none.trouble(sealed)
    assert reason is not None
    assert "there is no key file" in reason
    another = DatasourceKeys(tmp_path / "another")
    another.make(for_parameters=True)
    reason = ParameterKeys(another).trouble(sealed)
    assert reason is not None
    assert "copy the file" in reason
    assert "hush" not in reason


def test_a_token_that_somebody_types_is_text_and_not_another_s_secret(keys: ParameterKeys) -> None:
    token = json.loads(keys.sealed('{"password": "hush"}'))["password"]
    for typed in ({"x": token}, {"password": token}, {"x": f"see {token}"}):
        text = json.dumps(typed)
        read = keys.opened(keys.sealed(text))
        assert "hush" not in read
        assert json.loads(read) == typed
    for text in (token, f"see {token}"):
        assert keys.opened(keys.sealed(text)) == text


def test_a_token_of_a_key_that_is_not_here_is_refused_from_users_alone(
    keys: ParameterKeys, tmp_path: Path
) -> None:
    sealed = keys.sealed('{"password": "hush"}')
    file = DatasourceKeys(tmp_path / "key")
    for _ in range(2):
        users = ParameterKeys(file, refuses_unknown=True)
        with pytest.raises(NotAllowedError, match="a secret parameter is encrypted"):
            users.sealed(sealed)
        assert ParameterKeys(file).sealed(sealed) == sealed
        file.make()


def test_a_new_key_reads_what_an_older_one_has_encrypted(tmp_path: Path) -> None:
    file = DatasourceKeys(tmp_path / "key")
    file.make(for_parameters=True)
    text = '{"password": "hush"}'
    before = ParameterKeys(file).sealed(text)
    file.add()
    keys = ParameterKeys(file)
    assert keys.opened(before) == text
    assert keys.resealed(before) == keys.sealed(text) != before


def test_a_key_of_a_former_version_encrypts_no_parameters_until_it_is_told_to(
    tmp_path: Path,
) -> None:
    file = DatasourceKeys(tmp_path / "key")
    file.make()
    text = '{"password": "hush"}'
    assert ParameterKeys(file).sealed(text) == text
    file.begin_parameters()
    file.add()
    assert "hush" not in ParameterKeys(file).sealed(text)
    assert len(file.read()) == 2


def test_a_draft_is_encrypted_as_a_whole_and_some_texts_not_at_all(keys: ParameterKeys) -> None:
    text = "password: hush  # no JSON yet"
    sealed = keys.sealed(Whole(text))
    assert "hush" not in sealed
    assert keys.opened(sealed) == text
    assert keys.sealed(AsItIs('{"password": "hush"}')) == '{"password": "hush"}'


def test_a_value_of_a_data_source_is_no_parameter(keys: ParameterKeys, tmp_path: Path) -> None:
    file = DatasourceKeys(tmp_path / "key")
    file.make(for_parameters=True)
    stored = file.sealed('{"user": "me", "password": "hush"}')
    assert ParameterKeys(file).sealed(stored) == stored
