"""The fork server: forks a Python for each PYTHON task, so that no task waits for an interpreter.

    PYTHON -u fork_server.py LINK MARK BLANKS

It has imported what most scripts import, has one thread, and runs as the account whose tasks it
serves. Run as a program by the interpreter of the tasks, so it uses the standard library alone and
nothing of Orcaflow's; `worker/processes/fork_servers.py` starts it. LINK is the number of a socket,
on which each message brings another one, the *gate* of an attempt; MARK is what the worker's own
bear, or 0; BLANKS is room for a command line. The end of the link is the end of the server, and of
nothing else. A task of the account may stop the server, or what it has forked ahead, by a signal.
The kernel therefore kills these processes when the daemon ends.

For a gate it makes a *leader*, a child of the daemon, which takes everything else from the gate
itself: the server never knows what a task was given. The leader does what the wrapper of a new
interpreter does (`worker/processes/starting.py`): it leads the session, notes its pid before the
task begins and the exit code after it, and takes limits, niceness, mark and marker. It answers when
it is ready, and forks the task once it is told to go on; without that word it ends, and nothing has
run. The task runs its script as `python -u SCRIPT` would; where only a new interpreter can do that,
it becomes one.

A leader that is made *ahead* has forked the task's process before there is a task, its *runner*;
both have touched the memory that they are going to write to, and wait. The runner takes the attempt
over as the leader does, and ends with it if nothing comes of it.
"""

from __future__ import annotations

import sys

_FIRST_MODULES = frozenset(sys.modules)
_MAIN = {name: value for name, value in globals().items() if name.startswith("__")}
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from worker.processes import forked_script
else:
    import forked_script

    del sys.modules["forked_script"]
# The folder of this program is not for scripts, nor for the imports that come now.
sys.path[:1] = []

import array
import contextlib
import ctypes
import gc
import importlib
import json
import os
import resource
import signal
import site
import socket
import threading
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

MARKER = "ORCAFLOW_EXECUTE_PATH"
MARKER_BYTES = 4096
AHEAD, WAITING, READY, STALE, REFUSED, GO = b"a", b"w", b"+", b"s", b"-", b"+"

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
_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
_RLIMIT_LOCKS = 10
_OUT_OF_MEMORY_SCORE = b"300"
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


class Server(NamedTuple):
    """The things that a fork server has when it is ready, and hands down to what it forks."""

    areas: Areas
    seen: dict[str, object]
    """The files that its interpreter has read at its start."""
    interpreter: forked_script.Interpreter


class Attempt:
    """The things that an attempt is given: a document, the log and, for a leader, the record."""

    def __init__(self, frame: bytes, files: Iterable[int]) -> None:
        *self.record, self.log = files
        document: dict[str, Any] = json.loads(frame[_HEAD:])
        self.argv: list[str] = document["argv"]
        self.environment: dict[str, str] = document["environment"]
        self.directory: str = document["directory"]
        self.niceness: int = document["niceness"]
        self.mark: int = document["mark"] or 0
        self.limits: list[tuple[int, int]] = document["limits"]
        self.is_enclosed: bool = document["is_enclosed"]

    def must_fork(self) -> bool:
        """Return whether its runner has to be forked after the leader has taken its limits."""
        return self.is_enclosed or any(kind == resource.RLIMIT_NPROC for kind, _ in self.limits)


class Runner:
    """The leader's side of its runner: the pid, and the link on which that waits."""

    def __init__(self, pid: int, link: socket.socket) -> None:
        self.pid = pid
        self._link = link

    def await_start(self) -> None:
        """Wait until the end of this process would end it, or until it has ended."""
        with contextlib.suppress(OSError):
            self._link.recv(1)

    def offer(self, frame: bytes, log: int) -> None:
        """Send an attempt; what becomes of a runner that has died is seen by its answer."""
        with contextlib.suppress(OSError):
            _send(self._link, frame, [log])

    def is_ready(self) -> bool:
        """Wait for the answer; False if it has died, or can't take over what it was sent."""
        try:
            return self._link.recv(1) == READY
        except OSError:
            return False

    def begin(self) -> int:
        """Let it begin; its pid. It may have been killed; that is the attempt's end then."""
        with contextlib.suppress(OSError):
            self._link.send(GO)
        self._link.close()
        return self.pid

    def dismiss(self) -> None:
        """Have it end, which has run nothing."""
        self._link.close()
        os.waitpid(self.pid, 0)


