"""The turn at a dataset: one lock for each, which all take first that change its locks or segments.

Requests for locks take it alone, and see what others have committed; publications share it, so that
none happens between the look at a dataset's locks and the grant of another. It is PostgreSQL's own
advisory lock, and ends with the transaction.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from typing import Any, Final

from sqlalchemy import (
    ColumnElement,
    Connection,
    Integer,
    Text,
    bindparam,
    cast,
    exists,
    func,
    select,
)
from sqlalchemy.dialects.postgresql import insert

from common.store.fixed_statement import FixedStatement
from common.store.tables import (
    dataset,
    process_definition,
    process_instance,
    segment,
    task_instance,
)

# Any number will do that nobody else takes.
_CLASS: Final = 0x0CAF_1037
_ALONE: Final = FixedStatement(select(func.pg_advisory_xact_lock(_CLASS, bindparam("key"))))
_TRY: Final = select(func.pg_try_advisory_xact_lock(_CLASS, bindparam("key")))
_SHARED: Final = FixedStatement(select(func.pg_advisory_xact_lock_shared(_CLASS, bindparam("key"))))

_NAME: Final = cast(bindparam("dataset"), Text)
_OWN: Final = FixedStatement(
    insert(dataset)
    .from_select(
        ["name", "project_id"],
        select(_NAME, process_definition.c.project_id)
        .join_from(
            task_instance,
            process_instance,
            process_instance.c.id == task_instance.c.process_instance_id,
        )
        .join(
            process_definition,
            process_definition.c.id == process_instance.c.process_definition_id,
        )
        .where(task_instance.c.id == cast(bindparam("task_id"), Integer))
        .where(~exists().where(dataset.c.name == _NAME))
        # What is there already, and no project's, is not for whoever writes next.
        .where(~exists().where(segment.c.dataset == _NAME)),
    )
    .on_conflict_do_nothing()
)


def own_new(db: Connection, name: str, task_id: int) -> bool:
    """Claim a new, empty dataset for the project of an attempt; return True if it was claimed.

    Another project may have claimed the dataset since the caller's check.
    """
    return _OWN.execute(db, {"dataset": name, "task_id": task_id}).rowcount == 1


def take_turn(db: Connection, datasets: Iterable[str], *, shared: bool = False) -> None:
    """Wait for the turn at these datasets, and keep it until the transaction ends."""
    # In one order, so that no two wait for each other; equal keys only cost time.
    for key in sorted({_key(name) for name in datasets}):
        (_SHARED if shared else _ALONE).execute(db, {"key": key})


def try_turns(db: Connection, datasets: Iterable[str]) -> frozenset[str]:
    """Take the turn alone at those of these datasets where nobody has it, and return them."""
    return frozenset(name for name in sorted(datasets) if db.scalar(_TRY, {"key": _key(name)}))


def _key(dataset: str) -> int:
    number = zlib.crc32(dataset.encode("utf-8", "replace"))
    return number - 2**32 if number >= 2**31 else number


def overlaps(
    column: ColumnElement[Any], start: ColumnElement[Any], end: ColumnElement[Any]
) -> ColumnElement[bool]:
    """Return the condition that a range has a moment between these."""
    return column.op("&&", is_comparison=True)(func.tstzrange(start, end))
