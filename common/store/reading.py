"""The rights of the role that may only read: on tables, without the columns that hold secrets.

The role is made with the embedded PostgreSQL (`common.embedded.postgres_roles`); elsewhere an
administrator makes it, or none. Parameters of runs are not taken for secrets here: the tables show
them to whoever may read at all.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import Connection, Table, text

from common.masking import is_secret
from common.store import tables

READER: Final = "orcaflow_reader"

_SECRET_COLUMNS: Final = frozenset({"connection_params", "config"})


def allow_reading(db: Connection) -> bool:
    """Let the reader read all tables of the schema; False if there is no such role."""
    if not db.scalar(text("SELECT 1 FROM pg_roles WHERE rolname = :name"), {"name": READER}):
        return False
    schema = db.dialect.identifier_preparer.quote(str(db.scalar(text("SELECT current_schema()"))))
    database = db.dialect.identifier_preparer.quote(
        str(db.scalar(text("SELECT current_database()")))
    )
    grants = [f"GRANT {_readable(each)} ON {each.name} TO {READER}" for each in _tables()]
    db.execute(
        text(
            f"GRANT CONNECT ON DATABASE {database} TO {READER};"
            f" GRANT USAGE ON SCHEMA {schema} TO {READER}; {'; '.join(grants)}"
        )
    )
    return True


def secret_columns(table: Table) -> frozenset[str]:
    """Return the columns that only the owner reads."""
    return frozenset(
        each.name for each in table.columns if each.name in _SECRET_COLUMNS or is_secret(each.name)
    )


def _readable(table: Table) -> str:
    secret = secret_columns(table)
    if not secret:
        return "SELECT"
    return f"SELECT ({', '.join(each.name for each in table.columns if each.name not in secret)})"


def _tables() -> list[Table]:
    return list(tables.metadata.sorted_tables)
