"""The loop that keeps a warden beside the daemon: another one is started when it is gone."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.integration.worker_host import Signpost, wait_until_gone
from worker.loops.warden_loop import WardenLoop
from worker.warden import GOOD_BYE

_WARDEN = 'echo $$ > "$1"; exec cat > "$2.$$"'
"""A stand-in that tells its pid, and writes down whatever it hears."""
_LONG_SILENT = 70_000
"""More bytes than a pipe holds."""


@pytest.fixture
def signpost(tmp_path: Path) -> Iterator[Signpost]:
    signpost = Signpost(tmp_path / "signpost")
    yield signpost
    signpost.close()


@contextmanager
def a_loop(home: Path, signpost: Signpost, script: str = _WARDEN) -> Iterator[WardenLoop]:
    command = ("/bin/sh", "-c", script, "sh", str(signpost.path), str(home / "heard"))
    environment: Mapping[str, str] = {"PATH": os.defpath}
    loop = WardenLoop(command, directory=home, environment=environment)
    yield loop
    loop.close(nothing_left=True)


def test_a_warden_that_is_gone_has_a_successor_which_hears_of_the_daemon(
    tmp_path: Path, signpost: Signpost
) -> None:
    with a_loop(tmp_path, signpost) as loop:
        loop.run_once()
        first = int(signpost.wait())
        loop.run_once()
        os.kill(first, signal.SIGKILL)
        wait_until_gone(first)
        loop.run_once()
        second = int(signpost.wait())
        assert second != first
    assert (tmp_path / f"heard.{second}").read_bytes() == b"." + GOOD_BYE


def test_a_warden_that_could_not_be_started_is_started_at_a_later_pass(
    tmp_path: Path, signpost: Signpost
) -> None:
    folder = tmp_path / "not there yet"
    with a_loop(folder, signpost, script='echo "$PWD" > "$1"') as loop:
        loop.run_once()
        folder.mkdir()
        loop.run_once()
        assert signpost.wait() == str(folder)


def test_a_warden_that_hears_nothing_holds_the_daemon_up_in_nothing(
    tmp_path: Path, signpost: Signpost
) -> None:
    with a_loop(tmp_path, signpost, script='echo $$ > "$1"; kill -STOP $$') as loop:
        loop.run_once()
        stuck = int(signpost.wait())
        for _ in range(_LONG_SILENT):
            loop.run_once()
        os.kill(stuck, signal.SIGKILL)
