"""Limits the sub-processes of one tree that are live or wait for a master at the same time.

Without a limit five levels of 25 SUB_PROCESS tasks make 390,000 runs. Children beyond the limit do
not wait: a tree at its limit might consist of parents that wait for their children. Their attempts
fail with a reason that names the setting. Two masters that save runs of one tree at the same moment
don't see each other's children, so each of them may exceed the limit by the children of one save.
Used by saves.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from sqlalchemy import (
    ColumnElement,
    Connection,
    Integer,
    ScalarSelect,
    Text,
    and_,
    bindparam,
    case,
    func,
    select,
    update,
)

from common.model.failures import FailureReason
from common.model.states import LIVE_PROCESS_STATES, TaskState
from common.store.fixed_statement import FixedStatement
from common.store.tables import process_instance, task_instance
from common.store.transaction import any_of, unnested

SUB_PROCESS: Final = "SUB_PROCESS"
MOST_SUB_PROCESSES: Final = 1000
"""The default of `master.sub_process_runs`."""

_ROOT: Final = case(
    (process_instance.c.root_id == 0, process_instance.c.id), else_=process_instance.c.root_id
)
_TREE: Final = (
    select(_ROOT.label("root_id"), func.array_agg(process_instance.c.id).label("run_ids"))
    .where(process_instance.c.id == any_of("ids"))
    .group_by(_ROOT)
    .subquery("tree")
)
_RUN: Final = process_instance.alias("run")
_WANTED: Final = (
    select(func.count())
    .select_from(task_instance)
    .where(task_instance.c.process_instance_id == _RUN.c.id)
    .where(task_instance.c.task_type == SUB_PROCESS)
    .where(task_instance.c.state.in_((TaskState.SUBMITTED, TaskState.RUNNING)))
    .where(~task_instance.c.settled)
    .correlate(_RUN)
    .scalar_subquery()
)


def _wanted_by(which: ColumnElement[bool]) -> ScalarSelect[Any]:
    """Count the children that live runs wait for."""
    return (
        select(func.coalesce(func.sum(_WANTED), 0))
        .where(which)
        .where(_RUN.c.state.in_(LIVE_PROCESS_STATES))
        .correlate(_TREE)
        .scalar_subquery()
    )


_COUNT: Final = FixedStatement(
    select(
        _TREE.c.root_id,
        _TREE.c.run_ids,
        (
            _wanted_by(_RUN.c.id == _TREE.c.root_id)
            + _wanted_by(and_(_RUN.c.root_id == _TREE.c.root_id, _RUN.c.root_id != 0))
        ).label("wanted"),
    )
)

_UNFIT: Final = unnested("unfit", id=Integer, message=Text)
_FAIL: Final = (
    update(task_instance)
    .where(task_instance.c.id == _UNFIT.c.id)
    .where(task_instance.c.state == TaskState.SUBMITTED)
    .where(task_instance.c.task_type == SUB_PROCESS)
    .values(
        state=int(TaskState.FAILURE),
        end_time=bindparam("now"),
        reason=_UNFIT.c.message,
        failure_reason=FailureReason.CONFIGURATION.value,
    )
)


def fail_childless(db: Connection, reasons: Mapping[int, str], *, now: datetime) -> None:
    """End the SUB_PROCESS attempts that get no child, each for its reason."""
    unfit = {"unfit_id": list(reasons), "unfit_message": list(reasons.values())}
    db.execute(_FAIL, unfit | {"now": now})


def beyond_limit(db: Connection, wanting: Mapping[int, int], *, most: int) -> dict[int, str]:
    """Return the new attempts that exceed the limit of their tree, each with its reason.

    `wanting`: the run of each new SUB_PROCESS attempt. The rows of the attempts exist already.
    """
    refused: dict[int, str] = {}
    for row in _COUNT.execute(db, {"ids": sorted(set(wanting.values()))}):
        excess = int(row.wanted) - most
        if excess > 0:
            runs = frozenset(row.run_ids)
            of_tree = [task_id for task_id, run_id in wanting.items() if run_id in runs]
            refused |= dict.fromkeys(of_tree[-excess:], no_place(row.root_id, most))
    return refused


def no_place(root_id: int, most: int) -> str:
    """Return the reason of an attempt that exceeds the limit."""
    return (
        f"process instance {root_id} has {most} sub-processes that are live or wait to start;"
        f" master.sub_process_runs allows {most}"
    )
