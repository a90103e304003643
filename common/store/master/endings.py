"""Ends process instances, and hands the end of a sub process to the attempt that began it.

The end of a child and the end of its parent's SUB_PROCESS attempt are one transaction: to the
parent it is a report like any other. Used by a save, and for children found to have ended without
a report.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from sqlalchemy import (
    Connection,
    DateTime,
    Integer,
    SmallInteger,
    Text,
    and_,
    case,
    exists,
    func,
    or_,
    select,
    update,
)

from common.model.failures import FailureReason
from common.model.states import LIVE_PROCESS_STATES, ProcessState, TaskState
from common.store.fixed_statement import FixedStatement
from common.store.master.trees import SUB_PROCESS
from common.store.tables import process_definition, process_instance, project, task_instance
from common.store.transaction import StoreConflictError, any_of, storable, unnested

_ENDED: Final = unnested(
    "ended_run", run_id=Integer, state=SmallInteger, at=DateTime(timezone=True), reason=Text
)
_WAITING: Final = process_instance.alias("waiting")
# Of a parallel definition, those wait whose own schedule says so.
OTHERS_MAY_WAIT: Final = and_(
    process_instance.c.is_sub_process == 0,
    or_(
        exists()
        .where(process_definition.c.id == process_instance.c.process_definition_id)
        .where(process_definition.c.execution_type != 0),
        exists()
        .where(_WAITING.c.process_definition_id == process_instance.c.process_definition_id)
        .where(_WAITING.c.state == ProcessState.SERIAL_WAIT),
    ),
)
_MAY_GO_ON: Final = (ProcessState.PAUSE, ProcessState.STOP)
_END: Final = FixedStatement(
    update(process_instance)
    .where(process_instance.c.id == _ENDED.c.run_id)
    .where(process_instance.c.state.in_(LIVE_PROCESS_STATES))
    .values(
        state=_ENDED.c.state,
        update_time=_ENDED.c.at,
        end_time=_ENDED.c.at,
        # The request of a stop may name its cause, which the engine does not read.
        state_reason=case(
            (
                _ENDED.c.state == ProcessState.STOP,
                func.coalesce(process_instance.c.state_reason, _ENDED.c.reason),
            ),
            else_=_ENDED.c.reason,
        ),
        # What is paused or stopped may be gone on with, and then with the same nodes.
        run_scope=case((_ENDED.c.state.in_(_MAY_GO_ON), process_instance.c.run_scope), else_=None),
    )
    .returning(process_instance.c.id, OTHERS_MAY_WAIT.label("others_may_wait"))
)

_GIVE_UP_PROMISES: Final = (
    update(task_instance)
    .where(task_instance.c.process_instance_id == any_of("run_ids"))
    .where(task_instance.c.flag == 1)
    .where(task_instance.c.retry_at.is_not(None))
    .values(retry_at=None)
)

_ENDED_CHILDREN: Final = unnested(
    "ended",
    task_id=Integer,
    child_id=Integer,
    state=SmallInteger,
    at=DateTime(timezone=True),
    var_pool=Text,
    reason=Text,
)
# One that took too long, which its reason says, has failed however its child was made to end.
_TOOK_TOO_LONG: Final = task_instance.c.reason.is_not(None) & (
    _ENDED_CHILDREN.c.state != TaskState.SUCCESS
)
# A stop of the child alone; one of the whole tree asks its attempts first, and is no failure.
_WAS_STOPPED_ALONE: Final = (_ENDED_CHILDREN.c.state == TaskState.KILL) & (
    task_instance.c.wanted_state.is_distinct_from(int(TaskState.KILL))
)
_PARENT: Final = process_instance.alias("parent")
_PARENTS_DEFINITION: Final = process_definition.alias("parents_definition")
_CHILD: Final = process_instance.alias("child")
# The reason of a child names tasks and parameters. Members of the parent's project read the reason
# of the attempt. A share shows them only the name and the project of the child's definition.
_ENDED_ELSEWHERE: Final = (
    select(
        func.concat(
            "process instance ",
            _CHILD.c.id,
            " of the shared process definition '",
            process_definition.c.name,
            "' of the project '",
            project.c.name,
            "' ended as ",
            case(
                *(
                    (_ENDED_CHILDREN.c.state == int(state), state.name)
                    for state in (TaskState.FAILURE, TaskState.KILL, TaskState.PAUSE)
                ),
                else_=TaskState.SUCCESS.name,
            ),
        )
    )
    .select_from(_CHILD)
    .join(_PARENT, _PARENT.c.id == task_instance.c.process_instance_id)
    .outerjoin(process_definition, process_definition.c.id == _CHILD.c.process_definition_id)
    .outerjoin(project, project.c.id == process_definition.c.project_id)
    .outerjoin(_PARENTS_DEFINITION, _PARENTS_DEFINITION.c.id == _PARENT.c.process_definition_id)
    .where(_CHILD.c.id == _ENDED_CHILDREN.c.child_id)
    .where(_ENDED_CHILDREN.c.reason.is_not(None))
    .where(process_definition.c.project_id.is_distinct_from(_PARENTS_DEFINITION.c.project_id))
    .correlate(task_instance, _ENDED_CHILDREN)
    .scalar_subquery()
)
_END_ATTEMPTS: Final = (
    update(task_instance)
    .where(task_instance.c.id == _ENDED_CHILDREN.c.task_id)
    .where(task_instance.c.task_type == SUB_PROCESS)
    .where(task_instance.c.state.in_((TaskState.SUBMITTED, TaskState.RUNNING)))
    .values(
        state=case((_TOOK_TOO_LONG, int(TaskState.FAILURE)), else_=_ENDED_CHILDREN.c.state),
        end_time=_ENDED_CHILDREN.c.at,
        var_pool=_ENDED_CHILDREN.c.var_pool,
        reason=case(
            (_TOOK_TOO_LONG, task_instance.c.reason),
            else_=func.coalesce(_ENDED_ELSEWHERE, _ENDED_CHILDREN.c.reason),
        ),
        failure_reason=case(
            (_TOOK_TOO_LONG, task_instance.c.failure_reason),
            (
                _ENDED_CHILDREN.c.state == TaskState.FAILURE,
                FailureReason.SUB_PROCESS_FAILED.value,
            ),
            (_WAS_STOPPED_ALONE, FailureReason.KILLED.value),
            else_=None,
        ),
    )
)

_ATTEMPT_STATES: Final = {
    ProcessState.SUCCESS: TaskState.SUCCESS,
    ProcessState.FAILURE: TaskState.FAILURE,
    ProcessState.STOP: TaskState.KILL,
    ProcessState.PAUSE: TaskState.PAUSE,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessEnd:
    """The end of a process instance. Its texts are storable."""

    state: ProcessState
    at: datetime
    reason: str | None = None
    var_pool: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildEnd:
    """The end of a sub process, and the attempt that began it."""

    process_instance_id: int
    parent_task_instance_id: int
    end: ProcessEnd


def end_processes(db: Connection, ends: Mapping[int, ProcessEnd]) -> bool:
    """End these live instances; True if others of a serial definition may wait for one of them."""
    changed = _END.execute(
        db,
        {
            "ended_run_run_id": list(ends),
            "ended_run_state": [int(end.state) for end in ends.values()],
            "ended_run_at": [end.at for end in ends.values()],
            "ended_run_reason": [end.reason for end in ends.values()],
        },
    ).all()
    if len(changed) != len(ends):
        raise StoreConflictError(f"one of the process instances {list(ends)} has ended already")
    return any(row.others_may_wait for row in changed)


def give_up_promises(db: Connection, run_ids: Sequence[int]) -> None:
    """Give up the promised retries of runs that nobody owns, and that end as they are.

    The owner of a run gives them up itself.
    """
    db.execute(_GIVE_UP_PROMISES, {"run_ids": list(run_ids)})


def end_parent_attempts(db: Connection, children: Sequence[ChildEnd]) -> int:
    """End the attempts that began these sub processes as their children ended; return the number.

    The reason of a child of another project is not copied, because it can name tasks.
    An attempt that has ended already, since it was given up, keeps its own end. The caller has
    locked the rows in order of id if there are several.
    """
    return db.execute(
        _END_ATTEMPTS,
        {
            "ended_task_id": [child.parent_task_instance_id for child in children],
            "ended_child_id": [child.process_instance_id for child in children],
            "ended_state": [int(_ATTEMPT_STATES[child.end.state]) for child in children],
            "ended_at": [child.end.at for child in children],
            "ended_var_pool": [child.end.var_pool for child in children],
            "ended_reason": [_reason_of_end(child) for child in children],
        },
    ).rowcount


def _reason_of_end(child: ChildEnd) -> str | None:
    reason = child.end.reason
    if reason is None:
        return None
    return storable(f"process instance {child.process_instance_id}: {reason}")
