"""Ends the task runs that hold a port at which a daemon of the cluster is to start.

`python -m worker.port_pass --home DIR --port N --server NAME`. It prints what it has ended
(`common.port_freeing.Freed`) as JSON, and exits with 0 if the port is free then. It ends:

* recorded attempts of this home's workers, if one of their processes holds the port. A note in the
  folder of the records gives the worker the reason for the end.
* processes of ended attempts (`keepChildren`) that hold the port. They have no record, but the mark
  of an attempt and the account of a tenant.
* attempts and processes of a tenant's account, one attempt at a time, if a socket of the account
  has the port and no process shows the socket. System calls keep a socket in many ways.

It never ends a process of root, of the daemon's account or of an owner of the servers' files,
unless the process belongs to a recorded attempt.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Final

from common.port_freeing import Freed
from common.port_holders import hidden_accounts, processes_at
from common.ports import is_port_free
from worker.processes.attempt_processes import Seen, seen_now
from worker.processes.socket_owners import SocketOwners

NAME = "port-pass"
FREED, NOT_FREED = 0, 1
_EVERY_ADDRESS: Final = "0.0.0.0"  # noqa: S104


def main(arguments: list[str] | None = None) -> int:
    """Free one port; 1 if that is not possible."""
    parser = argparse.ArgumentParser(prog=NAME, description="Ends task runs that hold a port.")
    parser.add_argument("--home", type=Path, required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--server", required=True, help="the name of what is to start there")
    options = parser.parse_args(arguments)
    passing = PortPass(options.home, options.port, server=options.server)
    sys.stdout.write(passing.run().to_json() + "\n")
    return FREED if is_port_free(options.port) else NOT_FREED


class PortPass:
    """Frees one port. `server` is the name of what is to start there."""

    def __init__(self, home: Path, port: int, *, server: str) -> None:
        self._port = port
        self._server = server
        self._owners = SocketOwners(home)

    def run(self) -> Freed:
        """End the holders until the port is free; return what was ended."""
        reason = f"held the port {self._port} of {self._server}"
        while not self._is_free() and self._owners.end_attempt_of(self._holders(), reason):
            pass
        if not self._is_free():
            self._owners.kill_left(self._holders())
        for uid in () if self._is_free() else sorted(hidden_accounts(self._port)):
            self._owners.end_account(
                uid,
                f"its account hid a socket at the port {self._port} of {self._server}",
                until=self._is_free,
            )
        return Freed(task_ids=self._owners.task_ids, pids=self._owners.pids)

    def _holders(self) -> list[Seen]:
        found = [seen_now(pid) for pid in processes_at(self._port)]
        return [each for each in found if each is not None]

    def _is_free(self) -> bool:
        return is_port_free(self._port, _EVERY_ADDRESS)


if __name__ == "__main__":
    sys.exit(main())
