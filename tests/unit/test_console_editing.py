"""The form of a task in the editor: its fields come from the specification of the task's type."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from api.console import editing
from api.console.task_inputs import PARAM, PART, FieldError
from common.task_types import known_task_types, task_type_spec
from tests.unit.task_forms import FILLED, VALUES


def a_document(**node: Any) -> dict[str, Any]:
    return {
        "name": "n",
        "processDefinitionJson": {"tasks": [{"name": "a", "preTasks": [], **node}]},
    }


def the_task(document: dict[str, Any]) -> dict[str, Any]:
    (node,) = document["processDefinitionJson"]["tasks"]
    assert isinstance(node, dict)
    return node


def sent(node: dict[str, Any], **typed: str) -> dict[str, str]:
    """The form of a task as a browser sends it: a line break is two characters."""
    fields = editing.fields_of(node)
    form = {
        "name": fields.name,
        "type": fields.type,
        "form_type": fields.form_type,
        "before": fields.before,
        "params": fields.params,
        "others": fields.others,
        **fields.words,
        **{each.field: each.text for each in fields.inputs},
    }
    if fields.script is not None:
        form["script"] = fields.script
    return {name: text.replace("\n", "\r\n") for name, text in (form | typed).items()}


@pytest.mark.parametrize("name", sorted(known_task_types()))
def test_a_task_of_each_type_is_created_by_the_fields_of_its_form(name: str) -> None:
    empty: dict[str, Any] = {"name": "n", "processDefinitionJson": {"tasks": []}}
    made, task = editing.added(empty, None, name)
    spec, wanted = task_type_spec(name), FILLED[name]
    typed = {
        **{
            PARAM + key: value if isinstance(value, str) else json.dumps(value)
            for key, value in wanted["params"].items()
            if key != spec.program
        },
        **{PART + key: json.dumps(each) for key, each in wanted.items() if key != "params"},
    }
    if spec.program:
        typed["script"] = wanted["params"][spec.program]
    form = sent(the_task(made))
    assert set(typed) <= set(form), "the form has a field for each of them"
    node = the_task(editing.changed(made, task, form | typed))
    assert {key: node[key] for key in wanted} == wanted
    assert node["type"] == name
    assert list(spec.faults_in(node["params"])) == []
    assert list(spec.missing_in(node["params"])) == []


@pytest.mark.parametrize("name", sorted(known_task_types()))
def test_a_form_that_nobody_has_changed_changes_nothing(name: str) -> None:
    spec = task_type_spec(name)
    values = [*VALUES, "two\nlines", "7", "[x", '"x', {"a": {"b": [1]}}, "\n"]
    keys = (*(each.name for each in spec.keys), "unknown")
    for value in values:
        document = a_document(type=name, params=dict.fromkeys(keys, value), id="1", loops=[1])
        kept = editing.changed(document, "a", sent(the_task(document)))
        assert json.dumps(the_task(kept), sort_keys=True) == json.dumps(
            the_task(document), sort_keys=True
        ), value


@pytest.mark.parametrize("wanted", sorted(known_task_types()))
def test_a_task_that_becomes_one_of_another_type_loses_the_keys_of_the_former(wanted: str) -> None:
    spec = task_type_spec(wanted)
    for name, filled in FILLED.items():
        former = task_type_spec(name)
        params = {**filled["params"], "localParams": [], "unknown": 1}
        document = a_document(type=name, **{**filled, "params": params})
        node = the_task(editing.changed(document, "a", sent(the_task(document), type=wanted)))
        assert node["type"] == wanted
        own = {each.name for each in spec.keys} | {"localParams", "unknown", *spec.starts_with}
        if name != wanted:
            assert set(node["params"]) <= own | set(spec.ignored_keys), name
            left = {key for key in former.node_keys if key in node}
            assert left <= set(spec.node_keys), name
        assert {"localParams", "unknown"} <= set(node["params"])


def test_a_script_that_somebody_wrote_goes_along_and_the_first_one_of_a_new_task_does_not() -> None:
    for script, kept in (("select 1", {"sql": "select 1"}), ("true", {})):
        document = a_document(type="SHELL", params={"rawScript": script})
        node = the_task(editing.changed(document, "a", sent(the_task(document), type="SQL")))
        assert node["params"] == kept


def test_a_text_that_is_no_json_and_a_key_that_is_given_twice_are_reported_by_the_key() -> None:
    document = a_document(type="HTTP", params={"url": "http://h/"})
    node = the_task(document)
    for typed, key in (
        ({PARAM + "httpParams": '[{"prop": '}, "httpParams"),
        ({"params": '{"url": "http://other/"}'}, "url"),
    ):
        with pytest.raises(FieldError) as caught:
            editing.changed(document, "a", sent(node, **typed))
        assert caught.value.field == key
        assert editing.typed(sent(node, **typed)).inputs[0].text == "http://h/"
    assert document == a_document(type="HTTP", params={"url": "http://h/"})


def test_a_form_of_before_the_type_was_changed_elsewhere_keeps_what_was_typed() -> None:
    document = a_document(type="HTTP", params={"url": "http://h/"})
    form = sent(the_task(document), **{PARAM + "url": "http://other/"})
    other = copy.deepcopy(document)
    the_task(other).update(type="SHELL", params={"rawScript": "true"})
    node = the_task(editing.changed(other, "a", form))
    assert (node["type"], node["params"]["url"]) == ("HTTP", "http://other/")
