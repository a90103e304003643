"""The reader of a database reads its tables, and neither secrets nor anything that it could change."""

from __future__ import annotations

from dataclasses import replace

import psycopg2
import pytest
from psycopg2.extensions import quote_ident
from sqlalchemy import make_url

from common.embedded.addresses import READER, PostgresAddress
from common.store.reading import secret_columns
from common.store.tables import metadata

SECRETS = {
    ("t_ds_access_token", "token"),
    ("t_ds_datasource", "connection_params"),
    ("t_ds_user", "user_password"),
}


def test_what_is_secret_is_known() -> None:
    found = {(each.name, name) for each in metadata.sorted_tables for name in secret_columns(each)}
    assert found >= SECRETS


def test_an_upgrade_lets_the_reader_read_all_tables_and_change_none(
    migrated_url: str, postgres: PostgresAddress
) -> None:
    name = make_url(migrated_url).database or ""
    connection = psycopg2.connect(replace(postgres.seen_by(READER), dbname=name).dsn)
    connection.autocommit = True
    with connection.cursor() as cursor:
        cursor.execute("SET default_transaction_read_only = off")
        for table in metadata.sorted_tables:
            plain = [
                quote_ident(each.name, connection)
                for each in table.columns
                if each.name not in secret_columns(table)
            ]
            cursor.execute(f"SELECT {', '.join(plain)} FROM {table.name}")
            refused = [f"DELETE FROM {table.name}", f"INSERT INTO {table.name} DEFAULT VALUES"]
            refused += [f"SELECT {each} FROM {table.name}" for each in secret_columns(table)]
            for statement in refused:
                with pytest.raises(psycopg2.errors.InsufficientPrivilege):
                    cursor.execute(statement)
    connection.close()
