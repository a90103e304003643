"""The host's side of the conversation with a task proxy, and with the worker daemon.

A request is a length in four bytes and then words, separated by NUL: its kind, the directory, the
number of arguments, these, and the environment as KEY=VALUE. Three file descriptors come with it.
After it the task proxy sends bytes, each the number of a signal, and the host sends lines:
`say TEXT`, and at last one of `error FAILURE TEXT` and `exit CODE`. A request `follow` comes from
the worker daemon: its only argument is a JSON document of the profiles that it wants served, and
more may follow on the same link, which is open as long as the daemon is there.
"""

from __future__ import annotations

import array
import contextlib
import os
import socket
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

_HEAD = 4
_ROOT = 0
_LIMIT_BYTES = 8_000_000
_FILES = 3
_FIRST_WORDS = 3
_CREDENTIALS = struct.Struct("3i")


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A request to the host. Its holder owns the open files."""

    what: str
    arguments: tuple[str, ...]
    directory: str
    environment: Mapping[str, str]
    files: tuple[int, ...]

    def close(self) -> None:
        """Close the files; whoever was forked has its own copies."""
        _close(self.files)


class BadRequestError(Exception):
    """The bytes are no request; the text says why. The conversation ends."""


def check(request: Request, *, uid: int, own: int) -> None:
    """Raise `BadRequestError` if an account must not ask for this; `own` is the host's.

    The daemon of a tenant's host is root's. A fork would be the host's account's, and so nobody
    else's business.
    """
    match request.what, len(request.arguments), len(request.files):
        case "task", 2, 3 if uid == own:
            return
        case "python", count, 3 if count and uid == own:
            return
        case "follow", 1, 0 if uid in (own, _ROOT):
            return
    raise BadRequestError(
        f"{request.what[:40]!r} with {len(request.arguments)} words of account {uid}"
    )


class Link:
    """One conversation. Never waits: `read` takes what is there, and `tell` gives up what isn't."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        self._connection = connection
        self._read = bytearray()
        self._files: list[int] = []
        pid, uid, _ = _CREDENTIALS.unpack(
            connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        )
        self.pid: int = pid
        self.uid: int = uid
        self.is_over = False

    @property
    def is_closed(self) -> bool:
        """This side has closed it."""
        return self._connection.fileno() < 0

    def fileno(self) -> int:
        return self._connection.fileno()

    def receive(self) -> None:
        """Take what has come. `is_over` says that nothing more will."""
        size = struct.calcsize("i") * _FILES
        try:
            part, rights, _, _ = self._connection.recvmsg(262_144, socket.CMSG_SPACE(size))
        except BlockingIOError:
            return
        except OSError:
            part, rights = b"", []
        for level, kind, content in rights:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                files = array.array("i")
                files.frombytes(content[: len(content) - len(content) % files.itemsize])
                self._files += files
        if part:
            self._read += part
        else:
            self.is_over = True

    def request(self) -> Request | None:
        """The next whole request; None if it hasn't come yet. Raises `BadRequestError`."""
        if len(self._files) > _FILES:
            raise BadRequestError("more open files than a request has")
        if len(self._read) < _HEAD:
            return None
        length = int.from_bytes(self._read[:_HEAD], "big")
        if length > _LIMIT_BYTES:
            raise BadRequestError(f"a request of {length} bytes")
        if len(self._read) < _HEAD + length:
            return None
        words = [
            os.fsdecode(each) for each in bytes(self._read[_HEAD : _HEAD + length]).split(b"\0")
        ]
        del self._read[: _HEAD + length]
        files, self._files = tuple(self._files), []
        try:
            what, directory, count = words[0], words[1], int(words[2])
            if not 0 <= count <= len(words) - _FIRST_WORDS:
                raise ValueError(count)
        except (IndexError, ValueError) as error:
            _close(files)
            raise BadRequestError("a request without its words") from error
        arguments = words[_FIRST_WORDS : _FIRST_WORDS + count]
        variables = words[_FIRST_WORDS + count :]
        pairs = (each.partition("=") for each in variables)
        return Request(
            what=what,
            arguments=tuple(arguments),
            directory=directory,
            environment={key: value for key, equals, value in pairs if equals and key},
            files=files,
        )

    def signals(self) -> bytes:
        """The numbers of the signals that have come since."""
        numbers = bytes(self._read)
        self._read.clear()
        self._drop_files()
        return numbers

    def say(self, text: str) -> None:
        """Have a line printed."""
        self._send_line(f"say {_line(text)}")

    def exit(self, code: int) -> None:
        """The process has ended with this code, negative for a signal."""
        self._send_line(f"exit {code}")

    def error(self, failure: str, text: str) -> None:
        """It has failed, and not by itself."""
        self._send_line(f"error {failure} {_line(text)}")

    def close(self) -> None:
        self._drop_files()
        self._connection.close()

    def _drop_files(self) -> None:
        _close(self._files)
        self._files.clear()

    def _send_line(self, line: str) -> None:
        try:
            self._connection.send(line.encode("utf-8", "replace") + b"\n")
        except OSError:
            # Gone, or it doesn't read: what it stood for is ended when the link's end is seen.
            self.is_over = True


def request_bytes(what: str, argument: str) -> bytes:
    """A request with one argument and nothing else, as the daemon sends it."""
    body = b"\0".join(os.fsencode(each) for each in (what, "/", "1", argument))
    return len(body).to_bytes(_HEAD, "big") + body


def listening(path: str, *, mode: int) -> socket.socket:
    """A socket at a path of any length; the folder has to be there."""
    folder_name, _, name = path.rpartition("/")
    folder = os.open(folder_name, os.O_RDONLY | os.O_DIRECTORY)
    try:
        address = f"/proc/self/fd/{folder}/{name}"
        with contextlib.suppress(FileNotFoundError):
            os.unlink(address)  # noqa: PTH108
        door = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        door.bind(address)
        os.chmod(address, mode)  # noqa: PTH101
        door.listen(256)
        door.setblocking(False)
        return door
    finally:
        os.close(folder)


def _close(files: Iterable[int]) -> None:
    for file in files:
        with contextlib.suppress(OSError):
            os.close(file)


def _line(text: str) -> str:
    return " ".join(text.split())[:4_000]
