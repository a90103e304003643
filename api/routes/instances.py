"""Runs: begun, listed, shown, explained, and steered."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, TypeAlias

from fastapi import Header, Query, Response

from api import cursors, waiting
from api.answers import (
    Accepted,
    AcceptedList,
    ActionRequest,
    Begun,
    CauseList,
    DeletedInstances,
    DeleteInstancesRequest,
    ExecuteRequest,
    InstanceDetail,
    InstancePage,
    Relatives,
    RunRequest,
    TaskList,
    state_of,
)
from api.asking import Asked
from api.cursors import After, Limit
from api.repeating import IdempotencyKey, once_of
from api.route import Id, Route, get, post
from api.version_answers import RunDifference
from common.clock import SystemClock
from common.model.commands import CommandType
from common.model.states import FailureStrategy, Priority, TaskDependType
from common.store.people.families import Relative
from common.store.people.views import ProcessInstanceView
from operations.commands import command_with_id
from operations.deleting import delete_instances
from operations.documents.causes import cause_rows
from operations.documents.commands import command_row
from operations.documents.definition_versions import run_and_latest_document
from operations.documents.deletions import deleted_row
from operations.documents.instances import (
    date_fields,
    instance_row,
    parameter_fields,
    relative_row,
    task_row,
)
from operations.explaining import explain_instance
from operations.instance_commands import PutCommand, execute_tasks, put_command, put_commands
from operations.instance_commands import recover as put_recovery
from operations.instances import family_of, find_instance, instance_detail, list_instances
from operations.run_versions import compare_with_latest
from operations.runs import begin_run
from operations.session import Session
from operations.tasks import list_tasks

TakenVersion: TypeAlias = Annotated[
    Literal["latest"] | None,
    Query(description="`latest`: take the latest version of the definition; else keep the run's."),
]
_MOST_ATTEMPTS: Final = 10_000
_clock = SystemClock()


def list_runs(
    session: Asked,
    *,
    definition_id: Annotated[int | None, Query(ge=1, le=2**31 - 1)] = None,
    definition: Annotated[str | None, Query(max_length=1000)] = None,
    state: Annotated[list[str] | None, Query(max_length=20)] = None,
    limit: Limit = 50,
    after: After = None,
) -> dict[str, Any]:
    """List the runs that you may see, the newest first; of the given states only."""
    found = list_instances(
        session,
        definition=definition,
        definition_id=definition_id,
        states=state or (),
        limit=limit,
        before=cursors.read("instances", after),
    )
    return {
        "items": [_row(each) for each in found],
        "next": cursors.next_of("instances", [each.id for each in found], limit),
    }


def begin(
    request: RunRequest,
    session: Asked,
    response: Response,
    idempotency_key: IdempotencyKey = None,
    prefer: Annotated[str | None, Header(max_length=100)] = None,
) -> dict[str, Any]:
    """Begin a run of an ONLINE definition.

    201 with the run once it exists, which `Prefer: wait=SECONDS` waits for; else 202 with the
    command. A request that is sent again with its `Idempotency-Key` begins no second run.
    """
    command_id = begin_run(
        session,
        request.definition_id,
        params=request.params,
        date=request.date,
        start_nodes=None if request.start_nodes is None else ",".join(request.start_nodes),
        depend=TaskDependType[request.depend],
        failure_strategy=FailureStrategy[request.failure_strategy],
        priority=Priority[request.priority],
        worker_group=request.worker_group,
        environment=request.environment,
        once=once_of(idempotency_key, "run", request),
    )
    instance_id = waiting.await_instance(session, command_id, waiting.seconds_of(prefer))
    response.status_code = 202 if instance_id is None else 201
    return {
        "command": command_row(command_with_id(session, command_id)),
        "instance": None if instance_id is None else _row(find_instance(session, instance_id)),
    }


def show_run(id: Id, session: Asked) -> dict[str, Any]:  # noqa: A002  # The path's name.
    """Show a run with its parameters."""
    detail = instance_detail(session, id, with_tasks=False)
    return {**_row(detail.instance), **date_fields(detail), **parameter_fields(detail)}


def list_attempts(id: Id, session: Asked) -> dict[str, Any]:  # noqa: A002
    """List the attempts at the tasks of a run, superseded ones too."""
    found = list_tasks(session, process_instance_id=id, valid_only=False, limit=_MOST_ATTEMPTS)
    rows = [task_row(each, now=_clock.now()) for each in found]
    return {"items": [row | {"state": state_of(row)} for row in rows]}


def explain_run(
    id: Id,  # noqa: A002
    session: Asked,
    task: Annotated[str | None, Query(max_length=1000)] = None,
) -> dict[str, Any]:
    """Explain why a run is not done, or a task of it."""
    return {"items": cause_rows(explain_instance(session, id, task=task).causes)}


def list_relatives(id: Id, session: Asked) -> dict[str, Any]:  # noqa: A002
    """Show the run that has begun this one, and those that it has begun, as far as you see them."""
    family = family_of(session, find_instance(session, id))
    return {
        "parent": None if family.parent is None else _relative(family.parent),
        "children": [_relative(each) for each in family.children],
    }


def stop(id: Id, session: Asked) -> dict[str, Any]:  # noqa: A002
    """Stop a run with all of its tasks."""
    return _put(session, id, CommandType.STOP)


def pause(id: Id, session: Asked) -> dict[str, Any]:  # noqa: A002
    """Let the running tasks of a run end, and begin no other."""
    return _put(session, id, CommandType.PAUSE)


def compare(id: Id, session: Asked) -> dict[str, Any]:  # noqa: A002
    """Compare a run's copy of its definition with the latest version, and name what would run."""
    return run_and_latest_document(compare_with_latest(session, id))


