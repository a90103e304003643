"""The right to read logs of tasks from a worker: a key of the cluster, and tokens made with it.

A token allows one question (an attempt, a range of bytes, a time to wait) for 30 seconds, once, at
the workers of one database. The key is a file that its owner alone may read, and that every host
with a worker, and every host from which logs are read, needs a copy of. Nothing here sends, serves
or opens a log. Questions of other kinds have the same tokens with another scheme
(`common.page_access`).
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import secrets
import stat
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, ClassVar, Final, Protocol
from urllib.parse import parse_qsl, urlencode

from common.errors import SchedulerError
from common.folders import closed_folder

if TYPE_CHECKING:
    from common.config import Config

PATH: Final = "/v1/log"
MOST_BYTES: Final = 256 * 1024
MOST_WAIT: Final = timedelta(seconds=20)
GOOD_FOR: Final = timedelta(seconds=30)
SCHEME: Final = "Orcaflow-Log"

_KEY: Final = re.compile(rb"[0-9a-f]{64}\n?")
_TOKEN: Final = re.compile(r"(Orcaflow-[A-Z][a-z]+) ([0-9]{1,12})\.([0-9a-f]{32})\.([0-9a-f]{64})")
_NUMBERS: Final = {
    "instance": 2**31 - 1,
    "task": 2**31 - 1,
    "from": 2**62,
    "max": MOST_BYTES,
    "wait": int(MOST_WAIT.total_seconds()),
}
_MOST_NONCES: Final = 100_000


class LogKeyError(SchedulerError):
    """The key can't be read or made; the text names the file and the cure."""


class LogAccessError(SchedulerError):
    """A token is refused; the text says why, and nothing about the key."""


class Question(Protocol):
    """A question to a worker that takes a token."""

    scheme: ClassVar[str]
    """The scheme of the header `Authorization`, another one for each kind of question."""

    def query(self) -> str:
        """Return the query of a URL; what is signed."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class LogQuestion:
    """At most `most` bytes of an attempt's log from an offset on.

    If there are none yet, the answer may take `wait_seconds`.
    """

    scheme: ClassVar[str] = SCHEME

    instance: int
    task: int
    start: int = 0
    most: int = MOST_BYTES
    wait_seconds: int = 0

    def query(self) -> str:
        """Return the query of a URL; what is signed."""
        return urlencode(
            {
                "instance": self.instance,
                "task": self.task,
                "from": self.start,
                "max": self.most,
                "wait": self.wait_seconds,
            }
        )

    @classmethod
    def read(cls, query: str) -> LogQuestion:
        """Read the query of a URL; `ValueError` says what is wrong with it."""
        if len(query) > 200:
            raise ValueError("the query is too long")
        given: dict[str, int] = {}
        for name, value in parse_qsl(query, keep_blank_values=True, max_num_fields=8):
            if name not in _NUMBERS or name in given:
                raise ValueError("the query has keys that are unknown or come twice")
            if not re.fullmatch("[0-9]{1,19}", value) or int(value) > _NUMBERS[name]:
                raise ValueError(f"{name} is a whole number up to {_NUMBERS[name]}")
            given[name] = int(value)
        if not given.get("instance") or not given.get("task"):
            raise ValueError("instance and task are ids")
        return cls(
            instance=given["instance"],
            task=given["task"],
            start=given.get("from", 0),
            most=given.get("max", MOST_BYTES),
            wait_seconds=given.get("wait", 0),
        )


def key_file(config: Config) -> Path:
    """Return the key file by the settings in force."""
    return Path(config.log_key_file or config.home / "keys" / "log.key")


def read_key(path: Path, *, makes: bool = False) -> bytes:
    """Return the key; `makes` makes one if there is none. `LogKeyError` names the cure."""
    try:
        try:
            return _read(path)
        except FileNotFoundError:
            if not makes:
                raise
        closed_folder(path.parent)
        # Whole before it has its name: another daemon of this home may make it at the same time.
        new = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
        file = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            with os.fdopen(file, "wb") as made:
                made.write(secrets.token_hex(32).encode() + b"\n")
            with suppress(FileExistsError):
                os.link(new, path)
        finally:
            new.unlink()
        return _read(path)
    except FileNotFoundError:
        raise LogKeyError(
            f"there is no key for logs of other hosts; copy {path} from the worker's host"
        ) from None
    except OSError as error:
        raise LogKeyError(f"the key {path} can't be read: {error.strerror}") from error


def _read(path: Path) -> bytes:
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        about = os.fstat(file)
        if not stat.S_ISREG(about.st_mode) or about.st_mode & 0o077:
            raise LogKeyError(f"others may read the key {path}; close it: chmod 600 {path}")
        content = os.read(file, 200)
    finally:
        os.close(file)
    if not _KEY.fullmatch(content):
        raise LogKeyError(f"{path} holds no key; copy the file from the worker's host again")
    return bytes.fromhex(content.decode())


def token(key: bytes, *, cluster: str, question: Question, now: float) -> str:
    """Return the value of the header `Authorization` for a question; `now` is in POSIX seconds."""
    nonce = secrets.token_hex(16)
    signature = _signature(key, cluster, question, f"{now:.0f}", nonce)
    return f"{question.scheme} {now:.0f}.{nonce}.{signature}"


class LogGuard:
    """Checks the tokens of one worker, each of which is good once; from any thread."""

    def __init__(self, key: bytes, *, cluster: str) -> None:
        self._key = key
        self._cluster = cluster
        self._lock = Lock()
        self._used: set[str] = set()
        self._in_order: deque[tuple[float, str]] = deque()

    def check(self, header: str, question: Question, *, now: float) -> None:
        """Raise `LogAccessError` unless the header allows the question."""
        found = _TOKEN.fullmatch(header)
        if found is None or found[1] != question.scheme:
            raise LogAccessError("a token is needed")
        _, issued, nonce, signature = found.groups()
        expected = _signature(self._key, self._cluster, question, issued, nonce)
        if not hmac.compare_digest(expected, signature):
            raise LogAccessError(
                "the token is not of this cluster: use a copy of the worker's log key"
            )
        age = now - int(issued)
        if abs(age) > GOOD_FOR.total_seconds():
            raise LogAccessError(f"the token is of another time; the clocks differ by {age:.0f} s")
        with self._lock:
            while self._in_order and (
                now - self._in_order[0][0] > 2 * GOOD_FOR.total_seconds()
                or len(self._in_order) >= _MOST_NONCES
            ):
                self._used.discard(self._in_order.popleft()[1])
            if nonce in self._used:
                raise LogAccessError("the token was used already")
            self._used.add(nonce)
            self._in_order.append((now, nonce))


def _signature(key: bytes, cluster: str, question: Question, issued: str, nonce: str) -> str:
    text = f"{question.scheme}\n{cluster}\n{question.query()}\n{issued}\n{nonce}"
    return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()
