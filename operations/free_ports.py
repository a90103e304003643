"""The free ports of a home's daemons: chosen once, and kept while they are free.

Bookmarks of the console and contexts of the command line name a port, so each start of a home takes
the ports that it took before.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from pathlib import Path

from common.port_holders import holder
from common.ports import free_port, is_port_free
from common.whole_files import write_whole


class FreePorts:
    """Chooses ports for the daemons of one home."""

    def __init__(
        self,
        home: Path,
        *,
        notify: Callable[[str], None],
        is_free: Callable[[str, int], bool] = lambda _, port: is_port_free(port),
    ) -> None:
        """`notify` is called with the port that a daemon had and can't have any more.

        `is_free` returns whether a daemon of a kind can have a port.
        """
        self._is_free = is_free
        self._file = home / "run" / "free-ports.json"
        self._notify = notify

    def port_of(self, kind: str, running: Collection[int]) -> int:
        """Return the port for one more daemon of a kind, whose others run at these ports."""
        kept = self._read()
        ports = kept.setdefault(kind, [])
        taken = {*running, *(port for each in kept.values() for port in each)}
        place = next((at for at, port in enumerate(ports) if port not in running), len(ports))
        if place < len(ports) and self._is_free(kind, ports[place]):
            return ports[place]
        port = free_port(taken)
        if place < len(ports):
            self._notify(
                f"port {ports[place]}, which the {kind} of this home had, is"
                f" taken{holder(ports[place])}: it gets {port}, so bookmarks and contexts have to"
                " name that"
            )
        ports[place : place + 1] = [port]
        self._write(kept)
        return port

    def _read(self) -> dict[str, list[int]]:
        try:
            kept = json.loads(self._file.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        if not isinstance(kept, dict):
            return {}
        return {
            str(kind): [port for port in ports if isinstance(port, int) and 0 < port < 65_536]
            for kind, ports in kept.items()
            if isinstance(ports, list)
        }

    def _write(self, kept: dict[str, list[int]]) -> None:
        self._file.parent.mkdir(parents=True, exist_ok=True)
        write_whole(self._file, json.dumps(kept) + "\n")
