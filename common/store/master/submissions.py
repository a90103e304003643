"""Writes the rows of new attempts, with their requests for slots and for children.

Part of a save; the caller has locked the rows of the runs. Adds the word *child command*: the row
of `t_ds_command` by which a SUB_PROCESS attempt gets its child. Used by `common.store.master.save`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

from sqlalchemy import (
    Connection,
    Integer,
    Text,
    and_,
    any_,
    bindparam,
    cast,
    insert,
    or_,
    select,
)
from sqlalchemy.dialects.postgresql import ARRAY

from common.model.command_param import child_command_text
from common.model.commands import child_command_type
from common.model.decisions import DecideTask, SubmitTask
from common.model.definitions import PoolShare
from common.model.reach import Target, resolve
from common.model.states import TaskState
from common.model.worker_needs import UNASSIGNED, WorkerNeed
from common.store.master.attempts import Place, place_in_queue
from common.store.master.trees import SUB_PROCESS, beyond_limit, fail_childless
from common.store.queue_entries import effective_group
from common.store.sharing import candidates, has_name, reached_by
from common.store.tables import (
    WORKERLESS_TASK_TYPES,
    command,
    process_definition,
    process_instance,
    relation_process_instance,
    task_assignment,
    task_group,
    task_group_queue,
    task_instance,
    task_lock_request,
)
from common.store.tables.datasets import MAX_INTERVAL_TEXT
from common.store.transaction import AnyRow, any_of, storable, unnested

DEPENDENT: Final = "DEPENDENT"

_INSERT: Final = insert(task_instance).returning(task_instance.c.id, sort_by_parameter_order=True)


def _any_text(parameter: str) -> Any:
    return any_(cast(bindparam(parameter), ARRAY(Text)))


_POOLS: Final = select(task_group.c.id, task_group.c.name).where(
    or_(task_group.c.id == any_of("ids"), task_group.c.name == _any_text("names"))
)

_NODE: Final = unnested("node", run_id=Integer, name=Text)
_CHILD: Final = process_instance.alias("child")
# Of several the newest comes last.
_EARLIER_CHILDREN: Final = (
    select(
        task_instance.c.process_instance_id,
        task_instance.c.name,
        relation_process_instance.c.process_instance_id.label("child_id"),
    )
    .join_from(
        _NODE,
        task_instance,
        and_(
            task_instance.c.process_instance_id == _NODE.c.run_id,
            task_instance.c.name == _NODE.c.name,
        ),
    )
    .join(
        relation_process_instance,
        relation_process_instance.c.parent_task_instance_id == task_instance.c.id,
    )
    .join(_CHILD, _CHILD.c.id == relation_process_instance.c.process_instance_id)
    .order_by(task_instance.c.id)
)
_INSERT_RELATIONS: Final = insert(relation_process_instance).returning(
    relation_process_instance.c.id, sort_by_parameter_order=True
)
_DEFINITIONS_NAMED: Final = candidates().where(
    or_(process_definition.c.id == any_of("ids"), has_name())
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """A new attempt: its columns, and its requests for slots or a child."""

    row: dict[str, Any]
    decision: SubmitTask
    at: datetime


@dataclass(slots=True)
class Submitted:
    """The results of the submissions of a save, and the limit of sub-processes for each tree."""

    most_sub_processes: int
    offered: dict[int, Place] = field(default_factory=dict)
    held: bool = False
    dependents: bool = False
    asks: bool = False


def texts_of(decision: SubmitTask) -> dict[str, Any]:
    """Return the texts of a submission outside its row, to check that they can be stored."""
    texts: dict[str, Any] = {
        f"pools[{index}]": share.pool_name for index, share in enumerate(decision.pools)
    }
    texts |= {f"locks[{index}]": need.interval for index, need in enumerate(decision.locks)}
    if decision.worker_need is not None:
        texts["workerSelect.dataset"] = decision.worker_need.dataset
        texts["workerSelect.availabilityGroup"] = decision.worker_need.availability_group
    return texts | {"child_definition": decision.child_definition}


def submission(run: AnyRow, decision: SubmitTask, at: datetime) -> Submission:
    """Build the new attempt of this run, still without a row."""
    row = attempt_columns(decision, at) | {
        "process_definition_id": run.process_definition_id,
        "process_instance_id": run.id,
        "executor_id": run.executor_id,
        "host": None if decision.worker_need is None else UNASSIGNED,
    }
    return Submission(row=row, decision=decision, at=at)


def attempt_columns(decision: SubmitTask, at: datetime) -> dict[str, Any]:
    """Return the columns of a new attempt that do not depend on its run."""
    timeout, state = decision.timeout, first_state(decision)
    return {
        "name": decision.name,
        "task_type": decision.task_type,
        "task_json": decision.task_json,
        "state": int(state),
        "submit_time": at,
        "start_time": at,
        "retry_times": decision.retry_times,
        "retry_interval": decision.retry_interval // timedelta(minutes=1),
        "max_retry_times": decision.max_retry_times,
        "task_instance_priority": int(decision.priority),
        "worker_group_id": decision.worker_group_id,
        "attempt": decision.attempt,
        "input_pool": decision.input_pool,
        "due_at": decision.due_at if state is TaskState.DELAY_EXECUTION else None,
        "timeout_seconds": None if timeout is None else int(timeout.after.total_seconds()),
        "timeout_strategy": None if timeout is None else int(timeout.strategy),
        "memory_factor": decision.memory_factor,
    }


def is_for_workers(decision: SubmitTask) -> bool:
    """Return True if a worker carries the attempt out."""
    return decision.task_type not in WORKERLESS_TASK_TYPES


def first_state(decision: SubmitTask) -> TaskState:
    """Return the state of the new row: submitted, held, or running without a worker."""
    if decision.task_type == DEPENDENT:
        return TaskState.RUNNING
    if decision.task_type == SUB_PROCESS:
        # Its slots would be held while its own tasks wait for them.
        return TaskState.SUBMITTED
    if decision.due_at is not None:
        return TaskState.DELAY_EXECUTION
    is_free = not decision.pools and not decision.locks
    return TaskState.SUBMITTED if is_free else TaskState.WAITING_DEPEND


def decided_row(run: AnyRow, decision: DecideTask, at: datetime) -> dict[str, Any]:
    """Return the columns of an attempt that is decided and settled already."""
    return {
        "name": decision.name,
        "task_type": decision.task_type,
        "process_definition_id": run.process_definition_id,
        "process_instance_id": run.id,
        "task_json": decision.task_json,
        "state": int(decision.state),
        "settled": True,
        "submit_time": at,
        "start_time": at,
        "end_time": at,
        "task_instance_priority": int(decision.priority),
        "executor_id": run.executor_id,
        "attempt": decision.attempt,
        "branch": (
            None
            if decision.branch is None
            else json.dumps(list(decision.branch), ensure_ascii=False)
        ),
        "reason": None if decision.reason is None else storable(decision.reason),
        "failure_reason": None if decision.failure is None else decision.failure.value,
        "input_pool": decision.input_pool,
    }


def insert_decided(db: Connection, rows: Sequence[dict[str, Any]]) -> None:
    db.execute(insert(task_instance), list(rows))


def submit(
    db: Connection,
    submissions: Sequence[Submission],
    runs: Mapping[int, AnyRow],
    submitted: Submitted,
) -> None:
    """Insert the attempts, in the order given."""
    ids = db.scalars(_INSERT, [one.row for one in submissions]).all()
    by_id = dict(zip(ids, submissions, strict=True))
    children: dict[int, Submission] = {}
    pooled: dict[int, Submission] = {}
    locking: dict[int, Submission] = {}
    for task_id, one in by_id.items():
        row, decision = one.row, one.decision
        if decision.task_type == SUB_PROCESS:
            children[task_id] = one
        elif decision.task_type == DEPENDENT:
            submitted.dependents = True
        elif row["state"] == TaskState.SUBMITTED and decision.worker_need is not None:
            # It is offered once a worker is chosen for it.
            submitted.asks = True
        elif row["state"] == TaskState.SUBMITTED:
            submitted.offered[task_id] = place_in_queue(
                runs[row["process_instance_id"]],
                task_priority=row["task_instance_priority"],
                task_group_id=row["worker_group_id"],
            )
        else:
            submitted.held = True
            if decision.pools:
                pooled[task_id] = one
            if decision.locks:
                locking[task_id] = one
    asking = {key: one for key, one in by_id.items() if one.decision.worker_need is not None}
    if asking:
        _request_workers(db, asking)
    if pooled:
        _request_slots(db, pooled)
    if locking:
        _request_locks(db, locking)
    if children:
        _start_children(db, children, runs, submitted.most_sub_processes)


def _start_children(
    db: Connection, children: Mapping[int, Submission], runs: Mapping[int, AnyRow], most: int
) -> None:
    wanting = {task_id: one.row["process_instance_id"] for task_id, one in children.items()}
    refused = beyond_limit(db, wanting, most=most)
    if refused:
        fail_childless(db, refused, now=max(children[task_id].at for task_id in refused))
    within = {task_id: one for task_id, one in children.items() if task_id not in refused}
    if within:
        _request_children(db, within, runs)


def _request_slots(db: Connection, pooled: Mapping[int, Submission]) -> None:
    shares = [share for one in pooled.values() for share in one.decision.pools]
    known = db.execute(
        _POOLS,
        {
            "ids": sorted({share.pool_id for share in shares if share.pool_id is not None}),
            "names": sorted({share.pool_name for share in shares if share.pool_name is not None}),
        },
    ).all()
    by_name = {pool.name: pool.id for pool in known}
    rows = []
    for task_id, one in pooled.items():
        weights: dict[int, tuple[PoolShare, int]] = {}
        for share in one.decision.pools:
            pool_id = share.pool_id
            if pool_id is None:
                # None of that name: the attempt is ended with that reason when its turn comes.
                pool_id = by_name.get(share.pool_name or "", 0)
            first, weight = weights.get(pool_id, (share, 0))
            weights[pool_id] = (first, weight + share.slots)
        rows += [
            {
                "task_id": task_id,
                "task_name": one.decision.name,
                "group_id": pool_id,
                "group_name": share.pool_name if share.pool_id is None else str(share.pool_id),
                "process_id": one.row["process_instance_id"],
                "priority": one.decision.pool_priority,
                "in_queue": 1,
                "weight": weight,
                "create_time": one.at,
                "update_time": one.at,
            }
            for pool_id, (share, weight) in weights.items()
        ]
    db.execute(insert(task_group_queue), rows)


def _request_locks(db: Connection, locking: Mapping[int, Submission]) -> None:
    db.execute(
        insert(task_lock_request),
        [
            {
                "task_id": task_id,
                "dataset": need.dataset,
                # As long as the author's values made it; it is refused for that when it is read.
                "interval": storable(need.interval, MAX_INTERVAL_TEXT),
                "type": need.type.value,
                "priority": need.priority,
                "create_time": one.at,
            }
            for task_id, one in locking.items()
            for need in one.decision.locks
        ],
    )


def _request_workers(db: Connection, asking: Mapping[int, Submission]) -> None:
    needs = {key: one.decision.worker_need or WorkerNeed() for key, one in asking.items()}
    db.execute(
        insert(task_assignment),
        [
            {
                "task_id": task_id,
                "dataset": need.dataset,
                "availability_group": need.availability_group,
                "capacity": need.capacity,
            }
            for task_id, need in needs.items()
        ],
    )


def _request_children(
    db: Connection, children: Mapping[int, Submission], runs: Mapping[int, AnyRow]
) -> None:
    """Write a relation row and a child command for each SUB_PROCESS attempt (contract §3.8)."""
    existing = _earlier_children(db, list(children.values()))
    relations = db.scalars(
        _INSERT_RELATIONS,
        [
            {
                "parent_process_instance_id": one.row["process_instance_id"],
                "parent_task_instance_id": task_id,
                "process_instance_id": existing.get(_node(one), 0),
            }
            for task_id, one in children.items()
        ],
    ).all()
    definitions = _child_definitions(db, children, runs)
    commands = []
    for (task_id, one), relation_id in zip(children.items(), relations, strict=True):
        run = runs[one.row["process_instance_id"]]
        child_id = existing.get(_node(one), 0)
        history = tuple(name for name in (run.history_cmd or "").split(",") if name)
        definition_id = definitions.get(task_id, 0)
        named = one.decision.child_definition
        commands.append(
            {
                "command_type": int(child_command_type(history, has_child=child_id != 0)),
                "process_definition_id": definition_id,
                "command_param": child_command_text(
                    relation_id=relation_id,
                    parent_process_instance_id=run.id,
                    parent_task_instance_id=task_id,
                    child_id=child_id,
                    definition_name=(
                        named if not definition_id and isinstance(named, str) else None
                    ),
                ),
                "failure_strategy": run.failure_strategy,
                "warning_type": run.warning_type,
                "warning_group_id": run.warning_group_id,
                "schedule_time": run.schedule_time,
                "start_time": one.at,
                "update_time": one.at,
                "executor_id": run.executor_id,
                "process_instance_priority": run.process_instance_priority,
                "worker_group_id": effective_group(
                    one.decision.worker_group_id, run.worker_group_id
                ),
                "parent_task_instance_id": task_id,
            }
        )
    db.execute(insert(command), commands)


def _node(one: Submission) -> tuple[int, str]:
    return one.row["process_instance_id"], one.decision.name


def _earlier_children(db: Connection, children: Sequence[Submission]) -> dict[tuple[int, str], int]:
    """Return the child of an earlier attempt at the same node, if it still exists."""
    nodes = [_node(one) for one in children]
    rows = db.execute(
        _EARLIER_CHILDREN,
        {
            "node_run_id": [run_id for run_id, _ in nodes],
            "node_name": [name for _, name in nodes],
        },
    )
    return {(row.process_instance_id, row.name): row.child_id for row in rows}


def _child_definitions(
    db: Connection, children: Mapping[int, Submission], runs: Mapping[int, AnyRow]
) -> dict[int, int]:
    """Return the definition that each of these attempts names, by its id or by its name.

    An id is checked when the child starts; `common.model.reach` resolves a name.
    """
    found: dict[int, int] = {}
    names: dict[int, tuple[str, int]] = {}
    for task_id, one in children.items():
        asked = one.decision.child_definition
        if isinstance(asked, int):
            found[task_id] = asked
        elif asked is not None:
            run = runs[one.row["process_instance_id"]]
            names[task_id] = (asked, run.process_definition_id)
    if not names:
        return found
    known = db.execute(
        _DEFINITIONS_NAMED,
        {
            "ids": sorted({parent_id for _, parent_id in names.values()}),
            "names": sorted({name for name, _ in names.values()}),
        },
    ).all()
    projects = {row.id: row.project_id for row in known}
    for task_id, (name, parent_id) in names.items():
        own = projects.get(parent_id)
        reached = reached_by((row for row in known if row.name == name), own)
        target = resolve(
            reached, own_project=own or 0, project=children[task_id].decision.child_project
        )
        if isinstance(target, Target):
            found[task_id] = target.id
    return found
