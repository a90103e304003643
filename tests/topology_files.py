"""Files of authors that declare a topology, and the reports of a task that would run it."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from common.model.topologies import ComponentError, ComponentReport, Figures, Report, RunState
from common.model.topology_graphs import GraphInput, GraphPart, GraphStream, TopologyGraph
from tests.builders import NOON

PARTS: Final = """\
from orcaflow.topology import Bolt, Spout, StatefulBolt


class Lines(Spout):
    outputs = ("line",)


class Split(Bolt):
    outputs = {"default": ("word",), "errors": ("line", "why")}

    def process(self, record, emit):
        for word in record["line"].split():
            emit(word)


class Count(StatefulBolt):
    outputs = ("word", "count")

    def process(self, record, state, emit):
        return (state or 0) + 1
"""
MAIN: Final = """\
from orcaflow.topology import TopologyBuilder

from parts import Count, Lines, Split

print("declared")
builder = TopologyBuilder("words", config={"secret": "hunter2"})
builder.set_spout("lines", Lines(), tasks=2)
builder.set_bolt("split", Split(), 2, tasks=3).shuffle_grouping("lines")
builder.set_bolt("count", Count(), tasks=4).fields_grouping("split", "word")
topology = builder.create_topology()


def made():
    return topology
"""
YAML: Final = """\
name: words
spouts:
  - {id: lines, className: parts.Lines, tasks: 2}
bolts:
  - {id: split, className: parts.Split, parallelism: 2, tasks: 3}
  - {id: count, className: parts.Count, tasks: 4}
streams:
  - {from: lines, to: split, grouping: {type: SHUFFLE}}
  - {from: split, to: count, grouping: {type: FIELDS, args: [word]}}
"""
REPORT: Final = Report(
    state=RunState.RUNNING,
    obeyed=1,
    version=1,
    began=NOON,
    batch=7,
    cores=2,
    lag={"lines": 40},
    components=(
        ComponentReport(
            id="lines",
            kind="spout",
            executors=1,
            tasks=2,
            windows={
                "600": Figures(
                    emitted={"default": 10},
                    transferred={"default": 10},
                    acked={"default": 9},
                    failed={"default": 1},
                    latency_ms=1.5,
                ),
                ":all-time": Figures(emitted={"default": 100}),
            },
        ),
        ComponentReport(
            id="split",
            kind="bolt",
            executors=2,
            tasks=3,
            windows={"600": Figures(executed={"lines:default": 10}, capacity=0.25)},
        ),
        ComponentReport(
            id="count",
            kind="stateful",
            executors=1,
            tasks=4,
            by_task=(30, 0, 10, 0),
            hot_key="the",
        ),
    ),
    errors=(ComponentError(component="split", task=1, time=NOON, error="ValueError: \x1b[31m"),),
)

GRAPH: Final = TopologyGraph(
    name="words",
    hash="spark",
    config=("max.spout.pending",),
    parts=(
        GraphPart(
            id="lines",
            kind="spout",
            class_name="Lines",
            executors=1,
            tasks=2,
            streams=(GraphStream(name="default", fields=("line",)),),
        ),
        GraphPart(
            id="split",
            kind="bolt",
            class_name="Split",
            executors=2,
            tasks=3,
            inputs=(GraphInput(component="lines", stream="default", grouping="shuffle"),),
            streams=(GraphStream(name="default", fields=("word",)),),
        ),
        GraphPart(
            id="count",
            kind="stateful",
            class_name="Count",
            executors=1,
            tasks=4,
            inputs=(
                GraphInput(
                    component="split", stream="default", grouping="fields", fields=("word",)
                ),
            ),
        ),
    ),
)
"""The graph of the topology in these files, without the streams that nobody takes."""


def written(folder: Path, *, main: str = MAIN, parts: str = PARTS) -> Path:
    """Write the files of a topology into a folder; return it."""
    (folder / "words.py").write_text(main, encoding="utf-8")
    (folder / "parts.py").write_text(parts, encoding="utf-8")
    (folder / "words.yaml").write_text(YAML, encoding="utf-8")
    return folder
