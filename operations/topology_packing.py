"""Loads a topology on its author's machine, and packs its files and its graph for a submission.

This runs the author's code: only the author's own command calls it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from common.model.topologies import Code
from common.model.topology_code import YAML_SUFFIXES, mistakes_of
from common.model.topology_graphs import GraphInput, GraphPart, GraphStream, TopologyGraph
from common.topology import groupings
from common.topology.checking import InvalidTopologyError
from common.topology.components import Component, Sink, Spout, StatefulBolt, streams_of
from common.topology.declaration import Part, Topology
from common.topology.flux_properties import read_properties
from common.topology_files import with_values
from common.topology_loading import tried
from operations.errors import UsageError
from operations.topology_submission import Submission

_GROUPINGS: Final[Mapping[type, str]] = {
    groupings.Shuffle: "shuffle",
    groupings.LocalOrShuffle: "local or shuffle",
    groupings.Unordered: "none",
    groupings.ByFields: "fields",
    groupings.PartialKey: "partial key",
    groupings.Global: "global",
    groupings.Everyone: "all",
    groupings.Direct: "direct",
    groupings.Custom: "custom",
}


def packed(
    main: str,
    files: Sequence[Path] = (),
    *,
    properties: Mapping[str, str] | None = None,
    environment: Mapping[str, str] | None = None,
) -> Submission:
    """Load, check and pack a topology. `main` is FILE.yaml, or FILE.py:NAME.

    `files` lists the modules that it imports. `properties` and `environment` hold the values for
    the placeholders of a YAML file; the packed file contains the values. `InvalidTopologyError`
    names every mistake, including a failing import with its file and line.
    """
    name, _, attribute = main.rpartition(":") if ".py:" in main else (main, "", "")
    file = Path(name)
    if file.suffix not in (".py", *YAML_SUFFIXES):
        raise UsageError("file", f"{main!r:.200} is neither FILE.yaml nor FILE.py:NAME")
    if file.suffix == ".py" and not attribute:
        raise UsageError(
            "file",
            f"name the variable or function of {file.name} that is the topology, as"
            f" {file.name}:topology",
        )
    texts = {file.name: _text(file)}
    if file.suffix in YAML_SUFFIXES:
        content = with_values(texts[file.name].encode(), properties or {}, environment or {})
        texts[file.name] = content.decode()
    elif properties or environment:
        raise UsageError("file", f"{file.name} is Python; only YAML files have placeholders")
    for each in files:
        below = _name_of(each, file.parent)
        if below in texts:
            raise UsageError("files", f"{below} is there twice")
        texts[below] = _text(each)
    code = Code(main=f"{file.name}:{attribute}" if attribute else file.name, files=texts)
    mistakes = tuple(mistakes_of(code))
    if mistakes:
        raise InvalidTopologyError(mistakes)
    return Submission(code=code, graph=graph_of(tried(code)))


def properties_in(file: Path) -> dict[str, str]:
    """Read the pairs of a properties file in UTF-8."""
    return read_properties(_text(file))


def variables_given(given: Sequence[str], environment: Mapping[str, str]) -> dict[str, str]:
    """Return the named variables: NAME=VALUE, or NAME with its value from `environment`."""
    found = {}
    for each in given:
        name, sign, value = each.partition("=")
        if not sign and name not in environment:
            raise UsageError("env", f"there is no variable {name!r:.120} here; write {name}=VALUE")
        found[name] = value if sign else environment[name]
    return found


def graph_of(topology: Topology) -> TopologyGraph:
    """Return the graph of a topology that was checked."""
    return TopologyGraph(
        name=topology.name,
        hash=topology.hash,
        config=tuple(map(str, topology.config)),
        parts=tuple(_part(each) for each in topology.parts),
    )


def _part(part: Part) -> GraphPart:
    return GraphPart(
        id=part.id,
        kind=_kind(part.component),
        class_name=type(part.component).__name__,
        executors=part.executors,
        tasks=part.tasks,
        config=tuple(map(str, part.config)),
        inputs=tuple(
            GraphInput(
                component=taken.component,
                stream=taken.stream,
                grouping=_GROUPINGS[type(taken.grouping)],
                fields=tuple(getattr(taken.grouping, "fields", ())),
            )
            for taken in part.inputs
        ),
        streams=tuple(
            GraphStream(name=name, fields=stream.fields, direct=stream.direct)
            for name, stream in streams_of(part.component).items()
        ),
    )


def _kind(component: Component) -> str:
    for kind, name in ((Spout, "spout"), (StatefulBolt, "stateful"), (Sink, "sink")):
        if isinstance(component, kind):
            return name
    return "bolt"


def _name_of(file: Path, home: Path) -> str:
    """Return the name of a file below the folder of the main one; else its own name alone."""
    try:
        return file.resolve().relative_to(home.resolve()).as_posix()
    except ValueError:
        return file.name


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError("file", f"{file} can't be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UsageError("file", f"{file} is no UTF-8") from error
