"""Lists the tasks of supervisors by what becomes of them, and ends one of them."""

from __future__ import annotations

from enum import Enum

from common.errors import NotAllowedError, NotFoundError
from common.model.commands import CommandType
from common.model.states import TaskState
from common.store.people import stream_tasks as store
from common.store.people.stream_tasks import StreamTaskInfo
from operations.instance_commands import put_command
from operations.session import Session

__all__ = ["StreamTaskInfo", "Stage"]

MOST = 1000


class Stage(Enum):
    """The stages of a task, in Druid's words."""

    WAITING = "waiting"
    """No attempt was submitted yet, or it is held back."""
    PENDING = "pending"
    """It is in the queue, and no worker has it."""
    RUNNING = "running"
    COMPLETE = "complete"


def stage_of(task: StreamTaskInfo) -> Stage:
    """Tell how far a task has come."""
    if task.closed or (task.state is not None and TaskState(task.state).is_finished):
        return Stage.COMPLETE
    match task.state:
        case TaskState.RUNNING:
            return Stage.RUNNING
        case TaskState.SUBMITTED:
            return Stage.PENDING
        case _:
            return Stage.WAITING


def list_stream_tasks(
    session: Session, *, supervisor: str | None = None, most_complete: int = MOST
) -> list[StreamTaskInfo]:
    """The tasks that the principal sees, the newest first; so many of those that have ended."""
    if supervisor is not None and "\0" in supervisor:
        return []
    with session.engine.connect() as db:
        found = store.stream_tasks(
            db, session.principal, closed=False, supervisor=supervisor, limit=MOST
        )
        if most_complete > 0:
            found += store.stream_tasks(
                db,
                session.principal,
                closed=True,
                supervisor=supervisor,
                limit=min(most_complete, MOST),
            )
    return found


def stream_task_given(session: Session, name: str) -> StreamTaskInfo:
    """One task by its name; `NotFoundError` for a missing one and for a foreign one."""
    with session.engine.connect() as db:
        found = None if "\0" in name else store.stream_task_named(db, session.principal, name)
    if found is None:
        raise NotFoundError(f"there is no stream task {name!r:.200}")
    return found


def stop_stream_task(session: Session, name: str) -> None:
    """Have the run of a task end without publishing; the supervisor starts another in its place."""
    found = stream_task_given(session, name)
    if found.process_instance_id is None:
        raise NotAllowedError(f"the run of {name} has not begun; send this again")
    put_command(session, found.process_instance_id, CommandType.STOP)
