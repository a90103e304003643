"""The firewall of the embedded servers, with listeners in their place."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from threading import Thread

from common.config import Config
from common.config.settings import ApiConfig, MasterConfig, WorkerConfig
from common.embedded.addresses import ZookeeperAddress, record, zookeeper_file
from common.embedded.firewall import Firewall, PortGuard
from common.port_holders import holder
from common.ports import free_port
from common.process_identity import process_start_time
from operations.checks import Result, firewall_findings
from tests.firewalls import a_task_at, flood, is_limited, is_reached, need_firewall

MALLORY, TRUDY = 61_001, 61_002
"""Accounts that need no names."""


@contextmanager
def listener() -> Iterator[int]:
    """Yield the port of a server that closes a connection when its client does."""
    with (
        closing(socket.create_server(("127.0.0.1", 0), backlog=600)) as server,
        ExitStack() as kept,
    ):

        def accept() -> None:
            try:
                while True:
                    kept.enter_context(server.accept()[0])
            except OSError:
                return

        thread = Thread(target=accept)
        thread.start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)
        thread.join()


@contextmanager
def a_firewall(home: Path, server: str, *, connections: int = 5) -> Iterator[Firewall]:
    need_firewall()
    firewall = Firewall(
        home, "postgres" if server == "postgres" else "zookeeper", connections=connections
    )
    try:
        yield firewall
    finally:
        firewall.release()


@contextmanager
def a_guard(config: Config) -> Iterator[PortGuard]:
    need_firewall()
    guard = PortGuard(config)
    try:
        yield guard
    finally:
        guard.release()


def a_tenants_cluster(home: Path) -> Config:
    """Settings with free ports, so that no rule concerns others of this computer."""
    return Config(
        home=home,
        master=MasterConfig(port=free_port()),
        worker=WorkerConfig(port=free_port(), tenant_mode="tenant"),
        api=ApiConfig(port=free_port(), gateway_port=free_port()),
    )


def accepted(uid: int, port: int) -> int:
    with flood(uid, [port]) as (number,):
        return number


def test_an_account_has_a_number_of_connections_and_daemons_have_all_they_need(
    tmp_path: Path,
) -> None:
    with listener() as port, a_firewall(tmp_path, "postgres") as firewall:
        assert accepted(MALLORY, port) == 450
        firewall.protect(port)
        assert firewall.problem is None
        with flood(MALLORY, [port]) as (mallory,), flood(TRUDY, [port]) as (trudy,):
            assert is_limited(mallory, 5)
            assert is_limited(trudy, 5)
            assert accepted(0, port) == 450


def test_all_accounts_together_leave_half_of_the_connections(tmp_path: Path) -> None:
    with listener() as port, a_firewall(tmp_path, "postgres", connections=90) as firewall:
        firewall.protect(port)
        with flood(MALLORY, [port]) as (mallory,), flood(TRUDY, [port]) as (trudy,):
            assert is_limited(mallory, 90)
            assert is_limited(mallory + trudy, 100)


def test_rules_that_are_set_again_remember_what_they_have_counted(tmp_path: Path) -> None:
    with listener() as port, a_firewall(tmp_path, "postgres") as firewall:
        firewall.protect(port)
        with flood(MALLORY, [port]) as (mallory,):
            assert is_limited(mallory, 5)
            firewall.protect(port)
            assert is_limited(mallory + accepted(MALLORY, port), 5)


def test_a_closed_port_is_opened_when_the_server_moves_or_ends(tmp_path: Path) -> None:
    with listener() as former, listener() as port, a_firewall(tmp_path, "zookeeper") as firewall:
        firewall.protect(former)
        assert accepted(MALLORY, former) == 0
        assert accepted(0, former) == 450
        firewall.protect(port)
        assert (accepted(MALLORY, former), accepted(MALLORY, port)) == (450, 0)
        firewall.release()
        assert accepted(MALLORY, port) == 450


def test_two_homes_do_not_change_each_other_s_rules(tmp_path: Path) -> None:
    with (
        listener() as first,
        listener() as second,
        a_firewall(tmp_path / "first", "zookeeper") as one,
        a_firewall(tmp_path / "second", "zookeeper") as other,
    ):
        one.protect(first)
        other.protect(second)
        assert (accepted(MALLORY, first), accepted(MALLORY, second)) == (0, 0)
        other.release()
        assert (accepted(MALLORY, first), accepted(MALLORY, second)) == (0, 450)


def test_x77_a_task_that_takes_the_port_of_a_daemon_gets_no_client(tmp_path: Path) -> None:
    config = a_tenants_cluster(tmp_path)
    (tmp_path / "run").mkdir()
    former, other = free_port(), free_port()
    # An api-server was started there, and is down.
    (tmp_path / "run" / f"api-server-{former}.json").touch()
    ports = (config.api.gateway_port, config.master.port, config.worker.port, former)
    with a_guard(config) as guard:
        with a_task_at(config.api.port, uid=MALLORY):
            assert is_reached(config.api.port)
            assert guard.protect() is None
            assert not is_reached(config.api.port)
            assert not is_reached(config.api.port, host="::1")
        for port in ports:
            with a_task_at(port, uid=MALLORY):
                assert not is_reached(port)
        with a_task_at(other, uid=MALLORY):
            assert is_reached(other)
        with a_task_at(config.api.port, uid=0):
            assert is_reached(config.api.port)
            assert is_reached(config.api.port, host="::1")


def test_x77_a_port_in_use_names_the_process_and_its_task_run() -> None:
    need_firewall()
    port = free_port()
    assert holder(port) == ""
    with a_task_at(port, uid=MALLORY) as pid:
        text = holder(port)
    assert f"process {pid} of account {MALLORY}" in text
    assert "task run 47" in text
    assert f"`kill {pid}`" in text


def test_the_doctor_names_ports_that_tenants_can_take(tmp_path: Path) -> None:
    config = a_tenants_cluster(tmp_path)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / f"worker-server-{config.worker.port}.pid").touch()
    with a_guard(config) as guard:
        (before,) = firewall_findings(config)
        guard.protect()
        (after,) = firewall_findings(config)
    assert (before.result, after.result) == (Result.WARNING, Result.OK)


def test_the_doctor_names_a_server_that_tenants_can_block(tmp_path: Path) -> None:
    config = Config(home=tmp_path, worker=WorkerConfig(tenant_mode="tenant"))
    with a_firewall(tmp_path, "zookeeper", connections=20) as firewall:
        started = process_start_time(os.getpid())
        assert started is not None
        record(
            zookeeper_file(tmp_path),
            ZookeeperAddress(host="127.0.0.1", port=21, pid=os.getpid(), start_time=started),
        )
        (before,) = firewall_findings(config)
        firewall.protect(21)
        (after,) = firewall_findings(config)
    assert (before.result, after.result) == (Result.WARNING, Result.OK)
    assert before.cure is not None
    assert "nftables" in before.cure
