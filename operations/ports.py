"""The error for a port of this computer that is taken."""

from __future__ import annotations

from common.errors import ConfigurationError
from common.port_holders import holder


def port_in_use(port: int, *, daemon: str, with_others: bool) -> ConfigurationError:
    """The error for a port that another program has; `with_others` starts a whole cluster."""
    setting = f"{daemon.removesuffix('-server')}.port"
    cure = (
        "have free ones taken with --free-ports, or set"
        if with_others
        else "choose another with --port N (0 takes a free one) or"
    )
    return ConfigurationError(
        f"port {port} is in use{holder(port)}, so the {daemon} can't have it: end the"
        f" program that has it, or {cure} {setting}"
    )
