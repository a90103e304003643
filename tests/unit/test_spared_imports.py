"""A library that another brings along is left out for that one alone."""

from __future__ import annotations

import sys
from importlib import import_module

import pytest

from common.runtime.spared_imports import absent

NAME = "this"
"""A module that nothing imports, and whose import prints."""


def test_a_library_is_absent_for_a_moment_and_there_afterwards(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delitem(sys.modules, NAME, raising=False)
    with absent(NAME), pytest.raises(ImportError):
        import_module(NAME)
    assert NAME not in sys.modules
    assert import_module(NAME).__name__ == NAME
    assert "Zen" in capsys.readouterr().out


def test_a_library_that_has_been_imported_stays() -> None:
    with absent("pytest"):
        assert import_module("pytest") is pytest
    assert sys.modules["pytest"] is pytest


def test_a_library_is_there_again_after_an_import_that_failed() -> None:
    with pytest.raises(ZeroDivisionError), absent("no_such_library_of_ours"):
        raise ZeroDivisionError
    assert "no_such_library_of_ours" not in sys.modules
