"""Tables of shared objects. The stores of the conformance tests grant their rows."""

from __future__ import annotations

from typing import Final

from common.model.grants import GrantKind
from common.store import tables as t

GRANTED: Final = {
    t.tenant: GrantKind.TENANT,
    t.datasource: GrantKind.DATASOURCE,
    t.environment: GrantKind.ENVIRONMENT,
    t.task_group: GrantKind.POOL,
    t.worker_group: GrantKind.WORKER_GROUP,
}
RESTORED: Final = (
    "UPDATE t_ds_user SET tenant_id = 1, queue = NULL",
    # Triggers deleted the other grants together with their objects.
    "INSERT INTO t_ds_grant VALUES (1, 1, 1) ON CONFLICT DO NOTHING",
)
"""Statements that restore the seeded rows."""
