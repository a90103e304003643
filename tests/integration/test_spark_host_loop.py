"""The daemon's end of a Spark host, with real hosts: started once, followed, started again."""

from __future__ import annotations

import logging
import os
import socket
import stat
import tempfile
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from common.spark_config import SparkConfig
from tests.integration.spark_accounts import AS_ROOT, a_python, accounts
from tests.integration.spark_host import (
    PORT,
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
from worker.spark.host import folders
from worker.spark.host.loop import Host
from worker.spark.host.proxy_protocol import listening, request_bytes
from worker.spark.jvm.java_command import Command

CONFIG = SparkConfig(profiles={"default": a_profile()})
IDLE = timedelta(seconds=1)


@pytest.fixture
def loops(tmp_path: Path) -> Iterator[Callable[..., HostLoop]]:
    """Makes loops of the same home; no host of it outlives the test."""
    made: list[HostLoop] = []

    def make(config: SparkConfig = CONFIG, *, home: Path = tmp_path, **changes: Any) -> HostLoop:
        made.append(a_loop(home, config, **changes))
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


def test_a_host_listens_to_its_own_account_alone(loops: Callable[..., HostLoop]) -> None:
    loop = loops()
    loop.want()
    followed(loop)
    door = Path(loop.address)
    assert (mode_of(door), mode_of(door.parent)) == (0o600, 0o700)


def test_a_daemon_has_removed_what_a_host_that_was_killed_has_left_behind(
    loops: Callable[..., HostLoop], tmp_path: Path
) -> None:
    left = folders.own_folder(tmp_path, PORT) / "server-7" / "tmp"
    left.mkdir(parents=True)
    (left / "liblz4-java-1.so").touch()
    loop = loops()
    until(lambda: loop.run_once() and not left.parent.exists())
    until(lambda: hosts(tmp_path) == [])


def test_what_a_host_at_work_needs_is_not_removed_by_the_next_daemon(
    loops: Callable[..., HostLoop], tmp_path: Path
) -> None:
    first = loops()
    first.want()
    pid = followed(first)
    kept = folders.own_folder(tmp_path, PORT) / "server-7"
    kept.mkdir()
    first.close()
    assert followed(loops()) == pid
    until(lambda: hosts(tmp_path) == [pid])
    assert kept.exists()


# Hosts of tenants


@pytest.fixture
def open_home() -> Iterator[Path]:
    """A home that other accounts may enter, as `tmp_path` may not be."""
    with tempfile.TemporaryDirectory(prefix="orcaflow-") as home:
        Path(home).chmod(0o755)
        yield Path(home)


@pytest.fixture
def narrow_umask() -> Iterator[None]:
    """An operator's umask that closes all that is made to other accounts."""
    before = os.umask(0o077)
    yield
    os.umask(before)


@pytest.mark.usefixtures("narrow_umask")
def test_a_daemon_for_tenants_lets_them_through_before_it_starts_any_host(
    loops: Callable[..., HostLoop], tmp_path: Path
) -> None:
    own = folders.own_folder(tmp_path, PORT)
    own.mkdir(parents=True)
    loop = loops(for_tenants=True)
    assert (mode_of(own), mode_of(own.parent)) == (0o711, 0o711)
    # A host that starts must not close the way to the others, not even for a moment.
    loop.want()
    loop.run_once()
    assert mode_of(own) == 0o711


@AS_ROOT
def test_a_tenants_host_runs_as_the_tenant_in_a_folder_that_is_whole_from_the_start(
    loops: Callable[..., HostLoop], open_home: Path
) -> None:
    tenant, _ = accounts(open_home)
    loop = loops(home=open_home, for_tenants=True, python=a_python(open_home, tenant))
    loop.want(tenant)
    loop.run_once()
    folder = folders.tenant_folder(folders.own_folder(open_home, PORT), tenant.uid)
    about = folder.stat()
    assert (about.st_uid, about.st_gid, mode_of(folder)) == (tenant.uid, tenant.gid, 0o700)
    until(lambda: loop.run_once() == IDLE)
    address = folders.socket_for(loop.address, tenant)
    pid = listener(address)
    assert Path(f"/proc/{pid}").stat().st_uid == tenant.uid
    assert mode_of(Path(address)) == 0o600
    assert not Path(loop.address).exists()

    # The next daemon finds it at work, though nobody has asked for it.
    loop.close()
    again = loops(home=open_home, for_tenants=True, python=a_python(open_home, tenant))
    assert again.run_once() == IDLE
    again.stop_host()
    until(lambda: not lives(pid))


@AS_ROOT
def test_links_that_a_tenant_has_planted_lead_the_daemon_nowhere(
    loops: Callable[..., HostLoop], open_home: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tenant, _ = accounts(open_home)
    precious = open_home / "precious"
    precious.write_text("all of it")
    folder = folders.tenant_folder(folders.own_folder(open_home, PORT), tenant.uid)
    folder.mkdir(parents=True)
    for name in ("host.out", "host.log", "lock", f"{folder.name}.out"):
        (folder / name).symlink_to(precious)
    (folder / "server-1").symlink_to(open_home)
    with listening(str(open_home / "door"), mode=0o600):
        (folder / folders.SOCKET).symlink_to(open_home / "door")
        # It never gets as far as a host: the tenant's own interpreter is of no use.
        loop = loops(home=open_home, for_tenants=True, python="/bin/false")
        loop.want(tenant)
        with caplog.at_level(logging.WARNING):
            until(lambda: loop.run_once() == IDLE)
    assert "somebody else listens for the spark host" in caplog.text
    assert precious.read_text() == "all of it"
    assert (open_home / "door").exists()


def test_a_tenants_host_ends_without_servers_though_it_is_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("worker.spark.host.loop._LONG_REST", 0.001)
    now = [0.0]

    def clock() -> float:
        now[0] += 1
        return now[0]

    def no_command(*_: object) -> Command:
        raise AssertionError("no server was asked for")

    directory = str(tmp_path / folders.SOCKET)
    host = Host(tmp_path, python="python", command=no_command, ends_idle=True, clock=clock)
    with socket.socket(socket.AF_UNIX) as daemon:
        daemon.connect(directory)
        daemon.sendall(request_bytes("follow", '{"profiles": {}}'))
        host.run()
    assert not Path(directory).exists()


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)
