"""Logs of tasks are read below their folder only, whatever a row says."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from common.errors import NotAllowedError
from operations.task_log import LogMissingError, last_lines, opened_log


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "tasks" / "logs" / "1" / "2" / "3.log"
    path.parent.mkdir(parents=True)
    path.write_text("one\ntwo\nthree\n")
    return path


def test_the_last_lines_are_the_last_lines(tmp_path: Path, log: Path) -> None:
    assert last_lines(tmp_path, str(log), lines=2) == ["two", "three"]
    assert last_lines(tmp_path, str(log), lines=0) == []
    assert last_lines(tmp_path, str(log), lines=99) == ["one", "two", "three"]


def test_a_log_goes_on_to_be_read_where_it_grows(tmp_path: Path, log: Path) -> None:
    with opened_log(tmp_path, str(log)) as opened:
        assert opened.read() == "one\ntwo\nthree\n"
        assert opened.read() == ""
        with log.open("ab") as writer:
            writer.write("fünf".encode()[:2])
            writer.flush()
            assert opened.read() == "f"
            writer.write("fünf".encode()[2:])
        assert opened.read() == "ünf"


@pytest.mark.parametrize(
    "hostile",
    [
        "/etc/passwd",
        "../../../../etc/passwd",
        "{root}/../../secret",
        "{root}/1/../../../secret",
        "{root}",
        "{root}/1/2/3.log\0.txt",
        "%2e%2e%2fsecret",
    ],
)
def test_a_path_outside_is_refused(tmp_path: Path, log: Path, hostile: str) -> None:
    (tmp_path / "secret").write_text("secret")
    path = hostile.replace("{root}", str(tmp_path / "tasks" / "logs"))
    with pytest.raises(NotAllowedError, match="is not below"):
        last_lines(tmp_path, path, lines=5)


def test_a_link_is_not_followed(tmp_path: Path, log: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("secret")
    log.unlink()
    log.symlink_to(secret)
    with pytest.raises(NotAllowedError, match="can't be read"):
        last_lines(tmp_path, str(log), lines=5)


def test_a_link_on_the_way_is_not_followed_either(tmp_path: Path, log: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "3.log").write_text("secret")
    link = log.parent.parent / "link"
    link.symlink_to(outside)
    with pytest.raises(NotAllowedError, match="can't be read"):
        last_lines(tmp_path, str(link / "3.log"), lines=5)


def test_a_pipe_is_refused_at_once(tmp_path: Path, log: Path) -> None:
    log.unlink()
    os.mkfifo(log)
    with pytest.raises(NotAllowedError, match="not an ordinary file"):
        last_lines(tmp_path, str(log), lines=5)


def test_a_log_that_is_not_here_says_where_it_is(tmp_path: Path, log: Path) -> None:
    with pytest.raises(LogMissingError, match="on the host that ran the task"):
        last_lines(tmp_path, str(log.with_name("4.log")), lines=5)
    with pytest.raises(LogMissingError, match="no worker has started it"):
        last_lines(tmp_path, None, lines=5)
