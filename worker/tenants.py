"""Finds the operating-system account that a task runs as, and the folder of its data.

In `single` mode that is the daemon's own account for every task, and tenants only name a queue. In
`tenant` mode it is the account that the tenant's code names: it must exist already and be an
ordinary one. What can't be had is an error and never a reason to run as somebody else (X18).
"""

from __future__ import annotations

import os
import pwd
import re
from pathlib import Path

from worker.launching.base import TaskParameterError
from worker.spark.host import folders
from worker.workspace import Account, may_write

_CODE = re.compile(r"[a-z_][a-z0-9_-]{0,31}")
_FIRST_ORDINARY_UID = 1000
_TENANTS = "tenants"


def account_of(code: str | None) -> Account | None:
    """The account of a tenant; None if the daemon runs as that account itself."""
    if not code:
        raise TaskParameterError(
            "the process has no tenant to run as (worker.tenant_mode is tenant)"
        )
    if not _CODE.fullmatch(code):
        raise TaskParameterError(f"tenant {code[:40]!r} is no name of an account")
    try:
        entry = pwd.getpwnam(code)
    except KeyError as error:
        raise TaskParameterError(
            f"tenant {code}: there is no such account on this worker"
        ) from error
    if entry.pw_uid < _FIRST_ORDINARY_UID:
        raise TaskParameterError(f"tenant {code}: uid {entry.pw_uid} is a system account")
    if entry.pw_uid == os.geteuid():
        return None
    if os.geteuid() != 0:
        raise TaskParameterError(
            f"tenant {code}: this worker is not run by root, so it can't run tasks as others"
        )
    return _account(entry)


def refuse_owner_of(servers_data: Path, account: Account) -> None:
    """Raise `TaskParameterError` if the embedded server's files belong to this account.

    Its tasks could read and change all that the tables hold.
    """
    try:
        owner = servers_data.lstat().st_uid
    except OSError:
        return
    if owner == account.uid:
        raise TaskParameterError(
            f"tenant {account.name}: {servers_data} belongs to this account, so its tasks could"
            " read the whole database; use another account for tasks"
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


def banner(tenant_mode: str) -> str:
    """Return the line that a worker logs at its start about the accounts of its tasks."""
    own = pwd.getpwuid(os.geteuid()).pw_name
    if tenant_mode == "single":
        return f"tasks run as {own}, whatever their tenant: they are not isolated from each other"
    if os.geteuid() == 0:
        return f"tasks run as their tenants' accounts (uid {_FIRST_ORDINARY_UID} or more)"
    return f"only tasks of tenant {own} can run: the worker is not run by root"


def _account(entry: pwd.struct_passwd) -> Account:
    return Account(
        name=entry.pw_name,
        uid=entry.pw_uid,
        gid=entry.pw_gid,
        groups=tuple(os.getgrouplist(entry.pw_name, entry.pw_gid)),
        home=entry.pw_dir,
    )
