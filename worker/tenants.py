"""Finds the operating-system account that a task runs as, and the folder of its data.

In `single` mode that is the daemon's own account for every task, and tenants only name a queue. In
`tenant` mode it is the account that the tenant's code names: it must exist already and be an
ordinary one. What can't be had is an error and never a reason to run as somebody else (X18).
"""

from __future__ import annotations

import os
import pwd
from pathlib import Path

from common.errors import ConfigurationError
from common.tenant_accounts import AccountRules, entry_of, is_code
from worker.launching.base import TaskParameterError
from worker.spark.host import folders
from worker.workspace import Account, may_write

_TENANTS = "tenants"


def account_of(code: str | None, rules: AccountRules) -> Account:
    """Return the account of a tenant; `TaskParameterError` if it is missing or unfit."""
    if not code:
        raise TaskParameterError(
            "the process lacks a tenant to run as (worker.tenant_mode is tenant)"
        )
    if not is_code(code):
        raise TaskParameterError(f"tenant {code[:40]!r} is not the name of an account")
    entry = entry_of(code)
    if entry is None:
        raise TaskParameterError(f"tenant {code}: this worker's host lacks the account")
    reason = rules.unfit(entry)
    if reason is not None:
        raise TaskParameterError(f"tenant {code}: {reason}; use another account for tasks")
    return _account(entry)


def check_mode(tenant_mode: str) -> None:
    """Raise `ConfigurationError` if the worker has to run tasks as other accounts but can't."""
    if tenant_mode == "tenant" and os.geteuid() != 0:
        raise ConfigurationError(
            "worker.tenant_mode is tenant, which needs a worker that root runs: no other account"
            " can run tasks as their tenants; start it as root, or set worker.tenant_mode to single"
        )


def data_of(shared: Path, account: Account | None) -> Path:
    """Return the folder for the data of an account's tasks: the shared one if it may write there.

    Otherwise it is one of its own, as by `own_data`.
    """
    if account is None:
        return shared
    try:
        is_shared = may_write(account, shared.stat())
    except FileNotFoundError:
        is_shared = False
    return shared if is_shared else own_data(shared, account)


def own_data(shared: Path, account: Account) -> Path:
    """Return an account's own folder below that of shared data, made if it is not there.

    Raises `OSError` if it can't be made, or if somebody else has made what has its name.
    """
    open_own_data(shared)
    folder = shared / _TENANTS / account.name
    folders.make_folder(folder, folders.PRIVATE, account)
    return folder


def open_own_data(shared: Path) -> None:
    """Have the way to the folders that `own_data` returns. Raises `OSError` as that does."""
    # Others may be allowed to write in the folder of data.
    folders.check_own(shared / _TENANTS)
    folders.open_to_others(shared / _TENANTS)


def account_with(uid: int) -> Account | None:
    """Return the account of this id; None if there is none any more."""
    try:
        return _account(pwd.getpwuid(uid))
    except KeyError:
        return None


def banner(tenant_mode: str, minimum_uid: int) -> str:
    """Return the line that a worker logs at its start about the accounts of its tasks."""
    if tenant_mode == "single":
        own = pwd.getpwuid(os.geteuid()).pw_name
        return f"tasks run as {own}, whatever their tenant: they are not isolated from each other"
    return f"tasks run as their tenants' accounts (uid {minimum_uid} or more)"


def _account(entry: pwd.struct_passwd) -> Account:
    return Account(
        name=entry.pw_name,
        uid=entry.pw_uid,
        gid=entry.pw_gid,
        groups=tuple(os.getgrouplist(entry.pw_name, entry.pw_gid)),
        home=entry.pw_dir,
    )
