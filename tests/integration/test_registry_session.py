"""The registry when ZooKeeper goes away, comes back, forgets, is silent, or loses an answer."""

from __future__ import annotations

import logging
import os
import shutil
import signal
import socket
import threading
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

import pytest

from common.clock import Clock, SystemClock
from common.embedded.zookeeper import EmbeddedZookeeper
from common.embedded.zookeeper_rights import digest_of
from common.model.cluster import Heartbeat, KillEntry, Node, NodeKind, QueueEntry
from common.registry.config import RegistryConfig
from common.registry.connect import ZookeeperRegistry, connect
from common.registry.protocol import Registry, RegistryUnavailableError, Standing
from common.registry.session import Session
from tests.conftest import ZookeeperRoot

HERE = "127.0.0.1:5678"
TIMEOUT = timedelta(seconds=20)
ENTRY = QueueEntry(process_priority=2, process_instance_id=1, task_priority=2, task_instance_id=7)


@dataclass
class HandClock:
    """Monotonic time that only the test moves."""

    seconds: float = 1000.0

    def now(self) -> datetime:
        return datetime(2026, 1, 1, tzinfo=UTC)

    def monotonic(self) -> float:
        return self.seconds

    def move(self, *, timeouts: float) -> None:
        """Move on by a share of the session timeout."""
        self.seconds += timeouts * TIMEOUT.total_seconds()


@pytest.fixture(scope="module")
def modules_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedZookeeper]:
    server = EmbeddedZookeeper(tmp_path_factory.mktemp("zookeeper"))
    yield server
    server.stop(now=True)


@pytest.fixture
def own_server(modules_server: EmbeddedZookeeper) -> EmbeddedZookeeper:
    """A ZooKeeper of this module alone, which a test may stop and maim; it runs at first."""
    modules_server.start()
    return modules_server


@pytest.fixture
def opened() -> Iterator[list[Registry]]:
    """Registries that are closed at the end, however the test ends."""
    registries: list[Registry] = []
    yield registries
    for registry in registries:
        registry.close()


@pytest.fixture
def a_registry(own_server: EmbeddedZookeeper, opened: list[Registry]) -> Callable[..., Registry]:
    """Makes registries on the module's own server, below a node of the test's own."""
    hosts = own_server.start().hosts
    root = f"/test-{uuid.uuid4().hex[:16]}"

    def make(
        *, clock: Clock | None = None, via: str = hosts, timeout: timedelta = TIMEOUT
    ) -> Registry:
        digest = digest_of(own_server.home)
        config = RegistryConfig(hosts=via, root=root, session_timeout=timeout, digest=digest)
        opened.append(connect(config, clock=clock or SystemClock()))
        return opened[-1]

    return make


def text() -> str:
    noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    return Heartbeat(
        host="127.0.0.1",
        pid=os.getpid(),
        cpu=0.1,
        memory=0.1,
        load=0.1,
        created=noon,
        beaten=noon,
    ).text()


def join(registry: Registry) -> Node:
    return registry.membership.join(NodeKind.WORKER, HERE, text())


def claim_and_release(registry: Registry, node: Node) -> None:
    """Leave all folders behind that claiming needs."""
    registry.task_queue.offer([ENTRY])
    assert registry.task_queue.claim([ENTRY], node) == (ENTRY,)
    registry.task_queue.release([ENTRY])
    assert registry.task_queue.claimed() == frozenset()


def until(condition: Callable[[], bool]) -> None:
    deadline = SystemClock().monotonic() + 60
    pause = threading.Event()
    while not condition():
        assert SystemClock().monotonic() < deadline, "it never came about"
        pause.wait(0.01)


def answers(registry: Registry) -> Callable[[], bool]:
    def tried() -> bool:
        try:
            registry.membership.nodes(NodeKind.WORKER)
        except RegistryUnavailableError:
            return False
        return True

    return tried


