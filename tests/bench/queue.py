"""The task queue alone: entries a second that one to eight workers claim from it side by side.

Each worker is a process with a session of its own, and claims batches as a worker does, from the
front of the same queue. The floor is a bare client that takes the same entries by the same
transactions, a batch at a time, with nobody beside it.
"""

from __future__ import annotations

import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager

from kazoo.client import KazooClient
from kazoo.security import CREATOR_ALL_ACL

from common.clock import SystemClock
from common.model.cluster import QueueEntry
from common.registry.config import RegistryConfig
from common.registry.connect import connect
from common.registry.protocol import Registry
from tests.bench.cluster import ROOT
from tests.bench.figures import Figure, Target, rate
from tests.bench.queue_racer import BATCH
from tests.bench.stage import PATIENCE_SECONDS, Stage

ENTRIES = 2_000
WORKERS = (1, 2, 4, 8)


def measure(stage: Stage, runs: int) -> list[Figure]:
    offers: list[float] = []
    rates: dict[int, list[float]] = {number: [] for number in WORKERS}
    floors: list[float] = []
    for _ in range(runs):
        with _queue(stage) as (root, registry):
            offers.append(_offer(registry))
            floors.append(_bare_rate(stage, root))
        for number in WORKERS:
            with _queue(stage) as (root, registry):
                _offer(registry)
                rates[number].append(_race(stage, root, number))
    return [
        Figure(name="queue.offers", unit="entries/s", values=tuple(offers)),
        Figure(name="floor.queue.claims", unit="entries/s", values=tuple(floors)),
        *(
            Figure(name=f"queue.claims_of_{number}", unit="entries/s", values=tuple(values))
            for number, values in rates.items()
        ),
        Figure(
            name="queue.claims_of_8_of_1",
            unit="of the rate of 1",
            values=tuple(b / a for a, b in zip(rates[1], rates[8], strict=True)),
            target=Target(limit=1, at_least=True),
        ),
    ]


@contextmanager
def _queue(stage: Stage) -> Iterator[tuple[str, Registry]]:
    """A registry below a node of its own."""
    root = f"/bench-{uuid.uuid4().hex[:8]}"
    config = RegistryConfig(hosts=stage.cluster.zookeeper, root=root, digest=stage.cluster.digest)
    with closing(connect(config, clock=SystemClock())) as registry:
        yield root, registry


def _offer(registry: Registry) -> float:
    entries = [
        QueueEntry(
            process_priority=2, process_instance_id=1, task_priority=2, task_instance_id=number + 1
        )
        for number in range(ENTRIES)
    ]
    began = time.monotonic()
    registry.task_queue.offer(entries)
    return rate(ENTRIES, time.monotonic() - began)


def _race(stage: Stage, root: str, number: int) -> float:
    racers = [
        subprocess.Popen(
            [
                sys.executable,
                "-m",
                "tests.bench.queue_racer",
                stage.cluster.zookeeper,
                root,
                str(n),
            ],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for n in range(number)
    ]
    try:
        for racer in racers:
            _send_line(racer, stage.cluster.digest)
        for racer in racers:
            _read_line(racer)
        began = time.monotonic()
        for racer in racers:
            _send_line(racer, "go")
        won = sum(int(_read_line(racer)) for racer in racers)
        took = time.monotonic() - began
        if won != ENTRIES:
            raise RuntimeError(f"{won} of {ENTRIES} entries were won")
        return rate(ENTRIES, took)
    finally:
        for racer in racers:
            racer.communicate(timeout=PATIENCE_SECONDS)


def _send_line(racer: subprocess.Popen[str], line: str) -> None:
    assert racer.stdin is not None
    racer.stdin.write(f"{line}\n")
    racer.stdin.flush()


def _read_line(racer: subprocess.Popen[str]) -> str:
    assert racer.stdout is not None
    return racer.stdout.readline().strip()


def _bare_rate(stage: Stage, root: str) -> float:
    client = KazooClient(
        hosts=stage.cluster.zookeeper,
        auth_data=[("digest", stage.cluster.digest)],
        default_acl=CREATOR_ALL_ACL,
    )
    client.start()
    try:
        client.ensure_path(f"{root}/bare")
        began = time.monotonic()
        names = client.get_children(f"{root}/tasks_queue")
        for first in range(0, len(names), BATCH):
            pending = []
            for name in names[first : first + BATCH]:
                transaction = client.transaction()
                transaction.delete(f"{root}/tasks_queue/{name}")
                transaction.create(f"{root}/bare/{name}", ephemeral=True)
                pending.append(transaction.commit_async())
            for request in pending:
                request.get()
            for name in names[first : first + BATCH]:
                client.delete_async(f"{root}/bare/{name}")
        return rate(len(names), time.monotonic() - began)
    finally:
        client.stop()
        client.close()
