"""The slots of the living workers, by the registry and by each worker's own metrics."""

from __future__ import annotations

import http.client
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, timedelta
from typing import Final

from common.config import Config
from common.errors import ServiceUnreachableError
from common.model.cluster import Heartbeat, NodeKind
from common.model.workers import WorkerMode
from operations.members import registry
from operations.texts import counted

_PATIENCE: Final = timedelta(seconds=3)
_MAX_METRICS: Final = 4_000_000
_MAX_SLOTS: Final = 1_000_000
_SLOTS: Final = re.compile(r"^ds_slots\{[^}\n]*\} (\S+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Capacity:
    """A number of slots, None if nobody knows it, and the source of that number."""

    slots: int | None
    known_by: str


def living_slots(config: Config) -> Capacity:
    """The slots of all living workers but lazy ones; a silent worker counts as configured here."""
    try:
        with registry(config, patience=_PATIENCE) as opened:
            workers = sorted(
                node
                for node, text in opened.membership.heartbeats(NodeKind.WORKER).items()
                if not _is_lazy(text)
            )
    except ServiceUnreachableError:
        return Capacity(None, "ZooKeeper does not answer, so no worker is known")
    if not workers:
        return Capacity(None, "no worker is alive")
    with ThreadPoolExecutor(max_workers=8) as pool:
        reported = list(pool.map(reported_slots, [worker.address for worker in workers]))
    silent = reported.count(None)
    found = sum(config.worker.exec_threads if each is None else each for each in reported)
    known_by = counted(len(workers), "living worker")
    if silent:
        known_by += f", {silent} of which did not say: {config.worker.exec_threads} slots each"
    return Capacity(found, known_by)


def _is_lazy(text: str) -> bool:
    beat = Heartbeat.parse(text, zone=UTC)
    return beat is not None and beat.status is not None and beat.status.mode is WorkerMode.LAZY


def reported_slots(address: str) -> int | None:
    """The slots that the worker at an address reports over HTTP; None if it reports none."""
    host, _, port = address.rpartition(":")
    try:
        connection = http.client.HTTPConnection(host, int(port), timeout=_PATIENCE.total_seconds())
        try:
            connection.request("GET", "/metrics")
            text = connection.getresponse().read(_MAX_METRICS).decode("utf-8", "replace")
        finally:
            connection.close()
        found = [float(number) for number in _SLOTS.findall(text)]
    except (OSError, ValueError, http.client.HTTPException):
        return None
    return int(sum(found)) if found and 0 < sum(found) < _MAX_SLOTS else None
