"""Ports of this computer: free ones, and the error for one that is taken."""

from __future__ import annotations

import socket
from collections.abc import Collection

from common.errors import ConfigurationError


def free_port(taken: Collection[int] = ()) -> int:
    """A port that is free now, and is none of these."""
    while True:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = int(probe.getsockname()[1])
        if port not in taken:
            return port


def port_in_use(port: int, *, daemon: str, with_others: bool) -> ConfigurationError:
    """The error for a port that another program has; `with_others` starts a whole cluster."""
    setting = f"{daemon.removesuffix('-server')}.port"
    cure = (
        "have free ones taken with --free-ports, or set"
        if with_others
        else "choose another with --port N (0 takes a free one) or"
    )
    return ConfigurationError(
        f"port {port} is in use, so the {daemon} can't have it: end the program that has it, or"
        f" {cure} {setting}"
    )