def test_the_tree_is_as_people_know_it(zk_root: ZookeeperRoot) -> None:
    session = Session(RegistryConfig(hosts=zk_root.hosts, root=zk_root.root), clock=SystemClock())
    registry = ZookeeperRegistry(session)
    with session.asking() as client:
        client.create(session.path("dead-servers", f"worker_{HERE}"), makepath=True)
        client.create(session.path("dead-servers", f"worker_{HERE}0"), makepath=True)
    node = join(registry)
    other = replace(ENTRY, task_instance_id=8)
    kill = KillEntry(address=HERE, task_instance_id=45)
    registry.task_queue.offer([ENTRY, other])
    registry.task_queue.claim([ENTRY], node)
    registry.kill_queue.ask([kill])
    contents: dict[str, str] = {}
    with session.asking() as client, registry.mutex.hold("masters", timeout=TIMEOUT):
        (place,) = client.get_children(session.path("lock", "masters"))
        for path in (
            f"workers/{HERE}",
            "tasks_queue/2_1_2_8_-1",
            "tasks_claimed/2_1_2_7_-1",
            f"tasks_kill/{HERE}-45",
        ):
            contents[path] = client.get(session.path(path))[0].decode()
        dead = client.get_children(session.path("dead-servers"))
    registry.close()
    assert contents == {
        f"workers/{HERE}": text(),
        "tasks_queue/2_1_2_8_-1": "2_1_2_8_-1",
        "tasks_claimed/2_1_2_7_-1": f"{HERE} {node.incarnation}",
        f"tasks_kill/{HERE}-45": f"{HERE}-45",
    }
    assert place.endswith("-lock-0000000000")
    assert dead == [f"worker_{HERE}0"]


def test_a_restart_of_the_server_within_the_session_costs_nothing(
    own_server: EmbeddedZookeeper, a_registry: Callable[..., Registry]
) -> None:
    # The longest that the server grants: it starts slowly on a machine that is busy.
    registry = a_registry(timeout=timedelta(seconds=60))
    node = join(registry)
    registry.task_queue.offer([ENTRY])
    registry.task_queue.claim([ENTRY], node)
    notified = threading.Event()
    registry.task_queue.watch(notified.set)
    own_server.stop()
    until(lambda: registry.membership.standing() is Standing.SUSPENDED)
    notified.clear()
    own_server.start()
    until(lambda: registry.membership.standing() is Standing.TRUSTED)
    assert registry.membership.nodes(NodeKind.WORKER) == {node}
    assert registry.task_queue.claimed() == {7}
    # Told once after the connect, since something may have been missed, and then of each offer.
    assert notified.wait(60)
    notified.clear()
    registry.task_queue.offer([ENTRY])
    assert notified.wait(60)


def test_an_error_is_never_taken_for_an_absence(
    own_server: EmbeddedZookeeper, a_registry: Callable[..., Registry]
) -> None:
    registry = a_registry()
    join(registry)
    hosts = own_server.start().hosts
    own_server.stop()
    with pytest.raises(RegistryUnavailableError, match=hosts):
        registry.membership.nodes(NodeKind.WORKER)
    with pytest.raises(RegistryUnavailableError):
        registry.membership.is_adopting(HERE)
    with pytest.raises(RegistryUnavailableError):
        registry.task_queue.entries()
    with pytest.raises(RegistryUnavailableError):
        registry.task_queue.claimed()


def test_a_cut_off_daemon_is_lost_before_its_session_could_expire(
    own_server: EmbeddedZookeeper, a_registry: Callable[..., Registry]
) -> None:
    clock = HandClock()
    registry = a_registry(clock=clock)
    former = join(registry)
    own_server.stop()
    until(lambda: registry.membership.standing() is Standing.SUSPENDED)
    clock.move(timeouts=0.65)
    assert registry.membership.standing() is Standing.SUSPENDED
    clock.move(timeouts=0.02)
    assert registry.membership.standing() is Standing.LOST
    # The server still knows the session, but what was lost stays lost.
    own_server.start()
    until(answers(registry))
    assert registry.membership.nodes(NodeKind.WORKER) == {former}
    assert registry.membership.standing() is Standing.LOST
    with pytest.raises(RegistryUnavailableError):
        registry.task_queue.claim([ENTRY], former)
    assert join(registry).incarnation > former.incarnation
    assert registry.membership.standing() is Standing.TRUSTED


