"""Sets missing firewall rules of the cluster, on workers in mode `tenant`.

The start of a server sets its rules. They are missing if the server was started before mode
`tenant` was set, or if the rules of the computer were flushed since.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Final

from common.embedded.firewall import CURE, PORTS, PORTS_CURE

log = logging.getLogger(__name__)

_INTERVAL: Final = timedelta(seconds=30)


class FirewallLoop:
    """Calls `protect`, which returns the reason for each server, or `PORTS`, without rules."""

    name = "firewall"

    def __init__(self, protect: Callable[[], Mapping[str, str]]) -> None:
        self._protect = protect
        self._known: Mapping[str, str] = {}

    def run_once(self) -> timedelta:
        """Set missing rules, and log each new reason for which they cannot be set."""
        found = self._protect()
        for server, cause in found.items():
            if self._known.get(server) == cause:
                continue
            if server == PORTS:
                log.warning(
                    "tasks of tenants can take the ports of daemons that are down",
                    extra={"cause": cause, "cure": PORTS_CURE},
                )
            else:
                log.warning(
                    "tasks of tenants can block an embedded server",
                    extra={"server": server, "cause": cause, "cure": CURE},
                )
        self._known = found
        return _INTERVAL
