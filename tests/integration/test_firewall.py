"""The firewall of the embedded servers, with listeners in their place."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from threading import Thread

from common.config import Config
from common.config.settings import WorkerConfig
from common.embedded.addresses import ZookeeperAddress, record, zookeeper_file
from common.embedded.firewall import Firewall
from common.process_identity import process_start_time
from operations.checks import Result, firewall_findings
from tests.firewalls import flood, need_firewall

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
            assert (mallory, trudy) == (5, 5)
            assert accepted(0, port) == 450


def test_all_accounts_together_leave_half_of_the_connections(tmp_path: Path) -> None:
    with listener() as port, a_firewall(tmp_path, "postgres", connections=90) as firewall:
        firewall.protect(port)
        with flood(MALLORY, [port]) as (mallory,), flood(TRUDY, [port]) as (trudy,):
            assert (mallory, trudy) == (90, 10)


def test_rules_that_are_set_again_remember_what_they_have_counted(tmp_path: Path) -> None:
    with listener() as port, a_firewall(tmp_path, "postgres") as firewall:
        firewall.protect(port)
        with flood(MALLORY, [port]) as (mallory,):
            assert mallory == 5
            firewall.protect(port)
            assert accepted(MALLORY, port) == 0


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
