"""The kernel's tables of TCP sockets, as this computer's programs may read them.

Each row has the two addresses, the state, the account and the inode of a socket. An inode of 0
means that no program has the socket: it waits to be accepted, or its program has closed it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from ipaddress import ip_address
from pathlib import Path
from typing import Final, NamedTuple

LISTENS: Final = "0A"

_TABLES: Final = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
_MAPPED: Final = "0000000000000000FFFF0000"
"""The prefix of an IPv4 address in the table of IPv6. Servers use IPv6 sockets for both."""


class Row(NamedTuple):
    """A socket. Addresses are written as in the table, an IPv4 address always as IPv4."""

    address: str
    port: int
    remote_address: str
    remote_port: int
    state: str
    uid: int
    inode: int


def rows() -> Iterator[Row]:
    """Yield all sockets; none if the system does not have these tables."""
    for text in _texts():
        yield from parsed(text)


def parsed(text: str) -> Iterator[Row]:
    """Yield the rows of a table."""
    for line in text.splitlines()[1:]:
        fields = line.split(None, 10)
        address, _, port = fields[1].rpartition(":")
        remote, _, remote_port = fields[2].rpartition(":")
        yield Row(
            address.removeprefix(_MAPPED),
            int(port, 16),
            remote.removeprefix(_MAPPED),
            int(remote_port, 16),
            fields[3],
            int(fields[7]),
            int(fields[9]),
        )


def as_written(address: str) -> str:
    """Return an address as the tables write it."""
    packed = ip_address(address.partition("%")[0]).packed
    words = (packed[at : at + 4] for at in range(0, len(packed), 4))
    text = "".join(f"{int.from_bytes(word, sys.byteorder):08X}" for word in words)
    return text.removeprefix(_MAPPED)


def _texts() -> Iterator[str]:
    for table in _TABLES:
        try:
            yield table.read_text(encoding="ascii")
        except (FileNotFoundError, PermissionError):
            continue
