"""Clients of other accounts, for tests of the firewall in front of the embedded servers."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from common.embedded.firewall import Firewall

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
