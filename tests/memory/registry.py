"""The registry in memory: one server, and a registry for each daemon, as the protocols promise.

For the simulator and the conformance suite. Single-threaded and deterministic: everything is kept in
order of insertion, nothing waits, nothing runs by itself. The simulator moves the clock and calls
`tick` (sessions expire), `pulse` (a daemon checks its znode) and `deliver` (watches fire).

To crash a daemon: call its registry's `crash()`, then raise something that nobody catches. Its
session stops answering and expires when the clock has passed the timeout.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, timedelta

from common.clock import Clock
from common.model.cluster import Heartbeat, Node, NodeKind
from common.registry.protocol import (
    AddressInUseError,
    KillQueue,
    Membership,
    Mutex,
    RegistryUnavailableError,
    Standing,
    TaskQueue,
    WorkerBeats,
)
from common.registry.trust import TrustWindow
from tests.memory.queues import MemoryKillQueue, MemoryTaskQueue
from tests.memory.watches import Watch

ADOPTING = "adopting"
BEATS = "workerbeats"
LOCKS = "lock"

Hook = Callable[[str], None]


def _no_hook(operation: str) -> None:
    """Let every operation pass."""


@dataclass(slots=True, kw_only=True)
class Znode:
    """A node of the tree. `owner` is the session that an ephemeral node belongs to."""

    czxid: int
    text: str
    owner: int | None


@dataclass(slots=True, kw_only=True)
class _ServerSession:
    last_request: float
    alive: bool = True


class MemoryZooKeeper:
    """The server that all daemons share. `events` are the pending watches: reorder at will."""

    def __init__(self, *, clock: Clock, session_timeout: timedelta = timedelta(seconds=10)) -> None:
        self.clock = clock
        self.session_timeout = session_timeout
        self.frozen = False
        self.events: deque[Watch] = deque()
        self._zxid = 0
        self._folders: dict[str, dict[str, Znode]] = {}
        self._sessions: dict[int, _ServerSession] = {}
        self._watches: list[Watch] = []

    def registry(
        self,
        *,
        before_operation: Hook = _no_hook,
        is_process_alive: Callable[[int], bool] = lambda _: False,
    ) -> MemoryRegistry:
        """A daemon's registry, in a session of its own.

        `before_operation` is called with `before <operation>` and `after <operation>` of each
        change and may raise there. `is_process_alive` is true for a live pid on the daemon's host.
        """
        return MemoryRegistry(
            self, before_operation=before_operation, is_process_alive=is_process_alive
        )

    def tick(self, now: float) -> None:
        """Expire the sessions that were silent for the timeout; none while frozen."""
        if self.frozen:
            return
        for number, session in list(self._sessions.items()):
            if session.alive and now - session.last_request >= self.session_timeout.total_seconds():
                self.end_session(number)

    def expire(self, registry: MemoryRegistry) -> None:
        """End a daemon's session now; the daemon learns of it with its next request."""
        self.end_session(registry.session)

    def wipe(self) -> None:
        """Remove every znode; the sessions continue."""
        for folder in list(self._folders):
            self._folders[folder].clear()
            self._fire(folder, added=True)

    def freeze(self) -> None:
        """Answer no request."""
        self.frozen = True

    def thaw(self) -> None:
        """Answer again; as after a restart, every session has a whole timeout left."""
        self.frozen = False
        for session in self._sessions.values():
            session.last_request = self.clock.monotonic()
        self.events.extend(watch for watch in self._watches if watch not in self.events)

    def deliver(self, limit: int | None = None) -> int:
        """Fire pending watches in order, with those that these cause; return their number."""
        count = 0
        while self.events and (limit is None or count < limit):
            watch = self.events.popleft()
            count += 1
            if watch.registry.is_running:
                watch.changed()
        return count

    # For the registries.

    def open_session(self) -> int:
        """Open a session; return its number."""
        self._zxid += 1
        self._sessions[self._zxid] = _ServerSession(last_request=self.clock.monotonic())
        return self._zxid

    def touch(self, session: int) -> bool:
        """Note a request of a session; true if the session lives."""
        known = self._sessions[session]
        if known.alive:
            known.last_request = self.clock.monotonic()
        return known.alive

    def end_session(self, session: int) -> None:
        """Remove the session's ephemeral znodes."""
        if not self._sessions[session].alive:
            return
        self._sessions[session].alive = False
        for folder, nodes in list(self._folders.items()):
            for name in [name for name, node in nodes.items() if node.owner == session]:
                self.delete(folder, name)

    def children(self, folder: str) -> dict[str, Znode]:
        """The folder's znodes by name."""
        return self._folders.setdefault(folder, {})

    def create(self, folder: str, name: str, text: str = "", owner: int | None = None) -> Znode:
        """Create a znode where none is; tests put foreign names this way."""
        self._zxid += 1
        node = Znode(czxid=self._zxid, text=text, owner=owner)
        self.children(folder)[name] = node
        self._fire(folder, added=True)
        return node

    def delete(self, folder: str, name: str) -> None:
        """Remove a znode, if it exists."""
        if self.children(folder).pop(name, None) is not None:
            self._zxid += 1
            self._fire(folder, added=False)

    def watch(self, watch: Watch) -> None:
        """Register a watch; it fires for later changes, and once at once, as after a connect."""
        self._watches.append(watch)
        self.events.append(watch)

    def queue_watches(self, registry: MemoryRegistry) -> None:
        """Queue all watches of a daemon: its standing changed, or it may have missed changes."""
        self.events.extend(
            watch
            for watch in self._watches
            if watch.registry is registry and watch not in self.events
        )

    def forget(self, registry: MemoryRegistry) -> None:
        """Drop the watches of a lost daemon."""
        self._watches = [watch for watch in self._watches if watch.registry is not registry]

    def _fire(self, folder: str, *, added: bool) -> None:
        for watch in self._watches:
            if watch.folder != folder or (watch.additions_only and not added):
                continue
            # ZooKeeper fires a watch once until it is set again.
            if watch not in self.events:
                self.events.append(watch)


