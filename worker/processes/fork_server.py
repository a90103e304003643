"""The fork server: forks a Python for each PYTHON task, so that no task waits for an interpreter.

    PYTHON -u fork_server.py LINK BLANKS

It has imported what most scripts import, has one thread, and runs as the account whose tasks it
serves. Run as a program by the interpreter of the tasks, so it uses the standard library alone and
nothing of Orcaflow's; `worker/processes/fork_servers.py` starts it. LINK is the number of a socket,
on which each message brings another one, the *gate* of an attempt; BLANKS is room for a command
line. The end of the link is the end of the server, and of nothing else.

For a gate it makes a *leader*, a child of the daemon, which takes everything else from the gate
itself: the server never knows what a task was given. The leader does what the wrapper of a new
interpreter does (`worker/processes/starting.py`): it leads the session, notes its pid before the
task begins and the exit code after it, and takes limits, niceness, mark and marker. It answers when
it is ready, and forks the task once it is told to go on; without that word it ends, and nothing has
run. The task runs its script as `python -u SCRIPT` would; where only a new interpreter can do that,
it becomes one.
"""

from __future__ import annotations

import sys

_FIRST_MODULES = frozenset(sys.modules)
_MAIN = {name: value for name, value in globals().items() if name.startswith("__")}
# The folder of this program is not for scripts, nor for the imports that come now.
sys.path[:1] = []

import array
import atexit
import builtins
import contextlib
import ctypes
import gc
import importlib
import io
import json
import os
import resource
import signal
import site
import socket
import threading
import types
import weakref
from collections.abc import Iterator
from typing import Any, NoReturn

MARKER = "ORCAFLOW_EXECUTE_PATH"
MARKER_BYTES = 4096
READY, STALE, REFUSED, GO = b"+", b"s", b"-", b"+"

_PRELOADED = (
    "argparse",
    "csv",
    "datetime",
    "glob",
    "math",
    "random",
    "shutil",
    "string",
    "subprocess",
    "tempfile",
    "textwrap",
    "traceback",
)
"""Small modules, which hold nothing that tells when or where they were imported.

`logging` does, and `orcaflow.task` makes a logger: of these, what they import is here."""

_CLONE = {"x86_64": 56, "aarch64": 220, "riscv64": 220}
_CLONE_PARENT = 0x00008000
_PR_SET_DUMPABLE = 4
_RLIMIT_LOCKS = 10
_OUT_OF_MEMORY_SCORE = b"300"
_LARGEST_FILE = 2**31 - 1
_HEAD = 4
_FILES = 2
_CANT_FORK = 2  # As of dash.
_SIGNALLED = 128
_DEAF_TO = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_ARGUMENTS_START, _ENVIRONMENT_START = 45, 47
"""In `/proc/self/stat`, counted behind the name; the ends follow."""

_libc = ctypes.PyDLL(None, use_errno=True)  # It keeps the interpreter's lock: nobody else runs.


class Areas:
    """The memory in which the kernel shows a process's command line and its marker."""

    def __init__(self) -> None:
        with open("/proc/self/stat", "rb") as file:
            fields = [*file.read().rpartition(b")")[2].split()]
        with open("/proc/self/environ", "rb") as file:
            position = file.read().find(f"{MARKER}=/".encode())
        arguments, end = map(int, fields[_ARGUMENTS_START : _ARGUMENTS_START + 2])
        if position < 0 or not 0 < arguments < end:
            raise RuntimeError("there is no room for a marker")
        self._arguments, self._size = arguments, end - arguments
        self._marker = int(fields[_ENVIRONMENT_START]) + position + len(MARKER) + 1

    def write(self, marker: bytes, arguments: list[bytes]) -> None:
        """Show another marker and command line, of which the end is cut off if it is too long."""
        if len(marker) > MARKER_BYTES:
            raise ValueError("the marker is too long")
        ctypes.memmove(self._marker, marker.ljust(MARKER_BYTES, b"\0"), MARKER_BYTES)
        shown = b"\0".join(arguments)[: self._size - 1].ljust(self._size, b"\0")
        ctypes.memmove(self._arguments, shown, self._size)


