"""Watches over a worker's daemon, and has its lost attempts ended when it can't do that itself.

Runs beside the daemon as a small process of its own and imports nothing that is not needed to wait.
The daemon writes a byte into its standard input every few seconds. When the bytes stop (the daemon
is frozen) or end (it is dead), the warden runs a *pass* (`worker.warden_pass`) every few seconds,
until the daemon is heard again, another one has taken its place, or nothing of its attempts is
left. Of a daemon that says good-bye nothing is left.

`python -m worker.warden COMMAND…`: the command of a pass, which exits with 0 when nothing is left
to watch over.
"""

from __future__ import annotations

import os
import select
import subprocess
import sys
import time

GOOD_BYE = b"q"
ALIVE = b"."
SILENCE_SECONDS = 15.0
PASS_INTERVAL_SECONDS = 5.0


def watch(link: int, command: list[str]) -> None:
    """Return when there is nothing to watch over any more."""
    while True:
        heard, _, _ = select.select([link], [], [], SILENCE_SECONDS)
        if not heard:
            _pass(command)
            continue
        said = os.read(link, 4096)
        if said.endswith(GOOD_BYE):
            return
        if not said:
            break
    while _pass(command) != 0:
        time.sleep(PASS_INTERVAL_SECONDS)


def _pass(command: list[str]) -> int:
    return subprocess.run(command, check=False, stdin=subprocess.DEVNULL).returncode


if __name__ == "__main__":
    watch(sys.stdin.fileno(), sys.argv[1:])
