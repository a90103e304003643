"""The membership of daemons: `masters/<host:port>` and `workers/<host:port>`.

An incarnation is the znode's czxid, so it is over when the znode is gone: when the session has
expired, but also after the tree was wiped, since the others have then seen this daemon vanish and
may have taken over. Identity is the whole address, never a part of it.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import NodeExistsError, NoNodeError
from kazoo.protocol.states import WatchedEvent, ZnodeStat

from common.model.cluster import Heartbeat, Node, NodeKind
from common.process_identity import process_start_time
from common.registry.protocol import AddressInUseError, RegistryUnavailableError, Standing
from common.registry.session import Registration, Session, WatchKind, session_id

DEAD_SERVERS = "dead-servers"
ADOPTING = "adopting"

# Of a session timeout; servers expire sessions by the tick, so later than they say.
_PATIENCE = 1.5


class ZookeeperMembership:
    """Membership on ZooKeeper."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def join(self, kind: NodeKind, address: str, text: str) -> Node:
        """Register as a new incarnation, in a session in which no other was.

        A znode at this address is replaced at once if it is that of a process of this host which
        is not there any more, or of this very process; that of another live process of this host
        is `AddressInUseError`. Any other is given the time to vanish with its session.
        """
        self._session.fresh()
        path = self._session.path(kind.value, address)
        patience = _PATIENCE * self._session.timeout
        deadline = self._session.now() + patience.total_seconds()
        while True:
            with self._session.asking() as client:
                sent = self._session.now()
                created = self._create(client, path, text)
                if created is None:
                    created = self._replace(client, path, address, text, deadline)
                if created is not None:
                    node = Node(address=address, incarnation=created.czxid)
                    self._clear_dead_server(client, kind, address)
                    self._session.register(Registration(path=path, node=node), sent=sent)
                    return node

    def beat(self, text: str) -> None:
        """Write the heartbeat. If the znode is gone, this incarnation is over: see `standing`."""
        registration = self._registration()
        with self._session.asking() as client:
            try:
                stat = self._session.answer(client.set_async(registration.path, text.encode()))
            except NoNodeError:
                self._session.renounce()
                return
        if stat.czxid != registration.node.incarnation:
            self._session.renounce()

    def leave(self) -> None:
        """Deregister at once, so that no other daemon waits for the session to expire."""
        registration = self._session.registration()
        if registration is None:
            return
        self._session.renounce()
        with self._session.asking() as client:
            stat = self._session.answer(client.exists_async(registration.path))
            if stat is not None and stat.czxid == registration.node.incarnation:
                with suppress(NoNodeError):
                    self._session.answer(client.delete_async(registration.path))

    def retire(self) -> None:
        """Leave and release locks and claims: end the session and start another."""
        self.leave()
        self._session.fresh()

    def standing(self) -> Standing:
        """Return the standing of the incarnation registered last."""
        return self._session.standing()

    def standing_of(self, node: Node | None) -> Standing:
        """Return the standing of this node: may it act?"""
        return self._session.standing_of(node)

    def present(self, node: Node) -> float | None:
        """Return when this incarnation surely stood; None if it is not the one registered last."""
        return self._session.present(node)

    def nodes(self, kind: NodeKind) -> frozenset[Node]:
        """Return the living nodes; a server of the ensemble that lags behind catches up first."""
        with self._session.asking() as client:
            pending = [
                (address, client.exists_async(self._session.path(kind.value, address)))
                for address in self._addresses(client, kind)
            ]
            stats = [(address, self._session.answer(request)) for address, request in pending]
        return frozenset(
            Node(address=address, incarnation=stat.czxid)
            for address, stat in stats
            if stat is not None
        )

    def heartbeats(self, kind: NodeKind) -> dict[Node, str]:
        """Return the living nodes with their heartbeat texts, by address."""
        texts: dict[Node, str] = {}
        with self._session.asking() as client:
            pending = [
                (address, client.get_async(self._session.path(kind.value, address)))
                for address in self._addresses(client, kind)
            ]
            for address, request in pending:
                try:
                    content, stat = self._session.answer(request)
                except NoNodeError:
                    continue
                texts[Node(address=address, incarnation=stat.czxid)] = _decoded(content)
        return texts

    @contextmanager
    def adopting(self, address: str) -> Iterator[None]:
        """While held, `is_adopting(address)` is true for everybody."""
        if self._session.standing() is Standing.LOST:
            # The join that follows must find this session unused, or it would open another.
            self._session.fresh()
        path = self._session.path(ADOPTING, address)
        with self._session.asking() as client:
            self._put_adopting(client, path)
        try:
            yield
        finally:
            self._session.take_back(path)

    def is_adopting(self, address: str) -> bool:
        """True while a restarted worker adopts its former incarnation's processes."""
        path = self._session.path(ADOPTING, address)
        with self._session.asking() as client:
            client.sync_async(path)
            return self._session.answer(client.exists_async(path)) is not None

    def watch(self, kind: NodeKind, changed: Callable[[], None]) -> None:
        """Call `changed` after nodes of this kind, or this daemon's standing, may have changed."""
        self._session.listen(changed)
        self._session.watch(self._session.path(kind.value), WatchKind.CHILDREN, changed)

    def _registration(self) -> Registration:
        registration = self._session.registration()
        if registration is None or self._session.standing() is Standing.LOST:
            raise RegistryUnavailableError("this daemon is not registered; it has to join")
        return registration

    def _create(self, client: KazooClient, path: str, text: str) -> ZnodeStat | None:
        """Make our znode; None if one stands there already."""
        try:
            _, stat = self._session.answer(
                client.create_async(
                    path, text.encode(), ephemeral=True, makepath=True, include_data=True
                )
            )
        except NodeExistsError:
            return None
        return stat

    def _replace(
        self, client: KazooClient, path: str, address: str, text: str, deadline: float
    ) -> ZnodeStat | None:
        """Put our znode where another stands, or wait for that to go; None: look again."""
        try:
            content, stat = self._session.answer(client.get_async(path))
        except NoNodeError:
            return None
        if stat.ephemeralOwner == session_id(client):
            # Made by a request of ours whose answer was lost.
            return stat
        other = Heartbeat.parse(_decoded(content), zone=UTC)
        own = Heartbeat.parse(text, zone=UTC)
        if other is not None and own is not None and other.host == own.host and _is_here(address):
            if other.pid != own.pid and process_start_time(other.pid) is not None:
                raise AddressInUseError(
                    f"{address} is in use by process {other.pid} of this host; "
                    f"stop it, or start this daemon on another port"
                )
            return self._supplant(client, path, stat, text)
        if not self._wait_until_gone(client, path, deadline):
            raise AddressInUseError(
                f"{address} is in use by another daemon ({_decoded(content)}), "
                f"which did not go within "
                f"{_PATIENCE * self._session.timeout.total_seconds():g} s"
            )
        return None

    def _supplant(
        self, client: KazooClient, path: str, former: ZnodeStat, text: str
    ) -> ZnodeStat | None:
        """Replace a dead process's znode in one transaction; None if it changed meanwhile."""
        transaction = client.transaction()
        transaction.delete(path, version=former.version)
        transaction.create(path, text.encode(), ephemeral=True)
        _, created = self._session.answer(transaction.commit_async())
        if isinstance(created, Exception):
            return None
        stat = self._session.answer(client.exists_async(path))
        return stat if stat is not None and stat.ephemeralOwner == session_id(client) else None

    def _wait_until_gone(self, client: KazooClient, path: str, deadline: float) -> bool:
        gone = threading.Event()

        def fired(_: WatchedEvent) -> None:
            gone.set()

        # A live daemon's heartbeats fire the watch too; then it is looked at again.
        if self._session.answer(client.exists_async(path, watch=fired)) is None:
            return True
        return gone.wait(max(0.0, deadline - self._session.now()))

    def _clear_dead_server(self, client: KazooClient, kind: NodeKind, address: str) -> None:
        """Remove the entry that declares this daemon dead, whatever its origin."""
        folder = self._session.path(DEAD_SERVERS)
        self._session.answer(client.ensure_path_async(folder))
        with suppress(NoNodeError):
            name = f"{kind.name.lower()}_{address}"
            self._session.answer(client.delete_async(f"{folder}/{name}"))

    def _addresses(self, client: KazooClient, kind: NodeKind) -> list[str]:
        path = self._session.path(kind.value)
        client.sync_async(path)
        try:
            names = self._session.answer(client.get_children_async(path))
        except NoNodeError:
            return []
        return sorted(name for name in names if _is_address(name))

    def _put_adopting(self, client: KazooClient, path: str) -> None:
        try:
            self._session.answer(client.create_async(path, ephemeral=True, makepath=True))
        except NodeExistsError:
            # Left by a former start, and bound to a session that will expire under us.
            transaction = client.transaction()
            transaction.delete(path)
            transaction.create(path, ephemeral=True)
            results: list[Any] = self._session.answer(transaction.commit_async())
            if any(isinstance(result, Exception) for result in results):
                # It went in this very moment.
                self._session.answer(client.create_async(path, ephemeral=True, makepath=True))


def _is_address(name: str) -> bool:
    host, colon, port = name.rpartition(":")
    return bool(host and colon and port.isdecimal())


def _is_here(address: str) -> bool:
    """True if the address is one of this host's: only those can be bound."""
    host = address.rpartition(":")[0].strip("[]")
    try:
        family, kind, protocol, _, place = socket.getaddrinfo(host, 0, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.bind(place)
    except OSError:
        return False
    return True


def _decoded(content: bytes) -> str:
    return content.decode("utf-8", errors="replace")
