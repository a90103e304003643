"""Reads logs of tasks wherever they are: in this home, else at the workers that may have them.

The order: this computer's file; the worker that held the attempt; the other living workers of its
host; the store of logs, if there is one; the last words of a failure, which its worker has kept in
the tables. An error names all that were tried. A worker is not believed: what it sends is bounded
in size and in time.
"""

from __future__ import annotations

import http.client
import re
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Final

from common.clock import SystemClock
from common.errors import SchedulerError, ServiceUnreachableError
from common.log_access import MOST_BYTES, PATH, LogQuestion, key_file, read_key, token
from common.model.cluster import NodeKind
from common.store.cluster import cluster_token
from common.store.people.runs import KeptTail, log_tail
from common.store.people.views import TaskInstanceView
from common.tls import worker_client_context
from operations.log_pieces import Log, LogSource, Piece
from operations.session import Session, operation
from operations.stored_logs import stored_log
from operations.task_log import LogElsewhereError, LogMissingError, opened_file
from operations.worker_calls import WorkerCallError, call

PATIENCE: Final = timedelta(seconds=5)
_LONGEST: Final = 2 * 1024**3
_SIZE: Final = re.compile("[0-9]{1,19}")


class WorkerLog:
    """The source of a log at a worker."""

    def __init__(
        self,
        address: str,
        ids: tuple[int, int],
        *,
        key: bytes,
        cluster: str,
        patience: timedelta = PATIENCE,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """`ids`: of the process instance and the attempt. It asks the worker at once."""
        self._address = address
        self._instance, self._task = ids
        self._key = key
        self._cluster = cluster
        self._patience = patience
        self._tls = tls
        self._read = 0
        self.piece(0, 0)

    def piece(self, start: int, most: int, wait_seconds: int = 0) -> Piece:
        """Ask for some bytes; `WorkerCallError` if the worker does not answer as it should."""
        question = LogQuestion(
            instance=self._instance,
            task=self._task,
            start=start,
            most=min(most, MOST_BYTES),
            wait_seconds=wait_seconds,
        )
        found = ask(
            self._address,
            question,
            key=self._key,
            cluster=self._cluster,
            patience=self._patience,
            tls=self._tls,
        )
        self._read += len(found.body)
        if self._read > _LONGEST:
            raise WorkerCallError(f"worker {self._address} sends more than any log may hold")
        return found


def ask(
    address: str,
    question: LogQuestion,
    *,
    key: bytes,
    cluster: str,
    patience: timedelta = PATIENCE,
    tls: ssl.SSLContext | None = None,
) -> Piece:
    """Ask a worker; `WorkerCallError` if it does not answer in time, or with anything else.

    `tls` is what its certificate and its name are checked by; without, the port speaks no TLS.
    """
    now = SystemClock().now().timestamp()
    answered = call(
        address,
        f"{PATH}?{question.query()}",
        allowed=token(key, cluster=cluster, question=question, now=now),
        most=question.most,
        seconds=patience.total_seconds() + question.wait_seconds,
        tls=tls,
    )
    body = answered.body
    if answered.status != http.client.OK:
        raise WorkerCallError(f"worker {address} refuses: {answered.reason}")
    told = answered.headers.get("Log-Size") or ""
    size = int(told) if _SIZE.fullmatch(told) else -1
    if len(body) > question.most or not 0 <= size <= _LONGEST:
        raise WorkerCallError(f"worker {address} answers something else than was asked for")
    # Behind a cut there is nothing but what came after it.
    return Piece(body, size, min(question.start, size))


@operation
@contextmanager
def opened_anywhere(
    session: Session, task: TaskInstanceView, *, waits: bool = False
) -> Iterator[Log]:
    """Open the log of an attempt; `LogMissingError` names all places that were tried.

    `waits`: for somebody who follows it.
    """
    with source_anywhere(session, task) as found:
        yield Log(found, waits=waits)


@contextmanager
def source_anywhere(
    session: Session, task: TaskInstanceView, *, patience: timedelta = PATIENCE
) -> Iterator[LogSource]:
    """Open the log of an attempt; `LogMissingError` names all places that were tried.

    No worker is waited for longer than `patience`, and no other is asked after twice that time.
    """
    tried: list[str] = []
    try:
        with opened_file(session.config.home, task.log_path) as found:
            yield found
            return
    except (LogMissingError, LogElsewhereError) as error:
        if task.host is None or not _is_a_log_of(task):
            raise
        tried.append(str(error) if isinstance(error, LogElsewhereError) else "this computer")
    yield _at_workers(session, task, tried, patience)


def _is_a_log_of(task: TaskInstanceView) -> bool:
    """True if a worker of some home would have made this path for the attempt."""
    end = rf"/logs/[0-9]+/{task.process_instance_id:d}/{task.id:d}\.log"
    return task.log_path is not None and re.search(f"{end}$", task.log_path) is not None


class LastWords:
    """The source of the end of a log that is out of reach, as its worker has kept it."""

    def __init__(self, kept: KeptTail) -> None:
        self._kept = kept

    def piece(self, start: int, most: int, wait_seconds: int = 0) -> Piece:
        """Return some bytes; it never waits."""
        del wait_seconds
        first = max(0, self._kept.size - len(self._kept.tail))
        size = first + len(self._kept.tail)
        start = min(max(start, first), size)
        return Piece(self._kept.tail[start - first : start - first + most], size, start)


@operation
def last_lines_anywhere(session: Session, task: TaskInstanceView, *, lines: int) -> list[str]:
    """Return the last lines of a log; raises as `opened_anywhere` does."""
    with opened_anywhere(session, task) as log:
        log.skip_to_last(lines)
        return "".join(log.rest()).splitlines()


def _at_workers(
    session: Session, task: TaskInstanceView, tried: list[str], patience: timedelta
) -> LogSource:
    try:
        key, tls = read_key(key_file(session.config)), worker_client_context(session.config)
    except SchedulerError as error:
        tried.append(str(error))
    else:
        cluster = cluster_token(session.engine)
        ids = (task.process_instance_id, task.id)
        clock = SystemClock()
        until = clock.monotonic() + 2 * patience.total_seconds()
        for address in _addresses(session, task, tried, patience):
            if clock.monotonic() >= until:
                tried.append("other workers of its host (for as long as there was time)")
                break
            try:
                return WorkerLog(address, ids, key=key, cluster=cluster, patience=patience, tls=tls)
            except WorkerCallError as error:
                tried.append(str(error))
    stored = stored_log(session, (task.process_instance_id, task.id), tried, patience=patience)
    if stored is not None:
        return stored
    with session.engine.connect() as db:
        kept = log_tail(db, task.id)
    if kept is not None:
        return LastWords(kept)
    raise _nowhere(task, [*tried, "its last words (none are kept)"])


def _addresses(
    session: Session, task: TaskInstanceView, tried: list[str], patience: timedelta
) -> Iterator[str]:
    """Yield the holder, then the other living workers of its host."""
    holder = task.host or ""
    yield holder
    try:
        with session.registry(patience=patience) as opened:
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
