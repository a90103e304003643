"""The embedded PostgreSQL keeps its data, its port and its password through every failure."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import stat
import struct
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import psycopg2
import pytest
from sqlalchemy import create_engine
from sqlalchemy.exc import OperationalError

from common.embedded import postgres_account as accounts
from common.embedded.addresses import (
    OWNER,
    READER,
    SUPERUSER,
    PostgresAddress,
    password_file,
    postgres_address,
    postgres_file,
    record,
)
from common.embedded.postgres import EmbeddedPostgres, _single_user, main
from common.embedded.postgres_reader import restore_reader
from common.errors import ConfigurationError, ServiceUnreachableError
from common.ports import is_port_free


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
    for role in (OWNER, READER, SUPERUSER):
        shutil.copy2(password_file(made_home, role), home)
    shutil.copy2(made_home / "postgres.rights", home)
    accounts.give(home / "postgres", accounts.owner_of(made_home / "postgres"))
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


@contextmanager
def refused(address: PostgresAddress) -> Iterator[Any]:
    """A cursor of somebody who has put the guard against mistakes aside; its user has no right."""
    with closing(psycopg2.connect(address.dsn)) as connection:
        # Some statements refuse a transaction before they look at rights.
        connection.autocommit = True
        with connection.cursor() as cursor:
            cursor.execute("SET default_transaction_read_only = off")
            with pytest.raises(psycopg2.errors.InsufficientPrivilege):
                yield cursor


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


def test_a_server_that_died_is_started_again_and_one_that_was_stopped_is_not(
    server: EmbeddedPostgres,
) -> None:
    first = server.start()
    assert not server.revive()
    os.kill(first.pid, signal.SIGKILL)
    psutil.Process(first.pid).wait()
    assert EmbeddedPostgres(server.home).revive()
    second = postgres_address(server.home)
    assert (second.port, second.pid == first.pid) == (first.port, False)
    os.kill(second.pid, signal.SIGKILL)
    psutil.Process(second.pid).wait()
    server.stop()
    assert not server.revive()


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
    assert query(address.seen_by(SUPERUSER), "SHOW unix_socket_directories") == [("",)]
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


ESCAPES = (
    "SELECT pg_read_file('/etc/passwd')",
    "SELECT pg_ls_dir('/')",
    "CREATE TABLE copied (line text); COPY copied FROM '/etc/passwd'",
    "CREATE TABLE copied_too (line text); COPY copied_too FROM PROGRAM 'id'",
    "COPY (SELECT 1) TO '/tmp/orcaflow-copied'",
    "COPY (SELECT 1) TO PROGRAM 'cat'",
    "SELECT lo_import('/etc/passwd')",
    "SELECT lo_from_bytea(0, 'x')",
    "SELECT rolpassword FROM pg_authid",
    "CREATE FUNCTION run() RETURNS int LANGUAGE c AS 'libc', 'getpid'",
    "CREATE ROLE another SUPERUSER",
    f"ALTER ROLE {OWNER} SUPERUSER",
    f"SET ROLE {SUPERUSER}",
    f"SET SESSION AUTHORIZATION {SUPERUSER}",
    "ALTER SYSTEM SET archive_command = 'id'",
    "CREATE DATABASE another",
)


def test_the_role_of_the_daemons_owns_its_database_and_nothing_of_the_server(
    server: EmbeddedPostgres,
) -> None:
    address = server.start()
    for statement in ESCAPES:
        for role in (OWNER, READER):
            with refused(address.seen_by(role)) as cursor:
                cursor.execute(statement)
    assert query(
        address,
        "SELECT rolsuper, rolcreatedb, rolcreaterole, rolreplication"
        " FROM pg_roles WHERE rolname = current_user",
    ) == [(False,) * 4]
    with pytest.raises(psycopg2.OperationalError, match="permission denied for database"):
        query(replace(address, dbname="postgres"), "SELECT 1")
    query(address, "CREATE TABLE mine (id serial); DROP TABLE mine")


def test_the_reader_reads_what_it_was_given_and_writes_nothing(server: EmbeddedPostgres) -> None:
    address = server.start()
    query(address, "CREATE TABLE given AS SELECT 1 AS id; CREATE TABLE kept AS SELECT 2 AS id")
    query(address, f"GRANT SELECT ON given TO {READER}")
    reader = address.seen_by(READER)
    assert query(reader, "SELECT id FROM given") == [(1,)]
    for statement in (
        "SELECT id FROM kept",
        "INSERT INTO given VALUES (3)",
        "DELETE FROM given",
        "DROP TABLE given",
        "CREATE TABLE theirs (id int)",
        "CREATE TEMPORARY TABLE theirs (id int)",
        "SELECT pg_advisory_lock(1)",
        "SET temp_file_limit = -1",
    ):
        with refused(reader) as cursor:
            cursor.execute(statement)


def test_a_program_on_the_port_that_requests_the_password_in_clear_does_not_get_it(
    server: EmbeddedPostgres,
) -> None:
    address = server.start()
    server.stop()
    received = b""
    with socket.create_server((address.host, address.port)) as listener:
        listener.settimeout(20)
        made = create_engine(address.url)
        with ThreadPoolExecutor(1) as pool:
            refused = pool.submit(made.connect)
            while not refused.done():
                with suppress(OSError), listener.accept()[0] as client:
                    client.settimeout(5)
                    start = client.recv(4096)
                    if start[4:8] == struct.pack(">i", 80877103):
                        client.sendall(b"N")
                        client.recv(4096)
                    client.sendall(b"R" + struct.pack(">ii", 8, 3))  # A password in clear.
                    received += client.recv(4096)
                listener.settimeout(0.5)
            with pytest.raises(OperationalError, match="auth"):
                refused.result()
        made.dispose()
    assert received == b""


def test_a_reader_that_changed_itself_is_restored_by_order_and_by_the_next_start(
    server: EmbeddedPostgres,
) -> None:
    address = server.start()
    reader = address.seen_by(READER)
    for restore in (lambda: restore_reader(address), lambda: (server.stop(), server.start())):
        writing = psycopg2.connect(reader.dsn, options="-c default_transaction_read_only=off")
        with closing(writing), writing, writing.cursor() as cursor:
            cursor.execute(f"ALTER ROLE {READER} SET local_preload_libraries = 'missing'")
            cursor.execute(f"ALTER ROLE {READER} IN DATABASE orcaflow SET timezone = 'Asia/Tokyo'")
            cursor.execute(f"ALTER ROLE {READER} PASSWORD 'theirs'")
        with pytest.raises(psycopg2.OperationalError, match="password authentication failed"):
            query(reader, "SELECT 1")
        restore()
        assert query(reader, "SHOW timezone") == [("UTC",)]
        assert query(reader, "SHOW statement_timeout") == [("5min",)]


def test_data_of_a_former_version_gets_the_rights_of_this_one_at_its_next_start(
    server: EmbeddedPostgres,
) -> None:
    with_name(server, "template1", [f"ALTER ROLE {READER} CONNECTION LIMIT -1"])
    with_name(server, OWNER, ["GRANT EXECUTE ON FUNCTION pg_advisory_lock(bigint) TO PUBLIC"])
    (server.home / "postgres.rights").unlink()
    address = server.start()
    limits = query(address, f"SELECT rolconnlimit FROM pg_roles WHERE rolname = '{READER}'")
    assert limits == [(40,)]
    with refused(address.seen_by(READER)) as cursor:
        cursor.execute("SELECT pg_advisory_lock(1)")
    query(address, "SELECT pg_advisory_lock(1)")


def test_data_of_a_former_version_goes_on_without_a_superuser_and_without_nobody(
    server: EmbeddedPostgres,
) -> None:
    as_formerly(server)
    password = server.password_file.read_text()
    address = server.start()
    assert query(address, "SELECT answer FROM kept") == [(42,)]
    query(address, "INSERT INTO kept VALUES (43); ALTER TABLE kept ADD COLUMN more int")
    query(address, "DROP FUNCTION kept_too(); DROP TABLE kept")
    assert server.password_file.read_text() == password
    assert query(address, "SELECT rolsuper FROM pg_roles WHERE rolname = current_user") == [
        (False,)
    ]
    with pytest.raises(psycopg2.errors.InsufficientPrivilege):
        query(address, "SELECT pg_read_file('/etc/passwd')")
    assert query(address.seen_by(SUPERUSER), "SELECT session_user::text") == [(SUPERUSER,)]
    owners = {each.lstat().st_uid for each in (server.data_dir, *server.data_dir.rglob("*"))}
    (owner,) = owners
    assert not accounts.is_shared(owner)
    assert set(psutil.Process(address.pid).uids()) == {owner}


def as_formerly(server: EmbeddedPostgres) -> None:
    """Make the data what it was when daemons were the superuser and the account was `nobody`."""
    password = server.password_file.read_text().strip().split(":")[-1]
    for statements in (
        [f"DROP DATABASE {OWNER}", "CREATE ROLE renaming SUPERUSER LOGIN"],
        [
            f"DROP OWNED BY {OWNER}",
            f"DROP ROLE {OWNER}",
            f"DROP ROLE {READER}",
            "SET SESSION AUTHORIZATION renaming",
            f"ALTER ROLE {SUPERUSER} RENAME TO {OWNER}",
            f"SET SESSION AUTHORIZATION {OWNER}",
            "DROP ROLE renaming",
            f"ALTER ROLE {OWNER} PASSWORD '{password}'",
            f"CREATE DATABASE {OWNER}",
        ],
    ):
        with_name(server, "template1", statements)
    with_name(
        server,
        OWNER,
        [
            "CREATE TABLE kept (answer serial PRIMARY KEY)",
            "INSERT INTO kept VALUES (42)",
            "CREATE SEQUENCE kept_alone",
            "CREATE FUNCTION kept_too() RETURNS int LANGUAGE sql AS 'SELECT 1'",
        ],
    )
    password_file(server.home, SUPERUSER).unlink()
    password_file(server.home, READER).unlink()
    (server.home / "postgres.rights").unlink()


def with_name(server: EmbeddedPostgres, database: str, statements: list[str]) -> None:
    """Execute statements in the stopped server, as an account that has a name, which then has it."""
    if os.geteuid() == 0:
        owner = accounts.owner_of(server.data_dir)
        accounts.give(server.data_dir, accounts.maker_for(owner))
    _single_user(server.data_dir, database, statements)


def test_work_on_roles_that_was_interrupted_is_done_again(server: EmbeddedPostgres) -> None:
    server.password_file.unlink()
    (server.home / "postgres.workshop").mkdir(mode=0o700)
    server.data_dir.rename(server.home / "postgres.workshop" / "data")
    assert query(server.start(), "SELECT 1") == [(1,)]
    assert not (server.home / "postgres.workshop").exists()


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
    for role in (OWNER, READER, SUPERUSER):
        shutil.copy2(password_file(server.home, role), other.home)
    shutil.copy2(server.home / "postgres.rights", other.home)
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
