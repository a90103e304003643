"""Limits the long requests in progress: lint, import, simulation, comparison.

All requests share the threads and the interpreter's lock. Long requests need one of a few *places*,
so that the server stays free for other requests. A single user can't hold all places. The answer
to a long request without a free place is 429.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from api.problems import TooManyError

LONG_SECONDS: Final = 60.0
"""The extra timeout of a long request."""
PLACES_OF_A_USER: Final = 2
_PLACES: Final = 6
_RETRY_SECONDS: Final = 2


class HeavyWork:
    """The places of one server. Any thread may use it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._taken: Counter[int] = Counter()

    @contextmanager
    def place(self, user_id: int) -> Iterator[None]:
        """Hold a place; `TooManyError` if all places of the user or of the server are taken."""
        with self._lock:
            if self._taken[user_id] >= PLACES_OF_A_USER:
                raise TooManyError(
                    f"{PLACES_OF_A_USER} long requests of yours are in progress; wait for one of"
                    " them, and try again",
                    retry_after=_RETRY_SECONDS,
                )
            if self._taken.total() >= _PLACES:
                raise TooManyError(
                    f"{_PLACES} long requests are in progress; try again later",
                    retry_after=_RETRY_SECONDS,
                )
            self._taken[user_id] += 1
        try:
            yield
        finally:
            with self._lock:
                self._taken[user_id] -= 1
                if not self._taken[user_id]:
                    del self._taken[user_id]
