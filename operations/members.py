"""The living daemons by their heartbeats in ZooKeeper, and by the answers of their pages."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta, tzinfo

from common.clock import SystemClock
from common.config import Config
from common.model.cluster import Heartbeat, NodeKind
from common.registry.config import registry_config
from common.registry.connect import connect
from common.registry.protocol import Registry
from operations.health import health

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
    reader = zone or datetime.now().astimezone().tzinfo  # Only its zone is wanted.
    found = []
    with registry(config, patience=patience) as opened:
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
    """A living daemon with its readiness: ready, not ready with the reason, or not answering."""

    member: Member
    health: str
    reason: str | None


def members_with_health(
    config: Config, *, zone: tzinfo | None, patience: timedelta | None = None
) -> list[MemberHealth]:
    """Return the members, each probed for its readiness; all are probed at once."""
    found = members(config, zone=zone, patience=patience)

    def probe(member: Member) -> MemberHealth:
        host, _, port = member.address.rpartition(":")
        state, reason = health(host.strip("[]"), int(port))
        return MemberHealth(member=member, health=state, reason=reason)

    with ThreadPoolExecutor(max_workers=_PROBED_AT_ONCE) as pool:
        return list(pool.map(probe, found))
