"""Behaviour of the store in memory beyond the promises of every store, for the simulator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import pytest

from common.model.plans import Drop
from common.store import tables as t
from tests.conformance.store_tables import (
    STOPPING,
    TABLES,
    WORKER,
    MemoryTables,
    a_begin,
    a_command,
    a_run,
    a_submit,
    always,
    an_end,
    claim,
    end,
    finish,
    save,
    submit,
    take,
)


class _Crash(BaseException):
    """The simulated death of the process."""


def _crash_at(name: str, moment: Literal["before", "after"]) -> Callable[[str, str], None]:
    def hook(transaction: str, now: str) -> None:
        if (transaction, now) == (name, moment):
            raise _Crash

    return hook


def test_a_crash_before_a_commit_leaves_everything_as_it_was() -> None:
    db = MemoryTables()
    owned = a_run(db)
    (first,) = submit(db, owned, "a")
    claim(db, [first])
    end(db, an_end(first))
    db.notifications()
    before = [db.rows(table) for table in TABLES]
    changes = len(db.database.changes)
    db.database.commit_hook = _crash_at("save", "before")
    with pytest.raises(_Crash):
        save(db, owned, finish("a"), a_submit("b"), STOPPING)
    assert [db.rows(table) for table in TABLES] == before
    assert len(db.database.changes) == changes
    assert db.notifications() == []


def test_a_crash_after_a_commit_leaves_it_done() -> None:
    db = MemoryTables()
    a_command(db)
    db.notifications()
    db.database.commit_hook = _crash_at("take", "after")
    with pytest.raises(_Crash):
        take(db, always(a_begin()))
    assert db.rows(t.command) == []
    assert len(db.rows(t.process_instance)) == 1


def test_a_taken_back_deletion_keeps_the_order_of_rows() -> None:
    db = MemoryTables()
    ids = [a_command(db) for _ in range(3)]
    db.database.commit_hook = _crash_at("take", "before")
    with pytest.raises(_Crash):
        take(db, always(Drop(reason="not yet")), limit=2)
    assert [row["id"] for row in db.rows(t.command)] == ids


def test_every_change_is_recorded_with_who_made_it() -> None:
    db = MemoryTables()
    owned = a_run(db)
    (task_id,) = submit(db, owned, "a")
    claim(db, [task_id])
    of_task = [change for change in db.database.changes if change.table == t.task_instance.name]
    assert [(change.transaction, change.by, change.id) for change in of_task] == [
        ("save", owned, task_id),
        ("claim", WORKER, task_id),
    ]
    assert of_task[0].old is None
    assert of_task[1].old == of_task[0].new
