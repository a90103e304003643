"""The embedded PostgreSQL keeps its data, its port and its password through every failure."""

from __future__ import annotations

import os
import shutil
import signal
import stat
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import psycopg2
import pytest

from common.embedded.addresses import (
    PostgresAddress,
    postgres_address,
    postgres_file,
    record,
)
from common.embedded.postgres import EmbeddedPostgres, main
from common.embedded.process import is_port_free
from common.errors import ConfigurationError, ServiceUnreachableError


@pytest.fixture(scope="module")
def made_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home whose data was made once; tests work on copies, because making it takes longest."""
    home = tmp_path_factory.mktemp("made")
    server = EmbeddedPostgres(home)
    server.start()
    server.stop()
    return home


@pytest.fixture
def server(made_home: Path, tmp_path: Path) -> Iterator[EmbeddedPostgres]:
    """A stopped server with data of its own."""
    home = tmp_path / "home"
    home.mkdir()
    shutil.copytree(made_home / "postgres", home / "postgres")
    shutil.copy2(made_home / "postgres.password", home)
    owner = (made_home / "postgres").stat()
    for path in [home / "postgres", *(home / "postgres").rglob("*")]:
        os.chown(path, owner.st_uid, owner.st_gid)
    server = EmbeddedPostgres(home)
    yield server
    server.stop(now=True)


def query(address: PostgresAddress, statement: str) -> list[tuple[object, ...]]:
    connection = psycopg2.connect(address.dsn)
    try:
        with connection, connection.cursor() as cursor:
            cursor.execute(statement)
            return list(cursor.fetchall()) if cursor.description else []
    finally:
        connection.close()


def test_data_and_port_are_kept_between_starts(server: EmbeddedPostgres) -> None:
    first = server.start()
    query(first, "CREATE TABLE kept AS SELECT 42 AS answer")
    server.stop()
    assert not server.is_running()
    second = server.start()
    assert query(second, "SELECT answer FROM kept") == [(42,)]
    assert second.port == first.port
    assert second.pid != first.pid


def test_starting_a_running_server_gives_the_same_server(server: EmbeddedPostgres) -> None:
    first = server.start()
    assert EmbeddedPostgres(server.home).start() == first


def test_a_server_that_was_killed_starts_again_with_what_was_committed(
    server: EmbeddedPostgres,
) -> None:
    first = server.start()
    query(first, "CREATE TABLE kept AS SELECT 42 AS answer")
    os.kill(first.pid, signal.SIGKILL)
    psutil.Process(first.pid).wait()
    assert not server.is_running()
    second = server.start()
    assert query(second, "SELECT answer FROM kept") == [(42,)]


def test_only_the_password_lets_anyone_in_and_only_over_loopback(
    server: EmbeddedPostgres,
) -> None:
    address = server.start()
    assert stat.S_IMODE(address.password_file.stat().st_mode) == 0o600
    without_password = replace(address, password_file=Path(os.devnull))
    with pytest.raises(psycopg2.OperationalError, match="no password supplied"):
        query(without_password, "SELECT 1")
    listening = {
        connection.laddr.ip
        for connection in psutil.Process(address.pid).net_connections()
        if connection.status == psutil.CONN_LISTEN
    }
    assert listening == {"127.0.0.1"}
    assert query(address, "SHOW unix_socket_directories") == [("",)]
    assert query(address, "SHOW password_encryption") == [("scram-sha-256",)]


def test_writes_are_durable(server: EmbeddedPostgres) -> None:
    address = server.start()
    assert query(address, "SHOW fsync") == [("on",)]
    assert query(address, "SHOW synchronous_commit") == [("on",)]
    assert query(address, "SHOW full_page_writes") == [("on",)]


def test_a_lost_password_is_replaced_at_the_next_start(server: EmbeddedPostgres) -> None:
    before = server.password_file.read_text()
    server.password_file.unlink()
    address = server.start()
    assert query(address, "SELECT 1") == [(1,)]
    assert server.password_file.read_text() != before


def test_a_pid_file_that_names_a_foreign_process_does_not_hinder_a_start(
    server: EmbeddedPostgres,
) -> None:
    address = server.start()
    pid_file = server.data_dir / "postmaster.pid"
    lines = pid_file.read_text().splitlines(keepends=True)
    os.kill(address.pid, signal.SIGKILL)
    psutil.Process(address.pid).wait()
    pid_file.write_text(f"{os.getpid()}\n" + "".join(lines[1:]))
    assert not server.is_running()
    assert query(server.start(), "SELECT 1") == [(1,)]


def test_a_server_that_is_dead_and_unreaped_does_not_hinder_a_start(
    server: EmbeddedPostgres,
) -> None:
    address = server.start()
    pid_file = server.data_dir / "postmaster.pid"
    lines = pid_file.read_text().splitlines(keepends=True)
    os.kill(address.pid, signal.SIGKILL)
    psutil.Process(address.pid).wait()
    # The start reaps its own dead servers, so another process stands for one that nobody reaps.
    with subprocess.Popen(["true"], stdout=subprocess.PIPE) as dead:
        assert dead.stdout is not None
        dead.stdout.read()
        os.waitid(os.P_PID, dead.pid, os.WEXITED | os.WNOWAIT)
        pid_file.write_text(f"{dead.pid}\n" + "".join(lines[1:]))
        assert not server.is_running()
        assert query(server.start(), "SELECT 1") == [(1,)]


def test_a_port_in_use_is_named_with_the_cure(server: EmbeddedPostgres) -> None:
    address = server.start()
    other = EmbeddedPostgres(server.home.parent / "other", port=address.port)
    shutil.copytree(
        server.home / "postgres", other.data_dir, ignore=shutil.ignore_patterns("*.pid")
    )
    owner = server.data_dir.stat()
    os.chown(other.data_dir, owner.st_uid, owner.st_gid)
    shutil.copy2(server.password_file, other.password_file)
    with pytest.raises(ConfigurationError, match=rf"port {address.port} is in use.*postgres_port"):
        other.start()


def test_a_data_directory_that_is_not_whole_is_refused_untouched(tmp_path: Path) -> None:
    server = EmbeddedPostgres(tmp_path)
    server.data_dir.mkdir()
    (server.data_dir / "something").touch()
    with pytest.raises(ConfigurationError, match="not a whole PostgreSQL directory"):
        server.start()
    assert [path.name for path in server.data_dir.iterdir()] == ["something"]


def test_data_of_another_version_is_refused(server: EmbeddedPostgres) -> None:
    (server.data_dir / "PG_VERSION").write_text("16\n")
    with pytest.raises(ConfigurationError, match="made by PostgreSQL '16', and 18 is installed"):
        server.start()


def test_damaged_data_ends_in_an_error_that_quotes_the_log(server: EmbeddedPostgres) -> None:
    control = server.data_dir / "global" / "pg_control"
    control.write_bytes(b"\0" * control.stat().st_size)
    with pytest.raises(Exception, match=r"ended at once[\s\S]*FATAL"):
        server.start()
    assert not server.is_running()


def test_an_interrupted_making_is_begun_anew(tmp_path: Path) -> None:
    (tmp_path / "postgres.unfinished" / "base").mkdir(parents=True)
    server = EmbeddedPostgres(tmp_path)
    try:
        assert query(server.start(), "SELECT 1") == [(1,)]
        assert not (tmp_path / "postgres.unfinished").exists()
    finally:
        server.stop(now=True)


def test_an_address_is_only_given_while_the_server_runs(server: EmbeddedPostgres) -> None:
    with pytest.raises(ServiceUnreachableError, match="start standalone-server"):
        postgres_address(server.home)
    address = server.start()
    assert postgres_address(server.home) == address
    # The pid was given to another process, which started at another time.
    record(postgres_file(server.home), replace(address, start_time=address.start_time + 1))
    with pytest.raises(ServiceUnreachableError, match="is not running"):
        postgres_address(server.home)


def test_it_is_started_and_stopped_by_hand(
    server: EmbeddedPostgres, capsys: pytest.CaptureFixture[str]
) -> None:
    home = ["--home", str(server.home)]
    assert main(["status", *home]) == 1
    assert main(["start", *home]) == 0
    assert "passfile=" in capsys.readouterr().out
    port = postgres_address(server.home).port
    assert main(["status", *home]) == 0
    assert main(["stop", *home]) == 0
    assert is_port_free(port)
