"""Repair of the reading role of a running embedded PostgreSQL.

Tasks that use the data source `own` connect as this role, and PostgreSQL lets every role change its
own password and the defaults of its sessions. One task could thus lock out all others.
"""

from __future__ import annotations

from contextlib import closing

import psycopg2

from common.embedded.addresses import AUTHENTICATION, READER, SUPERUSER, PostgresAddress
from common.embedded.postgres_roles import restoring_reader
from common.errors import ServiceUnreachableError


def restore_reader(address: PostgresAddress) -> None:
    """Give the reading role its recorded password and its default settings again.

    All statements are one transaction. Sessions that are open continue. `ServiceUnreachableError`
    if the server does not answer or a password file can't be read.
    """
    password = address.seen_by(READER).password()
    superuser = address.seen_by(SUPERUSER)
    superuser.password()  # libpq would ignore a file that can't be read.
    try:
        connection = psycopg2.connect(
            f"{superuser.dsn} require_auth={AUTHENTICATION}", connect_timeout=10
        )
        with closing(connection), connection, connection.cursor() as cursor:
            for statement in restoring_reader(password):
                cursor.execute(statement)
    except psycopg2.Error as error:
        # The texts of errors may repeat a statement, which holds the password.
        raise ServiceUnreachableError(
            f"the role {READER} of the embedded PostgreSQL can't be repaired"
            f" ({type(error).__name__}); restart the server"
        ) from None
