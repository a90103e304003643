"""The sockets that have a TCP port of this computer, with their accounts.

The kernel's table in `/proc/net` lists no socket that is bound and does not listen. Linux 6.8 and
later return it in a query for socket diagnostics (`sock_diag`). Used to find the program that keeps
a port.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from contextlib import suppress
from typing import Final

from common.ports import Listener, listeners_at

_NETLINK_SOCK_DIAG: Final = 4
_QUERY: Final = 20
_DONE: Final = 3
_ERROR: Final = 2
_DUMP: Final = 0x301
_TIME_WAIT: Final = 6
_ALL_STATES: Final = 0x3FFF & ~(1 << _TIME_WAIT)
"""All states of a socket, without the rest of a closed connection. Bit 13 is a bound socket."""
_HEADER: Final = struct.Struct("=IHHII")
_FILTER: Final = struct.Struct("=BBBxI")
_ANSWER: Final = struct.Struct("=4x2s46x12xII")
_SOCKET_ID_BYTES: Final = 48
_BUFFER_BYTES: Final = 1 << 20
_SECONDS: Final = 2.0


def sockets_at(port: int) -> list[Listener]:
    """Return the sockets of programs that have this port at any address, in any state.

    A kernel without socket diagnostics shows only sockets that listen.
    """
    found = {*listeners_at(port)}
    for family in (socket.AF_INET, socket.AF_INET6):
        with suppress(OSError):
            # A socket without an inode belongs to no program.
            found.update(each for each in _diagnosed(family, port) if each.inode)
    return sorted(found, key=lambda each: each.inode)


def _diagnosed(family: int, port: int) -> Iterator[Listener]:
    number = port.to_bytes(2, "big")
    query = _FILTER.pack(family, socket.IPPROTO_TCP, 0, _ALL_STATES)
    query += number.ljust(_SOCKET_ID_BYTES, b"\0")
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_SOCK_DIAG) as link:
        link.settimeout(_SECONDS)
        link.send(_HEADER.pack(_HEADER.size + len(query), _QUERY, _DUMP, 0, 0) + query)
        while True:
            for kind, body in _messages(link.recv(_BUFFER_BYTES)):
                if kind in (_DONE, _ERROR):
                    return
                if kind == _QUERY and len(body) >= _ANSWER.size:
                    local, uid, inode = _ANSWER.unpack_from(body)
                    if local == number:
                        yield Listener(uid=uid, inode=inode)


def _messages(received: bytes) -> Iterator[tuple[int, bytes]]:
    while len(received) >= _HEADER.size:
        size, kind, *_ = _HEADER.unpack_from(received)
        if size < _HEADER.size:
            return
        yield kind, received[_HEADER.size : size]
        received = received[(size + 3) & ~3 :]
