"""Topologies as YAML: the same as those of the builder, and every mistake with its place."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from common.strict_json import MAX_BYTES
from common.topology.checking import InvalidTopologyError
from common.topology.groupings import Custom, PartialKey
from common.topology_files import topology_of
from tests.topologies import ByLength, Count, Dictionary, Known, words

WORDS = """\
name: words
config: {topology.debug: true}
spouts:
  - {id: lines, className: tests.topologies.Lines, tasks: 2}
bolts:
  - {id: split, className: tests.topologies.Split, parallelism: 2, tasks: 3}
  - id: count
    className: tests.topologies.Count
    constructorArgs: [0]
    properties: {step: 1}
    tasks: 4
    config: {a: {b: [1]}}
streams:
  - {name: lines to split, from: lines, to: split, grouping: {type: SHUFFLE}}
  - {from: split, to: count, grouping: {type: FIELDS, args: [word], streamId: default}}
"""


def mistakes(text: str) -> list[str]:
    with pytest.raises(InvalidTopologyError) as caught:
        topology_of(text.encode())
    return list(caught.value.mistakes)


def test_a_file_declares_what_the_builder_would() -> None:
    found, built = topology_of(WORDS.encode()), words().create_topology()
    assert [(part.id, part.executors, part.tasks, part.inputs) for part in found.parts] == [
        (part.id, part.executors, part.tasks, part.inputs) for part in built.parts
    ]
    assert [type(part.component) for part in found.parts] == [
        type(part.component) for part in built.parts
    ]
    assert found.config == {"topology.debug": True}
    assert found.parts[2].config == {"a": {"b": [1]}}
    count = found.parts[2].component
    assert isinstance(count, Count)
    assert (count.first, count.step) == (0, 1)


def test_other_groupings() -> None:
    text = WORDS.replace("{type: SHUFFLE}", "{type: PARTIAL_KEY, args: [line]}")
    assert topology_of(text.encode()).parts[1].inputs[0].grouping == PartialKey(("line",))
    own = "{type: CUSTOM, customClass: {className: tests.topologies.ByLength}}"
    grouping = (
        topology_of(WORDS.replace("{type: SHUFFLE}", own).encode()).parts[1].inputs[0].grouping
    )
    assert isinstance(grouping, Custom)
    assert isinstance(grouping.chooser, ByLength)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("tasks: 2}", "task: 2}", "spouts[0]: 'task' is unknown; there are id, className"),
        ("type: SHUFFLE", "type: shuffle", "streams[0].grouping: type: 'shuffle' is unknown; there"),
        ("to: split", "to: spilt", "streams[0]: to: there is no bolt 'spilt'; there are lines, split"),
        ("to: split", "to: lines", "streams[0]: to: 'lines' is a spout, which takes no stream"),
        ("from: split", "form: split", "streams[1]: from: a text is missing"),
        ("args: [word]", "args: word", "streams[1].grouping: args: it must be a list of fields"),
        ("topologies.Split", "topologies.Spilt", "bolts[0]: 'tests.topologies.Spilt' can't be made"),
        ("{step: 1}", "{steps: 1}", "Count has no property 'steps'"),
        ("constructorArgs: [0]", "constructorArgs: [0, 1]", "TypeError: "),
        ("constructorArgs: [0]", "constructorArgs: 0", "bolts[1]: constructorArgs: it must be a list"),
        ("spouts:", "spouts: 1\nspuots:", "spouts: it must be a list"),
        ("name: words", "name: words\nname: again", "the file line 2: the key 'name' stands twice"),
        ("name: words", "? [a]\n: 1\nname: words", "a key must be a text"),
        ("name: words", "name: !!python/object:os.system x", "the tag"),
        ("name: words", "name: [", "not YAML"),
        ("args: [word]", "args: [wort]", "count: input 1: 'split' has no field 'wort'"),
        ("name: words", "name: words\nhash: [storm]", "hash: ['storm'] is unknown"),
        ("topologies.Split", "topologies.Bolt", "bolts[0]: 'tests.topologies.Bolt' can't be made: TypeError"),
        ("topologies.Split, par", "topologies.leave, par", "can't be made: SystemExit: 3"),
        ("tasks: 4", "tasks: 0", "count: tasks must be a number from 1 to 1,000, not 0"),
    ],
)  # fmt: skip
def test_a_mistake_is_told_with_its_place(old: str, new: str, said: str) -> None:
    assert old in WORDS
    found = mistakes(WORDS.replace(old, new, 1))
    assert any(said in mistake for mistake in found), found


def test_unknown_keys_are_told_in_the_order_written() -> None:
    found = mistakes(WORDS.replace("tasks: 2}", "zeta: 1, alpha: 2, mu: 3}"))
    assert [each.split("'")[1] for each in found] == ["zeta", "alpha", "mu"]


@pytest.mark.parametrize("text", ["", "- a", "7", "null"])
def test_what_is_no_topology_at_all_is_told(text: str) -> None:
    assert mistakes(text) == ["the file: it must be keys with values"]


def test_a_file_of_any_size_and_depth_is_answered() -> None:
    assert "is larger than" in mistakes("#" * (MAX_BYTES + 1))[0]
    assert "nested more than" in mistakes("[" * 100_000)[0]


def test_an_import_that_fails_is_told_with_its_own_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken_bolts.py").write_text("import os\n\nraise RuntimeError('no licence')\n")
    (tmp_path / "unread_bolts.py").write_text("class Split(:\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    (mistake,) = mistakes(WORDS.replace("tests.topologies.Split", "broken_bolts.Split"))
    assert mistake.startswith(
        "bolts[0]: 'broken_bolts.Split' can't be made: RuntimeError: no licence"
    )
    assert mistake.endswith("broken_bolts.py:3)")
    (mistake,) = mistakes(WORDS.replace("tests.topologies.Split", "unread_bolts.Split"))
    assert "SyntaxError: invalid syntax (unread_bolts.py, line 1)" in mistake
    (mistake,) = mistakes(WORDS.replace("tests.topologies.Split", "no_such.Split"))
    assert "ModuleNotFoundError: No module named 'no_such'" in mistake
    assert "broken_bolts" not in sys.modules


FLUX = """\
name: flux
components:
  - {id: english, className: tests.topologies.Dictionary, constructorArgs: [the, a]}
  - id: german
    className: "tests.topologies.Dictionary"
    constructorArgs:
      - "der"
    properties:
      - name: "of"
        ref: "english"
    configMethods:
      - name: "add"
        args: ["die", 7]
