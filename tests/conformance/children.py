"""Sub processes in both stores: their commands, relations and recoveries."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from common.model.commands import CommandType
from common.model.decisions import AbandonTask, StopProcess
from common.model.instances import Ownership
from common.model.plans import Restart
from common.store import tables as t
from tests.conformance.store_tables import LATER, Tables, a_child, call_child, save


def the_command(db: Tables) -> dict[str, Any]:
    (row,) = db.rows(t.command)
    return row


def the_relation(db: Tables, task_id: int) -> dict[str, Any]:
    (row,) = [
        row
        for row in db.rows(t.relation_process_instance)
        if row["parent_task_instance_id"] == task_id
    ]
    return row


def a_restart(child: Ownership, **changes: Any) -> Restart:
    restart = Restart(
        process_instance_id=child.process_instance_id,
        epoch=child.epoch,
        command_type=CommandType.REPEAT_RUNNING,
        reset=(),
    )
    return replace(restart, **changes)


def being_stopped(db: Tables, _parent: Ownership, child: Ownership) -> None:
    save(db, child, StopProcess(deadline=LATER))


def asked_to_stop(db: Tables, _parent: Ownership, child: Ownership) -> None:
    db.update(t.process_instance, child.process_instance_id, wanted_state=5)


def orphaned(_db: Tables, _parent: Ownership, _child: Ownership) -> None:
    """Nothing more: the former attempt was given up already."""


def called_again(db: Tables, parent: Ownership) -> tuple[Ownership, int]:
    """A child that goes on though its attempt was given up, and the next attempt's id."""
    _, child = a_child(db, parent)
    save(db, parent, AbandonTask(name="sub", attempt=1))
    return child, call_child(db, parent, "sub", 2)
