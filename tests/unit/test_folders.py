"""Folders of a home are closed to other accounts, unless somebody chose otherwise."""

from __future__ import annotations

from pathlib import Path

import pytest

from common.folders import PASSABLE, PRIVATE, closed_folder


def mode_of(folder: Path) -> int:
    return folder.stat().st_mode & 0o7777


@pytest.mark.parametrize("mode", [PRIVATE, PASSABLE])
def test_a_new_folder_has_its_mode(tmp_path: Path, mode: int) -> None:
    assert mode_of(closed_folder(tmp_path / "home" / "logs", mode=mode)) == mode


@pytest.mark.parametrize("mode", [PRIVATE, PASSABLE])
@pytest.mark.parametrize("before", [0o755, 0o775, 0o751])
def test_a_folder_of_a_former_version_is_closed(tmp_path: Path, before: int, mode: int) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    folder.chmod(before)
    assert mode_of(closed_folder(folder, mode=mode)) == mode


@pytest.mark.parametrize(("before", "mode"), [(0o750, PRIVATE), (0o1777, PASSABLE)])
def test_a_mode_that_somebody_chose_stays(tmp_path: Path, before: int, mode: int) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    folder.chmod(before)
    assert mode_of(closed_folder(folder, mode=mode)) == before
