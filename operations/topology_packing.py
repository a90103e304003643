"""Loads a topology on its author's machine, and packs its files and its graph for a submission.

The files are copied to a folder of their own and imported from there, so what works here has all
the files that it needs. This runs the author's code: only the author's own command calls it.
"""

from __future__ import annotations

import importlib
import linecache
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from common.model.topologies import Code
from common.model.topology_code import YAML_SUFFIXES, mistakes_of
from common.model.topology_graphs import GraphInput, GraphPart, GraphStream, TopologyGraph
from common.topology import groupings
from common.topology.checking import InvalidTopologyError, checked
from common.topology.components import Component, Sink, Spout, StatefulBolt, streams_of
from common.topology.declaration import Part, Topology
from operations.errors import UsageError
from operations.topology_files import topology_of
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


def packed(main: str, files: Sequence[Path] = ()) -> Submission:
    """Load, check and pack a topology. `main` is FILE.yaml, or FILE.py:NAME.

    `files` are those that it imports. `InvalidTopologyError` names every mistake; a failing import
    is one, with its file and line.
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
    for each in files:
        below = _name_of(each, file.parent)
        if below in texts:
            raise UsageError("files", f"{below} is there twice")
        texts[below] = _text(each)
    code = Code(main=f"{file.name}:{attribute}" if attribute else file.name, files=texts)
    mistakes = tuple(mistakes_of(code))
    if mistakes:
        raise InvalidTopologyError(mistakes)
    with _unpacked(code) as folder:
        topology = _loaded(code, folder)
        return Submission(code=code, graph=graph_of(topology))


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


def _loaded(code: Code, folder: Path) -> Topology:
    file, _, attribute = code.main.partition(":")
    try:
        if not attribute:
            return topology_of(code.files[file].encode())
        return checked(_declared(file, attribute, folder))
    except InvalidTopologyError as error:
        # The copies are nobody's files: their names are those of the author's.
        own = tuple(each.replace(f"{folder}/", "") for each in error.mistakes)
        raise InvalidTopologyError(own) from None


def _declared(file: str, attribute: str, folder: Path) -> Topology:
    """Import a Python file, and return what the variable or the function in it is."""
    module = file.removesuffix(".py")
    if module in sys.modules or module in sys.stdlib_module_names:
        raise InvalidTopologyError(
            (f"{file}: Python or Orcaflow has a module {module!r} already; rename the file",)
        )
    try:
        made = importlib.import_module(module)
        if not hasattr(made, attribute):
            raise InvalidTopologyError((f"{file}: there is no {attribute!r} in it",))
        found = getattr(made, attribute)
        if callable(found):
            found = found()
    except InvalidTopologyError:
        raise
    except (Exception, SystemExit) as error:  # An author's code raises anything.
        raise InvalidTopologyError((_explained(error, folder),)) from error
    if not isinstance(found, Topology):
        kind = type(found).__name__
        cure = "; let it be builder.create_topology()" if kind == "TopologyBuilder" else ""
        raise InvalidTopologyError((f"{file}: {attribute!r} is a {kind} and no topology{cure}",))
    return found


def _explained(error: BaseException, folder: Path) -> str:
    """Return what the author's code has raised, with its file and line."""
    told = f"{type(error).__name__}: {error!s:.300}"
    if isinstance(error, SyntaxError) and str(error.filename).startswith(f"{folder}/"):
        return f"{Path(str(error.filename)).relative_to(folder)}:{error.lineno}: {told}"
    own = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.filename.startswith(f"{folder}/")
    ]
    place = f"{Path(own[-1].filename).relative_to(folder)}:{own[-1].lineno}: " if own else ""
    if isinstance(error, ModuleNotFoundError):
        told += f"; if {error.name!r} is a file of yours, name it with --files"
    return f"{place}{told}"


@contextmanager
def _unpacked(code: Code) -> Iterator[Path]:
    """Have the files in a folder that is the first to import from; forget their modules after."""
    with TemporaryDirectory(prefix="orcaflow-topology-") as name:
        folder = Path(name).resolve()
        for file, text in code.files.items():
            path = folder / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        before, writes = list(sys.path), sys.dont_write_bytecode
        sys.path.insert(0, str(folder))
        sys.dont_write_bytecode = True
        importlib.invalidate_caches()
        try:
            yield folder
        finally:
            sys.path[:], sys.dont_write_bytecode = before, writes
            for module, made in list(sys.modules.items()):
                places = [getattr(made, "__file__", None), *getattr(made, "__path__", ())]
                if any(str(each or "").startswith(f"{folder}/") for each in places):
                    del sys.modules[module]
            linecache.checkcache()


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
