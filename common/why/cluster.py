"""Causes in the cluster: no ZooKeeper, no master, no worker that fits. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from common.model.cluster import Node
from common.model.slot_share import NO_LIMIT, SlotShare, most_slots
from common.model.workers import WorkerMode, host_of, shunned
from common.why.causes import Cause, CauseKind
from common.why.facts import Alive, QueuePlace
from common.why.phrases import MAX_LISTED, by_address, counted
from common.why.shares import capacity_cause, holds_share, share_cause


def worker_causes(
    place: QueuePlace, alive: Alive, group: str, *, percent: int = NO_LIMIT
) -> Iterator[Cause]:
    """Yield the workers that may take a queued attempt, or the lack of them.

    `percent`: the share of the slots of a worker that one project may hold.
    """
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
        fits = [node for node in workers if _serves(node, place, alive)]
    else:
        fits = [node for node in workers if not _is_reserved(node, alive)]
        if not fits:
            yield _all_reserved_cause()
            return
    if not fits:
        names = "; ".join(_served(node, alive) for node in workers[:MAX_LISTED])
        more = f"; and {len(workers) - MAX_LISTED} more" if len(workers) > MAX_LISTED else ""
        yield Cause(
            cause=CauseKind.NO_WORKER_IN_GROUP,
            subject=f"worker group {group!r}",
            text=f"no living worker serves the group {group!r}: {names}{more}",
            next=f"orcaflow server start worker-server --groups {group}",
        )
        return
    out = shunned([node.address for node in fits], alive.modes)
    ready = [node for node in fits if node.address not in out]
    able = [node for node in ready if node.address not in alive.unfit]
    full = [node for node in able if _has_share_held(node, place, alive, percent)]
    small = [node for node in able if _is_small(node, place, alive, percent)]
    if full and len(full) == len(able):
        yield _share_cause(full[0], place, alive)
    elif small and len(small) == len(able):
        yield _capacity_cause(small, place, alive, percent)
    elif able:
        yield _able_cause(able, alive)
    if out:
        yield _disabled_cause(out, alive)
    for node in [node for node in ready if node.address in alive.unfit][:MAX_LISTED]:
        yield Cause(
            cause=CauseKind.WORKER_UNFIT,
            subject=f"worker {node.address}",
            text=f"the worker {node.address} is not ready: {alive.unfit[node.address]}",
            next="it takes tasks again by itself once that is mended (orcaflow server list)",
        )


def _disabled_cause(out: Mapping[str, WorkerMode], alive: Alive) -> Cause:
    named = ", ".join(f"{each} is {mode.value}" for each, mode in list(out.items())[:MAX_LISTED])
    more = f", and {len(out) - MAX_LISTED} more" if len(out) > MAX_LISTED else ""
    first = next(iter(out))
    given = first if first in alive.modes else host_of(first)
    return Cause(
        cause=CauseKind.WORKER_DISABLED,
        subject="workers",
        text=f"{counted(len(out), 'worker')} that would fit may take no tasks: {named}{more}",
        next=f"orcaflow worker enable {given}",
    )


def _serves(node: Node, place: QueuePlace, alive: Alive) -> bool:
    """True if a worker claims tasks of the group, by its host or by its start."""
    offer = alive.offers.get(node)
    told = offer is not None and place.group_id in offer.group_ids
    return told or node.address.rpartition(":")[0] in place.addresses


def _has_share_held(node: Node, place: QueuePlace, alive: Alive, percent: int) -> bool:
    """Return True if the attempt's project holds its share of a worker's slots."""
    offer = alive.offers.get(node)
    if offer is None or offer.is_reserved:
        return False
    held = alive.running_of.get(node.address, {})
    return holds_share(percent, offer.slots, held, place.project_id)


def _is_small(node: Node, place: QueuePlace, alive: Alive, percent: int) -> bool:
    """Return True if a worker has less room than the capacity of the attempt."""
    if node not in alive.offers or place.capacity + sum(place.surplus.values()) <= 1:
        return False
    return _room(node, place, alive, percent) < place.capacity


def _room(node: Node, place: QueuePlace, alive: Alive, percent: int) -> int:
    """Return the slots of a worker that the attempt's project may take by capacities."""
    held = dict(alive.running_of.get(node.address, {}))
    held[place.project_id] = held.get(place.project_id, 0) + place.surplus.get(node.address, 0)
    offer = alive.offers[node]
    share = SlotShare.of(NO_LIMIT if offer.is_reserved else percent, offer.slots, held)
    return share.room(place.project_id)


def _capacity_cause(small: Sequence[Node], place: QueuePlace, alive: Alive, percent: int) -> Cause:
    node = max(small, key=lambda each: _room(each, place, alive, percent))
    offer = alive.offers[node]
    return capacity_cause(
        project=place.project_name,
        capacity=place.capacity,
        room=_room(node, place, alive, percent),
        most=most_slots(NO_LIMIT if offer.is_reserved else percent, offer.slots),
        slots=offer.slots,
        worker=node.address,
    )


def _share_cause(node: Node, place: QueuePlace, alive: Alive) -> Cause:
    return share_cause(
        project=place.project_name,
        held=alive.running_of.get(node.address, {}).get(place.project_id, 0),
        slots=alive.offers[node].slots,
        unit="slots",
        of=f"the worker {node.address}",
        key="worker.project_share_percent",
        one="a task",
    )


def _is_reserved(node: Node, alive: Alive) -> bool:
    offer = alive.offers.get(node)
    return offer is not None and offer.is_reserved


def _all_reserved_cause() -> Cause:
    return Cause(
        cause=CauseKind.ALL_RESERVED,
        subject="workers",
        text="no worker takes tasks without a group: all are reserved",
        next="orcaflow server start worker-server",
    )


def _served(node: Node, alive: Alive) -> str:
    offer = alive.offers.get(node)
    if offer is None:
        return f"{node.address} does not tell its groups"
    if not offer.groups:
        return f"{node.address} serves no group"
    shown = ", ".join(offer.groups[:MAX_LISTED])
    more = f" and {len(offer.groups) - MAX_LISTED} more" if len(offer.groups) > MAX_LISTED else ""
    return f"{node.address} serves {shown}{more}"


def _load(node: Node, alive: Alive) -> str:
    running, offer = counted(alive.running.get(node.address, 0), "task"), alive.offers.get(node)
    return f"running {running}" if offer is None else f"running {running}, {offer.slots} slots"


def _able_cause(able: Sequence[Node], alive: Alive) -> Cause:
    return Cause(
        cause=CauseKind.RUNNING,
        subject="workers",
        text="workers that may take it: "
        + ", ".join(f"{node.address} ({_load(node, alive)})" for node in able[:MAX_LISTED]),
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