def test_a_silent_server_suspends_and_then_loses_a_daemon(
    own_server: EmbeddedZookeeper, a_registry: Callable[..., Registry]
) -> None:
    clock = HandClock()
    registry = a_registry(clock=clock)
    join(registry)
    lost = threading.Event()

    def changed() -> None:
        if registry.membership.standing() is Standing.LOST:
            lost.set()

    registry.membership.watch(NodeKind.MASTER, changed)
    server = own_server.start().pid
    os.kill(server, signal.SIGSTOP)
    try:
        clock.move(timeouts=0.34)
        assert registry.membership.standing() is Standing.SUSPENDED
        clock.move(timeouts=0.34)
        assert lost.wait(60)
    finally:
        os.kill(server, signal.SIGCONT)


def test_a_server_that_forgot_everything_is_filled_again(
    own_server: EmbeddedZookeeper, a_registry: Callable[..., Registry]
) -> None:
    clock = HandClock()
    registry, master = a_registry(clock=clock), a_registry(clock=clock)
    former = join(registry)
    notified, changed = threading.Event(), threading.Event()
    registry.task_queue.watch(notified.set)
    master.membership.watch(NodeKind.WORKER, changed.set)
    own_server.stop()
    until(lambda: registry.membership.standing() is Standing.SUSPENDED)
    until(lambda: not answers(master)())
    shutil.rmtree(own_server.data_dir)
    own_server.start()
    # It hangs up on those who know more than itself, so they have to count the time.
    clock.move(timeouts=1.01)
    until(lambda: registry.membership.standing() is Standing.LOST)
    node = join(registry)
    until(answers(master))
    assert master.membership.nodes(NodeKind.WORKER) == {node}
    assert node != former
    until(notified.is_set)
    notified.clear()
    master.task_queue.offer([ENTRY])
    assert notified.wait(60)
    assert registry.task_queue.claim([ENTRY], node) == (ENTRY,)
    until(changed.is_set)
    changed.clear()
    registry.membership.leave()
    assert changed.wait(60)


def test_a_session_that_is_ended_again_and_again_is_made_again_each_time(
    zk_root: ZookeeperRoot,
) -> None:
    session = Session(RegistryConfig(hosts=zk_root.hosts, root=zk_root.root), clock=SystemClock())
    registry = ZookeeperRegistry(session)
    seen: list[int] = []
    for _ in range(15):
        seen.append(join(registry).incarnation)
        with session.asking() as client:
            twin = type(client)(hosts=zk_root.hosts, client_id=client.client_id)
        twin.start()
        twin.stop()
        twin.close()
        until(lambda: registry.membership.standing() is Standing.LOST)
    registry.close()
    assert seen == sorted(set(seen))


def test_a_registry_that_nobody_joined_through_outlives_its_session(
    zk_root: ZookeeperRoot,
) -> None:
    session = Session(RegistryConfig(hosts=zk_root.hosts, root=zk_root.root), clock=SystemClock())
    registry = ZookeeperRegistry(session)
    with session.asking() as client:
        twin = type(client)(hosts=zk_root.hosts, client_id=client.client_id)
    twin.start()
    twin.stop()
    twin.close()
    until(answers(registry))
    registry.task_queue.offer([ENTRY])
    assert registry.task_queue.entries() == (ENTRY,)
    registry.close()


def test_the_timeout_that_counts_is_the_one_that_the_server_granted(
    zk_root: ZookeeperRoot, caplog: pytest.LogCaptureFixture
) -> None:
    config = RegistryConfig(
        hosts=zk_root.hosts, root=zk_root.root, session_timeout=timedelta(hours=1)
    )
    with caplog.at_level(logging.WARNING):
        session = Session(config, clock=SystemClock())
    assert session.timeout == timedelta(seconds=60)
    assert "zookeeper changed the session timeout" in caplog.messages
    session.close()


def test_a_server_that_is_not_there_is_named_and_the_digest_is_not() -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        hosts = f"127.0.0.1:{held.getsockname()[1]}"
        config = RegistryConfig(
            hosts=hosts, connection_timeout=timedelta(milliseconds=200), digest="me:secret"
        )
        with pytest.raises(RegistryUnavailableError, match=hosts) as caught:
            connect(config, clock=SystemClock())
    assert "secret" not in str(caught.value)
    assert "secret" not in repr(config)


