"""The connections of simulated daemons to ZooKeeper and PostgreSQL, and how they are lost."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from random import Random

from tests.memory.registry import MemoryZooKeeper
from tests.simulation.daemons import Daemon
from tests.simulation.faults import Options
from tests.simulation.virtual_clock import VirtualClock


class Connections:
    """ZooKeeper goes away for all, once; single daemons are cut off from it, or from everything."""

    def __init__(
        self,
        random: Random,
        options: Options,
        clock: VirtualClock,
        zookeeper: MemoryZooKeeper,
        daemons: Mapping[str, Daemon],
        *,
        log: Callable[[str], None],
    ) -> None:
        self._random = random
        self._options = options
        self._clock = clock
        self._zookeeper = zookeeper
        self._daemons = daemons
        self._log = log
        self._away_at: timedelta | None = None
        self._back_at: timedelta | None = None
        if options.registry_away:
            self._away_at = timedelta(seconds=random.uniform(2, 25))

    def pass_time(self, lived: timedelta) -> None:
        """Lose and restore what is due; `lived` is the time with daemons."""
        now = self._clock.elapsed
        if self._away_at is not None and self._away_at <= lived:
            self._away_at = None
            self._back_at = now + self._options.registry_away
            self._log("ZooKeeper goes away")
            self._zookeeper.freeze()
        elif self._back_at is not None and self._back_at <= now:
            self._return()
        for daemon in self._daemons.values():
            if daemon.cut_off_until is not None and daemon.cut_off_until <= now:
                self._reconnect(daemon)

    def heal(self) -> None:
        """Restore everything at once."""
        self._away_at = None
        if self._zookeeper.frozen:
            self._return()
        for daemon in self._daemons.values():
            self._reconnect(daemon)

    def lose(self, daemon: Daemon, *, isolated: bool) -> None:
        """Cut a daemon off from ZooKeeper for a while; an isolated one from PostgreSQL too."""
        daemon.registry.cut_off()
        daemon.is_isolated = isolated
        daemon.cut_off_until = self._clock.elapsed + timedelta(
            seconds=self._random.choice((3.0, 12.0, 40.0))
        )
        self._log(f"{daemon.name} is cut off from {'everything' if isolated else 'ZooKeeper'}")

    def _return(self) -> None:
        self._back_at = None
        self._zookeeper.thaw()
        is_empty = self._random.random() < 0.5
        if is_empty:
            for daemon in self._daemons.values():
                self._zookeeper.expire(daemon.registry)
            self._zookeeper.wipe()
        for daemon in self._daemons.values():
            # Nobody is connected again at once, and not all at the same time.
            daemon.registry.cut_off()
            daemon.cut_off_until = self._clock.elapsed + timedelta(
                seconds=self._random.choice((0.0, 1.0, 4.5))
            )
        self._log(f"ZooKeeper is back {'without its data' if is_empty else 'as it was'}")

    def _reconnect(self, daemon: Daemon) -> None:
        if daemon.cut_off_until is not None:
            daemon.cut_off_until, daemon.is_isolated = None, False
            daemon.registry.reconnect()
            self._log(f"{daemon.name} is connected again")
