"""Settings for PostgreSQL servers of tests: they sync nothing, and a log-in costs them little.

A password is hashed 4,096 times for each connection, which takes longer than all else that most
connections of tests do. The passwords are long and random, so one time is as safe here.
"""

from __future__ import annotations

from contextlib import closing
from typing import Final

import psycopg2
from psycopg2 import sql

from common.embedded.addresses import OWNER, READER, SUPERUSER, PostgresAddress

UNSYNCED: Final = ("fsync", "full_page_writes")


def lighten(address: PostgresAddress, *off: str) -> None:
    """Give a server that runs these settings, with the named ones off."""
    with closing(psycopg2.connect(address.seen_by(SUPERUSER).dsn)) as connection:
        # A server's settings can't be changed inside a transaction.
        connection.autocommit = True
        with connection.cursor() as cursor:
            for setting in (*UNSYNCED, *off):
                cursor.execute(f"ALTER SYSTEM SET {setting} = off")
            cursor.execute("ALTER SYSTEM SET scram_iterations = 1")
            cursor.execute("SET scram_iterations = 1")
            for role in (OWNER, READER, SUPERUSER):
                cursor.execute(
                    sql.SQL("ALTER ROLE {} PASSWORD {}").format(
                        sql.Identifier(role), sql.Literal(address.seen_by(role).password())
                    )
                )
            cursor.execute("SELECT pg_reload_conf()")
