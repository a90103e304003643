"""The steps of a task's path, from the end of one script to the start of the next, and from a row.

No rates and no floor: it tells which step to look at. All times are of one computer's clock: those
that daemons write into rows, those of the script, and those at which a notification and the queue's
notification in ZooKeeper arrive here, a little after they arrive there. To hear these two takes work from
the same processors; the sums are therefore larger than those of `chain` and `trigger`.
"""

from __future__ import annotations

import select
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import psycopg2
from kazoo.client import KazooClient

from common.store.listen import read_task_report
from tests.bench import definitions
from tests.bench.figures import Figure, percentile
from tests.bench.moments import Moment, count, of
from tests.bench.stage import PATIENCE_SECONDS, Stage

LENGTH = 100
TRIGGERS = 30
_QUEUE = "/dolphinscheduler/tasks_queue"
_ROWS = """
SELECT t.name, t.id, extract(epoch FROM p.start_time), extract(epoch FROM t.submit_time),
       extract(epoch FROM t.start_time), extract(epoch FROM t.end_time)
  FROM t_ds_task_instance t JOIN t_ds_process_instance p ON p.id = t.process_instance_id
 WHERE p.id = (SELECT max(id) FROM t_ds_process_instance WHERE process_definition_id = %s)
 ORDER BY t.id
"""
_CHAIN = (
    ("exit", "last line of the script to the end in its row: two shells, epoll, the record"),
    ("report", "to its notification: a thread, the UPDATE and its sync, the listener"),
    ("decide", "to the successor's submit time: two threads of the master"),
    (
        "save",
        "to the queue's notification: the engine, the save and its sync, ZooKeeper and its sync",
    ),
    ("look", "to the successor's start time: the look at the queue, the claim in ZooKeeper"),
    ("start", "to the first line of its script: the claim of the row and its sync, files, shells"),
)
_TRIGGER = (
    ("notice", "commit of the row to the instance's start time: the listener, a thread, the turn"),
    ("take", "to the queue's notification: the transaction that takes it and its sync, ZooKeeper"),
    ("look", "as above"),
    ("start", "as above"),
)


@dataclass(slots=True)
class _Heard:
    """The times at which reports were notified, by task instance, and those of the queue's notifications."""

    reports: dict[int, float] = field(default_factory=dict)
    changes: list[float] = field(default_factory=list)


def measure(stage: Stage, runs: int) -> list[Figure]:
    steps: dict[str, list[list[float]]] = {}
    chain = stage.database.define("path", definitions.chain(LENGTH, stage.moments.probed()))
    single = stage.database.define("path-1", definitions.chain(1, stage.moments.probed()))
    with _listening(stage) as heard, closing(psycopg2.connect(stage.cluster.dsn)) as connection:
        connection.autocommit = True
        for _ in range(runs):
            _, seen = _run(stage, heard, chain, LENGTH)
            found = _of_chain(_rows(connection, chain), seen, heard)
            _add(steps, "chain", [name for name, _ in _CHAIN], found)
            taken = []
            for _ in range(TRIGGERS):
                committed, seen = _run(stage, heard, single, 1)
                taken.append(_of_trigger(_rows(connection, single), seen, heard, committed))
            _add(steps, "trigger", [name for name, _ in _TRIGGER], taken)
    return [
        Figure(
            name=f"path.{name}",
            unit="ms",
            values=tuple(percentile(of_run, 50) * 1000 for of_run in several),
        )
        for name, several in steps.items()
    ]


def _run(
    stage: Stage, heard: _Heard, definition: int, length: int
) -> tuple[float, Sequence[Moment]]:
    """Run a chain; the time of its command's commit, and its moments."""
    stage.moments.forget()
    heard.changes.clear()
    committed = stage.database.start(definition)
    seen = stage.moments.until(
        lambda moments: count(moments, "end") == length, within=PATIENCE_SECONDS
    )
    stage.database.await_ends(1, within=PATIENCE_SECONDS)
    return _wall(committed), seen


def _of_chain(
    rows: Sequence[Any], seen: Sequence[Moment], heard: _Heard
) -> Iterator[tuple[float, ...]]:
    """The steps between each task and its successor; none where the notification was not heard in time."""
    begins, ends = _times(seen)
    for (name, task_id, _, _, _, ended), following in pairwise(rows):
        successor, _, _, submitted, started, _ = following
        change = next((at for at in heard.changes if at > submitted), None)
        if change is not None and change < begins[successor]:
            moments = (ended, heard.reports[task_id], submitted, change, started)
            yield _differences((ends[name], *map(float, moments), begins[successor]))


def _of_trigger(
    rows: Sequence[Any], seen: Sequence[Moment], heard: _Heard, committed: float
) -> tuple[float, ...]:
    begins, _ = _times(seen)
    ((name, _, began, _, started, _),) = rows
    return _differences((committed, float(began), heard.changes[0], float(started), begins[name]))


def _add(
    steps: dict[str, list[list[float]]],
    path: str,
    names: Sequence[str],
    found: Iterator[tuple[float, ...]] | Sequence[tuple[float, ...]],
) -> None:
    by_step = list(zip(*found, strict=True))
    for name, of_step in zip(names, by_step, strict=False):
        steps.setdefault(f"{path}.{name}", []).append(list(of_step))


def _differences(moments: Sequence[float]) -> tuple[float, ...]:
    return tuple(later - earlier for earlier, later in pairwise(moments))


def _times(seen: Sequence[Moment]) -> tuple[Mapping[str, float], Mapping[str, float]]:
    begins, ends = of(list(seen), "begin"), of(list(seen), "end")
    return (
        {name: _wall(at) for name, at in begins.items()},
        {name: _wall(at) for name, at in ends.items()},
    )


def _wall(monotonic: float) -> float:
    return monotonic + time.time() - time.monotonic()


def _rows(connection: Any, definition: int) -> list[Any]:
    with connection.cursor() as cursor:
        cursor.execute(_ROWS, (definition,))
        return list(cursor.fetchall())


@contextmanager
def _listening(stage: Stage) -> Iterator[_Heard]:
    """Hear reports and notifications of the queue while the context is open."""
    heard = _Heard()
    stopping = threading.Event()
    listening = psycopg2.connect(stage.cluster.dsn)
    listening.autocommit = True
    with listening.cursor() as cursor:
        cursor.execute("LISTEN orcaflow_task")

    def listen() -> None:
        while not stopping.is_set():
            select.select([listening], [], [], 0.5)
            listening.poll()
            now = time.time()
            for notice in listening.notifies:
                heard.reports[read_task_report(notice.payload).task_instance_id] = now
            listening.notifies.clear()

    client = KazooClient(
        hosts=stage.cluster.zookeeper, auth_data=[("digest", stage.cluster.digest)]
    )
    client.start()
    thread = threading.Thread(target=listen, name="reports", daemon=True)
    try:
        thread.start()
        client.exists(_QUEUE, watch=_change(client, heard.changes))
        yield heard
    finally:
        stopping.set()
        thread.join()
        listening.close()
        client.stop()
        client.close()


def _change(client: Any, changes: list[float]) -> Callable[[Any], None]:
    def rung(_: Any) -> None:
        changes.append(time.time())
        client.exists_async(_QUEUE, watch=rung)

    return rung
