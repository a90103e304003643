"""The embedded ZooKeeper keeps its nodes and its port, and reports missing requirements."""

from __future__ import annotations

import os
import signal
import socket
import stat
import struct
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path

import psutil
import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError
from kazoo.security import CREATOR_ALL_ACL, OPEN_ACL_UNSAFE

from common import caches
from common.embedded import zookeeper_classes as classes
from common.embedded.addresses import (
    zookeeper_address,
    zookeeper_file,
)
from common.embedded.zookeeper import EmbeddedZookeeper, find_java, jars_of_zookeeper
from common.embedded.zookeeper_rights import as_super, digest_file, digest_of
from common.errors import ConfigurationError, SchedulerError, ServiceUnreachableError
from common.ports import listener_account, server_account
from common.registry.connection import PollingHandler


@pytest.fixture
def server(tmp_path: Path) -> Iterator[EmbeddedZookeeper]:
    # A blank in the path must break neither settings files nor command lines.
    server = EmbeddedZookeeper(tmp_path / "a home")
    yield server
    server.stop(now=True)


@pytest.fixture
def an_old_java(tmp_path: Path) -> Path:
    program = tmp_path / "java8" / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    (tmp_path / "java8" / "release").write_text('JAVA_VERSION="1.8.0_202"\n')
    return tmp_path / "java8"


@contextmanager
def client_of(server: EmbeddedZookeeper, *, digest: str | None = None) -> Iterator[KazooClient]:
    """A client with the home's credential or another; "" is nobody."""
    credential = digest_of(server.home) if digest is None else digest
    client = KazooClient(
        hosts=zookeeper_address(server.home).hosts,
        auth_data=[("digest", credential)] if credential else None,
        default_acl=CREATOR_ALL_ACL if credential else None,
    )
    client.start()
    try:
        yield client
    finally:
        client.stop()
        client.close()


def make_node(server: EmbeddedZookeeper, path: str) -> None:
    with client_of(server) as client:
        client.ensure_path(path)


def has_node(server: EmbeddedZookeeper, path: str) -> bool:
    with client_of(server) as client:
        return client.exists(path) is not None


def test_nodes_and_port_are_kept_between_starts_even_after_a_kill(
    server: EmbeddedZookeeper,
) -> None:
    first = server.start()
    assert server.start() == first
    make_node(server, "/kept/one")
    server.stop()
    second = server.start()
    assert second.port == first.port
    assert has_node(server, "/kept/one")
    make_node(server, "/kept/two")
    os.kill(second.pid, signal.SIGKILL)
    psutil.Process(second.pid).wait()
    assert not server.is_running()
    server.start()
    assert has_node(server, "/kept/two")


def test_a_server_that_died_is_started_again_and_one_that_was_stopped_is_not(
    server: EmbeddedZookeeper,
) -> None:
    first = server.start()
    assert not server.revive()
    os.kill(first.pid, signal.SIGKILL)
    psutil.Process(first.pid).wait()
    # By another program, such as a master.
    assert EmbeddedZookeeper(server.home).revive()
    second = zookeeper_address(server.home)
    assert (second.port, second.pid == first.pid) == (first.port, False)
    os.kill(second.pid, signal.SIGKILL)
    psutil.Process(second.pid).wait()
    server.stop()
    assert not server.revive()


