"""Runs a script in a process that was forked for it, as `python -u SCRIPT` runs it in a new one.

A part of the fork server's program (`fork_server.py`), so it uses the standard library alone and
nothing of Orcaflow's. Where only a new interpreter can do what the script needs, the process
becomes one.
"""

from __future__ import annotations

import atexit
import builtins
import contextlib
import ctypes
import gc
import io
import os
import signal
import sys
import threading
import types
import weakref
from collections.abc import Mapping
from typing import Any, NamedTuple, NoReturn

_libc = ctypes.PyDLL(None)


class Interpreter(NamedTuple):
    """The state of an interpreter before it runs a script."""

    main: Mapping[str, Any]
    """The names of a `__main__` that come from no script."""
    known: frozenset[str]
    """All modules that are imported by now."""
    added: frozenset[str]
    """Those of them that a new interpreter would not have imported."""


_REHEARSED = """
import os, sys
def one(number, *, text="", **more):
    return number if number < 2 else one(number - 1) + one(number - 2)
class Two(Exception):
    def __init__(self, word):
        super().__init__(word)
        self.words = {word: [len(word), f"{word!r:>10}"]}
    def __str__(self):
        return " ".join(str(each) for each in sorted(self.words.items()))
try:
    if one(5):
        raise Two("three")
except Two as error:
    told = str(error).encode().decode().split()
with open(os.devnull, "w") as file:
    print(told, 1.5, sys.argv[:0], file=file)
"""


def run(argv: list[str], first: Interpreter) -> int:
    """Run PYTHON -u SCRIPT WORD… in this process; return the exit code, if it returns."""
    path = argv[2]
    sys.argv[:] = argv[2:]
    sys.orig_argv[:] = argv
    folder = os.path.dirname(os.path.realpath(path))
    sys.path.insert(0, folder)
    code = _compiled(path)
    if code is None or _has_own(folder, first.added):
        # A file of its own has the name of a module that was imported ahead, or the script is none:
        # an archive, compiled code, not there, wrong. A new interpreter does what is right then.
        os.execv(argv[0], argv)  # noqa: S606
    _own_main(path, first.main)
    return _end(_exit_code(_execute(code)), first.known)


def rehearse(first: Interpreter) -> None:
    """Run something like a script, so that the memory that scripts write to is this process's own.

    A page that is shared is copied at the first write, which takes longer than most writing.
    """
    environment = dict(os.environ)
    os.environ.clear()
    os.environ.update(environment)
    _compiled(os.devnull)
    _has_own("/dev/fd", first.added)
    names = {"__name__": "__rehearsal__", "__builtins__": builtins}
    exec(compile(_REHEARSED, os.devnull, "exec", dont_inherit=True), names)  # noqa: S102
    names.clear()
    for each in gc.get_objects():
        type(each)
    _flush()
    gc.collect()


def _compiled(path: str) -> types.CodeType | None:
    """Return a script's code; None if it can't be read, or is none."""
    try:
        with io.open_code(path) as file:
            source = file.read()
        return None if b"\0" in source else compile(source, path, "exec", dont_inherit=True)
    except (OSError, ValueError, SyntaxError):
        return None


def _has_own(folder: str, names: frozenset[str]) -> bool:
    tops = {name.partition(".")[0] for name in names}
    try:
        return any(entry.partition(".")[0] in tops for entry in os.listdir(folder))
    except OSError:
        return True


def _own_main(path: str, first: Mapping[str, Any]) -> None:
    """Have a `__main__` as an interpreter has that runs the file."""
    module = types.ModuleType("__main__")
    module.__dict__.clear()
    module.__dict__.update(first)
    fresh: dict[str, object] = {
        **({"__annotations__": {}} if "__annotations__" in first else {}),
        "__doc__": None,
        "__loader__": type(first["__loader__"])("__main__", path),
        "__builtins__": builtins,
        "__file__": path,
    }
    module.__dict__.update(fresh)
    sys.modules["__main__"] = module


def _execute(code: types.CodeType) -> BaseException | None:
    """Run the script; return what it raises, since a hook must not find it being handled."""
    try:
        exec(code, sys.modules["__main__"].__dict__)  # noqa: S102
    except BaseException as error:  # noqa: BLE001
        return error
    return None


