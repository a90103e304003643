"""Keeps a loop going while PostgreSQL or ZooKeeper can't be reached.

A loop that raises ends its daemon, as it should for an unexpected error. A server that is away for
a while is expected: the loop rests, longer each time, and tries again.
"""

from __future__ import annotations

import logging
from datetime import timedelta

from common.errors import ServiceUnreachableError
from common.runtime.service import Loop

log = logging.getLogger(__name__)

_FIRST_REST = timedelta(milliseconds=100)
_LONGEST_REST = timedelta(seconds=5)


class OutageTolerant:
    """A loop that survives `ServiceUnreachableError`; everything else passes through."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._rest = timedelta()

    @property
    def name(self) -> str:
        return self._loop.name

    def run_once(self) -> timedelta:
        try:
            rest = self._loop.run_once()
        except ServiceUnreachableError as error:
            if not self._rest:
                log.warning("service unreachable", extra={"loop": self.name, "cause": str(error)})
            self._rest = min(max(self._rest * 2, _FIRST_REST), _LONGEST_REST)
            return self._rest
        if self._rest:
            log.info("service answers again", extra={"loop": self.name})
            self._rest = timedelta()
        return rest
