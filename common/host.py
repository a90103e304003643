"""The load and memory of this computer, as the daemons see them: the door to psutil."""

from __future__ import annotations

import os
from dataclasses import dataclass

import psutil

_GIB = 1024**3


@dataclass(frozen=True, slots=True, kw_only=True)
class HostLoad:
    """The figures of one heartbeat, defined as in contract §4.3."""

    cpu_usage: float
    """Share of all cores that was busy since the last reading, 0 … 1."""
    memory_usage: float
    """(total − available − swap used) / total, 0 … 1."""
    load_average: float
    """Processes that wanted a core, averaged over the last minute."""
    available_memory_gb: float
    """Available memory and used swap, in GiB: what the admission check compares."""


def host_load() -> HostLoad:
    """The load now; the first reading in a process has no CPU history and says 0.0 for it."""
    memory = psutil.virtual_memory()
    swap_used = psutil.swap_memory().used
    usage = (memory.total - memory.available - swap_used) / memory.total
    return HostLoad(
        cpu_usage=psutil.cpu_percent(interval=None) / 100.0,
        # Much swap in use would make the contract's formula negative.
        memory_usage=min(1.0, max(0.0, usage)),
        load_average=os.getloadavg()[0],
        available_memory_gb=(memory.available + swap_used) / _GIB,
    )


def own_rss_bytes() -> int:
    """Resident memory of this process."""
    return int(psutil.Process().memory_info().rss)