spouts:
  - {id: lines, className: tests.topologies.Lines}
bolts:
  - id: known
    className: tests.topologies.Known
    constructorArgs:
      - ref: "german"
      - reflist: ["english", "german"]
    properties:
      - {name: limit, value: {ref: english, more: 1}}
    configMethods:
      - {name: call, args: [{ref: english}, 1]}
      - name: call
streams:
  - {from: lines, to: known, grouping: {type: SHUFFLE}}
"""


def test_objects_of_components_are_given_by_reference() -> None:
    known = topology_of(FLUX.encode()).parts[1].component
    assert isinstance(known, Known)
    german, english = known.dictionary, known.called[0]
    assert isinstance(german, Dictionary)
    assert isinstance(english, Dictionary)
    assert (english.words, german.words) == (["the", "a"], ["der", "die", "7"])
    # All references to a component give the same object.
    assert german.of is english
    assert known.others == [english, german]
    assert known.called == [english, 1]
    # `ref` is a reference only if it is the sole key.
    assert known.limit == {"ref": "english", "more": 1}


def test_a_reference_can_be_a_property_by_its_name() -> None:
    text = FLUX.replace("- {name: limit, value: {ref: english, more: 1}}", "limit: {ref: english}")
    known = topology_of(text.encode()).parts[1].component
    assert isinstance(known, Known)
    assert known.limit is known.called[0]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('ref: "german"', "ref: french", "bolts[0].constructorArgs[0]: ref: there is no component 'french'; there are english, german"),
        ('["english", "german"]', "[english, 7]", "bolts[0].constructorArgs[1]: ref: there is no component 7"),
        ('["english", "german"]', "english", "bolts[0].constructorArgs[1]: reflist: it must be a list of ids"),
        ("[the, a]", "[{ref: german}]", "components[0].constructorArgs[0]: ref: 'german' is declared further down; move it up"),
        ("id: german", "id: english", "components[1]: id: 'english' is the id of another component"),
        ('"tests.topologies.Dictionary"', "org.apache.storm.Dict", "components[1]: 'org.apache.storm.Dict' can't be made: ModuleNotFoundError: No module named 'org'; a class of Java can't run here: name one of Python"),
        ('name: "add"', "name: plus", "components[1]: 'tests.topologies.Dictionary' can't be made: AttributeError"),
        ('name: "add"', "nam: add", "components[1].configMethods[0]: name: a text is missing"),
        ('args: ["die", 7]', "args: die", "components[1].configMethods[0]: args: it must be a list"),
        ('ref: "english"', "value: 1\n        ref: english", "components[1].properties[0]: a property has either a value or a ref"),
        ('name: "of"', "name: off", "Dictionary has no property 'off'"),
        ("components:", "includes: []\ncomponents:", "the file: 'includes' of Flux is not read here: put the parts"),
        ("components:", "topologySource: {}\ncomponents:", "declare the topology in Python, and submit FILE.py:NAME"),
        ("id: lines,", "id: lines, numTasks: 2,", "spouts[0]: 'numTasks' of Flux is not read here: write tasks"),
        ("id: lines,", "id: lines, cpuLoad: 2,", "submit it with --cores"),
        ("id: lines,", "id: lines, constructorArgs: [{ref: gone}],", "spouts[0].constructorArgs[0]: ref: there is no component 'gone'"),
        ("{id: english", "{id: 7", "components[0]: id: a text is missing"),
    ],
)  # fmt: skip
def test_a_mistake_in_what_flux_has_is_reported_with_its_place(
    old: str, new: str, said: str
) -> None:
    assert old in FLUX
    found = mistakes(FLUX.replace(old, new, 1))
    assert any(said in mistake for mistake in found), found


def test_values_of_the_submitter_replace_placeholders() -> None:
    text = WORDS.replace("tasks: 4", "tasks: ${count.tasks}").replace("[0]", "[${ENV-FIRST}]")
    found = topology_of(text.encode(), properties={"count.tasks": "5"}, environment={"FIRST": "3"})
    count = found.parts[2].component
    assert isinstance(count, Count)
    assert (found.parts[2].tasks, count.first) == (5, 3)
    said = mistakes(text)
    assert [each.split("}")[0] for each in said] == [
        "the file line 9: ${ENV-FIRST",
        "the file line 11: ${count.tasks",
    ]


def test_the_environment_of_the_process_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FIRST", "3")
    (said,) = mistakes(WORDS.replace("[0]", "[${ENV-FIRST}]"))
    assert "add --env FIRST to the submission" in said
