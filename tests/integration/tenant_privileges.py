"""Privileges of processes as the kernel shows them, and the privileges of a tenant's process."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from worker.workspace import Account

_NAMES: Final = ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs", "Groups")


def privileges(status: str) -> Mapping[str, str]:
    """Return the privileges in the lines of a `/proc/…/status`."""
    pairs = (line.partition(":") for line in status.splitlines())
    return {name: " ".join(value.split()) for name, _, value in pairs if name in _NAMES}


def own_privileges() -> Mapping[str, str]:
    """Return the privileges of this thread."""
    return privileges(Path("/proc/thread-self/status").read_text())


def privileges_of_processes(uid: int) -> Iterator[Mapping[str, str]]:
    """Return the privileges of each process of an account."""
    for status in Path("/proc").glob("[0-9]*/status"):
        with suppress(OSError):  # The process has ended.
            text = status.read_text()
            if f"\nUid:\t{uid}\t" in text:
                yield privileges(text)


def none_but_groups(account: Account) -> Mapping[str, str]:
    """Return the privileges of a tenant's process: only the groups of its account."""
    groups = " ".join(map(str, sorted(account.groups)))
    return {**dict.fromkeys(_NAMES, "0" * 16), "NoNewPrivs": "1", "Groups": groups}
