"""The graph of a topology as text: each part below those that it takes streams of."""

from __future__ import annotations

from collections.abc import Iterator

from common.dag import build_dag
from common.model.topology_graphs import GraphInput, GraphPart, TopologyGraph
from operations.texts import counted
from orcaflow.cli.output import escaped


def graph_lines(graph: TopologyGraph) -> Iterator[str]:
    """Yield the lines; parts come in an order in which streams go down."""
    parts = {part.id: part for part in graph.parts}
    dag = build_dag({part.id: [taken.component for taken in part.inputs] for part in graph.parts})
    width = max((len(name) for name in parts), default=0)
    for name in dag.names:
        part = parts[name]
        yield escaped(f"{part.kind:<8}  {name:<{width}}  {_size(part)}")
        for taken in part.inputs:
            yield escaped(f"  {'<-':>8}  {_source(taken):<{width}}  {_grouping(taken)}")
        for stream in part.streams:
            direct = " (direct)" if stream.direct else ""
            yield escaped(
                f"  {'->':>8}  {stream.name:<{width}}  {', '.join(stream.fields)}{direct}"
            )


def _size(part: GraphPart) -> str:
    return f"{counted(part.executors, 'executor')}, {counted(part.tasks, 'task')}"


def _source(taken: GraphInput) -> str:
    return taken.component if taken.stream == "default" else f"{taken.component}.{taken.stream}"


def _grouping(taken: GraphInput) -> str:
    return f"{taken.grouping} {', '.join(taken.fields)}".rstrip()
