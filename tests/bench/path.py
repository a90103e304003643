"""The steps of a task's path, from the end of one script to the start of the next, and from a row.

No rates and no floor: it tells which step to look at. All times are of one computer's clock: those
that daemons write into rows, those of the script, and those at which the notification of an end, and the
hint that tells the worker of a new attempt, arrive here, a little after they arrive there. To hear these two
takes work from the same processors; the sums are therefore larger than those of `chain` and `trigger`.
"""

from __future__ import annotations

import select
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import psycopg2

from common.store.listen import ORDERS, hint_channel, read_hint, read_task_report
from tests.bench import definitions
from tests.bench.figures import Figure, percentile
from tests.bench.moments import Moment, count, of
from tests.bench.stage import PATIENCE_SECONDS, Stage

LENGTH = 100
TRIGGERS = 30
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
    ("save", "to the hint: the engine, the save and its sync, the listener"),
    ("claim", "to the successor's start time: two threads of the worker"),
    ("start", "to the first line of its script: the claim of the row and its sync, files, shells"),
)
_TRIGGER = (
    ("notice", "commit of the row to the instance's start time: the listener, a thread, the turn"),
    ("take", "to the hint: planning, the statement that takes it and its sync, the listener"),
    ("claim", "as above"),
    ("start", "as above"),
)


@dataclass(slots=True)
class _Heard:
    """The times at which reports and hints were notified, by task instance."""

    reports: dict[int, float] = field(default_factory=dict)
    hints: dict[int, float] = field(default_factory=dict)


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
            taken: list[tuple[float, ...]] = []
            for _ in range(TRIGGERS):
                committed, seen = _run(stage, heard, single, 1)
                taken += _of_trigger(_rows(connection, single), seen, heard, committed)
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
    committed = stage.database.start(definition)
    seen = stage.moments.until(
        lambda moments: count(moments, "end") == length, within=PATIENCE_SECONDS
    )
    stage.database.await_ends(1, within=PATIENCE_SECONDS)
    return _wall(committed), seen


def _of_chain(
    rows: Sequence[Any], seen: Sequence[Moment], heard: _Heard
) -> Iterator[tuple[float, ...]]:
    """The steps between each task and its successor; none where there was no hint."""
    begins, ends = _times(seen)
    for (name, task_id, _, _, _, ended), following in pairwise(rows):
        successor, successor_id, _, submitted, started, _ = following
        hint = heard.hints.get(successor_id)
        if hint is not None:
            moments = (ended, heard.reports[task_id], submitted, hint, started)
            yield _differences((ends[name], *map(float, moments), begins[successor]))


def _of_trigger(
    rows: Sequence[Any], seen: Sequence[Moment], heard: _Heard, committed: float
) -> Iterator[tuple[float, ...]]:
    """The steps from a command to its first task; none where there was no hint."""
    begins, _ = _times(seen)
    ((name, task_id, began, _, started, _),) = rows
    hint = heard.hints.get(task_id)
    if hint is not None:
        moments = (began, hint, started)
        yield _differences((committed, *map(float, moments), begins[name]))


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
    """Hear reports and hints while the context is open."""
    heard = _Heard()
    stopping = threading.Event()
    listening = psycopg2.connect(stage.cluster.dsn)
    listening.autocommit = True
    with listening.cursor() as cursor:
        cursor.execute("LISTEN orcaflow_task")
        cursor.execute(f"LISTEN {hint_channel(stage.cluster.worker_address)}")

    def listen() -> None:
        while not stopping.is_set():
            select.select([listening], [], [], 0.5)
            listening.poll()
            now = time.time()
            for notice in listening.notifies:
                if notice.channel == "orcaflow_task":
                    heard.reports[read_task_report(notice.payload).task_instance_id] = now
                elif notice.payload != ORDERS:
                    for entry in read_hint(notice.payload):
                        heard.hints.setdefault(entry.task_instance_id, now)
            listening.notifies.clear()

    thread = threading.Thread(target=listen, name="reports", daemon=True)
    try:
        thread.start()
        yield heard
    finally:
        stopping.set()
        thread.join()
        listening.close()
