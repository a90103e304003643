"""The registry as loops see it: membership, mutex, task queue, kill queue, worker beats.

`common.registry` implements these protocols on ZooKeeper and the simulator in memory; one
conformance suite runs on both. Nothing in the registry is needed for correctness: it may be wiped
at any moment and is rebuilt from the tables and by the daemons. Callbacks run on the registry's own
thread and must only wake a loop. Any method may raise `RegistryUnavailableError`; its effect is
then unknown, and the loops repair it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from datetime import timedelta
from enum import Enum
from typing import Protocol

from common.errors import ServiceUnreachableError
from common.model.cluster import KillEntry, Node, NodeKind, QueueEntry


class RegistryUnavailableError(ServiceUnreachableError):
    """The registry did not answer, or the session is over. Rest a little and look again."""


class Standing(Enum):
    """A daemon's own view of its session.

    SUSPENDED: take no new work. LOST: others may take over; a master has to forget what it owns,
    a worker to watch the rows of what it runs, and both to join again as a new incarnation. LOST is
    reached by the daemon's own monotonic clock before the session could have expired, not when
    ZooKeeper says so.
    """

    TRUSTED = "trusted"
    SUSPENDED = "suspended"
    LOST = "lost"


class Membership(Protocol):
    """Registration of this daemon, and the daemons that are alive."""

    def join(self, kind: NodeKind, address: str, text: str) -> Node:
        """Register as a new incarnation, replacing a former one at this address.

        Raises `AddressInUseError` if a live daemon with another process stands there.
        """
        ...

    def beat(self, text: str) -> None:
        """Write the heartbeat.

        If the znode is gone, or another incarnation's, this one is over and its standing LOST:
        the others have seen it vanish, and may have taken over.
        """
        ...

    def leave(self) -> None:
        """Deregister at once, so that no other daemon waits for the session to expire."""
        ...

    def retire(self) -> None:
        """Leave, and release all locks and claims that this daemon holds in the registry.

        A repeated call finishes what a former one could not.
        """
        ...

    def standing(self) -> Standing:
        """Return the standing of the incarnation registered last.

        A loop that acts as a node checks `standing_of` that node: a daemon registers before it
        takes over what its former incarnation holds.
        """
        ...

    def standing_of(self, node: Node | None) -> Standing:
        """Return the standing of this node: may it act?

        LOST for None, and for any node but the incarnation registered last.
        """
        ...

    def present(self, node: Node) -> float | None:
        """Return the last moment at which this incarnation surely was registered.

        A reading of the monotonic clock; None if it is not the incarnation registered last.
        """
        ...

    def nodes(self, kind: NodeKind) -> frozenset[Node]:
        """Return the living nodes."""
        ...

    def heartbeats(self, kind: NodeKind) -> dict[Node, str]:
        """Return the living nodes with their heartbeat texts."""
        ...

    def adopting(self, address: str) -> AbstractContextManager[None]:
        """While held, `is_adopting(address)` is true for everybody.

        A worker holds it from before it replaces its former incarnation until it has adopted that
        one's processes, so that no failover comes between.
        """
        ...

    def is_adopting(self, address: str) -> bool:
        """True while a restarted worker adopts its former incarnation's processes."""
        ...

    def watch(self, kind: NodeKind, changed: Callable[[], None]) -> None:
        """Call `changed` after nodes of this kind, or this daemon's standing, may have changed."""
        ...


class AddressInUseError(ServiceUnreachableError):
    """A live daemon is registered under this address already."""


class Mutex(Protocol):
    """Mutual exclusion across the cluster, lost with the session. Fairness, never correctness."""

    def hold(self, name: str, *, timeout: timedelta) -> AbstractContextManager[bool]:
        """Enter with True when held, with False when `timeout` went by.

        `name` is a path below `lock/`. Not re-entrant.
        """
        ...


class TaskQueue(Protocol):
    """`tasks_queue`: submitted attempts in the order in which workers should claim them."""

    def offer(self, entries: Sequence[QueueEntry]) -> None:
        """Put entries in; an entry that is there already is left as it is."""
        ...

    def offer_soon(self, entries: Sequence[QueueEntry], *, done: Callable[[bool], None]) -> None:
        """`offer` without waiting, for entries that are new; raises nothing.

        `done` is called with True once all are in, and with False if one may not be: then they have
        to be offered. It is called by any thread, perhaps before this returns, and never if the
        session ends meanwhile.
        """
        ...

    def withdraw(self, entries: Sequence[QueueEntry]) -> None:
        """Take entries out; one that is not there is no error."""
        ...

    def entries(self) -> tuple[QueueEntry, ...]:
        """All entries, first to claim first; names that no master wrote are left out."""
        ...

    def claim(self, entries: Sequence[QueueEntry], node: Node) -> tuple[QueueEntry, ...]:
        """Take entries for this node: each in one transaction that deletes it and creates a claim.

        The claim goes with the node's session. Answers those that were won.
        """
        ...

    def take_soon(
        self, entries: Sequence[QueueEntry], node: Node
    ) -> Callable[[], tuple[QueueEntry, ...]] | None:
        """Take entries out without waiting; the answer, if called, tells those that were there.

        It waits, and raises what `claim` does. There is no claim then, so the rows have to be
        claimed at once. None, and nothing is sent, if other workers took some of what was wanted
        lately.
        """
        ...

    def claimed(self) -> frozenset[int]:
        """Task instance ids that are claimed: neither queued nor yet RUNNING in their row."""
        ...

    def release(self, entries: Sequence[QueueEntry]) -> None:
        """Drop claims after the rows have been changed, or were found not to want it."""
        ...

    def take_out_soon(self, entries: Sequence[QueueEntry]) -> None:
        """`withdraw` without waiting; raises nothing. What stays in is seen by the next look."""
        ...

    def watch(self, changed: Callable[[], None]) -> None:
        """Call `changed` after entries may have been added."""
        ...


class KillQueue(Protocol):
    """`tasks_kill`: requests to workers to kill attempts."""

    def ask(self, entries: Sequence[KillEntry]) -> None:
        """Put requests in; one that is there already is left as it is."""
        ...

    def asked(self, address: str) -> tuple[KillEntry, ...]:
        """The requests to the worker at this address."""
        ...

    def elsewhere(self, address: str) -> tuple[KillEntry, ...]:
        """The requests to workers at all other addresses."""
        ...

    def remove(self, entries: Sequence[KillEntry]) -> None:
        """Take requests out once they have been met, or need not be."""
        ...

    def watch(self, changed: Callable[[], None]) -> None:
        """Call `changed` after requests may have been added."""
        ...


class WorkerBeats(Protocol):
    """`workerbeats`: heartbeats of workers that run topologies. For people, never for decisions."""

    def put_soon(self, topology: str, address: str, text: str) -> None:
        """Write a beat without waiting; raises nothing. It goes with the session.

        One that is lost is not repeated.
        """
        ...

    def remove_soon(self, topology: str, address: str) -> None:
        """Take a beat back without waiting; raises nothing."""
        ...

    def beats(self, topology: str) -> dict[str, str]:
        """Return the beats of a topology by the addresses of its workers."""
        ...


class Registry(Protocol):
    """All of it, over one session."""

    @property
    def membership(self) -> Membership: ...

    @property
    def mutex(self) -> Mutex: ...

    @property
    def task_queue(self) -> TaskQueue: ...

    @property
    def kill_queue(self) -> KillQueue: ...

    @property
    def worker_beats(self) -> WorkerBeats: ...

    def close(self) -> None:
        """End the session: this daemon's znode, claims and locks go at once."""
        ...
