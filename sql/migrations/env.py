"""Runs migrations on the connection that `common.store.schema` hands over, inside its transaction.

There is no `alembic.ini` and no way to run this by itself: the caller holds the advisory lock, and
commits all revisions together.
"""

from __future__ import annotations

from alembic import context

from common.store.schema import REVISION_TABLE
from common.store.tables import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    version_table=REVISION_TABLE,
    compare_type=True,
    compare_server_default=True,
)
with context.begin_transaction():
    context.run_migrations()