def test_a_java_that_ends_at_once_with_its_archive_of_classes_is_started_without(
    server: EmbeddedZookeeper, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    java = tmp_path / "java" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(
        '#!/bin/sh\ncase "$*" in *SharedArchiveFile*) exit 134 ;; esac\n'
        f'exec "{find_java().resolve()}" "$@"\n'
    )
    java.chmod(0o755)
    (tmp_path / "java" / "release").write_text('JAVA_VERSION="17"\n')
    monkeypatch.setenv("JAVA_HOME", str(java.parent.parent))
    place = tmp_path / "archives"
    place.mkdir(mode=0o755)
    monkeypatch.setattr(caches, "folders", lambda _: [place])
    archive = place / classes.name_of(java, jars_of_zookeeper())
    archive.write_bytes(bytes(classes.LEAST_BYTES))
    archive.chmod(0o444)
    server.start()
    assert server.is_running()
    assert not archive.exists()


def test_requests_that_never_end_do_not_take_the_memory_of_the_server(tmp_path: Path) -> None:
    server = EmbeddedZookeeper(tmp_path, heap_mb=128)
    address = server.start()
    try:
        # The longest request that the server accepts, of which only the beginning is sent.
        request = struct.pack(">i", 1024 * 1024 - 6) + bytes(1000)
        with ExitStack() as open_ones:
            for _ in range(300):
                each = open_ones.enter_context(socket.socket())
                each.settimeout(5)
                with suppress(OSError):
                    each.connect((address.host, address.port))
                    each.sendall(request)
        with client_of(server) as owner:
            assert owner.exists("/") is not None
        assert server.start() == address
    finally:
        server.stop(now=True)


@pytest.mark.skipif(os.geteuid() != 0, reason="listens as another account")
def test_a_program_of_another_account_on_the_port_gets_no_connection() -> None:
    # The kernel notes the account that opens a socket.
    os.seteuid(65534)
    try:
        rogue = socket.create_server(("127.0.0.1", 0))
    finally:
        os.seteuid(0)
    with rogue:
        rogue.settimeout(20)
        port = rogue.getsockname()[1]
        assert listener_account(port) == 65534
        handler = PollingHandler(account=os.geteuid())
        with pytest.raises(ConnectionRefusedError, match="belongs to account number 65534"):
            handler.create_connection(("127.0.0.1", port), timeout=5)
        with rogue.accept()[0] as accepted:
            accepted.settimeout(20)
            assert accepted.recv(100) == b""
    with socket.create_server(("127.0.0.1", 0)) as own:
        at = own.getsockname()
        assert listener_account(at[1]) == os.geteuid()
        PollingHandler(account=os.geteuid()).create_connection(at, timeout=5).close()
    assert listener_account(at[1]) is None


@pytest.mark.skipif(os.geteuid() != 0, reason="listens as another account")
def test_x89_a_program_that_closes_its_listener_gets_no_credential_either() -> None:
    os.seteuid(65534)
    try:
        rogue = socket.create_server(("127.0.0.1", 0))
    finally:
        os.seteuid(0)
    with rogue, socket.create_connection(rogue.getsockname()) as connection:
        assert server_account(connection) == 65534
        os.seteuid(65534)
        try:
            accepted = rogue.accept()[0]
        finally:
            os.seteuid(0)
        rogue.close()
        assert listener_account(connection.getpeername()[1]) is None
        with accepted, pytest.raises(ConnectionRefusedError, match="account number 65534"):
            PollingHandler(account=os.geteuid())._check_account(connection)


ATTACKS: tuple[Callable[[KazooClient], object], ...] = (
    lambda client: client.create("/mine", b""),
    lambda client: client.get_children("/dolphinscheduler/workers"),
    lambda client: client.get("/dolphinscheduler/workers/one"),
    lambda client: client.set("/dolphinscheduler/workers/one", b"forged"),
    lambda client: client.create("/dolphinscheduler/tasks_queue/forged", b""),
    lambda client: client.delete("/dolphinscheduler/workers", recursive=True),
    lambda client: client.delete("/dolphinscheduler/workers/one"),
    lambda client: client.set_acls("/", OPEN_ACL_UNSAFE),
    lambda client: client.set_acls("/dolphinscheduler/workers", OPEN_ACL_UNSAFE),
    lambda client: client.create("/zookeeper/quota/forged", b""),
)


def test_a_outsider_reads_writes_and_deletes_nothing_even_in_what_former_versions_left(
    server: EmbeddedZookeeper,
) -> None:
    address = server.start()
    # As a server of a former version was, and its nodes.
    with closing(as_super(server.home, address.hosts)) as client:
        client.set_acls("/", OPEN_ACL_UNSAFE)
        client.stop()
    with client_of(server, digest="") as anybody:
        anybody.create("/dolphinscheduler/workers/one", b"alive", makepath=True)
        anybody.create("/dolphinscheduler/tasks_queue", b"")
    digest_file(server.home).rename(server.home / "lost")
    server.stop()
    server.start()
    assert stat.S_IMODE(digest_file(server.home).stat().st_mode) == 0o600
    lost = (server.home / "lost").read_text().strip()
    for credential in ("", "me:secret", lost):
        with client_of(server, digest=credential) as outsider:
            for attack in ATTACKS:
                with pytest.raises(NoAuthError):
                    attack(outsider)
    with client_of(server) as owner:
        assert owner.get("/dolphinscheduler/workers/one")[0] == b"alive"
        assert owner.get_children("/dolphinscheduler/tasks_queue") == []
    password = digest_of(server.home).partition(":")[2]
    process = psutil.Process(zookeeper_address(server.home).pid)
    shown = [*process.cmdline(), *process.environ().values()]
    logged = [path.read_text() for path in (server.home / "logs").iterdir()]
    kept = [path.read_text() for path in (server.home / "run").iterdir()]
    assert not [text for text in (*shown, *logged, *kept) if password in text]


def test_it_listens_on_loopback_alone_and_grants_short_sessions(server: EmbeddedZookeeper) -> None:
    address = server.start()
    listening = {
        # Java listens with an IPv6 socket for IPv4 too.
        connection.laddr.ip.removeprefix("::ffff:")
        for connection in psutil.Process(address.pid).net_connections()
        if connection.status == psutil.CONN_LISTEN
    }
    assert listening == {"127.0.0.1"}
    client = KazooClient(hosts=address.hosts, timeout=2.0)
    client.start()
    negotiated_ms = client._session_timeout
    client.stop()
    client.close()
    assert negotiated_ms == 2000


def test_a_server_whose_record_was_lost_is_found_again(server: EmbeddedZookeeper) -> None:
    address = server.start()
    zookeeper_file(server.home).unlink()
    with pytest.raises(ServiceUnreachableError, match="start standalone-server"):
        zookeeper_address(server.home)
    assert server.start() == address
    assert zookeeper_address(server.home) == address


def test_damaged_data_ends_in_an_error_that_says_it_may_be_moved_away(
    server: EmbeddedZookeeper,
) -> None:
    server.start()
    make_node(server, "/kept")
    server.stop()
    for file in (server.data_dir / "version-2").iterdir():
        file.write_bytes(b"not what it was")
    with pytest.raises(SchedulerError, match="nothing in it is needed, move it away"):
        server.start()
    assert not server.is_running()


def test_a_missing_java_is_said_with_the_cure(
    server: EmbeddedZookeeper, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigurationError, match="no Java on the PATH: install Java 17 or 21"):
        server.start()


def test_an_old_java_is_said_with_the_cure(
    an_old_java: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(an_old_java))
    with pytest.raises(ConfigurationError, match="is Java 8, which is too old: install Java 17"):
        find_java()
