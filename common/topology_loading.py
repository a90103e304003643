"""Loads topologies from the files of their authors: once to try them, or for the rest of a process.

Their code is imported, and so is run: only the author's own command and the task that runs the
topology come here. The files are in a folder that holds nothing else, so what works in one has all
the files that it needs.
"""

from __future__ import annotations

import importlib
import linecache
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from common.model.topologies import Code
from common.topology.checking import InvalidTopologyError, checked
from common.topology.declaration import Topology
from common.topology_files import read_topology

_folders: list[Path] = []
"""The folder of the version that this process has loaded."""


def tried(code: Code) -> Topology:
    """Load a topology and leave no trace in this process; `InvalidTopologyError`."""
    with _unpacked(code) as folder:
        return _loaded(code, folder)


def loaded(code: Code, folder: Path) -> Topology:
    """Load a topology in this process from a folder, which is made; `InvalidTopologyError`.

    Its modules stay, those that a former call has loaded go: a process has one version at a time.
    """
    _write(code, folder)
    for former in _folders:
        for name in _of_folder(former):
            del sys.modules[name]
        while str(former) in sys.path:
            sys.path.remove(str(former))
    _folders[:] = [folder]
    sys.path.insert(0, str(folder))
    importlib.invalidate_caches()
    return _loaded(code, folder)


def _loaded(code: Code, folder: Path) -> Topology:
    file, _, attribute = code.main.partition(":")
    try:
        if not attribute:
            return read_topology(code.files[file].encode())
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
        _write(code, folder)
        before, writes = list(sys.path), sys.dont_write_bytecode
        sys.path.insert(0, str(folder))
        sys.dont_write_bytecode = True
        importlib.invalidate_caches()
        try:
            yield folder
        finally:
            sys.path[:], sys.dont_write_bytecode = before, writes
            for module in _of_folder(folder):
                del sys.modules[module]
            linecache.checkcache()


def _write(code: Code, folder: Path) -> None:
    for file, text in code.files.items():
        path = folder / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def _of_folder(folder: Path) -> list[str]:
    """Return the names of the modules that were imported from below a folder."""
    found = []
    for module, made in list(sys.modules.items()):
        places = [getattr(made, "__file__", None), *getattr(made, "__path__", ())]
        if any(str(each or "").startswith(f"{folder}/") for each in places):
            found.append(module)
    return found
