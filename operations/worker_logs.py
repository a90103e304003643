"""Reads logs of tasks wherever they are: in this home, else at the workers that may have them.

The order: this computer's file; the worker that held the attempt; the other living workers of its
host; the last words of a failure, which its worker has kept in the tables. An error names all that
were tried. A worker is not believed: what it sends is bounded in size and in time.
"""

from __future__ import annotations

import codecs
import http.client
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, Protocol

from common.clock import SystemClock
from common.errors import SchedulerError, ServiceUnreachableError
from common.log_access import PATH, LogQuestion, key_file, read_key, token
from common.model.cluster import NodeKind
from common.store.cluster import cluster_token
from common.store.people.runs import KeptTail, log_tail
from common.store.people.views import TaskInstanceView
from operations.members import registry
from operations.session import Session, operation
from operations.task_log import LogElsewhereError, LogMissingError, opened_log

_PATIENCE: Final = timedelta(seconds=5)
_FOLLOWING_WAIT_SECONDS: Final = 1
_PIECE_BYTES: Final = 65_536
_TAIL_BYTES: Final = 200_000
_LONGEST: Final = 2 * 1024**3
_SIZE: Final = re.compile("[0-9]{1,19}")


class Log(Protocol):
    """A log that is read piece by piece from wherever its writer has got to."""

    def read(self) -> str: ...

    def rest(self) -> Iterator[str]: ...

    def skip_to_last(self, lines: int) -> None: ...


class WorkerLogError(SchedulerError):
    """A worker does not hand a log over; the text names the worker and the reason."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Some bytes of a log, and its size then."""

    body: bytes
    size: int


class WorkerLog:
    """The log of an attempt at a worker; read like a `TaskLog`."""

    def __init__(
        self, address: str, ids: tuple[int, int], *, key: bytes, cluster: str, waits: bool
    ) -> None:
        """`ids`: of the process instance and the attempt.

        `waits`: `read` may take a second until there is something.
        """
        self._address = address
        self._instance, self._task = ids
        self._key = key
        self._cluster = cluster
        self._wait_seconds = _FOLLOWING_WAIT_SECONDS if waits else 0
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._at = 0
        self._read = 0
        self._size = self._ask(0, 0, 0).size

    def read(self) -> str:
        """Return the text added since the last call, up to some size; "" if there is none."""
        return self._decoder.decode(self._next(self._wait_seconds))

    def rest(self) -> Iterator[str]:
        """Yield everything up to the end, in pieces."""
        while body := self._next(0):
            yield self._decoder.decode(body)
        yield self._decoder.decode(b"", final=True)

    def skip_to_last(self, lines: int) -> None:
        """Continue at the last lines, of which at most a fifth of a megabyte is kept."""
        start = max(0, self._size - _TAIL_BYTES)
        tail = b""
        while len(tail) < _TAIL_BYTES and start + len(tail) < self._size:
            piece = self._ask(start + len(tail), _PIECE_BYTES, 0)
            if not piece.body:
                break
            tail += piece.body
        kept = b"".join(tail.splitlines(keepends=True)[-lines:]) if lines > 0 else b""
        self._at = start + len(tail) - len(kept)

    def _next(self, wait_seconds: int) -> bytes:
        piece = self._ask(self._at, _PIECE_BYTES, wait_seconds)
        # A log that grew too long is cut: what was read stands, and it goes on behind the cut.
        self._at = min(self._at, piece.size) + len(piece.body)
        self._read += len(piece.body)
        if self._read > _LONGEST:
            raise WorkerLogError(f"worker {self._address} sends more than any log may hold")
        return piece.body

    def _ask(self, start: int, most: int, wait_seconds: int) -> Piece:
        question = LogQuestion(
            instance=self._instance,
            task=self._task,
            start=start,
            most=most,
            wait_seconds=wait_seconds,
        )
        return ask(self._address, question, key=self._key, cluster=self._cluster)


