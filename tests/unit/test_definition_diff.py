"""The difference of two versions of a definition, worked out from their documents."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from common.definition_diff import Difference, TaskChange, ValueChange, difference
from tests.builders import a_definition_json

NONE = Difference(
    added=(), removed=(), changed=(), edges_added=(), edges_removed=(), settings=(), risks=()
)


def a_document(
    graph: str, *, more: Mapping[str, Any] | None = None, **of_task: Any
) -> dict[str, Any]:
    inner = json.loads(a_definition_json(graph, **of_task))
    for task in inner["tasks"]:
        # Else the tasks would be recognized by their ids.
        task.pop("id")
    return {"name": "nightly", "processDefinitionJson": inner, **(more or {})}


def a_script(text: str, **more: Any) -> dict[str, Any]:
    return {"params": {"rawScript": text, "localParams": [], "resourceList": []}, **more}


def changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """The changes of the only task, by key."""
    (task,) = difference(before, after).changed
    return {each.key: (each.before, each.after) for each in task.changes}


def test_a_document_does_not_differ_from_itself_nor_by_what_is_drawn() -> None:
    document = a_document("a >> b")
    drawn = a_document("a >> b", more={"processDefinitionLocations": "{}", "schedules": [1]})
    assert difference(document, drawn) == NONE
    assert difference(document, drawn).is_none


def test_tasks_and_edges_are_added_and_removed() -> None:
    found = difference(
        a_document("a >> b >> c", c=a_script("old")), a_document("a >> d", d=a_script("new"))
    )
    assert (found.added, found.removed) == (("d",), ("b", "c"))
    assert found.edges_added == (("a", "d"),)
    assert found.edges_removed == (("a", "b"), ("b", "c"))
    assert found.risks == ("'b' is gone: what came after it no longer waits for it",)


def test_an_added_task_is_shown_with_all_its_values_x67() -> None:
    text = "\n".join(f"line {each}" for each in range(1_500))
    task = {
        "type": "SQL",
        "tenantCode": "etl",
        "params": {
            "datasource": 3,
            "sql": text,
            "localParams": [{"prop": "day", "direct": "IN", "type": "VARCHAR", "value": "now"}],
        },
    }
    found = difference(a_document("a"), a_document("a >> b", b=task))
    (added,) = found.contents
    assert added.name == "b"
    shown = {each.key: each for each in added.changes}
    assert shown["type"].after == "SQL"
    assert shown["tenantCode"].after == "etl"
    assert shown["params.datasource"].after == 3
    assert shown["params.localParams.day"].after == "now"
    assert shown["params.sql"].lines == tuple(f"+{each}" for each in text.splitlines())
    assert all(each.before is None for each in added.changes)


@pytest.mark.parametrize(
    ("params", "risks"),
    [
        (
            {"file": "/x.py"},
            ("'b' runs the file '/x.py' of its worker, with the content at that time",),
        ),
        (
            {"file": "/x.py", "digests": {"/x.py": "0a"}},
            ("'b' runs the file '/x.py': its SHA-256 is checked, its text is not here",),
        ),
        ({"file": "x.py", "fileText": "1"}, ()),
    ],
)
def test_a_script_that_is_not_in_the_document_is_a_risk(
    params: dict[str, Any], risks: tuple[str, ...]
) -> None:
    found = difference(
        a_document("a"), a_document("a >> b", b={"type": "PYTHON", "params": params})
    )
    assert found.risks == risks


def test_no_line_of_a_long_change_is_left_out() -> None:
    old = "\n".join(f"old {each}" for each in range(800))
    new = "\n".join(f"new {each}" for each in range(800))
    found = difference(a_document("a", a=a_script(old)), a_document("a", a=a_script(new)))
    (change,) = found.changed[0].changes
    assert {f"+new {each}" for each in range(800)} <= set(change.lines)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (a_script("true", code=7), a_script("something else entirely", code=7)),
        (a_script("the same"), a_script("the same")),
        (a_script("one two three four five"), a_script("one two three four six")),
    ],
    ids=["by its code", "by the same content", "by much the same content"],
)
def test_a_task_is_renamed_and_its_edges_with_it(
    before: dict[str, Any], after: dict[str, Any]
) -> None:
    found = difference(
        a_document("a >> old", a=a_script("first"), old=before),
        a_document("a >> new", a=a_script("first"), new=after),
    )
    (task,) = found.changed
    assert (task.name, task.was, task.is_renamed) == ("new", "old", True)
    assert found == Difference(
        added=(),
        removed=(),
        changed=(task,),
        edges_added=(),
        edges_removed=(),
        settings=(),
        risks=(),
    )


def test_a_script_is_compared_line_by_line_and_a_lost_retry_is_a_risk() -> None:
    found = difference(
        a_document("a", a=a_script("echo 1\necho 2\necho 3", maxRetryTimes=3)),
        a_document("a", a=a_script("echo 1\necho two\necho 3", maxRetryTimes=0)),
    )
    (task,) = found.changed
    assert task == TaskChange(
        name="a",
        was="a",
        changes=(
            ValueChange(
                key="params.rawScript",
                before="echo 1\necho 2\necho 3",
                after="echo 1\necho two\necho 3",
                lines=("@@ -1,3 +1,3 @@", " echo 1", "-echo 2", "+echo two", " echo 3"),
            ),
            ValueChange(key="maxRetryTimes", before=3, after=0),
        ),
    )
    assert found.risks == ("'a' is retried 0 times at most",)


def test_parameters_are_compared_by_their_names_and_settings_by_their_keys() -> None:
    day = {"prop": "day", "direct": "IN", "type": "VARCHAR", "value": "1"}
    rows = {"prop": "rows", "direct": "IN", "type": "VARCHAR", "value": "5"}
    found = difference(
        a_document("a", more={"globalParams": json.dumps([day, rows]), "timeout": 5}),
        a_document("a", more={"globalParams": [rows | {"type": "INTEGER"}, day | {"value": "2"}]}),
    )
    assert [(each.key, each.before, each.after) for each in found.settings] == [
        ("globalParams.day", "1", "2"),
        ("timeout", 5, 0),
        ("globalParams.rows.type", None, "INTEGER"),
    ]


def test_a_document_without_any_setting_lacks_those_of_the_other_and_no_more() -> None:
    bare = {"processDefinitionJson": {"tasks": []}}
    found = difference(bare, {**bare, "timeout": 3})
    assert [(each.key, each.before, each.after) for each in found.settings] == [
        ("timeout", None, 3)
    ]


def test_secrets_look_all_alike() -> None:
    def with_secret(reference: str, script: str) -> dict[str, Any]:
        own = {"prop": "db_password", "value": reference}
        return a_document("a", a={"params": {"rawScript": script, "localParams": [own]}})

    one = with_secret("$ENV{ORCAFLOW_SECRET_DB_PASSWORD}", "x --pw $ENV{ORCAFLOW_SECRET_PW}")
    other = with_secret("$ENV{ORCAFLOW_SECRET_A_DB_PASSWORD}", "y --pw $ENV{ORCAFLOW_SECRET_PW}")
    assert changes(one, other) == {"params.rawScript": ("x --pw ******", "y --pw ******")}


def test_a_number_is_no_truth_value_and_none_no_empty_text() -> None:
    assert changes(a_document("a", a={"delay": 1}), a_document("a", a={"delay": True})) == {
        "delay": (1, True)
    }
    assert changes(a_document("a", a={"x": ""}), a_document("a")) == {"x": ("", None)}


def test_a_long_text_and_many_tasks_are_not_compared_for_ever() -> None:
    long = "\n".join(str(each) for each in range(5_000))
    found = difference(a_document("a", a=a_script(long)), a_document("a", a=a_script(f"{long}\n1")))
    (change,) = found.changed[0].changes
    # The diff has the whole text, so a long script cannot hide a change from a reviewer.
    assert len(change.lines) == 10_001
    assert (change.lines[4_999], change.lines[5_000]) == ("-4999", "+0")
    before, after = (
        {"processDefinitionJson": {"tasks": [{"name": f"{kind}{each}"} for each in range(100)]}}
        for kind in ("old", "new")
    )
    # All alike, so that each is another's new name.
    assert len(difference(before, after).changed) == 1
    assert difference(before, after).is_none is False


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"processDefinitionJson": "no JSON"},
        {"processDefinitionJson": {"tasks": 5}},
        {"processDefinitionJson": {"tasks": [5, {"name": 7, "preTasks": "x"}, {}]}},
        {"globalParams": "[" * 5_000, "processDefinitionJson": None},
    ],
)
def test_what_somebody_typed_into_the_database_is_compared_as_far_as_it_goes(
    document: dict[str, Any],
) -> None:
    assert difference(document, document).is_none
    assert not difference(document, a_document("a")).is_none
    assert not difference(a_document("a"), document).is_none


LINE_ENDS = ("\u2028", "\u2029", "\x0b", "\x0c", "\x85", "\x1c", "\x1d", "\x1e", "\r")
"""Characters at which `str.splitlines` ends a line, and bash does not."""


@pytest.mark.parametrize("character", LINE_ENDS)
def test_x121_lines_of_a_difference_end_where_those_of_the_program_end(character: str) -> None:
    program = f"echo start\n# usage:{character}: <<'DOC'\necho RAN\nDOC\necho end"
    found = difference(
        a_document("a", a=a_script("echo start")), a_document("a", a=a_script(program))
    )
    ((change,),) = (task.changes for task in found.changed)
    code = f"<U+{ord(character):04X}>"
    assert change.lines[1:] == (
        " echo start",
        f"+# usage:{code}: <<'DOC'",
        "+echo RAN",
        "+DOC",
        "+echo end",
    )
    assert found.risks == (
        f"params.rawScript of 'a' contains characters that are not shown: {code}",
    )
    added = difference(a_document("b"), a_document("b, a", a=a_script(program)))
    assert f"+# usage:{code}: <<'DOC'" in [
        line for task in added.contents for each in task.changes for line in each.lines
    ]
    assert added.risks == found.risks


@pytest.mark.parametrize("character", [*LINE_ENDS, "\u202e", "\u200b", "\u00a0", "\U000e0041"])
def test_x121_a_hidden_character_in_the_place_of_a_line_end_is_shown(character: str) -> None:
    before = a_script('# is it good?\ntest -n "$bad" || exit 1\necho LOADED')
    after = a_script(f'# is it good?{character}test -n "$bad" || exit 1\necho LOADED')
    ((change,),) = (
        task.changes
        for task in difference(a_document("a", a=before), a_document("a", a=after)).changed
    )
    assert change.lines[1:] == (
        "-# is it good?",
        '-test -n "$bad" || exit 1',
        f'+# is it good?<U+{ord(character):04X}>test -n "$bad" || exit 1',
        " echo LOADED",
    )


def test_x121_a_line_with_a_hidden_character_is_shown_though_it_is_the_only_one() -> None:
    found = difference(
        a_document("a", a=a_script("echo a")), a_document("a", a=a_script("echo \u202ea"))
    )
    ((change,),) = (task.changes for task in found.changed)
    assert change.lines[1:] == ("-echo a", "+echo <U+202E>a")


def test_x121_letters_of_another_alphabet_that_look_alike_are_a_risk() -> None:
    found = difference(
        a_document("a", a=a_script("echo a")), a_document("a", a=a_script("ech\u043e данные"))
    )
    assert found.risks == (
        "params.rawScript of 'a' contains letters of two alphabets within a word: 'h\u043e'",
    )
