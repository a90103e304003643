"""The process of one daemon: it is started and let begin, its end is awaited, its start is told."""

from __future__ import annotations

import os
import select
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import IO, TypeAlias

from common.process_identity import process_start_time
from common.runtime.held import GO
from operations.installation import packages_root

Spawn: TypeAlias = Callable[
    [Sequence[str], Mapping[str, str], IO[bytes]], "subprocess.Popen[bytes]"
]
"""Starts a command with this environment and output; its standard input is a pipe."""


def spawned(
    command: Sequence[str], environment: Mapping[str, str], output: IO[bytes]
) -> subprocess.Popen[bytes]:
    """Start a daemon, detached in a session of its own."""
    return subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=output,
        stderr=output,
        # Where the packages are, which is what `-m` looks in first.
        cwd=packages_root(),
        env=environment,
        start_new_session=True,
    )


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
