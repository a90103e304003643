"""Keeps the last words of failed attempts. Used by `common.store.worker.tasks`."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from sqlalchemy import BigInteger, Engine, Integer, LargeBinary, exists, select
from sqlalchemy.dialects.postgresql import insert

from common.store.tables import task_instance, task_log_tail
from common.store.transaction import any_of, possible_ids, repeatable, unnested
from common.store.worker.ports import LogTail

_PLACES: Final = select(task_instance.c.id, task_instance.c.process_instance_id).where(
    task_instance.c.id == any_of("ids")
)
_KEPT: Final = unnested("kept", id=Integer, size=BigInteger, tail=LargeBinary)
_KEEP: Final = (
    insert(task_log_tail)
    .from_select(
        ["task_instance_id", "size", "tail"],
        select(_KEPT.c.id, _KEPT.c.size, _KEPT.c.tail).where(
            exists().where(task_instance.c.id == _KEPT.c.id)
        ),
    )
    .on_conflict_do_nothing(index_elements=[task_log_tail.c.task_instance_id])
)


def log_places(engine: Engine, task_instance_ids: Collection[int]) -> dict[int, int]:
    """Return what `TaskStore.log_places` does."""
    asked = {"ids": possible_ids(task_instance_ids)}
    rows = repeatable(engine, lambda db: db.execute(_PLACES, asked).all())
    return {row.id: row.process_instance_id for row in rows}


def keep_tails(engine: Engine, tails: Sequence[LogTail]) -> int:
    """Do what `TaskStore.keep_tails` does."""
    values = {
        "kept_id": [each.task_instance_id for each in tails],
        "kept_size": [each.size for each in tails],
        "kept_tail": [each.tail for each in tails],
    }
    return repeatable(engine, lambda db: db.execute(_KEEP, values).rowcount)
