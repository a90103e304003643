"""Programs of several accounts that listen and connect, for tests of the loop that guards ports."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from worker.processes.attempt_processes import MARKER

PROD, DEV, OPS = 61_234, 61_235, 61_236
AS_ACCOUNT = """
import ctypes, encodings.idna, os, resource, socket, sys, threading
account, mark, port, way = sys.argv[1:]
if int(mark):
    resource.setrlimit(10, (int(mark), int(mark)))
if int(account):
    os.setgroups([])
    os.setresgid(*[int(account)] * 3)
    os.setresuid(*[int(account)] * 3)
    ctypes.CDLL(None).prctl(4, 1)  # The program may read its own files in /proc again.
"""
CLIENT = f"""{AS_ACCOUNT}
kept = socket.socket()
kept.setblocking(False)
kept.connect_ex(("127.0.0.1", int(port)))  # Does not end if the queue of the listener is full.
kept.setblocking(True)
exec(way)
print("connected", flush=True)
sys.stdin.read()
"""
"""Connects to a port of the loopback address, executes a text and waits."""


@dataclass(frozen=True, kw_only=True)
class World:
    """A worker whose tasks have run as several accounts, with one Spark host."""

    hosts: frozenset[int] = frozenset()
    accounts: tuple[int, ...] = (PROD, DEV)

    def uids(self) -> tuple[int, ...]:
        return self.accounts

    def facts_files(self) -> dict[int, Path]:
        return {}

    def pids(self) -> frozenset[int]:
        return self.hosts

    def known_accounts(self) -> list[int]:
        return []


@contextmanager
def a_program(
    script: str,
    account: int,
    *,
    port: int = 0,
    way: str = "",
    attempt: Path | None = None,
    mark: int = 0,
) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Run a program as an account; yield it with the first line that it prints."""
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", script, str(account), str(mark), str(port), way],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={} if attempt is None else {MARKER: str(attempt)},
    )
    with process:
        assert process.stdout is not None
        yield process, process.stdout.readline().strip()
