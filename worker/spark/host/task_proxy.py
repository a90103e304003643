"""The task proxy: has the Spark host fork a process, and stands for it until it has ended.

    python -I -S task_proxy.py SOCKET task PROFILE JOB           an attempt
    python -I -S task_proxy.py SOCKET python SESSION ARGUMENT…   a server's Python

The forked process gets this one's environment, directory and open files. Signals go to it by way
of the host, which alone knows for sure that its pid is still its own; its exit code becomes this
one's. When the task proxy is gone, be it killed, the host kills what it had forked for it. So to
whoever supervises processes the task proxy *is* the task.

It has to start within a hundredth of a second, so it imports built-in modules alone: `socket`,
`json` and `pathlib` would take longer than all it does. `worker/spark/host/proxy_protocol.py` is
the other end of the conversation and says how it goes.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import _socket
import os
import select
import sys
import time

_PATIENCE_SECONDS = 60.0
_REST_SECONDS = 0.01
_FORWARDED = (_signal.SIGTERM, _signal.SIGINT, _signal.SIGHUP, _signal.SIGUSR1, _signal.SIGUSR2)
_INTERRUPTED = 128
_SCM_RIGHTS = 1
_PREFIX = "[orcaflow]"
_KEPT_READY = (
    "pyspark.daemon",
    "pyspark.sql.connect.streaming.worker.foreach_batch_worker",
    "pyspark.sql.streaming.python_streaming_source_runner",
)
"""The modules that a server runs in Pythons which the host forks."""


def main() -> int:
    address, what, *arguments = sys.argv[1:]
    if what == "python" and not (arguments[1:2] == ["-m"] and arguments[2] in _KEPT_READY):
        # Everything else is this Python's own business.
        os.execv(sys.executable, [sys.executable, *arguments[1:]])  # noqa: S606
    signals = _signals()
    try:
        host = _connected(address)
    except OSError as error:
        return _failed(f"SUBMIT_FAILED the worker's Spark host can't be reached: {error.strerror}")
    _ask(host, [what, os.getcwd(), str(len(arguments)), *arguments])  # noqa: PTH109
    if what == "python":
        # The server takes the end of these pipes for the end of the process.
        devnull = os.open(os.devnull, os.O_RDWR)
        for fd in (0, 1):
            os.dup2(devnull, fd)
    return _stand_for(host, signals)


def _stand_for(host: _socket.socket, signals: int) -> int:
    poll = select.poll()
    poll.register(host.fileno(), select.POLLIN)
    poll.register(signals, select.POLLIN)
    read = b""
    while True:
        for fd, _ in poll.poll():
            if fd == signals:
                _forward(host, os.read(signals, 64))
                continue
            try:
                part = host.recv(65_536)
            except ConnectionResetError:
                part = b""
            if not part:
                return _failed("SERVER_LOST the worker's Spark host has died")
            *lines, read = (read + part).split(b"\n")
            for line in lines:
                word, _, rest = line.decode("utf-8", "replace").partition(" ")
                if word == "say":
                    os.write(1, f"{_PREFIX} {rest}\n".encode())
                elif word == "error":
                    return _failed(rest)
                elif word == "exit":
                    code = int(rest)
                    return code if code >= 0 else _INTERRUPTED - code


def _signals() -> int:
    """A descriptor from which the numbers of signals can be read that are meant for the task."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    _signal.set_wakeup_fd(writing)
    for number in _FORWARDED:
        _signal.signal(number, lambda _number, _frame: None)
    return reading


def _connected(address: str) -> _socket.socket:
    """The host may only just have been started."""
    folder_name, _, name = address.rpartition("/")
    limit = time.monotonic() + _PATIENCE_SECONDS
    while True:
        link = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
        try:
            # By its folder's descriptor: an address may have a hundred characters only. A tenant
            # may go through that folder, but not read it.
            folder = os.open(folder_name, os.O_PATH | os.O_DIRECTORY)
            try:
                link.connect(f"/proc/self/fd/{folder}/{name}")
            finally:
                os.close(folder)
            return link
        except (FileNotFoundError, ConnectionRefusedError):
            link.close()
            if time.monotonic() >= limit:
                raise
            time.sleep(_REST_SECONDS)  # Nothing tells of a socket that will be there soon.


def _ask(host: _socket.socket, words: list[str]) -> None:
    request = b"\0".join(
        [*map(os.fsencode, words), *(key + b"=" + value for key, value in os.environb.items())]
    )
    frame = len(request).to_bytes(4, "big") + request
    files = b"".join(fd.to_bytes(4, sys.byteorder) for fd in (0, 1, 2))
    try:
        sent = host.sendmsg([frame], [(_socket.SOL_SOCKET, _SCM_RIGHTS, files)])
        host.sendall(frame[sent:])
    except BrokenPipeError:
        return  # What is to be read says more.


def _forward(host: _socket.socket, numbers: bytes) -> None:
    try:
        host.sendall(numbers)
    except (BrokenPipeError, ConnectionResetError):
        return


def _failed(told: str) -> int:
    """Say it in the log, and leave it for the row as any failing task does."""
    failure, _, text = told.partition(" ")
    os.write(2, f"{_PREFIX} {text}\n".encode())
    facts, job = os.environ.get("ORCAFLOW_SPARK_FACTS"), sys.argv[-1]
    if facts:
        try:
            _keep(f"{job.rpartition('.')[0]}.reason", f"{text}\n")
            _keep(facts, f'{{"failure": "{failure}"}}\n')
        except OSError as error:
            os.write(2, f"{_PREFIX} the reason could not be kept: {error}\n".encode())
    return 1


def _keep(path: str, text: str) -> None:
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    try:
        os.write(file, text.encode())
    finally:
        os.close(file)


if __name__ == "__main__":
    sys.exit(main())