def _send(link: socket.socket, frame: bytes, files: Iterable[int]) -> None:
    rights = array.array("i", files).tobytes()
    sent = link.sendmsg([frame], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
    link.sendall(frame[sent:])


def _received(link: socket.socket) -> tuple[bytes, list[int]]:
    """Wait for a frame and its files; `EOFError` if nobody is left who could send any."""
    read, rights, _, _ = link.recvmsg(
        262_144, socket.CMSG_SPACE(4 * _FILES), socket.MSG_CMSG_CLOEXEC
    )
    files = array.array("i")
    for _, _, content in rights:
        files.frombytes(content)
    parts = [read]
    left = _HEAD + int.from_bytes(read[:_HEAD], "big") - len(read)
    while left > 0:
        if not parts[-1]:
            raise EOFError
        parts.append(link.recv(262_144))
        left -= len(parts[-1])
    return b"".join(parts), files.tolist()


def main() -> int:
    """Serve until the link ends. In a task's process, run its script."""
    link = socket.socket(fileno=int(sys.argv[1]))
    link.set_inheritable(False)
    _end_with_parent()
    for name in _PRELOADED:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    areas, known = Areas(), frozenset(sys.modules)
    interpreter = forked_script.Interpreter(_MAIN, known, known - _FIRST_MODULES)
    if len(os.listdir("/proc/self/task")) != 1:
        raise RuntimeError("the interpreter's own start has left a thread")
    # No task of this account can change the server that makes the next one.
    _libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
    server = Server(areas, _look(), interpreter)
    # What is never collected is never written to, and stays shared.
    gc.collect()
    gc.freeze()
    link.sendall(READY)
    attempt = _serve(link, server)
    return 0 if attempt is None else forked_script.run(attempt.argv, interpreter)


def _serve(link: socket.socket, server: Server) -> Attempt | None:
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
                return _lead(link, gate, server, is_ahead=word == AHEAD)
            except BaseException:  # noqa: BLE001  # It must never go on as a second server.
                os._exit(1)
        if pid < 0:
            with contextlib.suppress(OSError):
                gate.send(REFUSED)
        gate.close()


def _lead(link: socket.socket, gate: socket.socket, server: Server, *, is_ahead: bool) -> Attempt:
    """Lead an attempt to its end; return it in the task's process alone."""
    usual = signal.pthread_sigmask(signal.SIG_BLOCK, _DEAF_TO)
    link.close()
    _end_with_parent()
    os.setsid()
    # Until it has an attempt it is a part of the worker.
    _bear(int(sys.argv[2]))
    runner: Runner | None = None
    if is_ahead:
        made = _runner(gate, server, usual)
        if isinstance(made, Attempt):
            return made
        runner = made
        _rehearse(server.areas)
        if runner is not None:
            runner.await_start()
        gate.send(WAITING)
    answer, attempt = REFUSED, None
    with contextlib.suppress(OSError, EOFError, ValueError):
        frame, files = _received(gate)
        if runner is not None:
            # Before anything else: it does the most.
            runner.offer(frame, files[-1])
        attempt = Attempt(frame, files)
        # From here on it may be looked at, as any process of the account: it is this attempt's.
        _libc.prctl(_PR_SET_DUMPABLE, 1, 0, 0, 0)
        is_ahead = runner is not None and not attempt.must_fork()
        _take_over(attempt, server.areas)
        if _look() != server.seen:
            answer = STALE
        elif runner is None or not is_ahead or runner.is_ready():
            answer = READY
            _outlive_parent()
    if attempt is not None:
        gate.send(answer)
    if attempt is None or answer != READY or gate.recv(1) != GO:
        if runner is not None:
            runner.dismiss()
        os._exit(1)
    [record] = attempt.record
    os.write(record, b"pid %d\n" % os.getpid())
    if runner is not None and is_ahead:
        pid = runner.begin()
    else:
        if runner is not None:
            runner.dismiss()
        pid = _forked(attempt)
        if pid == 0:
            _become(attempt)
            signal.pthread_sigmask(signal.SIG_SETMASK, usual)
            return attempt
    gate.close()
    _, status = os.waitpid(pid, 0)
    code = _SIGNALLED + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
    with contextlib.suppress(OSError):
        os.write(record, b"exit %d\n" % code)
    os._exit(code)


def _forked(attempt: Attempt) -> int:
    """Fork the task's process after all; its pid, or 0 in it."""
    try:
        return os.fork()
    except OSError as error:
        os.write(attempt.log, f"orcaflow: cannot fork: {error.strerror}\n".encode())
        os._exit(_CANT_FORK)


def _runner(gate: socket.socket, server: Server, usual: set[Any]) -> Runner | Attempt | None:
    """Make a runner, if possible; return the attempt to be run in the runner's process alone."""
    link, theirs = socket.socketpair()
    try:
        pid = os.fork()
    except OSError:
        pid = -1
    if pid != 0:
        theirs.close()
        return Runner(pid, link) if pid > 0 else None
    try:
        link.close()
        gate.close()
        _end_with_parent()
        theirs.send(WAITING)
        _rehearse(server.areas)
        forked_script.rehearse(server.interpreter)
        attempt = Attempt(*_received(theirs))
        # What was sent to everybody before was not meant for this attempt.
        while signal.sigtimedwait(_DEAF_TO, 0) is not None:
            pass
        _libc.prctl(_PR_SET_DUMPABLE, 1, 0, 0, 0)
        _take_over(attempt, server.areas)
        _become(attempt, but=theirs.fileno())
        _outlive_parent()
        theirs.send(READY)
        if theirs.recv(1) != GO:
            os._exit(1)
        theirs.close()
        signal.pthread_sigmask(signal.SIG_SETMASK, usual)
    except BaseException:  # noqa: BLE001  # The leader sees it by the end of the link.
        os._exit(1)
    return attempt


def _take_over(attempt: Attempt, areas: Areas) -> None:
    """Take over what the wrapper of a new interpreter has from its daemon."""
    areas.write(os.fsencode(attempt.directory), [*map(os.fsencode, attempt.argv)])
    _bear(attempt.mark)
    if attempt.niceness:
        _write("/proc/self/autogroup", b"%d" % attempt.niceness)  # Not on every kernel.
        with contextlib.suppress(OSError):
            os.nice(attempt.niceness)
    _write("/proc/self/oom_score_adj", _OUT_OF_MEMORY_SCORE)
    for kind, limit in attempt.limits:
        resource.setrlimit(kind, (limit, limit))
    os.chdir(attempt.directory)


def _end_with_parent() -> None:
    """Have the kernel kill this process when its parent ends, even if a task has stopped it."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def _outlive_parent() -> None:
    """Let this process, which has an attempt, continue after the end of its parent."""
    _libc.prctl(_PR_SET_PDEATHSIG, 0, 0, 0, 0)


def _bear(mark: int) -> None:
    if not mark:
        return
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(_RLIMIT_LOCKS, (mark, mark))


def _write(path: str, content: bytes) -> None:
    with contextlib.suppress(OSError):
        file = os.open(path, os.O_WRONLY)
        try:
            os.write(file, content)
        finally:
            os.close(file)


def _become(attempt: Attempt, *, but: int = -1) -> None:
    """Make this process that of the task, but for the script and the signals it is deaf to.

    All files are closed `but` one.
    """
    nothing = os.open(os.devnull, os.O_RDONLY)
    for standard, file in enumerate((nothing, attempt.log, attempt.log)):
        os.dup2(file, standard)
    for file in map(int, os.listdir("/proc/self/fd")):
        if file > 2 and file != but:
            with contextlib.suppress(OSError):  # The listing's own is gone.
                os.close(file)
    os.environ.clear()
    os.environ.update(attempt.environment, PWD=attempt.directory)  # As a shell's children have it.
    threading.main_thread()._set_native_id()  # type: ignore[attr-defined]  # noqa: SLF001


_REHEARSED_FRAME = json.dumps(
    {
        "argv": sys.argv,
        "environment": dict(os.environ),
        "directory": "/",
        "niceness": 0,
        "mark": 0,
        "limits": [],
        "is_enclosed": False,
    }
).encode()
_REHEARSED_FRAME = len(_REHEARSED_FRAME).to_bytes(_HEAD, "big") + _REHEARSED_FRAME


def _rehearse(areas: Areas) -> None:
    """Do what is to be done with an attempt, so that the memory written to is this process's own.

    A page that is shared is copied at the first write, which takes longer than most writing.
    """
    ours, theirs = socket.socketpair()
    nothing = os.open(os.devnull, os.O_RDWR)
    _send(ours, _REHEARSED_FRAME, [nothing, nothing])
    attempt = Attempt(*_received(theirs))
    _take_over(attempt, areas)
    _look()
    for file in (nothing, *attempt.record, attempt.log):
        os.close(file)
    ours.close()
    theirs.close()


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


if __name__ == "__main__":
    sys.exit(main())
