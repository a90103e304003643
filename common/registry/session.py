"""One ZooKeeper session at a time, kept through kazoo, and a daemon's trust in it.

A `Session` outlives ZooKeeper's sessions: when one is over, joining again opens the next, with a
client of its own, so that nothing of a former incarnation can act in the name of a new one. One
light thread of its own looks at the daemon's znode every sixth of the negotiated timeout (which
keeps the session alive and proves that both still exist), sets watches again after they were lost,
and repeats what could not be taken back while ZooKeeper was away.

Whatever goes wrong with ZooKeeper is raised as `RegistryUnavailableError`; an error is never taken
for an absence. Callbacks of kazoo only note and wake; none waits for an answer.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from functools import partial
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException, NoNodeError
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.serialization import Connect
from kazoo.protocol.states import EventType, KazooState, WatchedEvent

from common.clock import Clock
from common.model.cluster import Node
from common.registry.clients import end_client, end_session, make_client
from common.registry.config import RegistryConfig
from common.registry.connection import PollingHandler, reason_of
from common.registry.protocol import RegistryUnavailableError, Standing
from common.registry.trust import TrustWindow

log = logging.getLogger(__name__)

Repair = Callable[[KazooClient], None]

_LOOKS_PER_TIMEOUT = 6
_CONNECTS_PER_TIMEOUT = 4
"""A server that takes a connection and never answers must not cost the session."""
_LEAST_CONNECT_SECONDS = 1.0
"""Of a short session too: a server that is only slow would else be hung up on for ever."""
_CLOSING_SECONDS = 5.0


class WatchKind(Enum):
    """The trigger of a watch: a change of the znode itself, or of its set of children."""

    NODE = "node"
    CHILDREN = "children"


class _Watch:
    """A permanent watch; `armed` while ZooKeeper has it or a request to set it is under way.

    `seen` is the state of the znode when the watch was set last: its czxid and change count.
    """

    __slots__ = ("armed", "changed", "kind", "path", "seen")

    def __init__(self, path: str, kind: WatchKind, changed: Callable[[], None]) -> None:
        self.path = path
        self.kind = kind
        self.changed = changed
        self.armed = False
        self.seen: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """The znode that registers this daemon."""

    path: str
    node: Node


class _Link:
    """One ZooKeeper session: its client, what was negotiated, and what must be taken back in it.

    `key`: its number and its password, by which another connection can end it.
    """

    def __init__(self, client: KazooClient, timeout: timedelta) -> None:
        self.client = client
        self.timeout = timeout
        self.trust = TrustWindow(timeout)
        self.key: tuple[int, bytes] | None = None
        self.registration: Registration | None = None
        self.used = False
        self.over = False
        self.broken_at: float | None = None
        self.repairs: dict[str, Repair] = {}


class Session:
    """The connection that membership, mutex and queues share."""

    def __init__(self, config: RegistryConfig, *, clock: Clock) -> None:
        self._config = config
        self._clock = clock
        self._lock = threading.RLock()
        self._renewing = threading.Lock()
        self._settling = threading.Lock()
        self._wake = threading.Event()
        self._closed = False
        self._next_look = 0.0
        self._announced: Standing | None = None
        self._listeners: list[Callable[[], None]] = []
        self._watches: list[_Watch] = []
        # Connection attempts are logged at WARNING; below that kazoo logs every request.
        logging.getLogger("kazoo").setLevel(logging.WARNING)
        self._link = self._connect()
        self._thread = threading.Thread(target=self._run, name="registry", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the session at once: all that it held, claims and locks too, goes with it."""
        if self._closed:
            return
        self._closed = True
        self._wake.set()
        self._thread.join()
        with self._lock:
            self._link.trust.end()
        is_heard = self._link.client.connected
        ending = end_client(self._link.client)
        if is_heard:
            ending.join(_CLOSING_SECONDS)

    # What the other modules ask with.

    @property
    def timeout(self) -> timedelta:
        """The session timeout that the server granted."""
        return self._link.timeout

    def path(self, *parts: str) -> str:
        """A path under the root."""
        return "/".join((self._config.root, *parts))

    @contextmanager
    def asking(self, node: Node | None = None) -> Iterator[KazooClient]:
        """Lend a client for some requests; all its errors are translated.

        With a node, only if that incarnation is this session's own and may still act, and the
        requests were surely made in its session.
        """
        client = self._usable(node).client
        session = session_id(client)
        try:
            yield client
        except (KazooException, KazooTimeoutError) as error:
            raise self.unavailable(reason_of(error)) from error
        # kazoo opens a new session by itself when one has expired; an id never comes back.
        if node is not None and (session is None or session_id(client) != session):
            raise self.unavailable("the connection broke meanwhile")

    def children_soon(self, path: str) -> Any:
        """Ask for the names below a path, as long as that need not wait; else None."""
        link = self._link
        if self._closed or link.over or not link.client.connected:
            return None
        return link.client.get_children_async(path)

    def answer(self, pending: Any) -> Any:
        """Wait for the answer to one request; no longer than a session can last without one."""
        return pending.get(timeout=self._link.timeout.total_seconds())

    def unavailable(self, reason: str) -> RegistryUnavailableError:
        """The error that callers know; it names the servers and never the digest."""
        return RegistryUnavailableError(f"ZooKeeper at {self._config.hosts}: {reason}")

    def take_back(self, path: str) -> None:
        """Delete an ephemeral znode of this session without waiting; repeated until it is sure."""
        link = self._link
        if link.over:
            return
        if not link.client.connected:
            self.take_back_later(path)
            return

        def answered(pending: Any) -> None:
            error = pending.exception
            if error is not None and not isinstance(error, NoNodeError):
                log.debug("znode could not be taken back yet", extra={"path": path})
                self._repair(link, path, partial(self._delete_own, path=path))

        link.client.delete_async(path).rawlink(answered)

    def take_back_all(self, paths: Sequence[str]) -> None:
        """`take_back` for several, in one transaction: a request each costs most of their time."""
        link = self._link
        if len(paths) < 2 or link.over or not link.client.connected:
            for path in paths:
                self.take_back(path)
            return

        def answered(pending: Any) -> None:
            if pending.exception is None and not any(
                isinstance(result, Exception) for result in pending.value
            ):
                return
            # One that was gone keeps the others. By now any of them may be another session's.
            log.debug("znodes could not be taken back yet", extra={"paths": paths})
            for path in paths:
                self._repair(link, path, partial(self._delete_own, path=path))

        transaction = link.client.transaction()
        for path in paths:
            transaction.delete(path)
        transaction.commit_async().rawlink(answered)

    def delete_soon(self, paths: Sequence[str]) -> None:
        """Delete znodes without waiting, as long as that is possible; it is not repeated."""
        link = self._link
        if self._closed or link.over or not link.client.connected:
            return
        for path in paths:
            link.client.delete_async(path)

    def take_back_later(self, path: str) -> None:
        """Delete a znode as soon as ZooKeeper answers, if it was made by this session at all."""
        self.repair_later(path, partial(self._delete_own, path=path))

    def repair_later(self, name: str, repair: Repair) -> None:
        """Have `repair` done as soon as ZooKeeper answers, unless the session is over by then."""
        self._repair(self._link, name, repair)

    def settle(self) -> None:
        """Do the outstanding repairs now, if there are any."""
        link = self._link
        if not link.repairs or not link.client.connected:
            return
        with self._settling:
            for name, repair in list(link.repairs.items()):
                try:
                    repair(link.client)
                except (KazooException, KazooTimeoutError) as error:
                    log.debug("repair put off", extra={"path": name, "reason": reason_of(error)})
                    return
                if link.repairs.get(name) is repair:
                    del link.repairs[name]

    # The life of an incarnation.

    def fresh(self) -> None:
        """Open a new session unless this one is alive and nobody has registered in it yet."""
        with self._renewing:
            link = self._link
            if not link.used and not link.over and link.client.connected:
                return
            self._renew()

    def register(self, registration: Registration, *, sent: float) -> None:
        """Note this daemon's registration, by a request that was sent at `sent`."""
        with self._lock:
            link = self._link
            link.used = True
            link.registration = registration
            link.trust.begin(sent)
            # Whatever comes next is news, should it be lost before its trust was announced.
            self._announced = None
        self._wake.set()

    def registration(self) -> Registration | None:
        """Return this daemon's registration, present or lost."""
        return self._link.registration

    def renounce(self) -> None:
        """End this incarnation."""
        with self._lock:
            self._link.trust.end()
        self._wake.set()

    def standing(self) -> Standing:
        """Return the standing of the incarnation registered last."""
        with self._lock:
            return self._link.trust.standing(self._clock.monotonic())

    def standing_of(self, node: Node | None) -> Standing:
        """Return the standing of this node, which is LOST unless it was registered last."""
        with self._lock:
            registration = self._link.registration
            if registration is None or registration.node != node:
                return Standing.LOST
            return self._link.trust.standing(self._clock.monotonic())

    def present(self, node: Node) -> float | None:
        """Return when this incarnation surely stood; None if it is not the one registered last."""
        with self._lock:
            registration = self._link.registration
            if registration is None or registration.node != node:
                return None
            return self._link.trust.present

    def now(self) -> float:
        """The monotonic clock."""
        return self._clock.monotonic()

    # Notifications.

    def listen(self, changed: Callable[[], None]) -> None:
        """Call `changed` after the standing has changed."""
        self._listeners.append(changed)

    def watch(self, path: str, kind: WatchKind, changed: Callable[[], None]) -> None:
        """Call `changed` after each change, and whenever changes may have been missed."""
        self._watches.append(_Watch(path, kind, changed))
        self._wake.set()

    # Sessions of ZooKeeper.

    def _connect(self) -> _Link:
        config = self._config
        timeout = config.session_timeout
        client = make_client(config)
        handler: PollingHandler = client.handler
        link = _Link(client, timeout)
        self._note_negotiation(link)
        client.add_listener(partial(self._on_connection_change, link))
        patience = config.connection_timeout.total_seconds()
        client.start_async().wait(patience)
        if not client.connected:
            end_client(client)
            because = f": {handler.trouble}" if handler.trouble else ""
            raise self.unavailable(f"no session within {patience:g} s{because}")
        if link.timeout != timeout:
            log.warning(
                "zookeeper changed the session timeout",
                extra={
                    "wanted_seconds": timeout.total_seconds(),
                    "granted_seconds": link.timeout.total_seconds(),
                },
            )
        return link

    def _note_negotiation(self, link: _Link) -> None:
        """Record the timeout that the server grants at each connect; kazoo keeps it to itself.

        A connect is given up after a part of the session timeout: kazoo would wait for all of it.
        """
        connection = link.client._connection  # noqa: SLF001  (kazoo hides it)
        invoke = connection._invoke  # noqa: SLF001  (as above)

        def noting(timeout: float, request: Any, xid: int | None = None) -> Any:
            sent = self._clock.monotonic()
            if isinstance(request, Connect):
                part = link.timeout.total_seconds() / _CONNECTS_PER_TIMEOUT
                timeout = min(timeout, max(part, _LEAST_CONNECT_SECONDS))
            answer = invoke(timeout, request, xid)
            if isinstance(request, Connect) and answer[0].time_out > 0:
                with self._lock:
                    link.key = answer[0].session_id, answer[0].passwd
                    link.timeout = timedelta(milliseconds=answer[0].time_out)
                    link.trust.negotiate(link.timeout)
                    link.trust.contact(sent)
            return answer

        connection._invoke = noting  # noqa: SLF001  (as above)

    def _on_connection_change(self, link: _Link, state: str) -> None:
        """Handle a change of the connection; called first by kazoo's connection thread."""
        with self._lock:
            link.broken_at = None
            if state == KazooState.SUSPENDED:
                link.broken_at = self._clock.monotonic()
                link.trust.suspend(link.broken_at)
            elif state == KazooState.LOST:
                link.over = True
                link.trust.end()
        self._wake.set()

    def _usable(self, node: Node | None) -> _Link:
        link = self._link
        if link.over and not link.used and not self._closed:
            # Nobody's incarnation hangs on it, so a new session is as good as the old one.
            self.fresh()
            link = self._link
        if self._closed or link.over:
            raise self.unavailable("the session is over")
        if not link.client.connected:
            raise self.unavailable("the connection is broken")
        if node is not None:
            registration = link.registration
            if registration is None or registration.node != node:
                raise self.unavailable(f"{node.address} is not registered in this session")
            if self.standing_of(node) is Standing.LOST:
                raise self.unavailable(f"{node.address} has lost its session")
        return link

    def _renew(self) -> None:
        link = self._connect()
        with self._lock:
            former, self._link = self._link, link
            former.over = True
            former.trust.end()
            for watch in self._watches:
                watch.armed = False
        end_client(former.client)
        if former.key is not None:
            # Places in line and claims of the former session would hold others up until it expires.
            # The former connection may be broken, but ZooKeeper has answered a new one.
            end_session(self._config, former.key, patience=former.timeout)
        self._wake.set()

    def _repair(self, link: _Link, name: str, repair: Repair) -> None:
        link.repairs[name] = repair
        self._wake.set()

    def _delete_own(self, client: KazooClient, *, path: str) -> None:
        stat = self.answer(client.exists_async(path))
        if stat is None or stat.ephemeralOwner != session_id(client):
            return
        with suppress(NoNodeError):
            self.answer(client.delete_async(path, version=stat.version))

    # The thread.

    def _run(self) -> None:
        while not self._closed:
            self._wake.wait(self._rest_seconds())
            self._wake.clear()
            if self._closed:
                return
            try:
                self._pulse()
            except Exception:
                log.exception("registry pulse failed")

    def _rest_seconds(self) -> float:
        now = self._clock.monotonic()
        with self._lock:
            change = self._link.trust.next_change(now)
            period = self._link.timeout.total_seconds() / _LOOKS_PER_TIMEOUT
        until_look = min(max(self._next_look - now, 0.001), period)
        return until_look if change is None else min(until_look, change + 0.001)

    def _pulse(self) -> None:
        link = self._link
        now = self._clock.monotonic()
        self._give_up_if_expired(link, now)
        if now >= self._next_look:
            self._next_look = now + link.timeout.total_seconds() / _LOOKS_PER_TIMEOUT
            if link.client.connected and not link.over:
                self._check_znode(link)
        if link.client.connected and not link.over:
            self._arm_again(link)
            if link.repairs and not self._settling.locked():
                # Repairs wait for answers, and nothing may hold up what is announced here.
                threading.Thread(target=self.settle, name="registry-repair", daemon=True).start()
        self._announce()

    def _give_up_if_expired(self, link: _Link, now: float) -> None:
        """End a session that was out of reach for its whole timeout.

        A server that lost its data doesn't say that the session has expired: it hangs up on a
        client that has seen more than itself, for ever.
        """
        with self._lock:
            broken_at = link.broken_at
            if broken_at is not None and now - broken_at >= link.timeout.total_seconds():
                link.over = True
                link.trust.end()

    def _check_znode(self, link: _Link) -> None:
        """Read the own znode: one round trip proves that the session and the znode are there."""
        registration = link.registration
        sent = self._clock.monotonic()

        def answered(pending: Any) -> None:
            if pending.exception is not None:
                return
            stat = pending.value
            with self._lock:
                before = link.trust.standing(self._clock.monotonic())
                link.trust.contact(sent)
                is_gone = registration is not None and (
                    stat is None or stat.czxid != registration.node.incarnation
                )
                if is_gone and link.registration is registration:
                    link.trust.end()
                elif registration is not None and not is_gone:
                    link.trust.see(sent)
                after = link.trust.standing(self._clock.monotonic())
            if before is not after:
                self._wake.set()

        path = self._config.root if registration is None else registration.path
        link.client.exists_async(path).rawlink(answered)

    def _announce(self) -> None:
        with self._lock:
            standing = self.standing()
            if standing is self._announced:
                return
            self._announced = standing
        if self._link.used:
            log.info("registry standing changed", extra={"standing": standing.value})
        for changed in self._listeners:
            changed()

    def _arm_again(self, link: _Link) -> None:
        for watch in list(self._watches):
            if watch.armed:
                continue
            # The state before the connection broke is stale: notify in any case.
            watch.seen = None
            self._arm(link, watch)

    def _arm(self, link: _Link, watch: _Watch) -> None:
        watch.armed = True

        def made(pending: Any) -> None:
            if link is self._link:
                watch.armed = False
                if pending.exception is None:
                    self._wake.set()

        def answered(pending: Any) -> None:
            if link is not self._link or self._closed:
                return  # The next session sets its own.
            if isinstance(pending.exception, NoNodeError):
                link.client.ensure_path_async(watch.path).rawlink(made)
                return
            if pending.exception is not None:
                watch.armed = False  # The next pulse tries again.
                return
            before, watch.seen = watch.seen, _change_count(pending.value, watch.kind)
            # One change was notified. If more came before the watch was set again, notify again.
            if before is None or watch.seen != (before[0], before[1] + 1):
                watch.changed()

        fired = partial(self._fired, link, watch)
        if watch.kind is WatchKind.CHILDREN:
            pending = link.client.get_children_async(watch.path, watch=fired, include_data=True)
        else:
            pending = link.client.exists_async(watch.path, watch=fired)
        pending.rawlink(answered)

    def _fired(self, link: _Link, watch: _Watch, event: WatchedEvent) -> None:
        if link is not self._link or self._closed:
            return
        if event.type == EventType.NONE:
            watch.armed = False
            self._wake.set()
            return
        # Set again before the callback: a session's requests are answered in order, so a read in
        # this session sees earlier changes, and the watch fires for later ones.
        self._arm(link, watch)
        watch.changed()


def _change_count(answer: Any, kind: WatchKind) -> tuple[int, int] | None:
    if kind is WatchKind.CHILDREN:
        _, stat = answer
        return stat.czxid, stat.cversion
    return None if answer is None else (answer.czxid, answer.version)


def session_id(client: KazooClient) -> int | None:
    """The number that ephemeral znodes of this session carry; None while it isn't connected."""
    identity = client.client_id
    return None if identity is None else int(identity[0])
