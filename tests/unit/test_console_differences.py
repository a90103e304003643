"""Differences of definitions as pages show them, and the versions that names of runs tell."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from api.console.differences import shown, values_of
from common.definition_diff import ValueChange, difference
from common.model.run_names import run_name, version_in

HOSTILE = "\u202e\x1b[31m\ud800<b>"


def a_document(tasks: dict[str, str]) -> dict[str, Any]:
    nodes = [
        {"name": name, "type": "SHELL", "params": {"rawScript": script}}
        for name, script in tasks.items()
    ]
    return {"processDefinitionJson": {"tasks": nodes}}


def test_a_long_script_is_told_by_its_lines_and_a_short_one_by_both_values() -> None:
    before = a_document({"long": "one\ntwo\nthree", "short": "true"})
    after = a_document({"long": "one\n\t2\nthree", "short": "false"})
    found = shown(difference(before, after))
    (long,), (short,) = (each.values for each in found.changed)
    assert long.lines == ("@@ -1,3 +1,3 @@", " one", "-two", "+   2", " three")
    assert (short.key, short.before, short.after) == ("params.rawScript", "true", "false")
    assert short.lines == ()


def test_a_page_shows_some_tasks_of_many_and_counts_all() -> None:
    names = [f"t{each}" for each in range(9)]
    found = shown(
        difference(
            a_document(dict.fromkeys(names, "true")), a_document(dict.fromkeys(names, "false"))
        ),
        most_tasks=4,
    )
    assert [each.name for each in found.changed] == names[:4]
    assert (found.left_out, found.tasks_changed) == (5, 9)


def test_a_page_shows_what_added_tasks_run_and_says_if_it_is_shortened() -> None:
    none = a_document({})
    found = shown(difference(none, a_document({"new": "one\ntwo", "short": "true"})))
    assert [each.name for each in found.contents] == ["new", "short"]
    assert found.contents[0].values[1].lines == ("+one", "+two")
    assert found.contents[1].values[1].after == "true"
    assert not found.is_cut
    for script in ("x" * 1_001, f"ok\n{'x' * 1_001}", "x\n" * 3_001):
        assert shown(difference(none, a_document({"new": script}))).is_cut, script[:9]
    many = a_document({f"t{each}": "true" for each in range(9)})
    assert shown(difference(none, many), most_tasks=4).is_cut


def test_a_page_has_an_end_however_many_lines_differ() -> None:
    change = ValueChange(key="sql", before="", after="", lines=("+x",) * 2_000)
    texts = [each.lines for each in values_of([change] * 3)]
    assert [len(each) for each in texts] == [2_000, 1_001, 1]
    assert texts[2][-1] == "… 2000"


def test_values_are_told_apart_where_their_texts_are_alike() -> None:
    changes = [
        ValueChange(key="retries", before="1", after=1),
        ValueChange(key="note", before="", after=None),
        ValueChange(key="list", before=None, after=["é"]),
    ]
    assert [(each.before, each.after) for each in values_of(changes)] == [
        ('"1"', "1"),
        ('""', None),
        (None, '["é"]'),
    ]


def test_control_characters_and_halves_of_characters_are_shown_as_dots() -> None:
    found = shown(difference(a_document({"a": "x"}), a_document({HOSTILE: "y\n" + HOSTILE})))
    texts = str(found)
    assert not any(each in texts for each in "\u202e\x1b\ud800")
    assert "··[31m·<b>" in found.added
    texts.encode()


@given(definition=st.text(), version=st.integers(1, 2**31 - 1))
def test_the_name_of_a_run_tells_the_version_of_its_definition(
    definition: str, version: int
) -> None:
    assert version_in(run_name(definition, version, 1_357_027_200_000)) == version


def test_a_name_that_somebody_typed_tells_none() -> None:
    names = ("nightly-1", "a-0-1357027200000", "a-9999999999-1357027200000", "1-1357027200000\n")
    assert [version_in(each) for each in (*names, "", "a-٣-1357027200000")] == [None] * 6
