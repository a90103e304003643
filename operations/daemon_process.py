"""The process of one daemon: it is let begin, its end is awaited, its start is told."""

from __future__ import annotations

import os
import select
import subprocess
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

from common.process_identity import process_start_time
from common.runtime.held import GO


def let_begin(process: subprocess.Popen[bytes]) -> None:
    """Let a held daemon begin (`common.runtime.held`)."""
    # One that has ended reads nothing; its end is reported by whoever waits for it.
    if process.stdin is not None:
        with suppress(BrokenPipeError), process.stdin as gate:
            gate.write(GO)


def await_end(pid: int, within: timedelta) -> None:
    """Return when the process has ended, or after this span."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        select.select([descriptor], [], [], within.total_seconds())
    finally:
        os.close(descriptor)


def since(pid: int) -> datetime | None:
    """Return the moment at which the process was started; None if it is gone."""
    started = process_start_time(pid)
    return None if started is None else moment(started)


def moment(seconds_since_boot: float) -> datetime:
    """Return the moment that the kernel counts from its own start."""
    lines = Path("/proc/stat").read_text(encoding="ascii").splitlines()
    booted = next(int(line.split()[1]) for line in lines if line.startswith("btime "))
    return datetime.fromtimestamp(booted + seconds_since_boot, UTC)
