"""Shows the settings in force, and where each came from."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import Final

from common.config import DERIVED_KEYS, Config, effective, load
from common.config import get as value_of
from common.errors import NotFoundError
from common.runtime.pid_file import running_ports


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A setting in force. `value` is masked if it is a password, `origin` a file or a variable."""

    key: str
    value: str
    origin: str


_DAEMONS: Final = {
    "api.port": ("api-server", "orcaflow config get api.url"),
    "master.port": ("master-server", "orcaflow server status"),
    "worker.port": ("worker-server", "orcaflow server status"),
}
"""The settings of ports, each with its daemon and the command that shows the port in use."""


def api_ports() -> list[int]:
    """Return the ports of the api-servers of this home that run."""
    return running_ports(load().home, "api-server")


def notes_on_ports(config: Config | None = None) -> dict[str, str]:
    """Return a note for each configured port that no daemon of this home uses, by its setting.

    Daemons that were started with `--free-ports` or `--port` have other ports.
    """
    config = config or load()
    notes = {}
    for key, (daemon, command) in _DAEMONS.items():
        configured, running = value_of(config, key), running_ports(config.home, daemon)
        if running and int(configured) not in running:
            ports = " and ".join(map(str, running))
            notes[key] = (
                f"{key} is {configured} in the settings; the {daemon} of this home runs at"
                f" {ports} ({command})"
            )
    return notes


def settings_in_force() -> list[Setting]:
    """Every setting."""
    return [
        Setting(key=key, value=value, origin=origin) for key, value, origin in effective(load())
    ]


def setting_value(key: str) -> str:
    """The value of one setting, passwords included; `NotFoundError` proposes another key."""
    config = load()
    try:
        return value_of(config, key)
    except KeyError:
        known = sorted({name for name, _, _ in effective(config)} | set(DERIVED_KEYS))
        near = difflib.get_close_matches(key, known, n=1)
        perhaps = f"; did you mean {near[0]}?" if near else "; see `orcaflow config show`"
        raise NotFoundError(f"there is no setting {key!r}{perhaps}") from None
