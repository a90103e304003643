"""Workers: their own account of their room, and the modes that administrators give them.

Pure. A worker's *status* stands as JSON behind the seven fields of its heartbeat. Its *mode* says
whether it takes tasks; it is given to an address, `host:port`, or to a host, for all workers there
that have none of their own.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from common.model.slot_share import NO_LIMIT

DEFAULT_CATEGORY: Final = "_default_worker_category"
"""The category of a worker that was given none, as in Druid."""
MAX_CATEGORY: Final = 128
_MAX_NAME: Final = 255
_MAX_TEXT: Final = 65_536
_MAX_SLOTS: Final = 1_000_000
_MAX_VERSION: Final = 64
_MAX_GROUPS: Final = 1_000
_MAX_ID: Final = 2**63 - 1


class WorkerMode(StrEnum):
    """The mode of a worker; whatever it is, the tasks that run go on to their ends."""

    ENABLED = "enabled"
    LAZY = "lazy"
    """Takes no task, and its slots are not counted on: it is going to be removed."""
    DISABLED = "disabled"
    """Takes no task until it is enabled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerStatus:
    """A worker's account of itself. `used` counts attempts, `mode` is the one that it obeys."""

    capacity: int
    used: int
    version: str
    category: str = DEFAULT_CATEGORY
    mode: WorkerMode = WorkerMode.ENABLED
    group_ids: frozenset[int] = frozenset()
    is_reserved: bool = False
    """True if it takes only tasks of its groups."""
    share_percent: int = NO_LIMIT
    """The share of its slots for one project; workers of a former version do not report it."""

    def text(self) -> str:
        """The JSON of the heartbeat, shortened to what is read again."""
        return json.dumps(
            {
                "capacity": min(self.capacity, _MAX_SLOTS),
                "used": min(self.used, _MAX_SLOTS),
                "version": self.version[:_MAX_VERSION],
                "category": self.category[:MAX_CATEGORY],
                "mode": self.mode.value,
                "groupIds": sorted(self.group_ids)[:_MAX_GROUPS],
                "reserved": self.is_reserved,
                "sharePercent": self.share_percent,
            }
        )

    @classmethod
    def read(cls, text: str) -> WorkerStatus | None:
        """Read what `text` has written; keys of later versions are passed over. Else None."""
        if len(text) > _MAX_TEXT:
            return None
        try:
            written = json.loads(text)
        except (ValueError, RecursionError):
            return None
        if not isinstance(written, dict):
            return None
        capacity: Any = written.get("capacity")
        used: Any = written.get("used")
        version: Any = written.get("version")
        category: Any = written.get("category")
        mode: Any = written.get("mode")
        ids: Any = written.get("groupIds")
        # Workers of former versions do not send these two.
        reserved: Any = written.get("reserved", False)
        share: Any = written.get("sharePercent", NO_LIMIT)
        if not (_is_number(capacity, most=_MAX_SLOTS) and _is_number(used, most=_MAX_SLOTS)):
            return None
        if not (_is_text(version, most=_MAX_VERSION) and _is_text(category, most=MAX_CATEGORY)):
            return None
        if not (isinstance(mode, str) and mode in _MODES):
            return None
        if not isinstance(ids, list) or len(ids) > _MAX_GROUPS:
            return None
        if not all(_is_number(each, most=_MAX_ID) for each in ids):
            return None
        if not isinstance(reserved, bool) or not _is_number(share, most=NO_LIMIT):
            return None
        return cls(
            capacity=capacity,
            used=used,
            version=version,
            category=category,
            mode=WorkerMode(mode),
            group_ids=frozenset(ids),
            is_reserved=reserved,
            share_percent=share,
        )


_MODES: Final = frozenset(mode.value for mode in WorkerMode)


def _is_number(value: Any, *, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= most


def _is_text(value: Any, *, most: int) -> bool:
    return isinstance(value, str) and len(value) <= most


def is_worker_name(name: str) -> bool:
    """Return True for a host, or a host and a port, as a mode may be given to."""
    if not 0 < len(name) <= _MAX_NAME or not name.isprintable() or set(name) & set(" ,/"):
        return False
    host, colon, port = name.rpartition(":")
    if not colon or name.endswith("]"):
        return True
    is_port = port.isascii() and port.isdecimal() and len(port) <= 5 and 0 < int(port) < 65_536
    return bool(host) and is_port and (":" not in host or host.endswith("]"))


def host_of(name: str) -> str:
    """Return the host of an address; a host is its own."""
    host, colon, port = name.rpartition(":")
    return host if colon and port.isdecimal() else name


def mode_of(address: str, modes: Mapping[str, WorkerMode]) -> WorkerMode:
    """Return the mode of the worker at an address: its own, else its host's."""
    own = modes.get(address)
    return modes.get(host_of(address), WorkerMode.ENABLED) if own is None else own


def shunned(addresses: Collection[str], modes: Mapping[str, WorkerMode]) -> dict[str, WorkerMode]:
    """Return those of the addresses whose workers take no tasks, each with its mode."""
    found = {address: mode_of(address, modes) for address in addresses}
    return {each: mode for each, mode in found.items() if mode is not WorkerMode.ENABLED}
