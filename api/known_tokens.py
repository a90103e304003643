"""Tokens that were found good a moment ago, so that not every read asks the database for its own.

What its user may do is asked at each read all the same, in the statement that reads; so this is
about the token alone: one that was revoked is good for reads for a second more, at most, and only
on a server that has just served it. No change and no stream asks here.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from common.clock import Clock
from common.model.rights import Principal

SECONDS: Final = 1.0
_MOST: Final = 10_000


class KnownTokens:
    """The principals of tokens by the hashes of these. Any thread may use it."""

    def __init__(self, *, clock: Clock, seconds: float = SECONDS) -> None:
        """`seconds` 0 knows nothing."""
        self._clock = clock
        self._seconds = seconds
        self._lock = threading.Lock()
        self._known: dict[bytes, tuple[float, Principal]] = {}

    def principal_of(
        self,
        token: str,
        find: Callable[[], Principal | None],
        *,
        address: str | None,
        request: str,
    ) -> Principal | None:
        """Return the principal that was found a moment ago, else the one that is found now."""
        key = hashlib.sha256(token.encode(errors="replace")).digest()
        now = self._clock.monotonic()
        known = self._known.get(key)
        if known is not None and now < known[0]:
            return replace(known[1], address=address, request=request)
        found = find()
        if found is not None and self._seconds:
            with self._lock:
                if len(self._known) >= _MOST:
                    self._known.clear()
                # The moment before it was looked for.
                self._known[key] = (now + self._seconds, found)
        return found