class Attempt:
    """The document of an attempt, and its open files: the record and the log."""

    def __init__(self, gate: socket.socket) -> None:
        read, rights, _, _ = gate.recvmsg(
            262_144, socket.CMSG_SPACE(4 * _FILES), socket.MSG_CMSG_CLOEXEC
        )
        files = array.array("i")
        for _, _, content in rights:
            files.frombytes(content)
        self.record, self.log = files
        parts = [read]
        left = _HEAD + int.from_bytes(read[:_HEAD], "big") - len(read)
        while left > 0:
            parts.append(gate.recv(262_144))
            if not parts[-1]:
                raise EOFError
            left -= len(parts[-1])
        document: dict[str, Any] = json.loads(b"".join(parts)[_HEAD:])
        self.argv: list[str] = document["argv"]
        self.environment: dict[str, str] = document["environment"]
        self.directory: str = document["directory"]
        self.niceness: int = document["niceness"]
        self.mark: int | None = document["mark"]
        self.limits: list[tuple[int, int]] = document["limits"]


def main() -> int:
    """Serve until the link ends. In a task's process, run its script."""
    link = socket.socket(fileno=int(sys.argv[1]))
    link.set_inheritable(False)
    for name in _PRELOADED:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    areas, known = Areas(), frozenset(sys.modules)
    if len(os.listdir("/proc/self/task")) != 1:
        raise RuntimeError("the interpreter's own start has left a thread")
    # No task of this account can change the server that makes the next one.
    _libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
    seen = _look()
    # What is never collected is never written to, and stays shared.
    gc.collect()
    gc.freeze()
    link.sendall(READY)
    attempt = _serve(link, areas, seen)
    return 0 if attempt is None else _run(attempt, known)


def _serve(link: socket.socket, areas: Areas, seen: dict[str, Any]) -> Attempt | None:
    """Make leaders; return None at the end of the link, and an attempt in its task's process."""
    number = _CLONE[os.uname().machine]
    while True:
        word, rights, _, _ = link.recvmsg(1, socket.CMSG_SPACE(4), socket.MSG_CMSG_CLOEXEC)
        if not word:
            return None
        gate = socket.socket(fileno=int.from_bytes(rights[0][2], sys.byteorder))
        # No fork of Python's own: that has no way to give the child to the daemon. What it sets
        # right is set right by the fork that makes the task.
        pid = _libc.syscall(
            *map(ctypes.c_long, (number, _CLONE_PARENT | signal.SIGCHLD, 0, 0, 0, 0))
        )
        if pid == 0:
            try:
                return _lead(link, gate, areas, seen)
            except BaseException:  # noqa: BLE001  # It must never go on as a second server.
                os._exit(1)
        if pid < 0:
            with contextlib.suppress(OSError):
                gate.send(REFUSED)
        gate.close()


def _lead(link: socket.socket, gate: socket.socket, areas: Areas, seen: dict[str, Any]) -> Attempt:
    """Lead an attempt to its end; return it in the task's process alone."""
    usual = signal.pthread_sigmask(signal.SIG_BLOCK, _DEAF_TO)
    os.setsid()
    _libc.prctl(_PR_SET_DUMPABLE, 1, 0, 0, 0)
    attempt = Attempt(gate)
    try:
        _take_over(attempt, areas)
    except (OSError, ValueError):
        gate.send(REFUSED)
        os._exit(1)
    if _look() != seen:
        gate.send(STALE)
        os._exit(1)
    gate.send(READY)
    if gate.recv(1) != GO:
        os._exit(1)
    os.write(attempt.record, b"pid %d\n" % os.getpid())
    try:
        pid = os.fork()
    except OSError as error:
        os.write(attempt.log, f"orcaflow: cannot fork: {error.strerror}\n".encode())
        os._exit(_CANT_FORK)
    if pid == 0:
        gate.detach()
        link.detach()
        _become(attempt, usual)
        return attempt
    gate.close()
    link.close()
    _, status = os.waitpid(pid, 0)
    code = _SIGNALLED + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
    with contextlib.suppress(OSError):
        os.write(attempt.record, b"exit %d\n" % code)
    os._exit(code)


