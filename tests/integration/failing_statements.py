"""Statements that fail, for tests of what is true when a daemon dies between two of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Engine, text


@contextmanager
def failing(made: Engine, operation: str, table: str) -> Iterator[None]:
    """Let every such statement fail, as if the master died at that moment."""
    with made.begin() as db:
        db.execute(
            text(
                "CREATE FUNCTION test_dies() RETURNS trigger LANGUAGE plpgsql AS"
                " $$ BEGIN RAISE EXCEPTION 'dead'; END $$"
            )
        )
        db.execute(
            text(
                f"CREATE TRIGGER test_dies BEFORE {operation} ON {table}"
                " FOR EACH ROW EXECUTE FUNCTION test_dies()"
            )
        )
    try:
        yield
    finally:
        with made.begin() as db:
            db.execute(text("DROP FUNCTION test_dies() CASCADE"))
