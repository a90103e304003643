"""Rules for the accounts of tenants, checked when a tenant is saved and when a task is launched.

A tenant's code is the name of an operating-system account. In mode `tenant` its tasks run as that
account. It must be an ordinary account: neither root under any name, nor a system account, nor an
account that can read private files of Orcaflow's daemons and embedded servers (X18).

The check on the worker's host decides. The host of an api-server may lack the account; `entry_of`
then returns None, and callers skip the check or warn. This module changes no accounts or processes.
"""

from __future__ import annotations

import pwd
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from common.config import Config

_CODE: Final = re.compile(r"[a-z_][a-z0-9_-]{0,31}")
_EMBEDDED: Final = {"postgres": "the embedded PostgreSQL", "zookeeper": "the embedded ZooKeeper"}


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountRules:
    """The rules of one installation. `daemon_uid` is None if the caller is not a worker."""

    home: Path
    minimum_uid: int
    daemon_uid: int | None = None

    def unfit(self, entry: pwd.struct_passwd) -> str | None:
        """Return the reason why tasks must not run as this account; None if they may."""
        return self.unfit_uid(entry.pw_uid)

    def unfit_uid(self, uid: int) -> str | None:
        """Return the reason why tasks must not have this uid; None if they may."""
        if uid == 0:
            return "uid 0 is root"
        if uid < self.minimum_uid:
            return f"uid {uid} is a system account (worker.tenant_min_uid is {self.minimum_uid})"
        if uid == self.daemon_uid:
            return "the daemon itself runs as this account"
        for place, owner in self._reserved():
            if _owner(place) == uid:
                return f"{place} belongs to this account, so its tasks could read {owner}"
        return None

    def _reserved(self) -> Iterator[tuple[Path, str]]:
        yield self.home, "the passwords of the daemons"
        for folder, server in _EMBEDDED.items():
            yield self.home / folder, f"everything that {server} stores"


def rules_at_save(config: Config) -> AccountRules | None:
    """Return the rules for saving tenants; None in mode `single`, which does not use accounts."""
    worker = config.worker
    if worker.tenant_mode == "single":
        return None
    return AccountRules(home=config.home, minimum_uid=worker.tenant_min_uid)


def is_code(code: str) -> bool:
    """Return True if a tenant may have this code: a portable account name."""
    return _CODE.fullmatch(code) is not None


def entry_of(code: str) -> pwd.struct_passwd | None:
    """Return the entry of a tenant's account; None if it does not exist on this host."""
    if not is_code(code):
        return None
    try:
        return pwd.getpwnam(code)
    except KeyError:
        return None


def _owner(place: Path) -> int | None:
    try:
        return place.lstat().st_uid
    except OSError:
        return None
