"""A home's PostgreSQL with the schema in it, made once a session and copied for each private cluster.

To copy takes a tenth of the time of initdb and all migrations, which `test_daemons`, `test_end_to_end`
and `test_documents` go through as an operator does. The copies sync nothing to disk: the tests kill
processes and never the computer.
"""

from __future__ import annotations

import fcntl
import getpass
import os
import shutil
from pathlib import Path

from common.embedded import postgres_account as accounts
from common.embedded.postgres import EmbeddedPostgres
from common.store import schema
from common.store.connect import engine
from tests.light_postgres import lighten


def furnish(home: Path, made: Path) -> None:
    """Give a new home a copy of what stands in `made`, which the first caller makes."""
    with made.with_name(f"{made.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not made.exists():
            draft = made.with_name(f"{made.name}.draft")
            _make(draft)
            draft.rename(made)
    home.mkdir(exist_ok=True, parents=True)
    data = home / "postgres"
    shutil.copytree(made / "postgres", data)
    if os.geteuid() == 0:
        accounts.give(data, accounts.own_account(home.resolve()))
    for file in made.glob("*.password"):
        shutil.copy2(file, home)


def _make(home: Path) -> None:
    server = EmbeddedPostgres(home)
    address = server.start()
    migrated = engine(address.url)
    schema.upgrade(migrated, os_user=getpass.getuser())
    migrated.dispose()
    lighten(address)
    server.stop()
