"""The accounts that tenants may name."""

from __future__ import annotations

import pytest

from worker.launching.base import TaskParameterError
from worker.tenants import account_of, banner


def test_t86_a_tenant_must_be_an_ordinary_account() -> None:
    for code in ("root", "", "a;b", "A", "x" * 40):
        with pytest.raises(TaskParameterError, match="tenant"):
            account_of(code)
    assert "not isolated" in banner("single")