def _exit_code(raised: BaseException | None) -> int:
    """Tell what the script has raised; return the exit code, negative for a signal."""
    if raised is None:
        return 0
    if isinstance(raised, SystemExit):
        return _code_of_exit(raised)
    trace = _own_part(raised)
    sys.last_type, sys.last_value, sys.last_traceback = type(raised), raised, trace
    sys.last_exc = raised  # type: ignore[attr-defined, unused-ignore]
    other: BaseException | None = None
    try:
        sys.excepthook(type(raised), raised, trace)
    except BaseException as error:  # noqa: BLE001
        other = error
    if isinstance(other, SystemExit):
        return _code_of_exit(other)
    if other is not None:
        sys.stderr.write("Error in sys.excepthook:\n")
        sys.__excepthook__(type(other), other, _own_part(other))
        sys.stderr.write("\nOriginal exception was:\n")
        sys.__excepthook__(type(raised), raised, trace)
    return -signal.SIGINT if isinstance(raised, KeyboardInterrupt) else 1


def _own_part(error: BaseException) -> types.TracebackType | None:
    """Take this program's function out of a traceback; return the rest."""
    error.__traceback__ = error.__traceback__ and error.__traceback__.tb_next
    return error.__traceback__


def _code_of_exit(end: SystemExit) -> int:
    if end.code is None:
        return 0
    if isinstance(end.code, int):
        return end.code & 0xFF if -(2**63) <= end.code < 2**63 else 0xFF
    with contextlib.suppress(Exception):
        sys.stdout.flush()
    with contextlib.suppress(Exception):
        sys.stderr.write(f"{end.code}\n")
    return 1


def _end(code: int, known: frozenset[str]) -> int:
    """End as an interpreter does: threads, callbacks, what the script's modules hold, the streams.

    The rest of an interpreter's end nobody could see, and it takes longer than a short script. A
    script that has used more than the standard library, or has left threads, gets all of it.
    """
    try:
        threading._shutdown()  # type: ignore[attr-defined]  # noqa: SLF001
    except BaseException as error:  # noqa: BLE001
        sys.__excepthook__(type(error), error, error.__traceback__)
    own = [name for name in sys.modules if name not in known]
    if code >= 0 and threading.active_count() == 1 and all(map(_is_standard, own)):
        atexit._run_exitfuncs()  # noqa: SLF001
        if _flush() and _take_down(own) and _flush():
            _exit(code)
    if code >= 0:
        return code
    sys.excepthook = lambda *_: None
    raise KeyboardInterrupt  # It has been told; the interpreter ends by the signal.


def _is_standard(name: str) -> bool:
    """Return whether a module is one of the standard library or of the script's own."""
    file = str(getattr(sys.modules[name], "__file__", None) or "")
    is_third = "site-packages" in file or "dist-packages" in file
    if is_third:
        return name.partition(".")[0] == "orcaflow"
    return not file.endswith(".so") or "lib-dynload" in file


def _flush() -> bool:
    """Flush the streams; False if one can't be, which the interpreter's own end tells of."""
    try:
        for stream in (sys.stdout, sys.stderr):
            if stream is not None and not stream.closed:
                stream.flush()
    except Exception:  # noqa: BLE001
        return False
    return True


def _take_down(names: list[str]) -> bool:
    """Let go of what the script's modules hold, so that files are written out and closed.

    False if something is left whose end could be seen, because somebody else holds it.
    """
    sys.last_type = sys.last_value = sys.last_traceback = None
    sys.last_exc = None  # type: ignore[attr-defined, unused-ignore]
    sys.stdout, sys.stderr, sys.stdin = sys.__stdout__, sys.__stderr__, sys.__stdin__
    kinds = (io.TextIOWrapper, io.BufferedWriter, io.BufferedRandom)
    files = [each for each in gc.get_objects() if type(each) in kinds]
    for each in sorted(files, key=lambda file: kinds.index(type(file))):
        # Of objects that end together, the file might be closed before its buffer is empty.
        if not each.closed:
            with contextlib.suppress(Exception):
                each.flush()
    each = None
    files.clear()
    modules = [sys.modules.pop(name) for name in ("__main__", *names)]
    left = [weakref.ref(each) for each in modules if isinstance(each, types.ModuleType)]
    modules.clear()
    gc.collect()
    namespaces = [each.__dict__ for each in (get() for get in reversed(left)) if each is not None]
    # A module that is gone may have left its names to functions that others hold.
    namespaces += [
        each
        for each in gc.get_objects()
        if type(each) is dict and "__builtins__" in each and "__name__" in each
    ]
    for each in namespaces:
        each.update(dict.fromkeys(name for name in [*each] if name != "__builtins__"))
    namespaces.clear()
    gc.collect()
    return not any(
        isinstance(each, types.GeneratorType) or hasattr(type(each), "__del__")
        for each in gc.get_objects()
    )


def _exit(code: int) -> NoReturn:
    _libc.exit(code)
    os._exit(code)
