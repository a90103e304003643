"""Answers to the tasks of this worker's topologies, and the folders of topologies.

    <worker.topologies_dir>/<cluster>-<topology>-<generation>/

A task asks about twice a second and is answered from memory; besides, one question of its waits
here until people want something else. A report is written when it says something new: a state, an
order obeyed, a trouble at once, mere figures every two seconds, and nothing new every ten, so that
people see that the task lives. A folder belongs to the account of the attempt that asked last, and
is never removed here: it holds the state of the topology.

While an attempt tells how far it is, ZooKeeper has a heartbeat of it (`workerbeats`), as Storm's.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from threading import Lock
from typing import Any, Final, Protocol

from common.clock import Clock
from common.model.cluster import Node
from common.model.topologies import Report
from common.registry.protocol import WorkerBeats
from common.store.worker.topologies import HeldByAnother, HeldTopology, TopologyWork
from worker.datasets.order_cache import OrderCache
from worker.datasets.requests import DatasetRequestError
from worker.spark.host.folders import PASSABLE, PRIVATE, make_folder
from worker.workspace import Account

_FIGURES_SECONDS: Final = 2.0
_UNCHANGED_SECONDS: Final = 10.0
_FORGOTTEN_SECONDS: Final = 60.0
_BEAT_SECONDS: Final = 3.0


class Topologies(Protocol):
    """`common.store.worker.topologies.PostgresTopologies`."""

    def work(self, node: Node, task_instance_id: int) -> TopologyWork | HeldByAnother | None: ...

    def held(
        self, node: Node, task_instance_ids: Collection[int]
    ) -> Mapping[int, HeldTopology]: ...

    def report(self, node: Node, task_instance_id: int, report: Report) -> bool: ...


class TopologyFolders:
    """The folders of topologies of one cluster. `for_tenants`: tasks run as other accounts."""

    def __init__(self, root: Path, *, cluster: str, for_tenants: bool) -> None:
        self._root = root
        self._cluster = cluster
        self._for_tenants = for_tenants

    def make(self, topology: str, generation: int, account: Account | None) -> Path:
        """Have the folder of a topology, of this account's. Raises `OSError`."""
        # It was checked at its submission; a row typed by hand leads nowhere else either.
        if "/" in topology or "\0" in topology:
            raise DatasetRequestError(f"{topology!r:.80} is no name of a topology")
        make_folder(self._root, PASSABLE if self._for_tenants else PRIVATE)
        made = self._root / f"{self._cluster}-{topology}-{generation}"
        make_folder(made, PRIVATE, account)
        return made


@dataclass(slots=True, kw_only=True)
class _Written:
    """The last report of an attempt that was written, and when."""

    report: Report
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _Beat:
    """The last heartbeat of an attempt that was shown, and when."""

    topology: str
    address: str
    at: float = float("-inf")