def test_what_was_written_with_a_digest_is_closed_to_others(zk_root: ZookeeperRoot) -> None:
    clock = SystemClock()
    config = RegistryConfig(hosts=zk_root.hosts, root=zk_root.root, digest="me:secret")
    mine = connect(config, clock=clock)
    mine.task_queue.offer([ENTRY])
    assert mine.task_queue.claim([ENTRY], join(mine)) == (ENTRY,)
    outsider = connect(RegistryConfig(hosts=zk_root.hosts, root=zk_root.root), clock=clock)
    with pytest.raises(RegistryUnavailableError, match="NoAuth"):
        outsider.task_queue.entries()
    outsider.close()
    mine.close()


@dataclass
class Proxy:
    """Stands between a daemon and the server; can swallow answers, hang up, and not pass on."""

    target: tuple[str, int]
    listener: socket.socket = field(default_factory=socket.socket)
    swallowing: threading.Event = field(default_factory=threading.Event)
    connections: list[socket.socket] = field(default_factory=list)
    not_passed_on: int = 0
    """The next connections that nobody will answer, so many of them."""

    def start(self) -> str:
        """Listen; where."""
        self.listener.bind(("127.0.0.1", 0))
        self.listener.listen()
        threading.Thread(target=self._accept, daemon=True).start()
        return f"127.0.0.1:{self.listener.getsockname()[1]}"

    def hang_up(self) -> None:
        """Break what is connected, and let later answers through."""
        for connection in self.connections:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        self.swallowing.clear()

    def stop(self) -> None:
        """End it all."""
        with suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        self.hang_up()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self.listener.accept()
                if self.not_passed_on:
                    self.not_passed_on -= 1
                    self.connections.append(client)
                    continue
                server = socket.create_connection(self.target)
                self.connections += [client, server]
                for source, sink, is_answer in ((client, server, False), (server, client, True)):
                    threading.Thread(
                        target=self._pump, args=(source, sink, is_answer), daemon=True
                    ).start()

    def _pump(self, source: socket.socket, sink: socket.socket, is_answer: bool) -> None:
        with suppress(OSError):
            while piece := source.recv(65536):
                if not (is_answer and self.swallowing.is_set()):
                    sink.sendall(piece)
        for end in (source, sink):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def proxy(own_server: EmbeddedZookeeper) -> Iterator[Proxy]:
    address = own_server.start()
    proxy = Proxy(target=(address.host, address.port))
    yield proxy
    proxy.stop()


def test_a_server_that_takes_the_connection_and_never_answers_costs_no_session(
    proxy: Proxy, a_registry: Callable[..., Registry]
) -> None:
    registry = a_registry(via=proxy.start(), timeout=timedelta(seconds=24))
    node = join(registry)
    proxy.not_passed_on = 1
    proxy.hang_up()
    until(lambda: registry.membership.standing() is Standing.SUSPENDED)
    until(lambda: registry.membership.standing() is not Standing.SUSPENDED)
    assert registry.membership.standing() is Standing.TRUSTED
    assert registry.membership.nodes(NodeKind.WORKER) == {node}


def test_a_claim_whose_answer_was_lost_is_given_up(
    proxy: Proxy, a_registry: Callable[..., Registry]
) -> None:
    worker, master = a_registry(via=proxy.start()), a_registry()
    node = join(worker)
    claim_and_release(worker, node)
    master.task_queue.offer([ENTRY])
    proxy.swallowing.set()
    with ThreadPoolExecutor(1) as pool:
        claiming = pool.submit(worker.task_queue.claim, [ENTRY], node)
        until(lambda: master.task_queue.claimed() == {7})
        proxy.hang_up()
        assert isinstance(claiming.exception(), RegistryUnavailableError)
    until(lambda: master.task_queue.claimed() == frozenset())
    assert worker.membership.nodes(NodeKind.WORKER) == {node}
    master.task_queue.offer([ENTRY])
    assert worker.task_queue.claim([ENTRY], node) == (ENTRY,)