def resume(id: Id, session: Asked, version: TakenVersion = None) -> dict[str, Any]:  # noqa: A002
    """Go on with a run that was paused or stopped."""
    return _put(session, id, CommandType.RECOVER_SUSPENDED_PROCESS, version)


def rerun(
    id: Id,  # noqa: A002
    session: Asked,
    *,
    failed: bool = False,
    version: TakenVersion = None,
) -> dict[str, Any]:
    """Run all of an ended run again, or what `failed` and what comes after it."""
    kind = CommandType.START_FAILURE_TASK_PROCESS if failed else CommandType.REPEAT_RUNNING
    return _put(session, id, kind, version)


def recover(id: Id, session: Asked, version: TakenVersion = None) -> dict[str, Any]:  # noqa: A002
    """Go on where a run ended: with what failed, or what was stopped."""
    return _accepted(put_recovery(session, id, takes_latest=version is not None))


def execute(id: Id, given: ExecuteRequest, session: Asked) -> dict[str, Any]:  # noqa: A002
    """Run chosen tasks of an ended run again, and nothing else of it."""
    tasks, mode = ",".join(given.tasks), TaskDependType[given.depend]
    return _accepted(execute_tasks(session, id, tasks, mode))


def _put(
    session: Session, number: int, kind: CommandType, version: TakenVersion = None
) -> dict[str, Any]:
    return _accepted(put_command(session, number, kind, takes_latest=version is not None))


def _accepted(command: PutCommand) -> dict[str, Any]:
    return {
        "command_id": command.id,
        "process_instance_id": command.process_instance_id,
        "version": command.version,
        "latest_version": command.latest_version,
    }


def _row(view: ProcessInstanceView) -> dict[str, object]:
    row = instance_row(view, now=_clock.now())
    return row | {"state": state_of(row)}


def _relative(relative: Relative) -> dict[str, object]:
    row = relative_row(relative)
    return row | {"state": state_of(row)}


def act(given: ActionRequest, session: Asked) -> dict[str, Any]:
    """Give an order to several runs, to all or to none; runs of one tree have one command."""
    kind, takes_latest = _ACTIONS[given.action], given.version is not None
    put = put_commands(session, given.ids, kind, takes_latest=takes_latest)
    return {"items": [_accepted(each) for each in put]}


def delete(given: DeleteInstancesRequest, session: Asked) -> dict[str, object]:
    """Delete runs that have ended, with their sub processes, for good: all or none."""
    return deleted_row(delete_instances(session, given.ids, force=given.force))


_ACTIONS: Final[Mapping[str, CommandType | None]] = {
    "stop": CommandType.STOP,
    "pause": CommandType.PAUSE,
    "resume": CommandType.RECOVER_SUSPENDED_PROCESS,
    "rerun": CommandType.REPEAT_RUNNING,
    "recover": None,
}
ROUTES: Final[tuple[Route, ...]] = (
    get("/instances", list_runs, InstancePage, is_quick=True),
    post("/instances", begin, Begun, status=201, other_status=202),
    get("/instances/{id}", show_run, InstanceDetail, is_quick=True),
    get("/instances/{id}/tasks", list_attempts, TaskList, is_quick=True),
    get("/instances/{id}/relatives", list_relatives, Relatives),
    get("/instances/{id}/why", explain_run, CauseList),
    get("/instances/{id}/diff", compare, RunDifference, is_heavy=True),
    post("/instances/actions", act, AcceptedList, status=202),
    post("/instances/delete", delete, DeletedInstances),
    post("/instances/{id}/stop", stop, Accepted, status=202),
    post("/instances/{id}/pause", pause, Accepted, status=202),
    post("/instances/{id}/resume", resume, Accepted, status=202),
    post("/instances/{id}/rerun", rerun, Accepted, status=202),
    post("/instances/{id}/recover", recover, Accepted, status=202),
    post("/instances/{id}/execute", execute, Accepted, status=202),
)