@dataclass(slots=True, kw_only=True)
class _Registration:
    kind: NodeKind
    node: Node


class MemoryRegistry:
    """One daemon's registry. Raises as the real one does when cut off, frozen out or expired."""

    def __init__(
        self,
        server: MemoryZooKeeper,
        *,
        before_operation: Hook,
        is_process_alive: Callable[[int], bool],
    ) -> None:
        self.server = server
        self.is_running = True
        self.is_cut_off = False
        self.claims_late = False
        """Claims that need not be waited for are made when their answer is asked for."""
        self.is_process_alive = is_process_alive
        self.session = server.open_session()
        self.membership: Membership = MemoryMembership(self)
        self.mutex: Mutex = MemoryMutex(self)
        self.task_queue: TaskQueue = MemoryTaskQueue(self)
        self.kill_queue: KillQueue = MemoryKillQueue(self)
        self.worker_beats: WorkerBeats = MemoryWorkerBeats(self)
        self._hook = before_operation
        self._link = _Link(trust=TrustWindow(server.session_timeout))
        self._announced = Standing.LOST

    def close(self) -> None:
        """End the session: this daemon's znode, claims and locks go at once."""
        if self.is_running:
            self.crash()
            self.server.end_session(self.session)

    def crash(self) -> None:
        """Stop like a killed process: the session is left to expire."""
        self.is_running = False
        self._link.trust.end()
        self.server.forget(self)

    def cut_off(self) -> None:
        """Break the daemon's connection."""
        self.is_cut_off = True

    def reconnect(self) -> None:
        """Restore the connection; missed watches fire."""
        self.is_cut_off = False
        self.server.queue_watches(self)

    def pulse(self) -> None:
        """Do the work of the real session's thread, which runs a few times in each timeout."""
        if not self.is_running:
            return
        link = self._link
        try:
            self.request()
        except RegistryUnavailableError:
            pass
        else:
            registration = link.registration
            if registration is not None:
                there = self.server.children(registration.kind.value).get(registration.node.address)
                if there is None or there.czxid != registration.node.incarnation:
                    link.trust.end()
                else:
                    link.trust.see(self.server.clock.monotonic())
            self.settle()
        standing = self.standing()
        if standing is not self._announced:
            self._announced = standing
            self.server.queue_watches(self)

    # For the parts.

    @property
    def registration(self) -> _Registration | None:
        """The registration of this daemon, now or until it was lost."""
        return self._link.registration

    def request(self, node: Node | None = None) -> None:
        """Make a request; with a node, only if that incarnation may still act."""
        link = self._link
        if not self.is_running:
            raise RegistryUnavailableError("the daemon is gone")
        now = self.server.clock.monotonic()
        if self.is_cut_off or self.server.frozen:
            link.trust.suspend(now)
            raise RegistryUnavailableError("the connection is broken")
        if not self.server.touch(self.session):
            link.trust.end()
            if link.registration is not None:
                raise RegistryUnavailableError("the session is over")
            self.fresh()
            link = self._link
        if node is not None and (
            link.registration is None
            or link.registration.node != node
            or self.standing() is Standing.LOST
        ):
            raise RegistryUnavailableError(f"{node.address} may not act any more")
        link.trust.contact(now)

    @contextmanager
    def changing(self, operation: str, node: Node | None = None) -> Iterator[None]:
        """Make one change, before and after which the daemon may crash."""
        self.request(node)
        self._hook(f"before {operation}")
        yield
        self._hook(f"after {operation}")

    def fresh(self) -> None:
        """Open a new session unless this one is alive and has no registration yet."""
        if self.is_cut_off or self.server.frozen or not self.is_running:
            raise RegistryUnavailableError("no session")
        if self._link.registration is None and self.server.touch(self.session):
            return
        self.server.end_session(self.session)
        self.session = self.server.open_session()
        self._link = _Link(trust=TrustWindow(self.server.session_timeout))
        self.server.queue_watches(self)

    def register(self, kind: NodeKind, node: Node) -> None:
        """Record the registration of this daemon."""
        self._link.registration = _Registration(kind=kind, node=node)
        self._link.trust.begin(self.server.clock.monotonic())

    def renounce(self) -> None:
        """End this incarnation."""
        self._link.trust.end()

    def present(self, node: Node) -> float | None:
        """The last moment at which this incarnation surely was registered."""
        registration = self._link.registration
        if registration is None or registration.node != node:
            return None
        return self._link.trust.present

    def standing(self) -> Standing:
        """True if the incarnation registered last may act."""
        return self._link.trust.standing(self.server.clock.monotonic())

    def take_back(self, folder: str, name: str) -> None:
        """Remove an ephemeral znode of this session, now or at a later pulse."""
        if self.is_running:
            self._link.repairs[(folder, name)] = None
            with suppress(RegistryUnavailableError):
                self.request()
                self.settle()

    def take_back_later(self, folder: str, name: str) -> None:
        """Remove a znode at the next pulse, if this session made it at all."""
        self._link.repairs[(folder, name)] = None

    def settle(self) -> None:
        """Make up for postponed removals."""
        for folder, name in list(self._link.repairs):
            there = self.server.children(folder).get(name)
            if there is not None and there.owner == self.session:
                with self.changing(f"take back {folder}/{name}"):
                    self.server.delete(folder, name)
            self._link.repairs.pop((folder, name), None)


