"""The account of the program at the other end of a connection within this computer.

A task can connect from an address of this computer, as a proxy there does. Only the account at the
other end of the connection distinguishes them.
"""

from __future__ import annotations

from functools import cached_property
from typing import Final

from common.ports import client_account, is_own_address

PEER: Final = "peer_account"
"""The key in the state of all requests of a connection."""


class PeerAccount:
    """The program that opened a connection. The kernel's table is read once, at the first use."""

    def __init__(self, peer: tuple[str, int], own: tuple[str, int]) -> None:
        """`peer` and `own` are the addresses and ports of the two ends."""
        self._peer = peer
        self._own = own

    @cached_property
    def is_local(self) -> bool:
        """True for a program on this computer, and for a text that cannot be read as an address."""
        try:
            return is_own_address(self._peer[0])
        except ValueError:
            return True

    @cached_property
    def uid(self) -> int | None:
        """The number of the account; None if it is not known, as after the end was closed."""
        try:
            return client_account(self._peer, self._own)
        except ValueError:
            return None
