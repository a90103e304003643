"""Logs that grow too long are cut beside the supervisor, which goes on with everything else."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from common.model.states import TaskState
from tests.bounds import step_within
from tests.integration.worker_host import Host, Signpost, wait_until_gone

LIMIT = 100_000
FLOOD = "i=0; while [ $i -lt 20000 ]; do echo line $i; i=$((i+1)); done"


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    host = Host(tmp_path, log_limit_bytes=LIMIT)
    yield host
    host.supervisor.close()


@pytest.fixture
def signpost(tmp_path: Path) -> Iterator[Signpost]:
    signpost = Signpost(tmp_path / "signpost")
    yield signpost
    signpost.close()


def test_the_supervisor_has_a_long_log_cut_and_does_not_wait_for_it(
    host: Host, signpost: Signpost
) -> None:
    gate = Signpost(host.home / "gate")
    host.begin(host.task(1, f"{FLOOD}; echo up > {signpost.path}; read go < {gate.path}"))
    signpost.wait()
    host.supervisor.start(host.task(2, "echo second"))
    step_within(lambda: host.cutter.waits, host.supervisor.run_once, awaited="a log to cut")
    assert len(host.log(1)) > LIMIT
    host.supervisor.kill(1)
    host.supervisor.run_once()
    assert "a kill was asked for" not in host.log(1)
    host.cutter.run_once()
    assert len(host.log(1)) < LIMIT
    host.supervisor.run_once()
    assert host.log(1).count("a kill was asked for") == 1
    assert host.end_of(1).state is TaskState.KILL
    assert host.end_of(2).state is TaskState.SUCCESS
    gate.close()


def test_an_attempt_ends_after_its_log_was_cut(host: Host, signpost: Signpost) -> None:
    host.begin(host.task(1, f"echo $PPID > {signpost.path}; {FLOOD}; echo last; exit 3"))
    step_within(lambda: host.cutter.waits, host.supervisor.run_once, awaited="a log to cut")
    wait_until_gone(int(signpost.wait()))
    for _ in range(3):
        host.supervisor.run_once()
    assert host.ends == {}
    assert host.end_of(1).exit_code == 3
    assert host.log(1).endswith("last\n[orcaflow] exit code 3\n")
    assert len(host.log(1)) < LIMIT


def test_a_log_that_is_closed_before_it_is_cut_cuts_no_other_file(tmp_path: Path) -> None:
    host = Host(tmp_path, log_limit_bytes=10_000)
    first, second = tmp_path / "first", tmp_path / "second"
    for path in (first, second):
        path.write_bytes(b"x" * 20_000)
    log = os.open(first, os.O_RDWR | os.O_APPEND)
    host.cutter.cut(1, log, before=None, done=lambda _: None)
    os.close(log)
    other = os.open(second, os.O_RDWR | os.O_APPEND)
    assert other == log
    host.cutter.run_once()
    assert second.stat().st_size == 20_000
    assert first.stat().st_size < 10_000
    os.close(other)
    host.supervisor.close()