class TopologyDesk:
    """Answers questions of attempts that are known to be who they say; from any thread.

    One thread, a loop's, calls `look`.
    """

    def __init__(
        self,
        store: Topologies,
        folders: TopologyFolders,
        *,
        node: Callable[[], Node | None],
        clock: Clock,
        beats: WorkerBeats | None = None,
    ) -> None:
        """`beats`: where the living attempts are shown; None for nowhere."""
        self._store = store
        self._folders = folders
        self._clock = clock
        self._lock = Lock()
        self.cache = OrderCache(store.held, node=node, clock=clock)
        self._written: dict[int, _Written] = {}
        self._beats = beats
        self._beaten: dict[int, _Beat] = {}

    def work(self, task_id: int, account: Account | None) -> Mapping[str, Any]:
        """Answer with the work of an attempt, which holds its topology from now on."""
        node = self.cache.trusted()
        found = self._store.work(node, task_id)
        if found is None:
            self.cache.check_standing(node)
            return self._ended(task_id)
        if isinstance(found, HeldByAnother):
            raise DatasetRequestError(
                f"attempt {found.task_instance_id} runs this topology already; see `orcaflow"
                " topology list`, and stop one of the two runs"
            )
        folder = self._folders.make(found.name, found.generation, account)
        return {
            "outcome": "topology",
            "name": found.name,
            "version": found.version,
            "generation": found.generation,
            "code": dict(found.code),
            "wanted": found.wanted.document(),
            "report": None if found.report is None else dict(found.report),
            "folder": str(folder),
        }

    def wanted(self, task_id: int, report: Report | None) -> Mapping[str, Any]:
        """Take note of a report; answer with what people want."""
        held = self.cache.orders(task_id)
        if held is not None and report is not None and self._says_more(task_id, report):
            node = self.cache.trusted()
            if self._store.report(node, task_id, report):
                self._note(task_id, report)
            else:
                self.cache.check_standing(node)
                self.cache.end(task_id)
                held = None
        if held is None:
            return self._ended(task_id)
        if report is not None:
            beat = _Beat(topology=held.name, address=self.cache.trusted().address)
            self._beat(task_id, beat, report)
        return _wanted(held)

    def watch(self, task_id: int, number: int) -> Mapping[str, Any] | None:
        """Answer with what people want, if it is not that of this number; else None."""
        held = self.cache.orders(task_id)
        if held is None:
            return self._ended(task_id)
        return None if held.wanted.number == number else _wanted(held)

    def look(self) -> timedelta:
        """Look what people want of all topologies here; return how long to rest."""
        return self.cache.look()

    def end_beats(self, running: Callable[[], Collection[int]]) -> None:
        """Take back the beats of attempts that do not run here any more."""
        if not self._beaten:
            return
        with self._lock:
            for task_id in self._beaten.keys() - set(running()):
                self._end_beat(task_id)

    def _beat(self, task_id: int, beat: _Beat, report: Report) -> None:
        """Show that an attempt lives: with its first report, and every three seconds."""
        if self._beats is None:
            return
        now = self._clock.monotonic()
        with self._lock:
            before = self._beaten.get(task_id)
            if before is not None and now < before.at + _BEAT_SECONDS:
                return
            self._beaten[task_id] = replace(beat, at=now)
            text = json.dumps(beat_of(beat.topology, report, self._clock.now()))
            self._beats.put_soon(beat.topology, beat.address, text)

    def _end_beat(self, task_id: int) -> None:
        """With the lock."""
        beat = self._beaten.pop(task_id, None)
        others = {(each.topology, each.address) for each in self._beaten.values()}
        if beat is None or self._beats is None or (beat.topology, beat.address) in others:
            return  # Another attempt of the topology may have begun here meanwhile.
        self._beats.remove_soon(beat.topology, beat.address)

    def _says_more(self, task_id: int, report: Report) -> bool:
        """Return True if a report has to be written now."""
        with self._lock:
            before = self._written.get(task_id)
        if before is None or _but_figures(report) != _but_figures(before.report):
            return True
        patience = _UNCHANGED_SECONDS if report == before.report else _FIGURES_SECONDS
        return self._clock.monotonic() >= before.at + patience

    def _note(self, task_id: int, report: Report) -> None:
        now = self._clock.monotonic()
        with self._lock:
            for each, written in list(self._written.items()):
                if written.at + _FORGOTTEN_SECONDS < now:
                    del self._written[each]
            self._written[task_id] = _Written(report=report, at=now)

    def _ended(self, task_id: int) -> Mapping[str, Any]:
        with self._lock:
            self._end_beat(task_id)
        reason = (
            f"attempt {task_id} is no task of a topology, or this worker does not run it any more"
        )
        return {"outcome": "ended", "reason": reason}


def _wanted(held: HeldTopology) -> Mapping[str, Any]:
    return {"outcome": "wanted", "wanted": held.wanted.document()}


def beat_of(topology: str, report: Report, now: datetime) -> dict[str, Any]:
    """Return a worker's heartbeat of a topology, as it stands in ZooKeeper."""
    return {
        "time": now.isoformat(),
        "topology": topology,
        "version": report.version,
        "state": report.state.value,
        "executors": {each.id: each.executors for each in report.components},
        "batch": report.batch,
        "lag": dict(report.lag),
    }


def _but_figures(report: Report) -> Report:
    return replace(report, batch=-1, lag={}, components=(), errors=())