def ask(address: str, question: LogQuestion, *, key: bytes, cluster: str) -> Piece:
    """Ask a worker; `WorkerLogError` if it does not answer in time, or with anything else."""
    clock = SystemClock()
    allowed = token(key, cluster=cluster, question=question, now=clock.now().timestamp())
    patience = _PATIENCE.total_seconds() + question.wait_seconds
    deadline = clock.monotonic() + patience + _PATIENCE.total_seconds()
    host, _, port = address.rpartition(":")
    try:
        connection = http.client.HTTPConnection(host.strip("[]"), int(port), timeout=patience)
        try:
            connection.request(
                "GET", f"{PATH}?{question.query()}", headers={"Authorization": allowed}
            )
            response = connection.getresponse()
            most = question.most if response.status == http.client.OK else 1000
            body = b""
            while len(body) <= most and (piece := response.read1(most + 1 - len(body))):
                body += piece
                if clock.monotonic() > deadline:
                    raise WorkerLogError(f"worker {address} answers too slowly")
        finally:
            connection.close()
    except (OSError, ValueError, http.client.HTTPException) as error:
        raise WorkerLogError(
            f"worker {address} does not answer ({type(error).__name__})"
        ) from error
    if response.status != http.client.OK:
        raise WorkerLogError(f"worker {address} refuses: {_reason(response.status, body)}")
    size = response.getheader("Log-Size") or ""
    if len(body) > question.most or not _SIZE.fullmatch(size):
        raise WorkerLogError(f"worker {address} answers something else than was asked for")
    return Piece(body, int(size))


def _reason(status: int, body: bytes) -> str:
    try:
        return str(json.loads(body)["error"])[:300]
    except (ValueError, RecursionError, KeyError, TypeError):
        return f"HTTP {status}"


@contextmanager
def opened_anywhere(
    session: Session, task: TaskInstanceView, *, waits: bool = False
) -> Iterator[Log]:
    """Open the log of an attempt; `LogMissingError` names all places that were tried.

    `waits`: for somebody who follows it.
    """
    tried: list[str] = []
    try:
        with opened_log(session.config.home, task.log_path) as found:
            yield found
            return
    except (LogMissingError, LogElsewhereError) as error:
        if task.host is None or not _is_a_log_of(task):
            raise
        tried.append(str(error) if isinstance(error, LogElsewhereError) else "this computer")
    yield _at_workers(session, task, tried, waits=waits)


def _is_a_log_of(task: TaskInstanceView) -> bool:
    """True if a worker of some home would have made this path for the attempt."""
    end = rf"/logs/[0-9]+/{task.process_instance_id:d}/{task.id:d}\.log"
    return task.log_path is not None and re.search(f"{end}$", task.log_path) is not None


class LastWords:
    """The end of a log that is out of reach, as its worker has kept it; read like a `TaskLog`."""

    def __init__(self, kept: KeptTail) -> None:
        left_out = kept.size - len(kept.tail)
        note = f"[orcaflow] … {left_out} bytes before this are out of reach …\n" if left_out else ""
        self._text = note + kept.tail.decode("utf-8", "replace")

    def read(self) -> str:
        """Return everything, and then nothing more."""
        text, self._text = self._text, ""
        return text

    def rest(self) -> Iterator[str]:
        """Yield what is left."""
        yield self.read()

    def skip_to_last(self, lines: int) -> None:
        """Continue at the last lines."""
        kept = self._text.splitlines(keepends=True)
        self._text = "".join(kept[-lines:]) if lines > 0 else ""


@operation
def last_lines_anywhere(session: Session, task: TaskInstanceView, *, lines: int) -> list[str]:
    """Return the last lines of a log; raises as `opened_anywhere` does."""
    with opened_anywhere(session, task) as log:
        log.skip_to_last(lines)
        return "".join(log.rest()).splitlines()


def _at_workers(session: Session, task: TaskInstanceView, tried: list[str], *, waits: bool) -> Log:
    try:
        key = read_key(key_file(session.config))
    except SchedulerError as error:
        tried.append(str(error))
    else:
        cluster = cluster_token(session.engine)
        ids = (task.process_instance_id, task.id)
        for address in _addresses(session, task, tried):
            try:
                return WorkerLog(address, ids, key=key, cluster=cluster, waits=waits)
            except WorkerLogError as error:
                tried.append(str(error))
    with session.engine.connect() as db:
        kept = log_tail(db, task.id)
    if kept is not None:
        return LastWords(kept)
    raise _nowhere(task, [*tried, "its last words (none are kept)"])


def _addresses(session: Session, task: TaskInstanceView, tried: list[str]) -> Iterator[str]:
    """Yield the holder, then the other living workers of its host."""
    holder = task.host or ""
    yield holder
    try:
        with registry(session.config, patience=_PATIENCE) as opened:
            nodes = sorted(opened.membership.nodes(NodeKind.WORKER))
    except ServiceUnreachableError:
        tried.append("other workers of its host (ZooKeeper does not answer)")
        return
    own = holder.rpartition(":")[0]
    for node in nodes:
        if node.address != holder and node.address.rpartition(":")[0] == own:
            yield node.address


def _nowhere(task: TaskInstanceView, tried: list[str]) -> LogMissingError:
    places = "; ".join(tried)
    return LogMissingError(
        f"the log of task instance {task.id} is on the host that ran it, and can't be read from"
        f" here; tried: {places}"
    )
