"""Takes back the heartbeats of topologies whose attempts have ended here."""

from __future__ import annotations

from collections.abc import Callable, Collection
from datetime import timedelta
from typing import Final

from worker.datasets.topologies import TopologyDesk

_REST: Final = timedelta(seconds=1)


class BeatLoop:
    """A look at the running attempts now and then, at nothing but memory."""

    name = "topology-beats"

    def __init__(self, desk: TopologyDesk, *, running: Callable[[], Collection[int]]) -> None:
        self._desk = desk
        self._running = running

    def run_once(self) -> timedelta:
        """Look once."""
        self._desk.end_beats(self._running)
        return _REST
