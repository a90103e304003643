"""Clients and listeners of other accounts, for tests of the firewall of a cluster."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from common.config import Config, WorkerConfig
from common.embedded.firewall import Firewall, PortGuard

# The sockets are made after the change of account: the kernel keeps the account of the creation.
_FLOOD = """
import os, resource, socket, sys
uid, *ports = map(int, sys.argv[1:])
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
os.setgroups([])
os.setresgid(uid, uid, uid)
os.setresuid(uid, uid, uid)
kept = []
for port in ports:
    accepted = 0
    for _ in range(450):
        each = socket.socket()
        each.settimeout(10)
        try:
            each.connect(("127.0.0.1", port))
        except OSError:
            each.close()
        else:
            accepted += 1
            kept.append(each)
    print(accepted, flush=True)
sys.stdin.read()
"""


@contextmanager
def flood(uid: int, ports: Sequence[int]) -> Iterator[list[int]]:
    """Open 450 silent connections to each port as an account; yield how many were accepted.

    They stay open until the end of the context.
    """
    client = subprocess.Popen(
        [sys.executable, "-c", _FLOOD, str(uid), *map(str, ports)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert client.stdin is not None
    assert client.stdout is not None
    try:
        yield [int(client.stdout.readline()) for _ in ports]
    finally:
        client.stdin.close()
        client.wait()
        client.stdout.close()


def is_limited(accepted: int, limit: int) -> bool:
    """Return True if the kernel kept to a limit of connections.

    It may accept a few more: it does not count a connection that conntrack has not confirmed yet.
    """
    return limit <= accepted <= limit + 3


_LISTENER = """
import os, socket, sys
uid = int(sys.argv[1])
os.setgroups([])
os.setresgid(uid, uid, uid)
os.setresuid(uid, uid, uid)
kept = [socket.create_server(("127.0.0.1", int(sys.argv[2])))]
kept.append(socket.create_server(("::1", int(sys.argv[2])), family=socket.AF_INET6))
print(flush=True)
sys.stdin.read()
"""


@contextmanager
def a_task_at(port: int, *, uid: int) -> Iterator[int]:
    """Listen at a port of both loopback addresses as an account; yield the pid."""
    process = subprocess.Popen(
        [sys.executable, "-c", _LISTENER, str(uid), str(port)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "ORCAFLOW_TASK_INSTANCE_ID": "47"},
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == b"\n", "it listens"
        yield process.pid
    finally:
        process.stdin.close()
        process.wait()
        process.stdout.close()


def is_reached(port: int, *, host: str = "127.0.0.1") -> bool:
    """Return True if a client completes a connection."""
    try:
        socket.create_connection((host, port), timeout=0.25).close()
    except OSError:
        return False
    return True


@contextmanager
def no_rules_after(folder: str) -> Iterator[None]:
    """Remove the rules of a worker whose home is `home` in this folder; they outlast the worker."""
    config = Config(home=Path(folder) / "home", worker=WorkerConfig(tenant_mode="tenant"))
    try:
        yield
    finally:
        PortGuard(config).release()


def obstacle() -> str:
    """Return the reason why this computer has no rules; "" if it has them."""
    if os.geteuid() != 0:
        return "only root sets firewall rules"
    firewall = Firewall(Path("/nonexistent/probe"), "zookeeper", connections=1)
    firewall.protect(1)
    firewall.release()
    return firewall.problem or ""


def need_firewall() -> None:
    """Skip the test where no rules can be set, such as in a container without CAP_NET_ADMIN."""
    if reason := obstacle():
        pytest.skip(f"needs nftables: {reason}")
