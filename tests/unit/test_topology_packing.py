"""A topology is loaded where its author is, and packed with the files that it needs."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from common.model.topology_graphs import GraphInput, TopologyGraph
from common.topology.checking import InvalidTopologyError
from operations.errors import UsageError
from operations.topology_packing import packed, properties_in, variables_given
from operations.topology_submission import Submission
from tests.topology_files import MAIN, PARTS, YAML, written


def pack(folder: Path, main: str = "words.py:topology") -> Submission:
    return packed(f"{folder}/{main}", [folder / "parts.py"])


def mistakes(folder: Path, main: str = "words.py:topology") -> tuple[str, ...]:
    with pytest.raises(InvalidTopologyError) as caught:
        pack(folder, main)
    return caught.value.mistakes


@pytest.mark.parametrize("name", ["topology", "made"])
def test_a_variable_or_a_function_of_a_python_file_is_packed(tmp_path: Path, name: str) -> None:
    before = set(sys.modules), list(sys.path)
    found = pack(written(tmp_path), f"words.py:{name}")
    assert (found.code.main, dict(found.code.files)) == (
        f"words.py:{name}",
        {"words.py": MAIN, "parts.py": PARTS},
    )
    graph = found.graph
    assert [(part.id, part.kind, part.executors, part.tasks) for part in graph.parts] == [
        ("lines", "spout", 1, 2),
        ("split", "bolt", 2, 3),
        ("count", "stateful", 1, 4),
    ]
    count = graph.part("count")
    assert count is not None
    assert count.inputs == (
        GraphInput(component="split", stream="default", grouping="fields", fields=("word",)),
    )
    # Keys of the configuration, and none of its values.
    assert graph.config == ("secret",)
    assert "hunter2" not in str(graph.document())
    assert TopologyGraph.of(graph.document()) == graph
    # Nothing of it is left in this process.
    assert {"words", "parts"}.isdisjoint(set(sys.modules) - before[0])
    assert sys.path == before[1]


def test_a_yaml_file_is_packed_with_its_modules(tmp_path: Path) -> None:
    found = pack(written(tmp_path), "words.yaml")
    assert (found.code.main, found.code.files["words.yaml"]) == ("words.yaml", YAML)
    python = pack(tmp_path)
    assert found.graph.parts == python.graph.parts


def test_a_yaml_file_is_packed_with_the_values_of_its_submitter(tmp_path: Path) -> None:
    written(tmp_path)
    text = YAML.replace("tasks: 4", "tasks: ${n}").replace(
        "words\n", "words # $${n} ${ENV-WHO}\n", 1
    )
    (tmp_path / "words.yaml").write_text(text)
    (tmp_path / "dev.properties").write_text("n = 4\n")
    found = packed(
        f"{tmp_path}/words.yaml",
        [tmp_path / "parts.py"],
        properties=properties_in(tmp_path / "dev.properties"),
        environment=variables_given(["WHO", "MORE=a=b"], {"WHO": "me", "HIDDEN": "x"}),
    )
    # Placeholders are replaced in the stored file, so that the worker does not need the values.
    stored = YAML.replace("words\n", "words # ${n} me\n", 1)
    assert found.code.files["words.yaml"] == stored
    assert found.graph.part("count") == pack(written(tmp_path)).graph.part("count")
    with pytest.raises(UsageError, match="only YAML files have placeholders"):
        packed(f"{tmp_path}/words.py:topology", properties={"n": "4"})
    with pytest.raises(UsageError, match="there is no variable 'GONE' here"):
        variables_given(["GONE"], {})


def test_every_mistake_is_told_at_once_as_where_it_is_declared(tmp_path: Path) -> None:
    wrong = MAIN.replace("tasks=3", "tasks=1").replace('("split", "word")', '("split", "wrod")')
    found = mistakes(written(tmp_path, main=wrong))
    assert len(found) == 2
    assert "2 executors are more than its 1 tasks" in found[0]
    assert "no field 'wrod'" in found[1]


@pytest.mark.parametrize(
    ("main", "parts", "told"),
    [
        (MAIN, "1 / 0\n", "parts.py:1: ZeroDivisionError: division by zero"),
        (MAIN, "def (:\n", "parts.py:1: SyntaxError"),
        ("\nimport nowhere_to_be_found\n", PARTS, "words.py:2: ModuleNotFoundError"),
        ("import sys\nsys.exit(3)\n", PARTS, "words.py:2: SystemExit: 3"),
        ("x = 1\n", PARTS, "words.py: there is no 'topology' in it"),
        ("topology = 1\n", PARTS, "words.py: 'topology' is a int and no topology"),
        (
            MAIN.replace("builder.create_topology()", "builder"),
            PARTS,
            "TopologyBuilder and no topology; let it be builder.create_topology()",
        ),
        ("def topology():\n    raise ValueError('no')\n", PARTS, "words.py:2: ValueError: no"),
    ],
)
def test_what_fails_is_told_with_file_and_line(
    tmp_path: Path, main: str, parts: str, told: str
) -> None:
    (found,) = mistakes(written(tmp_path, main=main, parts=parts))
    assert told in found


def test_a_module_that_was_not_named_is_missed_here_and_not_on_the_worker(tmp_path: Path) -> None:
    written(tmp_path)
    with pytest.raises(InvalidTopologyError, match="name it with --files"):
        packed(f"{tmp_path}/words.py:topology")


def test_a_class_that_fails_in_a_yaml_file_is_told_without_the_place_of_its_copy(
    tmp_path: Path,
) -> None:
    found = mistakes(written(tmp_path, parts="1 / 0\n"), "words.yaml")
    assert "parts.py:1" in found[0]
    assert "orcaflow-topology-" not in str(found)


@pytest.mark.parametrize(
    ("main", "told"),
    [
        ("words.txt", "neither FILE.yaml nor FILE.py:NAME"),
        ("words.py", "words.py:topology"),
        ("none.py:topology", "can't be read"),
    ],
)
def test_a_file_that_is_none_is_refused(tmp_path: Path, main: str, told: str) -> None:
    written(tmp_path)
    with pytest.raises(UsageError, match=told):
        pack(tmp_path, main)


def test_names_and_sizes_are_limited(tmp_path: Path) -> None:
    (tmp_path / "json.py").write_text("topology = 1\n")
    with pytest.raises(InvalidTopologyError, match="rename the file"):
        packed(f"{tmp_path}/json.py:topology")
    large = tmp_path / "large.py"
    large.write_text(f"# {'x' * 1_100_000}\n")
    written(tmp_path)
    with pytest.raises(InvalidTopologyError, match="1,048,576 at most"):
        packed(f"{tmp_path}/words.py:topology", [tmp_path / "parts.py", large])
    odd = tmp_path / "a b.py"
    odd.write_text("")
    with pytest.raises(InvalidTopologyError, match="no name of a file"):
        packed(f"{tmp_path}/words.py:topology", [tmp_path / "parts.py", odd])


def test_a_package_below_the_folder_keeps_its_place(tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "parts.py").write_text(PARTS)
    (tmp_path / "words.py").write_text(MAIN.replace("from parts", "from own.parts"))
    found = packed(f"{tmp_path}/words.py:topology", [tmp_path / "own" / "parts.py"])
    assert set(found.code.files) == {"words.py", "own/parts.py"}
    assert not [name for name in sys.modules if name == "own" or name.startswith("own.")]
