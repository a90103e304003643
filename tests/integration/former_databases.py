"""Databases at earlier revisions, for tests of migrations."""

from __future__ import annotations

from pathlib import Path

from alembic import command as alembic
from alembic.config import Config
from sqlalchemy import Connection

import sql


def bring_to(db: Connection, revision: str) -> None:
    config = Config()
    config.set_main_option("script_location", str(Path(sql.__file__).parent / "migrations"))
    config.attributes |= {"connection": db, "os_user": "tester"}
    alembic.upgrade(config, revision)
