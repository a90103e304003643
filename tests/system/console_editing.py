"""The editor of drafts as a person uses it in a browser."""

from __future__ import annotations

import json
from typing import Any

from common.task_types import known_task_types, task_type_spec
from tests.system.browser import NARROW, OPENED, WIDE, Visitor, accessibility_faults
from tests.system.cluster import PrivateCluster, a_task, until
from tests.unit.task_forms import FILLED


def saves_what_is_typed(ada: Visitor, cluster: PrivateCluster) -> None:
    """Type a script and a task to wait for; both are saved without a button."""
    definition = cluster.define("edited", [a_task("first", "echo one"), a_task("last", "true")])
    ada.open(f"/definitions/{definition}/edit?task=first")
    ada.page.fill("textarea[name=script]", "echo one\necho two\necho three")
    ada.sees(".editor .lines", "3")
    ada.sees("#e-facts", "Discard the draft")
    ada.page.fill("input[name=before]", "last")
    # The server has drawn the graph anew.
    ada.page.wait_for_selector('[data-ends*="-"]', state="attached")
    until(lambda: ada.page.inner_text("[data-status]") == "saved")
    (first, _) = _tasks_of_draft(cluster)
    assert first["params"]["rawScript"] == "echo one\necho two\necho three"
    assert first["preTasks"] == ["last"]


def creates_each_type(ada: Visitor, cluster: PrivateCluster) -> None:
    """Create a task of each type with the fields of its form; then give one another type."""
    definition = cluster.define("of-each-type", [a_task("first", "true")])
    ada.open(f"/definitions/{definition}/edit?task=first")
    page = ada.page
    for name in sorted(known_task_types()):
        page.select_option("select[name=new_type]", name)
        with page.expect_navigation():
            page.click('button[value="add"]')
        page.evaluate(OPENED)
        for field, text in _typed(name).items():
            place = page.locator(f'[name="{field}"]')
            if place.evaluate("each => each.tagName") == "SELECT":
                place.select_option(text)
            else:
                place.fill(text)
    assert accessibility_faults(page) == []
    ada.resize(NARROW)
    assert ada.overflow() == 0
    ada.resize(WIDE)
    with page.expect_navigation():
        page.select_option("select[name=type]", "HTTP")
    page.fill('input[name="param:url"]', "http://localhost/")
    with page.expect_navigation():
        page.click('button[value="save"]')
    first, *others, last = _tasks_of_draft(cluster)
    assert first["params"] == {"rawScript": "true"}
    assert [each["type"] for each in (*others, last)] == [*sorted(known_task_types())[:-1], "HTTP"]
    assert last["params"] == {"url": "http://localhost/"}
    for each in others:
        wanted = FILLED[each["type"]]
        assert {key: each[key] for key in wanted} == wanted


def _typed(name: str) -> dict[str, str]:
    """The texts for the fields of a task of this type, by their names."""
    program, filled = task_type_spec(name).program, FILLED[name]
    texts = {
        **{f"param:{key}": each for key, each in filled["params"].items() if key != program},
        **{f"part:{key}": each for key, each in filled.items() if key != "params"},
        **({"script": filled["params"][program]} if program else {}),
    }
    return {key: each if isinstance(each, str) else json.dumps(each) for key, each in texts.items()}


def _tasks_of_draft(cluster: PrivateCluster) -> list[dict[str, Any]]:
    ((text,),) = cluster.rows(
        "SELECT content FROM t_ds_definition_draft_save ORDER BY draft_id DESC, revision DESC LIMIT 1"
    )
    tasks: list[dict[str, Any]] = json.loads(text)["processDefinitionJson"]["tasks"]
    return tasks
