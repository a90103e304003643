"""The worker's loop that removes directories while nothing else is urgent."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from worker.loops.clean_loop import CleanLoop


def a_directory(tmp_path: Path, name: str) -> Path:
    path = tmp_path / "1" / "2" / name
    path.mkdir(parents=True)
    (path / "file").touch()
    return path


def test_directories_are_gathered_before_they_are_removed(tmp_path: Path) -> None:
    woken: list[bool] = []
    loop = CleanLoop(wake=lambda: woken.append(True))
    first, second = a_directory(tmp_path, "3"), a_directory(tmp_path, "4")
    loop.remove(first)
    rest = loop.run_once()
    loop.remove(second)
    # The second one has not cut short the rest that the first one began.
    assert woken == [True]
    assert timedelta() < rest <= timedelta(seconds=2)
    assert first.exists()
    loop.run_once()
    assert not first.exists()
    assert not second.exists()


def test_the_folders_of_a_run_go_with_its_last_directory(tmp_path: Path) -> None:
    loop = CleanLoop()
    loop.remove(a_directory(tmp_path, "3"))
    loop.remove_all()
    assert list(tmp_path.iterdir()) == []


def test_one_that_can_not_be_removed_does_not_keep_the_others(tmp_path: Path) -> None:
    loop = CleanLoop()
    good = a_directory(tmp_path, "3")
    loop.remove(Path("/proc/1/nothing"))
    loop.remove(good)
    loop.remove_all()
    assert not good.exists()
