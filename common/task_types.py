"""The task types that a definition may name: the built-in ones, and those of installed packages.

A package adds a type as an entry point of the group `orcaflow.tasks`, named in capital letters as
in definitions; only workers load it, all others merely need the name.
"""

from __future__ import annotations

from functools import cache
from importlib.metadata import entry_points

from common.model.definitions import MASTER_TASK_TYPES, WORKER_TASK_TYPES

ENTRY_POINT_GROUP = "orcaflow.tasks"


@cache
def known_task_types() -> frozenset[str]:
    """The names. Looked up once in the life of a process."""
    added = frozenset(entry.name for entry in entry_points(group=ENTRY_POINT_GROUP))
    return WORKER_TASK_TYPES | MASTER_TASK_TYPES | added
