"""Places for requests that work long on what a user sends: lint, import, simulation, comparison.

All requests share the threads and the interpreter's lock. A user has few of these places and all
users together have not many more, so that other requests are served meanwhile. The place is taken
before the work, and without one the answer is 429.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from api.problems import TooManyError

LONG_SECONDS: Final = 60.0
"""The time of such a request, in addition to the time of others."""
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
        """Hold a place; `TooManyError` if all places of the user, or of the server, are taken."""
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
