"""The embedded ZooKeeper keeps its nodes and its port, and reports missing requirements."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from kazoo.client import KazooClient

from common.embedded.addresses import (
    ZookeeperAddress,
    zookeeper_address,
    zookeeper_file,
)
from common.embedded.zookeeper import EmbeddedZookeeper, find_java
from common.errors import ConfigurationError, SchedulerError, ServiceUnreachableError


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


def make_node(address: ZookeeperAddress, path: str) -> None:
    client = KazooClient(hosts=address.hosts)
    client.start()
    client.ensure_path(path)
    client.stop()
    client.close()


def has_node(address: ZookeeperAddress, path: str) -> bool:
    client = KazooClient(hosts=address.hosts)
    client.start()
    found = client.exists(path) is not None
    client.stop()
    client.close()
    return found


def test_nodes_and_port_are_kept_between_starts_even_after_a_kill(
    server: EmbeddedZookeeper,
) -> None:
    first = server.start()
    assert server.start() == first
    make_node(first, "/kept/one")
    server.stop()
    second = server.start()
    assert second.port == first.port
    assert has_node(second, "/kept/one")
    make_node(second, "/kept/two")
    os.kill(second.pid, signal.SIGKILL)
    psutil.Process(second.pid).wait()
    assert not server.is_running()
    third = server.start()
    assert has_node(third, "/kept/two")


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
    make_node(server.start(), "/kept")
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
