"""Ports of this computer: whether one is free, and free ones for servers that open them later.

A port is chosen below those that the kernel gives to connections. One of these could be taken by
any connection that begins before the server listens, or while it is down for a restart; and a
client that asks again and again for a server that is down could be connected to itself.
"""

from __future__ import annotations

import itertools
import os
import socket
import sys
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Final

from common.clock import SystemClock
from common.errors import ConfigurationError

LOOPBACK: Final = "127.0.0.1"

_OF_CONNECTIONS: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")
_MAPPED: Final = "0000000000000000FFFF0000"
"""The prefix of an IPv4 address in the table of IPv6. Servers use IPv6 sockets for both."""
_TABLES: Final = (
    (Path("/proc/net/tcp"), "0100007F"),
    (Path("/proc/net/tcp6"), f"{_MAPPED}0100007F"),
)
"""The tables of the kernel's sockets, with the loopback address as they write it."""
_LISTENS: Final = "0A"
_LOWEST: Final = 20_000
_HIGHEST: Final = 29_999
"""The next ones are those of Kubernetes' services."""
_LAST: Final = 65_535
_FEW: Final = 500
_APART: Final = 64
"""Processes that choose at the same time do so from different places, this far from each other."""
_MARKS: Final = 32

_OF_A_KILLED_ONE: Final = timedelta(seconds=2)
_PROBE_SECONDS: Final = 0.01

_clock = SystemClock()
_turns = itertools.count()
_marks: deque[socket.socket] = deque()
"""Of the ports that this process was given last: no other chooses one before it can be opened."""


def free_port(taken: Collection[int] = ()) -> int:
    """A port that is free now, none of these, and none that this process was given lately."""
    candidates = _candidates(*_connections())
    for _ in candidates:
        port = candidates[(os.getpid() * _APART + next(_turns)) % len(candidates)]
        if port not in taken and is_port_free(port) and _mark(port):
            return port
    raise ConfigurationError(
        f"none of the ports {candidates[0]} to {candidates[-1]} is free: end some of the programs"
        " that have them, or name ports outside of them"
    )


def _mark(port: int) -> bool:
    """Mark a port as chosen, by a name in the kernel; False if another process has done so."""
    mark = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        mark.bind(f"\0orcaflow-port-{port}")
    except OSError:
        mark.close()
        return False
    _marks.append(mark)
    if len(_marks) > _MARKS:
        _marks.popleft().close()
    return True


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
    found = {
        is_loopback: listener
        for address, is_loopback, listener in _listeners(port)
        if is_loopback or not address.strip("0")
    }
    # The kernel prefers a listener of the address itself to one of all addresses.
    return found.get(True, found.get(False))


def listeners_at(port: int) -> list[Listener]:
    """Return the sockets that listen at a port of any address of this computer."""
    return [listener for _, _, listener in _listeners(port)]


def server_account(connection: socket.socket) -> int | None:
    """Return the account at the other end of an IPv4 connection within this computer.

    None if the kernel's table does not show the other end, such as after it was closed. A program
    may listen, accept the connection and close its listener, so the listener alone proves nothing.
    """
    server, client = _as_written(connection.getpeername()), _as_written(connection.getsockname())
    ends = {(server, client), (_MAPPED + server, _MAPPED + client)}
    for _, fields in _sockets():
        if (fields[1], fields[2]) in ends:
            # Without an inode no program has accepted it yet, so the listener still has it.
            is_accepted = int(fields[9]) != 0
            return int(fields[7]) if is_accepted else listener_account(int(server[-4:], 16))
    return None


def _as_written(address: tuple[str, int]) -> str:
    """Return an IPv4 address and a port as the kernel writes them."""
    host, port = address
    return f"{int.from_bytes(socket.inet_aton(host), sys.byteorder):08X}:{port:04X}"


def _listeners(port: int) -> Iterator[tuple[str, bool, Listener]]:
    """Yield listeners with their address as the kernel writes it, and True for the loopback."""
    for loopback, fields in _sockets():
        address, _, number = fields[1].partition(":")
        if fields[3] == _LISTENS and int(number, 16) == port:
            listener = Listener(uid=int(fields[7]), inode=int(fields[9]))
            yield address, address == loopback, listener


def _sockets() -> Iterator[tuple[str, list[str]]]:
    """Yield the fields of each socket, and the loopback address as its table writes it."""
    for table, loopback in _TABLES:
        try:
            lines = table.read_text(encoding="ascii").splitlines()[1:]
        except OSError:
            continue
        yield from ((loopback, line.split()) for line in lines)


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
