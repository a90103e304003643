"""PgBouncer in front of the tests' PostgreSQL.

Without the program the tests are skipped and say so in one line; with `ORCAFLOW_PGBOUNCER=required`
they fail instead.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest
from sqlalchemy import make_url

from common.embedded.addresses import PostgresAddress
from common.ports import LOOPBACK, free_port

_IS_REQUIRED: Final = os.environ.get("ORCAFLOW_PGBOUNCER") == "required"
_SETTINGS: Final = """
[databases]
{database} = host={host} port={server}
[pgbouncer]
listen_addr = {loopback}
listen_port = {port}
unix_socket_dir =
auth_type = scram-sha-256
auth_file = {users}
pool_mode = {mode}
ignore_startup_parameters = {ignored}
"""


@contextmanager
def pgbouncer(
    postgres: PostgresAddress, url: str, folder: Path, *, mode: str, ignored: str = "options"
) -> Iterator[str]:
    """Run PgBouncer in a pool mode; return the URL of the same database through it."""
    program = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")
    if program is None:
        why = "no PgBouncer, so nothing is tested behind one; apt-get install pgbouncer"
        assert not _IS_REQUIRED, why
        pytest.skip(why)
    address, port = make_url(url), free_port()
    users, settings = folder / "users.txt", folder / "pgbouncer.ini"
    users.write_text(f'"{postgres.user}" "{postgres.password()}"\n')
    settings.write_text(
        _SETTINGS.format(
            database=address.database,
            host=postgres.host,
            server=postgres.port,
            loopback=LOOPBACK,
            port=port,
            users=users,
            mode=mode,
            ignored=ignored,
        )
    )
    # It refuses to run as root, and reads its files before it changes its account.
    account = ["-u", "nobody"] if os.geteuid() == 0 else []
    command = [program, *account, str(settings)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
        try:
            assert server.stderr is not None
            said = []
            for line in server.stderr:
                said.append(line)
                if "process up" in line:
                    break
            else:
                pytest.fail("".join(said))
            yield address.set(host=LOOPBACK, port=port).render_as_string(hide_password=False)
        finally:
            server.kill()
