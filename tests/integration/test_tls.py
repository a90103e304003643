"""TLS towards ZooKeeper, PostgreSQL and workers: who can't prove their name is refused.

Proxies that end TLS stand before the session's servers, which speak none themselves; a worker does.
"""

from __future__ import annotations

import select
import socket
import ssl
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import make_url, text

from common.clock import SystemClock
from common.config import Config, WorkerConfig, database_url, load
from common.embedded.addresses import PostgresAddress, ZookeeperAddress
from common.errors import ConfigurationError
from common.model.cluster import QueueEntry
from common.registry.config import RegistryConfig, RegistryTls
from common.registry.connect import connect
from common.registry.protocol import Registry, RegistryUnavailableError
from common.store.connect import engine
from common.tls import worker_client_context, worker_server_context
from operations.health import health
from operations.worker_calls import WorkerCallError
from tests.conftest import ZookeeperRoot
from tests.log_workers import Worker

CERTIFICATES = Path(__file__).parent / "certificates"
CA, OTHER_CA = str(CERTIFICATES / "ca.pem"), str(CERTIFICATES / "other.pem")
CLIENT = str(CERTIFICATES / "client.pem")
_SSL_REQUEST_BYTES = 8


@dataclass
class TlsProxy:
    """Ends TLS before a server; asks clients for a certificate, and tells of PostgreSQL's prelude."""

    target: tuple[str, int]
    name: str = "server"
    is_postgres: bool = False
    listener: socket.socket = field(default_factory=socket.socket)
    connections: list[socket.socket] = field(default_factory=list)

    def start(self) -> int:
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        pair = (CERTIFICATES / f"{self.name}.pem", CERTIFICATES / f"{self.name}.key")
        self.context.load_cert_chain(*pair)
        self.context.load_verify_locations(CA)
        self.context.verify_mode = ssl.CERT_REQUIRED
        self.listener.bind(("127.0.0.1", 0))
        self.listener.listen()
        threading.Thread(target=self._accept, daemon=True).start()
        return int(self.listener.getsockname()[1])

    def close(self) -> None:
        for each in (self.listener, *self.connections):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self.listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with suppress(OSError, ValueError), closing(client):
            if self.is_postgres:
                assert len(client.recv(_SSL_REQUEST_BYTES)) == _SSL_REQUEST_BYTES
                client.sendall(b"S")
            with (
                self.context.wrap_socket(client, server_side=True) as inside,
                socket.create_connection(self.target) as outside,
            ):
                self.connections += inside, outside
                while True:
                    ready = (
                        [inside]
                        if inside.pending()
                        else select.select([inside, outside], [], [])[0]
                    )
                    for each, other in ((inside, outside), (outside, inside)):
                        if each in ready:
                            piece = each.recv(65536)
                            if not piece:
                                return
                            other.sendall(piece)


@pytest.fixture
def a_proxy() -> Iterator[Callable[..., int]]:
    made: list[TlsProxy] = []

    def make(target: tuple[str, int], **options: object) -> int:
        made.append(TlsProxy(target, **options))  # type: ignore[arg-type]
        return made[-1].start()

    yield make
    for each in made:
        each.close()


@pytest.fixture
def client_key(tmp_path: Path) -> str:
    """The client's key with the mode that libpq insists on, which a checkout need not keep."""
    key = tmp_path / "client.key"
    key.write_bytes((CERTIFICATES / "client.key").read_bytes())
    key.chmod(stat.S_IRUSR)
    return str(key)


@pytest.fixture
def a_registry(
    a_proxy: Callable[..., int], zookeeper: ZookeeperAddress, zk_root: ZookeeperRoot
) -> Iterator[Callable[..., Registry]]:
    opened: list[Registry] = []

    def make(
        tls: RegistryTls | None,
        *,
        name: str = "server",
        within: timedelta = timedelta(minutes=1),
    ) -> Registry:
        port = a_proxy((zookeeper.host, zookeeper.port), name=name)
        config = RegistryConfig(
            hosts=f"127.0.0.1:{port}",
            root=zk_root.root,
            connection_timeout=within,
            tls=tls,
        )
        opened.append(connect(config, clock=SystemClock()))
        return opened[-1]

    yield make
    for each in opened:
        each.close()


def test_the_registry_speaks_tls_and_proves_who_it_is(
    a_registry: Callable[..., Registry], client_key: str
) -> None:
    tls = RegistryTls(ca_file=CA, cert_file=CLIENT, key_file=client_key)
    registry = a_registry(tls)
    # Their names fill several records of TLS, which arrive together.
    entries = [
        QueueEntry(
            process_priority=2, process_instance_id=1, task_priority=2, task_instance_id=number
        )
        for number in range(1, 3001)
    ]
    registry.task_queue.offer(entries)
    assert len(registry.task_queue.entries()) == len(entries)


@pytest.mark.parametrize(
    ("name", "ca_file", "verify", "reason"),
    [
        ("server", OTHER_CA, "full", "CERTIFICATE_VERIFY_FAILED"),
        ("server", OTHER_CA, "ca", "CERTIFICATE_VERIFY_FAILED"),
        ("elsewhere", CA, "full", "IP address mismatch"),
        ("elsewhere", CA, "ca", None),
        ("elsewhere", OTHER_CA, "none", None),
    ],
)
def test_a_zookeeper_that_can_not_prove_its_name_is_refused_unless_that_is_wanted(
    a_registry: Callable[..., Registry],
    client_key: str,
    *,
    name: str,
    ca_file: str,
    verify: str,
    reason: str | None,
) -> None:
    tls = RegistryTls(verify=verify, ca_file=ca_file, cert_file=CLIENT, key_file=client_key)  # type: ignore[arg-type]
    if reason is None:
        assert a_registry(tls, name=name).task_queue.entries() == ()
    else:
        with pytest.raises(RegistryUnavailableError, match=f"no session within 6 s: .*{reason}"):
            a_registry(tls, name=name, within=timedelta(seconds=6))


