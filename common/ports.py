"""Ports of this computer: whether one is free, and free ones for servers that open them later.

A port is chosen below those that the kernel gives to connections. One of these could be taken by
any connection that begins before the server listens, or while it is down for a restart; and a
client that asks again and again for a server that is down could be connected to itself.

The choice is random, so that no other account can foresee it and listen first. Another account can
still take the port by chance. So a client that sends a secret first checks the account or the
process of the server (`check_server`, `is_of`).
"""

from __future__ import annotations

import errno
import ipaddress
import os
import socket
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Final

from common.clock import SystemClock
from common.errors import ConfigurationError
from common.port_marks import PortMarks
from common.socket_table import LISTENS, Row, as_written, rows

LOOPBACK: Final = "127.0.0.1"

_OF_CONNECTIONS: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")
_SOCKET: Final = "socket:["
_LOWEST: Final = 20_000
_HIGHEST: Final = 29_999
"""The next ones are those of Kubernetes' services."""
_LAST: Final = 65_535
_FEW: Final = 500
_OF_A_KILLED_ONE: Final = timedelta(seconds=2)
_PROBE_SECONDS: Final = 0.01

_clock = SystemClock()
_marks = PortMarks()


def free_port(taken: Collection[int] = ()) -> int:
    """Return a port that is free, is not in `taken` and was not chosen lately.

    A port that another process has marked is the second choice, and a port of connections the last.
    Raises `ConfigurationError` without a free port.
    """
    marked = None
    for port in _in_random_order(_candidates(*_connections())):
        if port in taken or _marks.was_chosen(port) or not is_port_free(port):
            continue
        if _marks.mark(port):
            return _chosen(port)
        marked = port if marked is None else marked
    return _chosen(_port_of_connections(taken) if marked is None else marked)


def _chosen(port: int) -> int:
    _marks.remember(port)
    return port


def _in_random_order(ports: range) -> Iterator[int]:
    """Yield all ports, from a random one on."""
    first = int.from_bytes(os.urandom(8)) % len(ports)
    yield from ports[first:]
    yield from ports[:first]


def _port_of_connections(taken: Collection[int]) -> int:
    """Return a free port from the range that the kernel gives to connections."""
    with ExitStack() as probes:
        for _ in range(_FEW):
            probe = probes.enter_context(socket.socket())
            try:
                probe.bind((LOOPBACK, 0))
            except OSError:
                break
            port = int(probe.getsockname()[1])
            if port not in taken and not _marks.was_chosen(port):
                return port
    raise ConfigurationError(
        "no port of this computer is free for a server: end some of the programs that listen"
    )


