"""The living daemons by their heartbeats in ZooKeeper, their pages, and the offers of workers."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta, tzinfo

from common.clock import SystemClock
from common.config import Config
from common.errors import SchedulerError
from common.model.cluster import Heartbeat, Node, NodeKind
from common.model.offers import Offer
from common.registry.config import registry_config
from common.registry.connect import connect
from common.registry.protocol import Registry
from common.tls import worker_client_context
from operations.health import health
from operations.session import Session, operation

_PROBED_AT_ONCE = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A living daemon. `beat` is None if its znode holds something else than a heartbeat."""

    kind: NodeKind
    address: str
    incarnation: int
    beat: Heartbeat | None


@contextmanager
def registry(config: Config, *, patience: timedelta | None = None) -> Iterator[Registry]:
    """A session of its own; `ServiceUnreachableError` if ZooKeeper does not answer in time."""
    opened = connect(
        registry_config(config, patience=patience),
        clock=SystemClock(),
    )
    try:
        yield opened
    finally:
        opened.close()


def members(
    config: Config, *, zone: tzinfo | None, patience: timedelta | None = None
) -> list[Member]:
    """Return masters, then workers, by address; times of heartbeats are read in `zone`."""
    with registry(config, patience=patience) as opened:
        return _members(opened, zone)


def _members(opened: Registry, zone: tzinfo | None) -> list[Member]:
    reader = zone or datetime.now().astimezone().tzinfo  # Only its zone is wanted.
    found = []
    for kind in NodeKind:
        for node, text in sorted(opened.membership.heartbeats(kind).items()):
            beat = None if reader is None else Heartbeat.parse(text, zone=reader)
            found.append(
                Member(
                    kind=kind,
                    address=node.address,
                    incarnation=node.incarnation,
                    beat=beat,
                )
            )
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberHealth:
    """A living daemon with its readiness: ready, not ready with the reason, or not answering.

    `offer` is what a worker told of itself; None for a master, for a worker of a former version,
    and while the tables can't be read.
    """

    member: Member
    health: str
    reason: str | None
    offer: Offer | None


def without_database(beat: Heartbeat | None) -> str | None:
    """Return the report of a master that does not reach PostgreSQL; None for any other daemon."""
    if beat is None or beat.database_away is None:
        return None
    return f"has not reached PostgreSQL for {beat.database_away} s"


@operation
def members_with_health(
    session: Session, *, patience: timedelta | None = None
) -> list[MemberHealth]:
    """Return the members, each probed for its readiness; all are probed at once."""
    with session.registry(patience=patience) as opened:
        found = _members(opened, session.zone)
    offers = _offers(session, [_node(each) for each in found if each.kind is NodeKind.WORKER])
    tls = worker_client_context(session.config)

    def probe(member: Member) -> MemberHealth:
        host, _, port = member.address.rpartition(":")
        of_worker = tls if member.kind is NodeKind.WORKER else None
        state, reason = health(host.strip("[]"), int(port), tls=of_worker)
        offer = offers.get(_node(member))
        away = without_database(member.beat)
        reason = reason if away is None else "; ".join(filter(None, (f"it {away}", reason)))
        return MemberHealth(member=member, health=state, reason=reason, offer=offer)

    with ThreadPoolExecutor(max_workers=_PROBED_AT_ONCE) as pool:
        return list(pool.map(probe, found))


def _node(member: Member) -> Node:
    return Node(address=member.address, incarnation=member.incarnation)


def _offers(session: Session, workers: Collection[Node]) -> Mapping[Node, Offer]:
    """Read what the workers told; nothing if the tables are away, since ZooKeeper names them."""
    if not workers:
        return {}
    from common.store.people.offers import offers

    try:
        with session.engine.connect() as db:
            return offers(db, workers)
    except SchedulerError:
        return {}
