"""Finds TCP connections from programs of one tenant's account to listeners of another's.

Pure: it reads rows of the kernel's table of sockets and returns values. Which of the listeners
belong to Spark drivers, and what happens to the programs, is decided in
`worker.loops.port_guard_loop`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from common.socket_table import LISTENS, Row, as_written

_OVER: Final = frozenset({"06", "07"})
"""The states of closed sockets: TIME_WAIT and CLOSE."""
_IPV4_LENGTH: Final = 8
_LOOPBACK_NET: Final = 127
_LOOPBACK_V6: Final = as_written("::1")


@dataclass(frozen=True, slots=True, kw_only=True)
class Foreign:
    """A listener of a tenant, and the sockets of other tenants that are connected to it.

    Sockets whose connection the listener has not accepted yet are included: they fill its queue.
    """

    listener: Row
    clients: tuple[Row, ...]


def foreign_connections(table: Iterable[Row], is_tenant: Callable[[int], bool]) -> list[Foreign]:
    """Return the listeners of tenants to which sockets of other tenants are connected.

    `is_tenant` returns True for the accounts that tasks may have. Programs of all other accounts,
    such as root and the daemon, may connect to any listener, and any program to theirs.
    """
    rows = list(table)
    tenants: dict[int, bool] = {}
    listeners: dict[int, list[Row]] = {}
    for row in rows:
        if row.state == LISTENS and row.inode and _known(row.uid, tenants, is_tenant):
            listeners.setdefault(row.port, []).append(row)
    if not listeners:
        return []
    found: dict[Row, list[Row]] = {}
    # Ends of connections: needed for an address that may be of another computer.
    ends: set[tuple[str, int, str, int]] | None = None
    for row in rows:
        at_port = listeners.get(row.remote_port)
        if at_port is None or row.state == LISTENS or row.state in _OVER or not row.inode:
            continue
        if not _known(row.uid, tenants, is_tenant):
            continue
        listener = _chosen(at_port, row.remote_address)
        if listener is None or listener.uid == row.uid:
            continue
        if listener.address != row.remote_address and not _is_loopback(row.remote_address):
            ends = {each[:4] for each in rows} if ends is None else ends
            if (row.remote_address, row.remote_port, row.address, row.port) not in ends:
                continue  # A connection to the same port of another computer.
        found.setdefault(listener, []).append(row)
    return [Foreign(listener=each, clients=tuple(rows)) for each, rows in found.items()]


def is_on_loopback(listener: Row) -> bool:
    """Return True if a listener accepts connections from this computer only."""
    return _is_loopback(listener.address)


def _known(uid: int, tenants: dict[int, bool], is_tenant: Callable[[int], bool]) -> bool:
    known = tenants.get(uid)
    if known is None:
        known = tenants[uid] = is_tenant(uid)
    return known


def _chosen(listeners: list[Row], address: str) -> Row | None:
    """Return the listener that the kernel chooses for an address of this computer."""
    for_all = None
    for each in listeners:
        if each.address == address:
            return each
        is_same_family = len(each.address) == len(address)
        if not each.address.strip("0") and (for_all is None or is_same_family):
            for_all = each
    return for_all


def _is_loopback(address: str) -> bool:
    if len(address) == _IPV4_LENGTH:
        # The kernel writes the address as a number in the byte order of the computer.
        return int(address, 16).to_bytes(4, sys.byteorder)[0] == _LOOPBACK_NET
    return address == _LOOPBACK_V6
