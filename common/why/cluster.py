"""Causes in the cluster: no ZooKeeper, no master, no worker that fits. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from common.model.cluster import Node
from common.why.causes import Cause, CauseKind
from common.why.facts import Alive, QueuePlace
from common.why.phrases import MAX_LISTED, by_address, counted


def worker_causes(place: QueuePlace, alive: Alive, group: str) -> Iterator[Cause]:
    """Yield the workers that may take a queued attempt, or the lack of them."""
    workers = sorted(alive.workers, key=by_address)
    if not workers:
        yield Cause(
            cause=CauseKind.NO_WORKER,
            subject="workers",
            text="no worker is alive",
            next="orcaflow server start worker-server",
        )
        return
    fits = workers
    if place.group_id > 0:
        fits = [
            node
            for node in workers
            if node in place.served_by or node.address.rpartition(":")[0] in place.addresses
        ]
    if not fits:
        names = ", ".join(node.address for node in workers[:MAX_LISTED])
        yield Cause(
            cause=CauseKind.NO_WORKER_IN_GROUP,
            subject=f"worker group {group!r}",
            text=f"no living worker is known to serve the group {group!r}: none of"
            f" {names} has ever taken a task of it",
            next=f"orcaflow server start worker-server --groups {group}",
        )
        return
    able = [node for node in fits if node.address not in alive.unfit]
    if able:
        yield _able_cause(able, alive)
    for node in [node for node in fits if node.address in alive.unfit][:MAX_LISTED]:
        yield Cause(
            cause=CauseKind.WORKER_UNFIT,
            subject=f"worker {node.address}",
            text=f"the worker {node.address} is not ready: {alive.unfit[node.address]}",
            next="it takes tasks again by itself once that is mended (orcaflow server list)",
        )


def _able_cause(able: Sequence[Node], alive: Alive) -> Cause:
    return Cause(
        cause=CauseKind.RUNNING,
        subject="workers",
        text="workers that may take it: "
        + ", ".join(
            f"{node.address} (running {counted(alive.running.get(node.address, 0), 'task')})"
            for node in able[:MAX_LISTED]
        ),
        next="orcaflow task list --state running shows what runs",
    )


def no_master_cause() -> Cause:
    return Cause(
        cause=CauseKind.NO_MASTER,
        subject="masters",
        text="no master is alive",
        next="orcaflow server start master-server",
    )


def no_zookeeper_cause() -> Cause:
    return Cause(
        cause=CauseKind.ZOOKEEPER,
        subject="ZooKeeper",
        text="ZooKeeper could not be asked who is alive; without it nothing new begins",
        next="orcaflow doctor tells what is wrong",
    )