def test_a_claim_is_released_even_if_the_connection_breaks_meanwhile(
    proxy: Proxy, a_registry: Callable[..., Registry]
) -> None:
    worker, master = a_registry(via=proxy.start()), a_registry()
    node = join(worker)
    master.task_queue.offer([ENTRY])
    worker.task_queue.claim([ENTRY], node)
    proxy.hang_up()
    worker.task_queue.release([ENTRY])
    until(lambda: master.task_queue.claimed() == frozenset())


def test_a_place_in_line_whose_answer_was_lost_blocks_nobody(
    proxy: Proxy, a_registry: Callable[..., Registry]
) -> None:
    one, other = a_registry(via=proxy.start()), a_registry()
    assert _can_hold(one)
    until(lambda: _can_hold(other))
    proxy.swallowing.set()

    def take() -> None:
        with one.mutex.hold("masters", timeout=TIMEOUT):
            pass

    with ThreadPoolExecutor(1) as pool:
        taking = pool.submit(take)
        until(lambda: not _can_hold(other))
        proxy.hang_up()
        assert isinstance(taking.exception(), RegistryUnavailableError)
    until(lambda: _can_hold(other))


def _can_hold(registry: Registry) -> bool:
    with registry.mutex.hold("masters", timeout=timedelta()) as held:
        return held


def test_what_a_daemon_held_in_its_former_session_is_free_when_it_is_back(
    proxy: Proxy, a_registry: Callable[..., Registry]
) -> None:
    clock = HandClock()
    daemon, other = a_registry(via=proxy.start(), clock=clock), a_registry()
    node = join(daemon)
    other.task_queue.offer([ENTRY])
    assert daemon.task_queue.claim([ENTRY], node) == (ENTRY,)
    with daemon.mutex.hold("masters", timeout=TIMEOUT) as held:
        assert held
        # The daemon's connection gets no answer until the session is over.
        proxy.not_passed_on = 1
        proxy.hang_up()
        until(lambda: proxy.not_passed_on == 0)
    clock.move(timeouts=0.67)
    until(lambda: daemon.membership.standing() is Standing.LOST)
    assert not _can_hold(other)
    join(daemon)
    # Far sooner than ZooKeeper would expire the former session.
    with other.mutex.hold("masters", timeout=TIMEOUT / 4) as held:
        assert held
    until(lambda: other.task_queue.claimed() == frozenset())


def test_a_place_in_line_of_a_former_session_keeps_nobody_waiting(
    proxy: Proxy, a_registry: Callable[..., Registry]
) -> None:
    clock = HandClock()
    daemon, other = a_registry(via=proxy.start(), clock=clock), a_registry()
    join(daemon)

    def queue_up() -> None:
        with suppress(RegistryUnavailableError), daemon.mutex.hold("masters", timeout=TIMEOUT):
            pass

    with ThreadPoolExecutor(1) as pool:
        with other.mutex.hold("masters", timeout=TIMEOUT) as held:
            assert held
            pool.submit(queue_up)
            until(lambda: _places(other) == 2)
            proxy.not_passed_on = 1
            proxy.hang_up()
            until(lambda: proxy.not_passed_on == 0)
            clock.move(timeouts=0.67)
            until(lambda: daemon.membership.standing() is Standing.LOST)
            assert _places(other) == 2
            join(daemon)
        with daemon.mutex.hold("masters", timeout=TIMEOUT / 4) as held:
            assert held


def _places(registry: Registry) -> int:
    session = registry._session
    with session.asking() as client:
        return len(client.get_children(session.path("lock", "masters")))


def test_those_who_wait_for_the_mutex_get_it_in_turn(zk_root: ZookeeperRoot) -> None:
    config = RegistryConfig(hosts=zk_root.hosts, root=zk_root.root)
    registries = [connect(config, clock=SystemClock()) for _ in range(4)]
    inside: list[int] = []
    most: list[int] = []

    def take(number: int) -> bool:
        with registries[number].mutex.hold("masters", timeout=timedelta(seconds=60)) as held:
            inside.append(number)
            most.append(len(inside))
            inside.remove(number)
            return held

    with ThreadPoolExecutor(4) as pool:
        held = list(pool.map(take, [0, 1, 2, 3] * 10))
    assert all(held)
    assert max(most) == 1
    for registry in registries:
        registry.close()