def test_the_database_is_reached_by_tls_as_the_settings_say(
    a_proxy: Callable[..., int],
    postgres: PostgresAddress,
    migrated_url: str,
    client_key: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    user = f"{postgres.user}:{postgres.password()}"

    def reach(name: str, root: str) -> object:
        port = a_proxy((postgres.host, postgres.port), name=name, is_postgres=True)
        for key, value in {
            "URL": f"postgresql://{user}@127.0.0.1:{port}/{make_url(migrated_url).database}",
            "SSLMODE": "verify-full",
            "SSLROOTCERT": root,
            "SSLCERT": CLIENT,
            "SSLKEY": client_key,
        }.items():
            monkeypatch.setenv(f"ORCAFLOW_DATABASE__{key}", value)
        made = engine(database_url(load()))
        try:
            with made.connect() as db:
                return db.execute(text("SELECT 1")).scalar_one()
        finally:
            made.dispose()

    assert reach("server", CA) == 1
    for name, root, reason in (
        ("server", OTHER_CA, "certificate verify failed"),
        ("elsewhere", CA, "does not match host name"),
        ("server", "/nowhere/ca.pem", "does not exist"),
    ):
        with pytest.raises(ConfigurationError, match=reason):
            reach(name, root)


def a_worker_config(key: Path, *, name: str = "server", ca_file: str = CA) -> WorkerConfig:
    """Settings of TLS with a key of the right mode, which a checkout need not keep."""
    key.write_bytes((CERTIFICATES / f"{name}.key").read_bytes())
    key.chmod(stat.S_IRUSR)
    return WorkerConfig(
        tls=True,
        tls_cert_file=str(CERTIFICATES / f"{name}.pem"),
        tls_key_file=str(key),
        tls_ca_file=ca_file,
    )


def test_logs_and_health_of_a_worker_are_read_by_tls_from_whoever_proves_its_name(
    tmp_path: Path,
) -> None:
    log = tmp_path / "logs" / "7" / "12" / "34.log"
    log.parent.mkdir(parents=True)
    log.write_bytes(b"of our own\n")
    settings = a_worker_config(tmp_path / "worker.key")
    trusting = worker_client_context(Config(worker=settings))
    other = worker_client_context(Config(worker=replace(settings, tls_ca_file=OTHER_CA)))
    assert trusting is worker_client_context(Config(worker=settings))
    with closing(Worker(tmp_path / "logs", tls=worker_server_context(settings))) as worker:
        port = int(worker.address.rpartition(":")[2])
        # Somebody who says nothing at all keeps no other waiting.
        with socket.create_connection(("127.0.0.1", port)):
            assert worker.ask(tls=trusting).body == b"of our own\n"
            assert health("127.0.0.1", port, tls=trusting)[0] == "ready"
        assert health("127.0.0.1", port, certificate=settings.tls_cert_file)[0] == "ready"
        assert health("127.0.0.1", port)[0] == "not answering"
        with pytest.raises(
            WorkerCallError, match=r"self-signed .*worker\.tls_ca_file|unable to get"
        ):
            worker.ask(tls=other)
        with pytest.raises(WorkerCallError, match=r"set worker\.tls here too"):
            worker.ask()
        # One who waits for more has the answer by the same connection.
        worker.running.add(34)
        told: list[bytes] = []
        waiting = threading.Thread(
            target=lambda: told.append(worker.ask(tls=trusting, start=11, wait_seconds=20).body),
            daemon=True,
        )
        waiting.start()
        assert worker.woken.wait(30)
        log.write_bytes(b"of our own\nand more\n")
        worker.logs.run_once()
        waiting.join(30)
        assert told == [b"and more\n"]
    elsewhere = a_worker_config(tmp_path / "elsewhere.key", name="elsewhere")
    for shown, reason in (
        (worker_server_context(elsewhere), "IP address mismatch"),
        (None, "speaks no TLS"),
    ):
        with (
            closing(Worker(tmp_path / "logs", tls=shown)) as worker,
            pytest.raises(WorkerCallError, match=reason),
        ):
            worker.ask(tls=trusting)


def test_a_worker_does_not_start_with_half_a_certificate_or_a_key_that_others_read(
    tmp_path: Path,
) -> None:
    settings = a_worker_config(tmp_path / "worker.key")
    Path(settings.tls_key_file).chmod(0o644)
    for wrong, reason in (
        (settings, "chmod 600"),
        (replace(settings, tls_key_file=""), "set both"),
        (replace(settings, tls=False), "set it to true"),
        (replace(settings, tls_key_file=CA), "no certificate and its key|chmod 600"),
    ):
        with pytest.raises(ConfigurationError, match=reason):
            worker_server_context(wrong)
    with pytest.raises(ConfigurationError, match=r"worker\.tls_ca_file /nowhere"):
        worker_client_context(Config(worker=replace(settings, tls_ca_file="/nowhere")))
    assert worker_client_context(Config()) is None
