"""Lists attempts at tasks, renders their parameters, and declares failed ones to be successes.

Their logs are read by `operations.task_log`, their delays explained by `operations.explaining`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from common.clock import SystemClock
from common.errors import NotAllowedError, NotFoundError
from common.model.rights import Action
from common.model.states import ProcessState, TaskState
from common.store.people import runs as store
from common.store.people import views
from common.store.people.rights import Thing
from common.store.people.views import TaskInstanceView
from operations.documents.instances import name_of
from operations.lookup import instance_with_id, state_named, task_with_id
from operations.rights import change, seen
from operations.session import Session, operation

if TYPE_CHECKING:
    from operations.rendering import Rendered

_FAILED = (TaskState.FAILURE, TaskState.KILL, TaskState.NEED_FAULT_TOLERANCE)
_LONGEST_REASON = 4000
_DEPENDENT = "DEPENDENT"


@operation
def list_tasks(
    session: Session,
    *,
    process_instance_id: int | None = None,
    states: Sequence[str] = (),
    valid_only: bool = True,
    limit: int,
) -> list[TaskInstanceView]:
    """Attempts in the order in which they were made; the newest, if there are more than `limit`.

    `NotFoundError` for an instance that does not exist.
    """
    codes = [state_named(TaskState, each) for each in states]
    with session.engine.connect() as db:
        if process_instance_id is not None:
            if session.principal.sees_all:
                instance_with_id(db, session.principal, process_instance_id)
            else:
                seen(db, session.principal, Action.VIEW, Thing.INSTANCE, process_instance_id)
        return views.task_instances(
            db,
            process_instance_id=process_instance_id,
            states=codes or None,
            valid_only=valid_only,
            limit=limit,
            principal=session.principal,
        )


@operation
def find_task(session: Session, task_instance_id: int) -> TaskInstanceView:
    """The attempt; `NotFoundError` if there is none."""
    with session.engine.connect() as db:
        return task_with_id(db, session.principal, task_instance_id)


@operation
def render_task(session: Session, task_instance_id: int) -> tuple[TaskInstanceView, Rendered]:
    """The attempt, and its parameters and texts as its worker renders them."""
    # Here, since a list of attempts is shown without what reads their scripts.
    from operations.rendering import rendered

    with session.engine.connect() as db:
        task = task_with_id(db, session.principal, task_instance_id)
        document = store.task_document(db, task_instance_id)
    if document is None:
        raise NotFoundError(f"task instance {task_instance_id} is gone")
    return task, rendered(document, config=session.config, now=SystemClock().now())


@operation
def force_success(session: Session, task_instance_id: int) -> TaskInstanceView:
    """Declare a failed attempt to be a success, or pass a DEPENDENT that waits.

    A recovery continues after the valid attempt of a task that failed or was killed, in a run that
    has ended. A run that is live continues after a waiting DEPENDENT by itself. `NotAllowedError`
    for any other attempt.
    """
    with change(session, "task.force-success", "task", object_id=task_instance_id) as made:
        db = made.db
        before = task_with_id(db, session.principal, task_instance_id, action=Action.OPERATE)
        made.object_name = before.name
        state = name_of(TaskState, before.state)
        now, reason = SystemClock().now(), "declared a success by hand"
        is_waiting = before.task_type == _DEPENDENT and before.state == TaskState.RUNNING
        if is_waiting:
            reason += "; it waited for others"
            forced = store.pass_dependent(db, task_instance_id, at=now, reason=reason)
        else:
            if before.state in _FAILED:
                reason += f"; it was {state}" + (f": {before.reason}" if before.reason else "")
            forced = store.force_success(
                db, task_instance_id, at=now, reason=reason[:_LONGEST_REASON]
            )
        if not forced:
            run = instance_with_id(db, session.principal, before.process_instance_id)
            if not before.valid:
                cause = "another attempt has taken its place"
            elif is_waiting:
                cause = (
                    f"it has ended by now, or its process instance {run.id} is being paused or"
                    f" stopped: orcaflow instance show {run.id}"
                )
            elif before.state not in _FAILED:
                cause = (
                    f"it is {state}, and only a failed or killed attempt, or a DEPENDENT that"
                    " waits, can be declared good"
                )
            else:
                cause = (
                    f"its process instance {run.id} is {name_of(ProcessState, run.state)};"
                    f" wait for its end, or stop it: orcaflow instance stop {run.id}"
                )
            raise NotAllowedError(f"task instance {task_instance_id}: {cause}")
        return task_with_id(db, session.principal, task_instance_id)
