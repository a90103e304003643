"""The grants of pools, checked when an attempt would get its slots.

A grant may be revoked while an attempt waits. The check is therefore part of the statement that
reads the shares of the next attempts. Only `common.store.master.holds` uses this module.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from sqlalchemy import exists

from common.model.failures import FailureReason
from common.model.grants import GrantKind, cure, missing
from common.store.grants import is_granted
from common.store.tables import process_definition, task_group_queue, task_instance

IS_GRANTED: Final = (
    exists()
    .where(task_instance.c.id == task_group_queue.c.task_id)
    .where(process_definition.c.id == task_instance.c.process_definition_id)
    .where(is_granted(GrantKind.POOL, task_group_queue.c.group_id, process_definition.c.project_id))
    .correlate(task_group_queue)
)
"""True for a share of a pool that the project of the attempt may use."""


class Fault(NamedTuple):
    """The reason why an attempt fails while it is held."""

    reason: str
    failure: FailureReason = FailureReason.CONFIGURATION


def no_pool(name: str) -> Fault:
    """Return the fault for a pool that is missing or not granted to the project."""
    text = f"{missing(GrantKind.POOL, name)}: {cure(GrantKind.POOL, name)}"
    return Fault(text, FailureReason.NOT_GRANTED)