def is_port_free(port: int, host: str = LOOPBACK) -> bool:
    """Return True if a server could listen at this port, of the loopback interface by default."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        # As the servers do it: what is left of closed connections is no hindrance.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
        return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    """A listening socket: the number of its account, and the number of its inode."""

    uid: int
    inode: int


def listener_account(port: int) -> int | None:
    """Return the number of the account that listens at a port of the loopback address.

    None without a listener, or if the system has no table of sockets.
    """
    found = listener_of(port)
    return None if found is None else found.uid


def listener_of(port: int) -> Listener | None:
    """Return the socket that listens at a port of the loopback address.

    None without a listener, or if the system has no table of sockets.
    """
    return _listener_at(as_written(LOOPBACK), port)


def listeners_at(port: int) -> list[Listener]:
    """Return the sockets that listen at a port of any address of this computer."""
    return [listener for _, found, listener in _listeners() if found == port]


def is_of(listener: Listener, pid: int) -> bool:
    """Return True if a listening socket belongs to a process of this account.

    If the system does not show the descriptors of the process, the account decides.
    """
    return _is_among(listener, _inodes_of(pid))


def ports_of(pid: int) -> set[int]:
    """Return the ports at which a process of this account listens, at any address.

    If the system does not show the descriptors of the process, these are the ports of the account.
    """
    inodes = _inodes_of(pid)
    return {port for _, port, listener in _listeners() if _is_among(listener, inodes)}


def check_server(connection: socket.socket, account: int, server: str) -> None:
    """Check that the program at the other end of a connection has the account of the server.

    Raises `ConnectionRefusedError`. `server` is the name of the expected program.
    """
    found = server_account(connection)
    if found is None:
        # A table that changes while it is read may lack an entry.
        found = server_account(connection)
    if found != account:
        whose = "another account" if found is None else f"account number {found}"
        raise ConnectionRefusedError(
            errno.ECONNREFUSED,
            f"the program at port {connection.getpeername()[1]} belongs to {whose}, and {server}"
            f" to {account}",
        )


def server_account(connection: socket.socket) -> int | None:
    """Return the account at the other end of a connection within this computer.

    None if the kernel's table does not show the other end, such as after it was closed. A program
    may listen, accept the connection and close its listener, so the listener alone proves nothing.
    """
    address, port = connection.getpeername()[:2]
    own, own_port = connection.getsockname()[:2]
    found = _end(address, port, own, own_port)
    if found is None or found.inode != 0:
        return None if found is None else found.uid
    # Without an inode no program has accepted it yet, so the listener still has it.
    listener = _listener_at(as_written(address), port)
    return None if listener is None else listener.uid


def client_account(client: tuple[str, int], own: tuple[str, int]) -> int | None:
    """Return the account of the program that opened a connection to a server of this computer.

    `client` and `own` are the addresses of the two ends. None if the program has closed its end, or
    if the table does not show it, for example because the client is on another computer.
    """
    found = _end(*client, *own)
    # The table shows a closed end as one of root, without an inode.
    return None if found is None or found.inode == 0 else found.uid


def is_own_address(address: str) -> bool:
    """Return True for an address of this computer, of which its programs can connect."""
    found = ipaddress.ip_address(address)
    if found.is_loopback:
        return True
    with socket.socket(socket.AF_INET if found.version == 4 else socket.AF_INET6) as probe:
        try:
            probe.bind((address, 0))
        except OSError as error:
            # Anything else, such as a lack of ports, proves nothing.
            return error.errno != errno.EADDRNOTAVAIL
    return True


def _end(address: str, port: int, other: str, other_port: int) -> Row | None:
    """Return the socket of the first end of a connection."""
    wanted = (as_written(address), port, as_written(other), other_port)
    return next((row for row in rows() if row[:4] == wanted), None)


def _listener_at(address: str, port: int) -> Listener | None:
    """Return the listener that the kernel chooses for a connection to an address."""
    for_all: Listener | None = None
    for at, found, listener in _listeners():
        if found == port and at == address:
            return listener
        # The kernel prefers a listener of the address itself to one of all addresses.
        if found == port and not at.strip("0") and for_all is None:
            for_all = listener
    return for_all


def _is_among(listener: Listener, inodes: Collection[int] | None) -> bool:
    return listener.uid == os.geteuid() if inodes is None else listener.inode in inodes


def _inodes_of(pid: int) -> set[int] | None:
    """Return the inodes of a process's sockets; None if the system does not show them."""
    found = set()
    folder = f"/proc/{pid}/fd"
    try:
        names = os.listdir(folder)  # noqa: PTH208
    except PermissionError:
        return None
    except FileNotFoundError:
        return set()  # It has ended.
    for name in names:
        try:
            # A Spark server has hundreds, and `Path` takes longer than the kernel.
            target = os.readlink(f"{folder}/{name}")  # noqa: PTH115
        except FileNotFoundError:
            continue
        if target.startswith(_SOCKET):
            found.add(int(target[len(_SOCKET) : -1]))
    return found


def _listeners() -> Iterator[tuple[str, int, Listener]]:
    """Yield the address as the kernel writes it, the port and the socket of each listener."""
    for row in rows():
        if row.state == LISTENS:
            yield row.address, row.port, Listener(uid=row.uid, inode=row.inode)


def is_left_free(
    port: int,
    *,
    within: timedelta = _OF_A_KILLED_ONE,
    pause: Callable[[float], None] = time.sleep,
) -> bool:
    """True if a daemon that was killed has left its port, or leaves it within this time.

    A process that it was just starting has a copy of its sockets until it runs its own program.
    """
    deadline = _clock.monotonic() + within.total_seconds()
    while not is_port_free(port):
        if _clock.monotonic() > deadline:
            return False
        pause(_PROBE_SECONDS)
    return True


def _connections() -> tuple[int, int]:
    """The first and the last port that the kernel gives to connections."""
    try:
        first, last = _OF_CONNECTIONS.read_text(encoding="ascii").split()
    except OSError:
        return 32_768, 60_999
    return int(first), int(last)


def _candidates(first: int, last: int) -> range:
    """The ports to choose from, if connections get those from `first` to `last`."""
    for found in _outside(first, last):
        if len(found) >= _FEW:
            return found
    # Connections get nearly all: then what is chosen may be taken, as everywhere.
    return range(_LOWEST, _HIGHEST + 1)


def _outside(first: int, last: int) -> Iterator[range]:
    if last < _LOWEST:
        yield range(_LOWEST, _HIGHEST + 1)
    yield range(_LOWEST, min(first, _HIGHEST + 1))
    yield range(last + 1, _LAST + 1)