@dataclass(slots=True, kw_only=True)
class _Link:
    """The state of one session."""

    trust: TrustWindow
    registration: _Registration | None = None
    repairs: dict[tuple[str, str], None] = field(default_factory=dict)


class MemoryWorkerBeats:
    """The heartbeats of topologies' workers."""

    def __init__(self, registry: MemoryRegistry) -> None:
        self._registry = registry
        self._server = registry.server

    def put_soon(self, topology: str, address: str, text: str) -> None:
        folder = f"{BEATS}/{topology}"
        with suppress(RegistryUnavailableError), self._registry.changing(f"put {folder}"):
            there = self._server.children(folder).get(address)
            owner = self._registry.session if there is None else there.owner
            self._server.delete(folder, address)
            self._server.create(folder, address, text, owner)

    def remove_soon(self, topology: str, address: str) -> None:
        self._registry.take_back(f"{BEATS}/{topology}", address)

    def beats(self, topology: str) -> dict[str, str]:
        self._registry.request()
        nodes = self._server.children(f"{BEATS}/{topology}")
        return {address: node.text for address, node in sorted(nodes.items())}


class MemoryMembership:
    """The membership of a daemon."""

    def __init__(self, registry: MemoryRegistry) -> None:
        self._registry = registry
        self._server = registry.server

    def join(self, kind: NodeKind, address: str, text: str) -> Node:
        """Register; raises at once where the real one waits for another host's znode to go."""
        self._registry.fresh()
        there = self._server.children(kind.value).get(address)
        if there is not None and there.owner != self._registry.session:
            other = Heartbeat.parse(there.text, zone=UTC)
            own = Heartbeat.parse(text, zone=UTC)
            if other is None or own is None or other.host != own.host:
                raise AddressInUseError(f"{address} is in use by another daemon ({there.text})")
            if other.pid != own.pid and self._registry.is_process_alive(other.pid):
                raise AddressInUseError(f"{address} is in use by process {other.pid}")
        with self._registry.changing(f"join {kind.value}/{address}"):
            self._server.delete(kind.value, address)
            created = self._server.create(kind.value, address, text, self._registry.session)
            node = Node(address=address, incarnation=created.czxid)
            self._registry.register(kind, node)
        return node

    def beat(self, text: str) -> None:
        registration = self._registry.registration
        if registration is None or self._registry.standing() is Standing.LOST:
            raise RegistryUnavailableError("this daemon is not registered; it has to join")
        with self._registry.changing("beat"):
            there = self._server.children(registration.kind.value).get(registration.node.address)
            if there is None or there.czxid != registration.node.incarnation:
                self._registry.renounce()
            else:
                there.text = text

    def leave(self) -> None:
        registration = self._registry.registration
        if registration is None:
            return
        self._registry.renounce()
        with self._registry.changing("leave"):
            there = self._server.children(registration.kind.value).get(registration.node.address)
            if there is not None and there.czxid == registration.node.incarnation:
                self._server.delete(registration.kind.value, registration.node.address)

    def retire(self) -> None:
        self.leave()
        self._registry.fresh()

    def standing(self) -> Standing:
        return self._registry.standing()

    def standing_of(self, node: Node | None) -> Standing:
        registration = self._registry.registration
        if registration is None or registration.node != node:
            return Standing.LOST
        return self._registry.standing()

    def present(self, node: Node) -> float | None:
        return self._registry.present(node)

    def nodes(self, kind: NodeKind) -> frozenset[Node]:
        return frozenset(self.heartbeats(kind))

    def heartbeats(self, kind: NodeKind) -> dict[Node, str]:
        self._registry.request()
        return {
            Node(address=address, incarnation=there.czxid): there.text
            for address, there in sorted(self._server.children(kind.value).items())
        }

    @contextmanager
    def adopting(self, address: str) -> Iterator[None]:
        if self._registry.standing() is Standing.LOST:
            self._registry.fresh()
        with self._registry.changing(f"adopt {address}"):
            self._server.delete(ADOPTING, address)
            self._server.create(ADOPTING, address, owner=self._registry.session)
        try:
            yield
        finally:
            self._registry.take_back(ADOPTING, address)

    def is_adopting(self, address: str) -> bool:
        self._registry.request()
        return address in self._server.children(ADOPTING)

    def watch(self, kind: NodeKind, changed: Callable[[], None]) -> None:
        self._server.watch(
            Watch(registry=self._registry, folder=kind.value, additions_only=False, changed=changed)
        )


class MemoryMutex:
    """Mutual exclusion that never waits: False at once when the lock is taken."""

    def __init__(self, registry: MemoryRegistry) -> None:
        self._registry = registry

    @contextmanager
    def hold(self, name: str, *, timeout: timedelta) -> Iterator[bool]:
        with self._registry.changing(f"lock {name}"):
            locks = self._registry.server.children(LOCKS)
            is_free = name not in locks
            if is_free:
                self._registry.server.create(LOCKS, name, owner=self._registry.session)
        if not is_free:
            yield False
            return
        try:
            yield True
        finally:
            # A crashed daemon's lock stays until its session expires.
            self._registry.take_back(LOCKS, name)