def _take_over(attempt: Attempt, areas: Areas) -> None:
    """Take over what the wrapper of a new interpreter has from its daemon."""
    areas.write(os.fsencode(attempt.directory), [*map(os.fsencode, attempt.argv)])
    if attempt.mark is not None:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(_RLIMIT_LOCKS, (attempt.mark, attempt.mark))
    if attempt.niceness:
        _write("/proc/self/autogroup", b"%d" % attempt.niceness)  # Not on every kernel.
        with contextlib.suppress(OSError):
            os.nice(attempt.niceness)
    _write("/proc/self/oom_score_adj", _OUT_OF_MEMORY_SCORE)
    for kind, limit in attempt.limits:
        resource.setrlimit(kind, (limit, limit))
    os.chdir(attempt.directory)


def _write(path: str, content: bytes) -> None:
    with contextlib.suppress(OSError):
        file = os.open(path, os.O_WRONLY)
        try:
            os.write(file, content)
        finally:
            os.close(file)


def _become(attempt: Attempt, usual: set[Any]) -> None:
    """Make this process that of the task, but for the script."""
    nothing = os.open(os.devnull, os.O_RDONLY)
    for standard, file in enumerate((nothing, attempt.log, attempt.log)):
        os.dup2(file, standard)
    for file in map(int, os.listdir("/proc/self/fd")):
        if file > 2:
            with contextlib.suppress(OSError):  # The listing's own is gone.
                os.close(file)
    os.environ.clear()
    os.environ.update(attempt.environment, PWD=attempt.directory)  # As a shell's children have it.
    threading.main_thread()._set_native_id()  # type: ignore[attr-defined]  # noqa: SLF001
    signal.pthread_sigmask(signal.SIG_SETMASK, usual)


def _look() -> dict[str, object]:
    """Return what the interpreter reads at its start, as far as that is quickly seen."""
    found: dict[str, object] = {}
    for place in _read_at_start():
        try:
            about = os.stat(place)
            found[place] = (about.st_ino, about.st_mtime_ns)
        except OSError:
            found[place] = None
    return found


def _read_at_start() -> Iterator[str]:
    yield sys.executable
    yield f"{sys.prefix}/pyvenv.cfg"
    yield from site.getsitepackages()
    if site.ENABLE_USER_SITE and site.USER_SITE:
        yield site.USER_SITE
    for name in ("sitecustomize", "usercustomize"):
        if file := getattr(sys.modules.get(name), "__file__", None):
            yield str(file)


# In the task's process.


def _run(attempt: Attempt, known: frozenset[str]) -> int:
    path = attempt.argv[2]
    sys.argv[:] = attempt.argv[2:]
    sys.orig_argv[:] = attempt.argv
    folder = os.path.dirname(os.path.realpath(path))
    sys.path.insert(0, folder)
    code = _compiled(path)
    if code is None or _has_own(folder, known - _FIRST_MODULES):
        # A file of its own has the name of a module that was imported ahead, or the script is none:
        # an archive, compiled code, not there, wrong. A new interpreter does what is right then.
        os.execv(attempt.argv[0], attempt.argv)  # noqa: S606
    _own_main(path)
    return _end(_exit_code(_execute(code)), known)


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


def _own_main(path: str) -> None:
    """Have a `__main__` as an interpreter has that runs the file."""
    module = types.ModuleType("__main__")
    module.__dict__.clear()
    module.__dict__.update(_MAIN)
    fresh: dict[str, object] = {
        **({"__annotations__": {}} if "__annotations__" in _MAIN else {}),
        "__doc__": None,
        "__loader__": type(_MAIN["__loader__"])("__main__", path),
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
    for kind in (io.TextIOWrapper, io.BufferedWriter, io.BufferedRandom):
        for each in gc.get_objects():
            # Of objects that end together, the file might be closed before its buffer is empty.
            if type(each) is kind and not each.closed:
                with contextlib.suppress(Exception):
                    each.flush()
    del each
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


if __name__ == "__main__":
    sys.exit(main())
