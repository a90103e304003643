"""The accounts that tenants may name, and the folders of their data."""

from __future__ import annotations

import os
import pwd
from pathlib import Path

import pytest

from common.errors import ConfigurationError
from common.tenant_accounts import AccountRules
from worker.launching.base import TaskParameterError
from worker.tenants import account_of, banner, check_mode, data_of
from worker.workspace import Account

ALICE = Account(name="alice", uid=54_321, gid=54_321, groups=(54_321, 54_400), home="/")


def an_entry(uid: int) -> pwd.struct_passwd:
    return pwd.struct_passwd(("etl", "x", uid, 54_321, "", "/", "/bin/sh"))


def some_rules(home: Path, *, minimum_uid: int = 1000, daemon_uid: int = 0) -> AccountRules:
    return AccountRules(home=home, minimum_uid=minimum_uid, daemon_uid=daemon_uid)


def test_t86_a_tenant_must_be_an_ordinary_account(tmp_path: Path) -> None:
    for code in ("root", "", None, "a;b", "A", "x" * 40, "-u", "a b", "etl\n", "no_such_account"):
        with pytest.raises(TaskParameterError, match="tenant"):
            account_of(code, some_rules(tmp_path))
    assert "not isolated" in banner("single", 1000)
    assert "uid 2000 or more" in banner("tenant", 2000)


@pytest.mark.parametrize(
    ("uid", "reason"),
    [(0, "root"), (999, "system account"), (4_000, "the daemon itself"), (5_000, None)],
)
def test_an_account_is_unfit_if_it_is_privileged_or_the_daemons_x50(
    tmp_path: Path, uid: int, reason: str | None
) -> None:
    rules = some_rules(tmp_path / "home", daemon_uid=4_000)
    assert_unfit(rules.unfit(an_entry(uid)), reason)


def test_the_least_uid_of_tenants_is_a_setting_x50(tmp_path: Path) -> None:
    assert_unfit(some_rules(tmp_path, minimum_uid=500).unfit(an_entry(500)), None)
    assert_unfit(
        some_rules(tmp_path, minimum_uid=501).unfit(an_entry(500)), "tenant_min_uid is 501"
    )
    # An account with the uid of root is refused under every setting.
    assert_unfit(some_rules(tmp_path, minimum_uid=0).unfit(an_entry(0)), "root")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give folders to other accounts")
@pytest.mark.parametrize("folder", [".", "postgres", "zookeeper"])
def test_the_owner_of_a_servers_files_is_unfit_x50(tmp_path: Path, folder: str) -> None:
    home = tmp_path / "home"
    rules = some_rules(home)
    for each in ("postgres", "zookeeper"):
        (home / each).mkdir(parents=True)
    assert_unfit(rules.unfit(an_entry(5_000)), None)
    os.chown(home / folder, 5_000, 5_000)
    assert_unfit(rules.unfit(an_entry(5_000)), "belongs to this account")


def test_a_worker_of_an_ordinary_account_does_not_start_in_mode_tenant_x50(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 5_000)
    check_mode("single")
    with pytest.raises(ConfigurationError, match="worker that root runs"):
        check_mode("tenant")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    check_mode("tenant")


def assert_unfit(found: str | None, reason: str | None) -> None:
    """Check that an account is unfit for a reason; without a reason, that it is fit."""
    assert (found is None) == (reason is None), found
    assert (reason or "") in (found or "")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give folders to other accounts")
@pytest.mark.parametrize(
    ("mode", "group", "shares"),
    [
        (0o711, 0, False),
        (0o755, 0, False),
        (0o1777, 0, True),
        (0o2770, 54_400, True),
        (0o2750, 54_400, False),
        (0o702, 0, False),
    ],
)
def test_a_tenant_has_data_of_its_own_unless_it_may_write_the_shared_ones(
    tmp_path: Path, mode: int, group: int, shares: bool
) -> None:
    shared = tmp_path / "data"
    shared.mkdir()
    os.chown(shared, 0, group)
    shared.chmod(mode)
    assert data_of(shared, None) == shared
    found = data_of(shared, ALICE)
    assert found == (shared if shares else shared / "tenants" / "alice")
    if not shares:
        about = found.stat()
        assert (about.st_uid, about.st_mode & 0o777) == (ALICE.uid, 0o700)
        assert found.parent.stat().st_mode & 0o777 == 0o711
