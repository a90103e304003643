"""A program of another account that listens at a port and keeps everything that it is sent.

It answers as a Connect server or a page does at first, so that a client sends its token. Only root
can start it.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

ACCOUNT = 65_534
AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="starts a program of another account")
_END = "the end"
_LISTEN = rf"""
import os, socket, sys
os.setgroups([])
os.setresgid(*[{ACCOUNT}] * 3)
os.setresuid(*[{ACCOUNT}] * 3)
door = socket.create_server(("127.0.0.1", int(sys.argv[1])))
print(door.getsockname()[1], flush=True)
SETTINGS = b"\0\0\0\4\0\0\0\0\0" + b"\0\0\0\4\1\0\0\0\0"
PAGE = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n[]"
while True:
    connection = door.accept()[0]
    connection.settimeout(5)
    received = b""
    try:
        while piece := connection.recv(65536):
            received += piece
            connection.sendall(SETTINGS if received.startswith(b"PRI") else PAGE)
            if b"Bearer" in received or received == {_END.encode()!r}:
                break
    except OSError:
        pass
    connection.close()
    print(repr(received), flush=True)
"""


class Outsider:
    """The program."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        self._output = process.stdout
        self.port = int(self._output.readline())

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def received(self) -> str:
        """Return all that was sent to it since the last call."""
        with socket.create_connection(("127.0.0.1", self.port)) as last:
            last.sendall(_END.encode())
        found = []
        while _END not in (line := self._output.readline()):
            assert line, "the outsider has ended"
            found.append(line)
        return "".join(found)


@contextmanager
def an_outsider(port: int = 0) -> Iterator[Outsider]:
    """Run a program that listens at this port, by default at a free port."""
    with subprocess.Popen(
        # The other account may not start this Python.
        [sys.executable, "-I", "-S", "-c", _LISTEN, str(port)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        cwd="/",
    ) as process:
        try:
            yield Outsider(process)
        finally:
            process.kill()
