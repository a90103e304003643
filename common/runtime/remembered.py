"""An answer that is kept for a while, so that a loop need not query for it at every pass."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import timedelta
from typing import Generic, TypeVar

from common.clock import Clock

T = TypeVar("T")


class Remembered(Generic[T]):
    """The last answer of a question, for the time `kept`. One thread uses it."""

    def __init__(self, question: Callable[[], T], *, clock: Clock, kept: timedelta) -> None:
        self._question = question
        self._clock = clock
        self._kept = kept
        self._until = -math.inf
        self._answer: T | None = None

    def __call__(self) -> T:
        """Return the answer. An error of the question passes through."""
        now = self._clock.monotonic()
        if self._answer is None or now >= self._until:
            self._answer = self._question()
            self._until = now + self._kept.total_seconds()
        return self._answer
