"""The operations that an api-server answers, each by the routes that it takes.

`ANSWERS` is the table, with those of the modules of `_LATER`, by the module and name of the
function in `operations`; each has the signature of that function but for the session, in whose
place it has the client.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import date, datetime
from importlib import import_module
from typing import Any, Final

from common.dag import Dag
from common.errors import (
    NotAllowedError,
    NotFoundError,
    SchedulerError,
    ServiceUnreachableError,
)
from common.model.command_param import LATEST
from common.model.commands import CommandOutcome, CommandType
from common.model.states import (
    FailureStrategy,
    Priority,
    TaskDependType,
    TaskState,
    WarningType,
)
from common.store.people.ledger import CommandView
from common.store.people.run_details import ProcessInstanceDetail
from common.store.people.views import (
    ProcessInstanceView,
    TaskInstanceView,
)
from common.why import Cause
from operations.control_decisions import ControlDecision
from operations.errors import CommandFailedError, UsageError
from operations.explaining import Explained
from operations.installation import orcaflow_version
from operations.instance_commands import PutCommand
from operations.instances import Family, RunSnapshot
from operations.log_pieces import Log, Piece
from operations.lookup import state_named
from operations.members import MemberHealth
from operations.rendering import Rendered
from operations.task_log import LogMissingError
from orcaflow.remote import definitions, groups_and_pools, people
from orcaflow.remote.client import Client, other_version
from orcaflow.remote.definitions import definition_named
from orcaflow.remote.documents import (
    causes_of,
    command_of,
    decision_from,
    instance_of,
    member_of,
    moment_of,
    relative_of,
    task_of,
)

_PAGE: Final = 500

_WORDS: Final[Mapping[CommandType, str]] = {
    CommandType.STOP: "stop",
    CommandType.PAUSE: "pause",
    CommandType.RECOVER_SUSPENDED_PROCESS: "resume",
    CommandType.REPEAT_RUNNING: "rerun",
}


def list_instances(
    client: Client,
    *,
    definition: str | None = None,
    states: Sequence[str] = (),
    limit: int,
) -> list[ProcessInstanceView]:
    """List runs, a page at a time."""
    number = None if definition is None else definition_named(client, definition).id
    found: list[ProcessInstanceView] = []
    after: str | None = None
    while len(found) < limit:
        page = min(_PAGE, limit - len(found))
        asked = {"definition_id": number, "state": list(states), "limit": page, "after": after}
        answer = client.get("/instances", asked)
        found += [instance_of(row) for row in answer["items"]]
        after = answer["next"]
        if after is None:
            break
    return found


def find_instance(client: Client, process_instance_id: int) -> ProcessInstanceView:
    """Return the run."""
    return instance_of(client.get(f"/instances/{process_instance_id}"))


def list_tasks(
    client: Client,
    *,
    process_instance_id: int | None = None,
    states: Sequence[str] = (),
    valid_only: bool = True,
    limit: int,
) -> list[TaskInstanceView]:
    """List the attempts of one run."""
    codes = [state_named(TaskState, each) for each in states]
    if process_instance_id is None:
        raise UsageError("instance", "over HTTP the attempts of one run are listed: --instance ID")
    found = [
        view
        for view in _tasks(client, process_instance_id)
        if (not codes or view.state in codes)
        and (not valid_only or view.valid or view.lost_at is not None)
    ]
    return found[-limit:]


def snapshot_of(client: Client, process_instance_id: int) -> RunSnapshot:
    """Return the run as it is now."""
    instance = find_instance(client, process_instance_id)
    tasks = [
        view
        for view in _tasks(client, process_instance_id)
        if view.valid or view.lost_at is not None
    ]
    return RunSnapshot(instance=instance, tasks={task.name: task for task in tasks})


def dag_of(client: Client, process_instance_id: int) -> Dag | None:
    """Return no DAG: the tree of a watched run grows with its tasks then."""
    find_instance(client, process_instance_id)
    return None


def find_task(client: Client, task_instance_id: int) -> TaskInstanceView:
    """Return the attempt."""
    return task_of(client.get(f"/tasks/{task_instance_id}"))


def force_success(client: Client, task_instance_id: int) -> TaskInstanceView:
    """Declare a failed attempt to be a success."""
    return task_of(client.post(f"/tasks/{task_instance_id}/force-success"))


def render_task(client: Client, task_instance_id: int) -> tuple[TaskInstanceView, Rendered]:
    """Return the attempt, and its parameters and texts as its worker renders them."""
    task = find_task(client, task_instance_id)
    try:
        row = client.get(f"/tasks/{task_instance_id}/render")
    except NotAllowedError as error:
        raise SchedulerError(str(error)) from None
    rendered = Rendered(
        moment=datetime.fromisoformat(row["moment"]),
        parameters=row["parameters"],
        origins=row["origins"],
        params=row["params"],
        put_out=row["put_out"],
    )
    return task, rendered


def decision_of(client: Client, task_instance_id: int) -> ControlDecision:
    """Return the decision of a control task."""
    return decision_from(client.get(f"/tasks/{task_instance_id}/decision"))


class _ServedLog:
    """The source of a log that a server passes on."""

    def __init__(self, client: Client, task_instance_id: int) -> None:
        self._client = client
        self._path = f"/tasks/{task_instance_id}/log"

    def piece(self, start: int, most: int, wait_seconds: int = 0) -> Piece:
        """Return some bytes; it never waits."""
        del wait_seconds
        try:
            body, headers = self._client.get_bytes(self._path, {"from": start, "max": most})
        except NotFoundError as error:
            raise LogMissingError(str(error)) from error
        try:
            return Piece(body, int(headers["Log-Size"]), int(headers["Log-Start"]))
        except (TypeError, ValueError) as error:
            raise other_version(self._client, orcaflow_version()) from error


@contextmanager
def opened_anywhere(
    client: Client, task: TaskInstanceView, *, waits: bool = False
) -> Iterator[Log]:
    """Open the log of an attempt."""
    source = _ServedLog(client, task.id)
    source.piece(0, 0)
    yield Log(source, waits=waits)


def last_lines_anywhere(client: Client, task: TaskInstanceView, *, lines: int) -> list[str]:
    """Return the last lines of a log."""
    with opened_anywhere(client, task) as log:
        log.skip_to_last(lines)
        return "".join(log.rest()).splitlines()


def _tasks(client: Client, process_instance_id: int) -> list[TaskInstanceView]:
    return [task_of(row) for row in client.get(f"/instances/{process_instance_id}/tasks")["items"]]


def explain_instance(
    client: Client, process_instance_id: int, *, task: str | None = None
) -> Explained:
    """Explain a run or a task of it."""
    detail = instance_detail(client, process_instance_id, with_tasks=False)
    rows = client.get(f"/instances/{process_instance_id}/why", {"task": task})["items"]
    return Explained(
        name=detail.instance.name,
        state=detail.instance.state,
        causes=causes_of(rows),
        business_date=detail.business_date,
        date_rule=detail.date_rule,
    )


def has_master(client: Client) -> bool | None:
    """Return True if a master is alive; None if ZooKeeper does not answer."""
    try:
        rows = client.get("/servers")["items"]
    except ServiceUnreachableError:
        return None
    return any(row["kind"] == "master" for row in rows)


def causes_of_command(client: Client, command_id: int) -> tuple[Cause, ...]:
    """Explain why the command still waits."""
    return causes_of(client.get(f"/commands/{command_id}/why")["items"])


def causes_of_task_instance(client: Client, task_instance_id: int) -> tuple[Cause, ...]:
    """Explain why the attempt is not done."""
    return causes_of(client.get(f"/tasks/{task_instance_id}/why")["items"])


def list_commands(
    client: Client,
    *,
    outcomes: Sequence[str] = (),
    definition: str | None = None,
    limit: int,
) -> list[CommandView]:
    """List commands; at most a page, since their list has no other."""
    if limit > _PAGE:
        raise UsageError("limit", f"over HTTP no more than {_PAGE} commands are listed")
    asked = {"outcome": list(outcomes), "definition": definition, "limit": limit}
    return [command_of(row) for row in client.get("/commands", asked)["items"]]


def command_with_id(client: Client, command_id: int) -> CommandView:
    """Return the command with its outcome."""
    return command_of(client.get(f"/commands/{command_id}"))


def outcome(client: Client, command_id: int) -> CommandView | None:
    """Return the command once it is carried out; `CommandFailedError` if it had no effect."""
    found = command_with_id(client, command_id)
    if found.outcome is None:
        return None
    if found.outcome is not CommandOutcome.TAKEN:
        raise CommandFailedError(found)
    return found


def members_with_health(client: Client) -> list[MemberHealth]:
    """Return the masters and workers of the cluster."""
    return [member_of(row) for row in client.get("/servers")["items"]]


def begin_run(
    client: Client,
    definition: str,
    *,
    params: Mapping[str, str],
    date: str | None = None,
    start_nodes: str | None = None,
    depend: TaskDependType = TaskDependType.TASK_POST,
    failure_strategy: FailureStrategy = FailureStrategy.CONTINUE,
    priority: Priority = Priority.MEDIUM,
    worker_group: str | None = None,
    warning_type: WarningType = WarningType.NONE,
    environment: str | None = None,
) -> int:
    """Put the command that begins a run of the definition of this name."""
    if warning_type is not WarningType.NONE:
        raise UsageError("warning_type", "over HTTP a run can't ask for alerts yet")
    body = {
        "definition_id": definition_named(client, definition).id,
        "params": dict(params),
        "date": date,
        "start_nodes": None if start_nodes is None else start_nodes.split(","),
        "depend": depend.name,
        "failure_strategy": failure_strategy.name,
        "priority": priority.name,
        "worker_group": worker_group,
        "environment": environment,
    }
    begun = client.post("/instances", {key: each for key, each in body.items() if each is not None})
    number: int = begun["command"]["id"]
    return number


def put_command(
    client: Client,
    process_instance_id: int,
    command_type: CommandType,
    *,
    takes_latest: bool = False,
    notify: Callable[[str], None] = lambda _: None,
) -> PutCommand:
    """Put a command to a run."""
    query: dict[str, Any] = {"version": LATEST} if takes_latest else {}
    if command_type is CommandType.START_FAILURE_TASK_PROCESS:
        query["failed"] = "true"
        return _put(client, process_instance_id, "rerun", command_type, notify, query=query)
    word = _WORDS.get(command_type)
    if word is None:
        raise NotAllowedError(
            f"over HTTP there is no {command_type.name} yet; `orcaflow instance recover`"
            f" {process_instance_id} goes on where the run ended"
        )
    return _put(client, process_instance_id, word, command_type, notify, query=query)


def recover(
    client: Client,
    process_instance_id: int,
    *,
    takes_latest: bool = False,
    notify: Callable[[str], None] = lambda _: None,
) -> PutCommand:
    """Put the command that goes on where a run ended."""
    kind = CommandType.START_FAILURE_TASK_PROCESS
    query = {"version": LATEST} if takes_latest else {}
    return _put(client, process_instance_id, "recover", kind, notify, query=query)


def execute_tasks(
    client: Client,
    process_instance_id: int,
    tasks: str,
    mode: TaskDependType,
    *,
    notify: Callable[[str], None] = lambda _: None,
) -> PutCommand:
    """Put the command that runs tasks of an ended run again; it has no root to name."""
    del notify
    names = [name for each in tasks.split(",") if (name := each.strip())]
    if not names:
        find_instance(client, process_instance_id)
        raise UsageError("tasks", "names no task")
    body = {"tasks": names, "depend": mode.name}
    put = client.post(f"/instances/{process_instance_id}/execute", body)
    return _command_of(put, CommandType.EXECUTE_TASK)


def instance_detail(
    client: Client, process_instance_id: int, *, with_tasks: bool = True
) -> ProcessInstanceDetail:
    """Return a run with its parameters and every attempt, without the JSON of its tasks."""
    row = client.get(f"/instances/{process_instance_id}")
    return ProcessInstanceDetail(
        instance=instance_of(row),
        process_instance_json="",
        command_param=row["command_param"],
        global_params=row["global_params"],
        tasks=tuple(_tasks(client, process_instance_id)) if with_tasks else (),
        business_time=moment_of(row["business_time"]),
        business_date=_day_of(row["business_date"]),
    )


def _day_of(text: str | None) -> date | None:
    return None if text is None else date.fromisoformat(text)


def family_of(client: Client, instance: ProcessInstanceView) -> Family:
    """Return the run above this one, and those below it, as far as the token shows them."""
    answer = client.get(f"/instances/{instance.id}/relatives")
    parent = answer["parent"]
    return Family(
        parent=None if parent is None else relative_of(parent),
        children=tuple(relative_of(each) for each in answer["children"]),
    )


def is_taken(client: Client, command: PutCommand) -> bool:
    """Return True once a master has carried the command out."""
    return outcome(client, command.id) is not None


def _put(
    client: Client,
    process_instance_id: int,
    word: str,
    command_type: CommandType,
    notify: Callable[[str], None],
    *,
    query: Mapping[str, Any],
) -> PutCommand:
    def tell_root(root: int) -> None:
        if root not in (0, process_instance_id):
            notify(
                f"process instance {process_instance_id} is a sub process: the command goes to the"
                f" root of its tree, {root}"
            )

    try:
        put = client.post(f"/instances/{process_instance_id}/{word}", query=query)
    except NotAllowedError:
        # The refusal is about the root, which has to be named first.
        tell_root(find_instance(client, process_instance_id).root_id)
        raise
    root: int = put["process_instance_id"]
    tell_root(root)
    return _command_of(put, command_type)


def _command_of(put: Mapping[str, Any], command_type: CommandType) -> PutCommand:
    return PutCommand(
        id=put["command_id"],
        process_instance_id=put["process_instance_id"],
        command_type=command_type,
        version=put["version"],
        latest_version=put["latest_version"],
    )


def answer_of(operation: str) -> Callable[..., Any] | None:
    """Return what answers an operation; None if no server does."""
    module = _LATER.get(operation.partition(".")[0])
    if module is None:
        return ANSWERS.get(operation)
    found: Mapping[str, Callable[..., Any]] = import_module(f"orcaflow.remote.{module}").ANSWERS
    return found.get(operation)


_LATER: Final[Mapping[str, str]] = {
    "datasources": "datasources",
    "grants": "grants",
    "proposals": "reviews",
    "shares": "shares",
    **dict.fromkeys(("workers", "worker_strategies"), "workers"),
    **dict.fromkeys(("datasets", "locks", "streams"), "streams"),
    **dict.fromkeys(("topologies", "topology_submission"), "topologies"),
    **dict.fromkeys(("previewing", "scheduling", "simulating"), "schedules"),
    **dict.fromkeys(
        ("complement_control", "complement_progress", "complementing", "stored_complements"),
        "complements",
    ),
}
"""The modules of operations that few commands need, and that are read in for these alone."""
ANSWERS: Final[Mapping[str, Callable[..., Any]]] = {
    **definitions.ANSWERS,
    **groups_and_pools.ANSWERS,
    **people.ANSWERS,
    "commands.command_with_id": command_with_id,
    "commands.list_commands": list_commands,
    "commands.outcome": outcome,
    "control_decisions.decision_of": decision_of,
    "explaining.causes_of_command": causes_of_command,
    "explaining.causes_of_task_instance": causes_of_task_instance,
    "explaining.explain_instance": explain_instance,
    "explaining.has_master": has_master,
    "instance_commands.is_taken": is_taken,
    "instance_commands.put_command": put_command,
    "instance_commands.recover": recover,
    "instance_commands.execute_tasks": execute_tasks,
    "instances.dag_of": dag_of,
    "instances.family_of": family_of,
    "instances.find_instance": find_instance,
    "instances.instance_detail": instance_detail,
    "instances.list_instances": list_instances,
    "instances.snapshot_of": snapshot_of,
    "members.members_with_health": members_with_health,
    "runs.begin_run": begin_run,
    "tasks.find_task": find_task,
    "tasks.force_success": force_success,
    "tasks.list_tasks": list_tasks,
    "tasks.render_task": render_task,
    "worker_logs.last_lines_anywhere": last_lines_anywhere,
    "worker_logs.opened_anywhere": opened_anywhere,
}
