"""Answers what tasks ask about datasets: looks, locks, makes folders, and publishes.

Tasks of streams and of topologies ask here for their work and their orders.

An answer is an object with `outcome`; only that to a stream's own task holds secrets. Every request
may be repeated, and has to be if its answer was lost. Nothing that may have been published is ever
removed here.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, Protocol, assert_never

from common.datasource_keys import DatasourceKeyError
from common.errors import InvalidSpecError, SchedulerError, ServiceUnreachableError
from common.model.intervals import Interval, instant_text
from common.model.locks import Busy, Impossible, Lock, LockType, Revoked
from common.model.segments import (
    AlreadyPublished,
    Conflict,
    LockLost,
    Outcome,
    Published,
    Segment,
    StreamRange,
)
from common.model.streams.connections import connection_named, properties_in
from common.model.streams.consumer import ConsumerPropertyError
from common.model.streams.reading import read_spec
from common.model.streams.spec import EnvironmentSecret, SupervisorSpec
from common.runtime import metrics
from common.store.worker.datasets import Part, TaskFacts
from common.store.worker.stream_tasks import StreamWork
from worker.datasets.folders import DatasetFolders, WriteFolder
from worker.datasets.orders import OrderBook
from worker.datasets.requests import (
    OF_RUNS,
    AskFolder,
    AskLock,
    AskOrders,
    AskPublish,
    AskPublished,
    AskSegments,
    AskTopology,
    AskWanted,
    AskWatch,
    AskWork,
    DatasetRequestError,
    read_ask,
)
from worker.datasets.topologies import TopologyDesk
from worker.workspace import Account

log = logging.getLogger(__name__)

_NOT_NOW: Final = "unavailable"
_LONGEST_REPORT: Final = 1024 * 1024
_OUTCOMES: Final[Mapping[type[Outcome], str]] = {
    Published: "published",
    AlreadyPublished: "already_published",
    LockLost: "lock_lost",
    Conflict: "conflict",
}


class Store(Protocol):
    """`common.store.worker.datasets.PostgresDatasetStore`."""

    def task(self, task_id: int) -> TaskFacts | None: ...

    def segments(
        self, task_id: int, dataset: str, interval: Interval | None
    ) -> tuple[Segment, ...]: ...

    def lock(
        self,
        task_id: int,
        dataset: str,
        interval: Interval,
        *,
        kind: LockType,
        priority: int,
        of_stream: bool,
    ) -> Lock | Busy | Revoked | Impossible: ...

    def writes(self, task_id: int, dataset: str) -> bool: ...

    def published(self, dataset: str, sequence: str) -> frozenset[str] | None: ...

    def publish(
        self,
        task_id: int,
        dataset: str,
        parts: tuple[Part, ...],
        *,
        sequence: str,
        stream_range: StreamRange | None = None,
        replaces: Interval | None = None,
        is_whole: bool = False,
    ) -> Outcome: ...


class DatasetAnswers:
    """Answers requests of attempts that are known to be who they say; from any thread."""

    def __init__(
        self,
        store: Store,
        folders: DatasetFolders,
        *,
        orders: OrderBook,
        topologies: TopologyDesk,
        remove: Callable[[Path], None],
        environment: Mapping[str, str] | None = None,
        opened: Callable[[str], str] = str,
    ) -> None:
        """`remove` schedules the removal of a write's folder.

        `environment` is the part of the daemon's environment that streams may read.
        `opened` decrypts the rows of connections.
        """
        self._store = store
        self._folders = folders
        self._orders = orders
        self._topologies = topologies
        self._remove = remove
        self._environment = environment or {}
        self._opened = opened

    def answer(
        self, task_id: int, account: Account | None, body: bytes
    ) -> Mapping[str, Any] | None:
        """Answer a request; None if it waits for a change that has not come. Never raises."""
        try:
            try:
                document = json.loads(body)
            except (ValueError, RecursionError) as error:
                raise DatasetRequestError(f"the request is not valid JSON: {error}") from error
            ask = read_ask(document)
            match ask:
                case AskSegments():
                    return self._segments(task_id, ask)
                case AskLock():
                    return self._lock(task_id, ask)
                case AskFolder():
                    return self._folder(task_id, account, ask)
                case AskPublished():
                    sequence = _append(self._facts(task_id), ask.key)
                    found = self._store.published(ask.dataset, sequence)
                    return {"outcome": "known", "published": found is not None}
                case AskPublish():
                    return self._publish(task_id, ask)
                case AskWork():
                    return self._work(task_id)
                case AskOrders():
                    _check_length(body)
                    return self._ordered(task_id, ask)
                case AskTopology():
                    return self._topologies.work(task_id, account)
                case AskWanted():
                    _check_length(body)
                    return self._topologies.wanted(task_id, ask.report)
                case AskWatch():
                    return self._topologies.watch(task_id, ask.number)
                case _:
                    assert_never(ask)
        except ServiceUnreachableError as error:
            return {"outcome": _NOT_NOW, "reason": str(error)}
        except SchedulerError as error:
            return {"outcome": "refused", "reason": str(error)}
        except OSError as error:
            return {"outcome": "refused", "reason": f"{error.filename}: {error.strerror}"}
        except Exception:
            log.exception("request of a task failed", extra={"task_instance_id": task_id})
            return {"outcome": "refused", "reason": "the worker has failed; its log says why"}

    def _segments(self, task_id: int, ask: AskSegments) -> Mapping[str, Any]:
        found = self._store.segments(task_id, ask.dataset, ask.interval)
        return {
            "outcome": "segments",
            "interval": None if ask.interval is None else _ends(ask.interval),
            "segments": [
                {
                    "interval": _ends(each.id.interval),
                    "version": each.id.version,
                    "number": each.id.partition_num,
                    "files": [str(self._folders.root / name) for name in each.files],
                    "rows": each.rows,
                    "bytes": each.bytes,
                }
                for each in found
            ],
        }

    def _lock(self, task_id: int, ask: AskLock) -> Mapping[str, Any]:
        found = self._store.lock(
            task_id,
            ask.dataset,
            ask.interval,
            kind=ask.type,
            priority=ask.priority,
            of_stream=ask.of_stream,
        )
        match found:
            case Lock(revoked=False):
                return {
                    "outcome": "locked",
                    "interval": _ends(found.interval),
                    "version": found.version,
                }
            case Lock():
                return {"outcome": "lock lost", "reason": f"{found} was revoked"}
            case Busy(by=locks):
                return {"outcome": "busy", "reason": ", ".join(map(str, locks))}
            case Revoked(lock=lock):
                return {"outcome": "lock lost", "reason": f"{lock} was revoked"}
            case Impossible(reason=reason):
                return {"outcome": "conflict", "reason": reason}
            case _:
                assert_never(found)

    def _folder(self, task_id: int, account: Account | None, ask: AskFolder) -> Mapping[str, Any]:
        if not self._store.writes(task_id, ask.dataset):
            raise DatasetRequestError(_missing_lock(ask.dataset, None))
        made = self._folders.make(ask.dataset, task_id, account)
        return {"outcome": "folder", "write": made.write, "path": str(made.path)}

    def _work(self, task_id: int) -> Mapping[str, Any]:
        work = self._orders.work(task_id)
        if work is None:
            return _ended(task_id)
        assignment = work.assignment
        return {
            "outcome": "work",
            "name": assignment.name,
            "supervisor": assignment.supervisor,
            "version": assignment.version,
            "group_id": assignment.group_id,
            "base_sequence": assignment.base_sequence,
            "assignment": assignment.document(),
            "spec": dict(work.document),
            "secrets": _secrets(work.document, self._environment),
            "connection": self._connection(work),
            "orders": work.orders.document(),
        }

    def _connection(self, work: StreamWork) -> Mapping[str, str] | None:
        name = connection_named(work.document)
        if not name:
            return None
        try:
            opened = None if work.connection is None else self._opened(work.connection)
            return properties_in(opened, name)
        except (ConsumerPropertyError, DatasourceKeyError) as error:
            raise DatasetRequestError(str(error)) from None

    def _ordered(self, task_id: int, ask: AskOrders) -> Mapping[str, Any]:
        orders = self._orders.orders(task_id, ask.report)
        if orders is None:
            return _ended(task_id)
        return {"outcome": "orders", "orders": orders.document()}

    def _publish(self, task_id: int, ask: AskPublish) -> Mapping[str, Any]:
        facts = self._facts(task_id)
        if ask.range is not None and not ask.segments:
            # It moves offsets without a lock: nobody but the stream's own task may ask for it.
            work = self._orders.work(task_id)
            if work is None or work.assignment.supervisor != ask.dataset:
                raise DatasetRequestError(f"attempt {task_id} is no task of {ask.dataset}'s stream")
        folder = self._folders.of(ask.dataset, task_id, ask.write)
        outcome = self._store.publish(
            task_id,
            ask.dataset,
            self._parts(folder, ask),
            sequence=_sequence(facts, ask),
            stream_range=ask.range,
            replaces=ask.replaces,
            is_whole=ask.key is not None,
        )
        metrics.publications.labels(outcome=_OUTCOMES[type(outcome)]).inc()
        match outcome:
            case Published(ids=ids):
                log.info(
                    "segments published",
                    extra={
                        "task_instance_id": task_id,
                        "dataset": ask.dataset,
                        "segments": len(ids),
                    },
                )
                return {"outcome": "published", "segments": [str(each) for each in ids]}
            case AlreadyPublished(files=files):
                prefix = self._folders.path_of(folder, "")
                is_own = any(name.startswith(prefix) for name in files)
                if not is_own and ask.segments:
                    # What others have published is the same work; nothing will ever name these.
                    self._remove(folder.path)
                return {"outcome": "already published", "by_this": is_own}
            case LockLost(lock=lock):
                return {"outcome": "lock lost", "reason": f"{lock} was revoked"}
            case Conflict(reason=reason):
                if "holds no lock" in reason:
                    where = ask.replaces or next((each.interval for each in ask.segments), None)
                    reason = f"{reason}; {_missing_lock(ask.dataset, where, ask)}"
                return {"outcome": "conflict", "reason": reason}
            case _:
                assert_never(outcome)

    def _facts(self, task_id: int) -> TaskFacts:
        facts = self._store.task(task_id)
        if facts is None:
            raise DatasetRequestError(f"there is no attempt {task_id}")
        return facts

    def _parts(self, folder: WriteFolder, ask: AskPublish) -> tuple[Part, ...]:
        return tuple(
            Part(
                interval=each.interval,
                files=tuple(self._folders.path_of(folder, name) for name in each.files),
                rows=each.rows,
                bytes=self._folders.check(folder, each.files),
            )
            for each in ask.segments
        )


def _check_length(body: bytes) -> None:
    if len(body) > _LONGEST_REPORT:
        raise DatasetRequestError(f"a report may have {_LONGEST_REPORT:,} bytes; keep fewer errors")


def _sequence(facts: TaskFacts, ask: AskPublish) -> str:
    """Name the work. An append is the same in all attempts of a run's task; a replacement is not.

    Whoever replaces an interval again leaves the same rows, and after a repair other ones.
    """
    if ask.sequence is not None:
        return ask.sequence
    if ask.key is not None:
        return _append(facts, ask.key)
    return f"{_task(facts)} write {ask.write}"


def _append(facts: TaskFacts, key: str) -> str:
    return f"{_task(facts)} append {key}"


def _task(facts: TaskFacts) -> str:
    return f"{OF_RUNS}{facts.process_instance_id} task {facts.name}"


def _secrets(document: Mapping[str, Any], environment: Mapping[str, str]) -> Mapping[str, str]:
    """Return the variables that a specification names; the task tells people of missing ones."""
    try:
        spec = read_spec(document).spec
    except InvalidSpecError:
        return {}
    if not isinstance(spec, SupervisorSpec):
        return {}
    named = {
        value.variable
        for value in spec.io.consumer.values()
        if isinstance(value, EnvironmentSecret)
    }
    return {name: environment[name] for name in sorted(named) if name in environment}


def _ended(task_id: int) -> Mapping[str, Any]:
    reason = f"attempt {task_id} is no task of a stream, or this worker does not run it any more"
    return {"outcome": "ended", "reason": reason}


def _ends(interval: Interval) -> list[str]:
    return [instant_text(interval.start), instant_text(interval.end)]


def _missing_lock(dataset: str, interval: Interval | None, ask: AskPublish | None = None) -> str:
    kind = LockType.APPEND if ask is not None and ask.replaces is None else LockType.REPLACE
    lock = {
        "dataset": dataset,
        "interval": "$[yyyy-MM-dd]/P1D" if interval is None else str(interval),
        "type": kind.value,
    }
    return (
        f"a task that writes {dataset} asks for it in its definition, beside params:"
        f' "locks": [{json.dumps(lock)}]'
    )
