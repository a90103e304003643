"""Graphs and code of topologies as anybody may have sent them."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from common.model.topologies import Code, DocumentError
from common.model.topology_code import read_code
from common.model.topology_graphs import TopologyGraph
from tests.topology_files import GRAPH


def a_graph(**changes: Any) -> dict[str, Any]:
    """A graph whose second part, a bolt, has these values."""
    document = copy.deepcopy(GRAPH.document())
    document["parts"][1] |= changes
    return document


def test_a_graph_is_read_as_it_was_written() -> None:
    assert TopologyGraph.of(GRAPH.document()) == GRAPH


@pytest.mark.parametrize(
    ("document", "told"),
    [
        (None, "graph must be an object"),
        ({}, "graph.name must be a text"),
        ({"name": "../x"}, "graph.name: '../x' is no name"),
        ({"name": "a"}, "graph.parts must be a list"),
        ({"name": "a", "parts": [0] * 1001}, "graph.parts must be a list of 1,000"),
        ({"name": "a", "parts": [0]}, r"graph.parts\[0\] must be an object"),
        (a_graph(kind="pump"), "'pump' is none of spout, bolt"),
        (a_graph(id="a b"), "'a b' is no name of a component"),
        (a_graph(id="lines"), "two of them have the same id"),
        (a_graph(executors=0), "must be a number from 1 to 1,000"),
        (a_graph(tasks=True), "must be a number from 1 to 1,000"),
        (a_graph(executors=4), "4 executors are more than its 3 tasks"),
        (a_graph(className="x" * 201), "a text of 200 characters"),
        (a_graph(className="a\0b"), "className must be a text"),
        (a_graph(streams={}), "streams must be a list"),
        (a_graph(inputs=[{"component": "lines"}]), "stream must be a text"),
        (
            a_graph(inputs=[{"component": "l", "stream": "default", "grouping": "all"}]),
            "takes the stream 'default' of 'l', which is not there",
        ),
        (
            a_graph(inputs=[{"component": "split", "stream": "default", "grouping": "all"}]),
            "split",
        ),
    ],
)
def test_a_mistake_in_a_graph_is_told_with_its_place(document: object, told: str) -> None:
    with pytest.raises(DocumentError, match=told):
        TopologyGraph.of(document)


def test_a_code_is_read_as_it_was_written() -> None:
    code = Code(main="words.py:made", files={"words.py": "", "own/parts.py": "x = 1\n"})
    assert read_code(code.document()) == code


@pytest.mark.parametrize(
    ("document", "told"),
    [
        (None, "an object with main and files"),
        ({"main": "a.yaml", "files": []}, "an object with main and files"),
        ({"main": 5, "files": {}}, "must be texts"),
        ({"main": "a.yaml", "files": {"a.yaml": None}}, "must be texts"),
        ({"main": "b.yaml", "files": {"a.yaml": ""}}, "'b.yaml' is not among the files"),
        ({"main": "a.py", "files": {"a.py": ""}}, "names no variable"),
        ({"main": "a.py:b c", "files": {"a.py": ""}}, "names no variable"),
        ({"main": "a.yaml:b", "files": {"a.yaml": ""}}, "neither a YAML file"),
        ({"main": "a.yaml", "files": {"a.yaml": "\0"}}, "has a NUL character"),
        ({"main": "a.yaml", "files": {"a.yaml": "x" * (1024 * 1024 + 1)}}, "1,048,576 at most"),
        ({"main": "a.yaml", "files": {f"{n}.py": "" for n in range(300)}}, "more than 200"),
    ],
)
def test_a_mistake_in_a_code_is_told(document: object, told: str) -> None:
    with pytest.raises(DocumentError, match=told):
        read_code(document)


@pytest.mark.parametrize(
    "name", ["../a.py", "/a.py", "a/../b.py", "a//b.py", ".a.py", "a.so", "a\\b.py", "a/.b/c.py"]
)
def test_a_name_that_leads_elsewhere_is_none(name: str) -> None:
    with pytest.raises(DocumentError, match="no name of a file here"):
        read_code({"main": "a.yaml", "files": {"a.yaml": "", name: ""}})
