"""The daemon's end of a Spark host, with real hosts: started once, followed, started again."""

from __future__ import annotations

import logging
import stat
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from common.spark_config import SparkConfig
from tests.integration.spark_host import (
    a_loop,
    a_profile,
    command,
    kill,
    listener,
    lives,
    processes,
    until,
)
from worker.loops.host_loop import HostLoop

CONFIG = SparkConfig(profiles={"default": a_profile()})
IDLE = timedelta(seconds=1)


@pytest.fixture
def loops(tmp_path: Path) -> Iterator[Callable[..., HostLoop]]:
    """Makes loops of the same home; no host of it outlives the test."""
    made: list[HostLoop] = []

    def make(config: SparkConfig = CONFIG, **changes: Any) -> HostLoop:
        made.append(a_loop(tmp_path, config, **changes))
        return made[-1]

    yield make
    for each in made:
        each.close()
    for pid in hosts(tmp_path):
        kill(pid)
    until(lambda: hosts(tmp_path) == [])


def hosts(home: Path) -> list[int]:
    """All the hosts of a home, and what they have forked."""
    return [pid for pid in processes() if f"worker.spark.host --home {home} " in command(pid)]


def followed(loop: HostLoop) -> int:
    """Run until a host is followed; its pid."""
    until(lambda: loop.run_once() == IDLE)
    return listener(loop.address)


def test_no_host_is_started_before_somebody_wants_one(
    loops: Callable[..., HostLoop], tmp_path: Path
) -> None:
    loop = loops()
    assert loop.run_once() == IDLE
    assert hosts(tmp_path) == []


def test_an_intent_wakes_the_loop_and_starts_one_host(
    loops: Callable[..., HostLoop], tmp_path: Path
) -> None:
    woken: list[bool] = []
    loop = loops(wake=lambda: woken.append(True))
    loop.want()
    assert woken == [True]
    assert loop.run_once() < IDLE
    pid = followed(loop)
    loop.want()
    assert loop.run_once() == IDLE
    assert woken == [True]
    assert hosts(tmp_path) == [pid]


def test_a_profile_to_be_warm_ahead_starts_a_host_and_a_server(
    loops: Callable[..., HostLoop], tmp_path: Path
) -> None:
    followed(loops(SparkConfig(profiles={"default": a_profile()}, prewarm="default")))
    until(lambda: list(tmp_path.glob("run/*/server-1/server.properties")))


def test_a_host_at_work_is_followed_by_the_next_daemon(
    loops: Callable[..., HostLoop], tmp_path: Path
) -> None:
    first = loops()
    first.want()
    pid = followed(first)
    first.close()
    # Nobody has asked this one for anything.
    assert followed(loops()) == pid
    assert hosts(tmp_path) == [pid]


def test_after_a_host_has_died_another_is_started(
    loops: Callable[..., HostLoop], caplog: pytest.LogCaptureFixture
) -> None:
    loop = loops()
    loop.want()
    pid = followed(loop)
    kill(pid)
    until(lambda: not lives(pid))
    with caplog.at_level(logging.WARNING):
        assert followed(loop) != pid
    assert [each.message for each in caplog.records] == ["spark host is gone"]


def test_two_daemons_that_start_at_the_same_time_have_one_host(
    loops: Callable[..., HostLoop], tmp_path: Path
) -> None:
    one, other = loops(), loops()
    for each in (one, other):
        each.want()
        each.run_once()
    pid = followed(one)
    until(lambda: hosts(tmp_path) == [pid])
    assert followed(other) == pid


def test_a_host_that_cannot_start_is_reported_with_what_it_said_and_tried_again_later(
    loops: Callable[..., HostLoop], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    bad = tmp_path / "python"
    bad.write_text("#!/bin/sh\necho 'No module named pyspark' >&2\nexit 1\n")
    bad.chmod(0o755)
    loop = loops(python=str(bad))
    loop.want()
    with caplog.at_level(logging.WARNING):
        until(lambda: loop.run_once() > IDLE)
    (record,) = caplog.records
    assert record.message == "spark host did not start"
    assert (vars(record)["exit_code"], vars(record)["said"]) == (1, "No module named pyspark")


def test_an_interpreter_that_is_not_there_harms_no_daemon(
    loops: Callable[..., HostLoop], caplog: pytest.LogCaptureFixture
) -> None:
    loop = loops(python="/no/such/python")
    loop.want()
    with caplog.at_level(logging.WARNING):
        assert loop.run_once() > IDLE
    assert "spark host could not be started" in caplog.text


def test_a_host_ends_when_it_is_told_to(loops: Callable[..., HostLoop], tmp_path: Path) -> None:
    loop = loops()
    loop.want()
    followed(loop)
    loop.stop_host()
    until(lambda: hosts(tmp_path) == [])


def test_a_daemon_that_comes_while_its_host_is_ending_gets_another(
    loops: Callable[..., HostLoop], tmp_path: Path
) -> None:
    first, second = loops(), loops()
    first.want()
    pid = followed(first)
    first.stop_host()
    second.want()
    until(lambda: not Path(first.address).exists())
    assert followed(second) != pid
    until(lambda: not lives(pid))


@pytest.mark.parametrize(("for_tenants", "mode"), [(False, 0o600), (True, 0o666)])
def test_a_host_listens_to_its_own_account_unless_tenants_have_tasks(
    loops: Callable[..., HostLoop], for_tenants: bool, mode: int
) -> None:
    loop = loops(for_tenants=for_tenants)
    loop.want()
    followed(loop)
    assert stat.S_IMODE(Path(loop.address).stat().st_mode) == mode
