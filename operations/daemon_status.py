"""The values that `start` and `status` report for a daemon or an embedded server."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class DaemonStatus:
    """One daemon as it is.

    `state`: ready, degraded (it waits for a server), not ready, not answering, dead (its process is
    gone).
    """

    name: str
    host: str
    port: int | None
    pid: int | None
    incarnation: int | None
    state: str
    since: datetime | None
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """A daemon that is ready; `already` if it was running before the call."""

    name: str
    host: str
    port: int
    pid: int
    already: bool
