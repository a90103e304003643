"""A master that has joined its cluster, for one loop of it at a time.

The conformance suite covers the tables; the loops of these tests have stores of a few lines.
"""

from __future__ import annotations

from datetime import timedelta
from zoneinfo import ZoneInfo

from common.model.cluster import NodeKind
from master.identity import Identity
from tests.memory.registry import MemoryZooKeeper
from tests.simulation.virtual_clock import VirtualClock

UTC_ZONE = ZoneInfo("UTC")
MILLISECOND = timedelta(milliseconds=1)
SECOND = timedelta(seconds=1)


class Place:
    """A master that has joined its cluster, at a time that the test sets."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.zookeeper = MemoryZooKeeper(clock=self.clock, session_timeout=timedelta(days=1))
        self.registry = self.zookeeper.registry()
        self.identity = Identity(self.registry.membership)
        self.node = self.registry.membership.join(NodeKind.MASTER, "m1:5678", "")
        self.identity.become(self.node)

    def pass_by(self, passed: timedelta) -> None:
        self.clock.move_to(self.clock.elapsed + passed)
