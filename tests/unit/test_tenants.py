"""The accounts that tenants may name, and the folders of their data."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from worker.launching.base import TaskParameterError
from worker.tenants import account_of, banner, data_of
from worker.workspace import Account

ALICE = Account(name="alice", uid=54_321, gid=54_321, groups=(54_321, 54_400), home="/")


def test_t86_a_tenant_must_be_an_ordinary_account() -> None:
    for code in ("root", "", "a;b", "A", "x" * 40):
        with pytest.raises(TaskParameterError, match="tenant"):
            account_of(code)
    assert "not isolated" in banner("single")


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
