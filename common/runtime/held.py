"""The start of a daemon in two steps: it is imported, and begins when its starter lets it.

A *held* daemon reads one line from its standard input, which its starter writes once the servers
that it needs are there. If the starter is gone without having written it, the daemon ends: nobody
knows of it. Imports nothing that takes time, since the starter is a command.
"""

from __future__ import annotations

import os
from typing import Final

from common.errors import SchedulerError

GO: Final = b"go\n"


class StarterGoneError(SchedulerError):
    """The starter has ended before it let this daemon begin. End it; nothing is wrong."""

    exit_code = 0


def await_start(descriptor: int = 0) -> None:
    """Return when the starter lets this daemon begin; the descriptor then reads nothing more."""
    line = b""
    while not line.endswith(b"\n"):
        piece = os.read(descriptor, len(GO))
        if not piece:
            raise StarterGoneError("the starter ended before this daemon could begin")
        line += piece
    # What the daemon starts is to inherit no pipe of a starter that is long gone.
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, descriptor)
    os.close(nothing)
