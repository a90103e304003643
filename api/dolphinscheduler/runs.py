"""Runs begun and steered: start, complement, stop, pause, repeat, recover."""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from api.dolphinscheduler.call import Call
from api.dolphinscheduler.envelope import RefusedError, Status
from api.dolphinscheduler.table import Row
from api.waiting import LONGEST_SECONDS, await_instance, await_some
from common.clock import SystemClock
from common.errors import NotAllowedError
from common.model.command_param import LATEST, ParamKey
from common.model.commands import CommandType
from common.model.complement_states import Downstream, OnFailure, RunOrder
from common.model.rights import Action
from common.model.states import (
    FailureStrategy,
    Priority,
    ProcessState,
    ReleaseState,
    TaskDependType,
    WarningType,
)
from common.store.people.definitions import DefinitionRow
from common.store.people.rights import Thing
from operations import complementing, numbered_pages
from operations.complementing import ComplementOptions
from operations.errors import ForbiddenError, PendingCommandError, UsageError
from operations.instance_commands import PutCommand, execute_tasks, put_command
from operations.instances import find_instance
from operations.projects import check_in, definition_in
from operations.runs import begin_run
from operations.task_codes import graph_of

COMPLEMENTS: Final = 2**40
"""Trigger codes from here on are those of complements; smaller ones are ids of commands."""

_ORDERS: Final = {
    "REPEAT_RUNNING": CommandType.REPEAT_RUNNING,
    "RECOVER_SUSPENDED_PROCESS": CommandType.RECOVER_SUSPENDED_PROCESS,
    "START_FAILURE_TASK_PROCESS": CommandType.START_FAILURE_TASK_PROCESS,
    "STOP": CommandType.STOP,
    "PAUSE": CommandType.PAUSE,
}
_NUMBERS: Final = ("NONE", *_ORDERS)
_ALREADY: Final = {
    CommandType.STOP: (ProcessState.STOP, ProcessState.READY_STOP),
    CommandType.PAUSE: (ProcessState.PAUSE, ProcessState.READY_PAUSE),
}
_PARALLEL: Final = "RUN_MODE_PARALLEL"
_DEFAULT_PARALLELISM: Final = 2


def start(call: Call) -> Any:
    """Begin a run, or a complement; the answer is as each dialect has it."""
    project = call.project
    if call.dialect.is_classic:
        number = call.needed_number("processDefinitionId")
        row = definition_in(call.session, project, definition_id=number, action=Action.OPERATE)
    else:
        code = call.needed_number(*call.worded("DefinitionCode"))
        row = definition_in(call.session, project, code=code, action=Action.OPERATE)
    return _answered(call, [_begun(call, row)])


def start_many(call: Call) -> Any:
    """Begin runs of several definitions, each by itself."""
    project = call.project
    codes = call.numbers(*call.worded("DefinitionCodes"))
    # All are looked for before any is begun.
    rows = [
        definition_in(call.session, project, code=each, action=Action.OPERATE) for each in codes
    ]
    for row in rows:
        _check_online(row)
    return _answered(call, [_begun(call, row) for row in rows])


def check_start(call: Call) -> Any:
    """Refuse a definition that can't be started, since it is OFFLINE."""
    project = call.project
    if call.dialect.is_classic:
        row = definition_in(
            call.session, project, definition_id=call.needed_number("processDefinitionId")
        )
    else:
        code = call.needed_number(*call.worded("DefinitionCode"))
        row = definition_in(call.session, project, code=code)
    _check_online(row)
    return None if call.dialect.is_classic else True


def execute(call: Call) -> dict[str, int] | None:
    """Steer a run; a restart that leaves a later version of the definition aside names both.

    `definitionVersion=latest`, which the original has not, takes the latest version.
    """
    number = call.needed_number(*call.worded("InstanceId"))
    kind = _order(call)
    check_in(call.session, call.project, Thing.INSTANCE, [number], action=Action.OPERATE)
    return _versions(_put(call, number, kind))


def _versions(put: PutCommand) -> dict[str, int] | None:
    """Return the version that runs and the later one; None if there is no later one."""
    if put.version is None or put.latest_version is None or not put.has_newer_version:
        return None
    return {"version": put.version, "latestVersion": put.latest_version}


def execute_many(call: Call) -> None:
    """Steer several runs, each by itself; the first refusal is told after all were tried."""
    numbers = call.numbers(*call.worded("InstanceIds"))
    kind = _order(call)
    check_in(call.session, call.project, Thing.INSTANCE, numbers, action=Action.OPERATE)
    refused: RefusedError | None = None
    for number in numbers:
        try:
            _put(call, number, kind)
        except RefusedError as error:
            refused = refused or error
    if refused is not None:
        raise refused


def execute_task(call: Call) -> dict[str, int] | None:
    """Execute tasks of a run that has ended, named by their codes.

    They run as the run's copy of the definition has them; a later version is named, as `execute`
    does.
    """
    number = call.needed_number(*call.worded("InstanceId"))
    mode = call.choice(TaskDependType, "taskDependType", default=TaskDependType.TASK_POST)
    check_in(call.session, call.project, Thing.INSTANCE, [number], action=Action.OPERATE)
    instance = find_instance(call.session, number)
    row = definition_in(call.session, call.project, definition_id=instance.process_definition_id)
    names = _start_nodes(call, row) or ""
    try:
        return _versions(execute_tasks(call.session, number, names, mode))
    except NotAllowedError as error:
        raise _explained(call, number, CommandType.EXECUTE_TASK, error) from error


def _begun(call: Call, row: DefinitionRow) -> int:
    """Put the command, or make the complement; return the trigger code."""
    _check_online(row)
    _check_known(call, row)
    kind = (call.text("execType") or "START_PROCESS").upper()
    if kind == "COMPLEMENT_DATA":
        return COMPLEMENTS + _complement(call, row)
    if kind not in ("START_PROCESS", "NULL"):
        raise UsageError("execType", f"{kind!r:.60} is neither START_PROCESS nor COMPLEMENT_DATA")
    return begin_run(
        call.session,
        row.id,
        params=_start_params(call),
        start_nodes=_start_nodes(call, row),
        depend=call.choice(TaskDependType, "taskDependType", default=TaskDependType.TASK_POST),
        failure_strategy=_failure_strategy(call),
        priority=_priority(call),
        worker_group=_worker_group(call),
        warning_type=call.choice(WarningType, "warningType", default=WarningType.NONE),
        environment=environment_of(call),
    )


def _check_online(row: DefinitionRow) -> None:
    if not row.usable or row.release_state is not ReleaseState.ONLINE:
        raise RefusedError(Status.DEFINITION_OFFLINE, row.name, row.version)


def _check_known(call: Call, row: DefinitionRow) -> None:
    """Refuse what would be something else than a run."""
    if call.number("dryRun", default=0) or call.number("testFlag", default=0):
        raise RefusedError(
            Status.INTERNAL, "there is no dry run here; see `orcaflow definition lint`"
        )
    if call.number("version", default=row.version) != row.version:
        raise RefusedError(
            Status.INTERNAL, "only the present version of a definition runs: leave version out"
        )


def _complement(call: Call, row: DefinitionRow) -> int:
    first, last, dates = _dates(call)
    is_parallel = (call.text("runMode") or "").upper() == _PARALLEL
    asked = call.number(ParamKey.PARALLELISM, default=_DEFAULT_PARALLELISM) or 0
    names = _start_nodes(call, row)
    follows = (call.text(ParamKey.DOWNSTREAM) or "OFF_MODE").upper() == "ALL_DEPENDENT"
    reach = Downstream.ALL if call.text(ParamKey.ALL_LEVELS) == "true" else Downstream.DIRECT
    order = (call.text(ParamKey.RUN_ORDER) or "DESC_ORDER").upper()
    views = complementing.create(
        call.session,
        row.id,
        ComplementOptions(
            first=first,
            last=last,
            dates=dates,
            parallelism=max(1, asked) if is_parallel else 1,
            # 1.x to 3.1 go forwards, and so does whoever does not say anything else.
            order=RunOrder.DESCENDING
            if call.text(ParamKey.RUN_ORDER) and order == "DESC_ORDER"
            else RunOrder.ASCENDING,
            on_failure=OnFailure.STOP,
            downstream=reach if follows else Downstream.NONE,
            start_nodes=() if names is None else (names,),
            task_depend_type=call.choice(
                TaskDependType, "taskDependType", default=TaskDependType.TASK_POST
            ),
            failure_strategy=_failure_strategy(call),
            priority=_priority(call),
            worker_group=_worker_group(call),
            environment=environment_of(call),
            start_params=_start_params(call),
            warning_type=call.choice(WarningType, "warningType", default=WarningType.NONE),
        ),
        now=SystemClock().now(),
    )
    return views[0].id


def _dates(call: Call) -> tuple[str | None, str | None, tuple[str, ...]]:
    """Return the range or the dates: two joined by a comma, or an object of the later dialects."""
    given = call.needed("scheduleTime")
    if given.lstrip().startswith("{"):
        found = call.document("scheduleTime")
        listed = found.get(ParamKey.DATES)
        if isinstance(listed, str) and listed.strip():
            return None, None, tuple(each.strip() for each in listed.split(","))
        first, last = found.get(ParamKey.FIRST_DATE), found.get(ParamKey.LAST_DATE)
        if isinstance(first, str) and isinstance(last, str):
            return first, last, ()
        raise UsageError(
            "scheduleTime", "has neither complementStartDate and complementEndDate nor a list"
        )
    parts = [each.strip() for each in given.split(",")]
    if len(parts) != 2:
        raise UsageError("scheduleTime", "is two dates joined by a comma")
    return parts[0], parts[1], ()


def _start_params(call: Call) -> dict[str, str]:
    """Return the start-up parameters: an object of texts, or a list of properties."""
    found = call.document("startParams")
    if not found:
        return {}
    if isinstance(found, list):
        pairs = [
            (each.get("prop"), each.get("value")) if isinstance(each, dict) else (None, None)
            for each in found
        ]
    elif isinstance(found, dict):
        pairs = list(found.items())
    else:
        raise UsageError("startParams", "is neither an object nor a list of properties")
    for name, value in pairs:
        if not isinstance(name, str) or not name or isinstance(value, dict | list):
            raise UsageError("startParams", "has a name or a value that is no text")
    return {str(name): _text_of(value) for name, value in pairs}


def _text_of(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value)


def _start_nodes(call: Call, row: DefinitionRow) -> str | None:
    """Return the names of the tasks to begin with; later dialects name them by their codes."""
    given = call.text("startNodeList")
    if given is None:
        return None
    parts = [each.strip() for each in given.split(",") if each.strip()]
    if call.dialect.is_classic or not all(each.isdigit() for each in parts):
        return ",".join(parts)
    graph = graph_of(row.id, row.process_definition_json)
    return ",".join(graph.names_of([int(each[:20]) for each in parts]))


def _failure_strategy(call: Call) -> FailureStrategy:
    return call.choice(FailureStrategy, "failureStrategy", default=FailureStrategy.CONTINUE)


def _priority(call: Call) -> Priority:
    return call.choice(Priority, *call.worded("InstancePriority"), default=Priority.MEDIUM)


def _worker_group(call: Call) -> str | None:
    given = call.text("workerGroup")
    return None if given in (None, "default") else given


def environment_of(call: Call) -> int | None:
    """Return the code of an environment; None for -1 and its like, which are none there."""
    code = call.number("environmentCode", default=-1) or -1
    return code if code > 0 else None


def _answered(call: Call, triggers: list[int]) -> Any:
    """Return nothing in 1.x, the trigger code until 3.2, and the ids of the runs from then on."""
    if call.dialect.is_classic:
        return None
    if "process" in call.dialect.words:
        return triggers[0] if len(triggers) == 1 else triggers
    found: list[int] = []
    clock = SystemClock()
    until = clock.monotonic() + LONGEST_SECONDS
    for code in triggers:
        if code >= COMPLEMENTS:
            number = code - COMPLEMENTS
            read = partial(
                numbered_pages.runs_of, call.session, call.project.id, complement_id=number
            )
            found += await_some(read, until - clock.monotonic())
            continue
        instance = await_instance(call.session, code, until - clock.monotonic())
        if instance is None:
            raise RefusedError(
                Status.INTERNAL,
                f"command {code} waits for a master; it is carried out as soon as one lives"
                f" (see /api/v1/commands/{code}/why)",
            )
        found.append(instance)
    return found


def _order(call: Call) -> CommandType:
    given = call.needed("executeType").upper()
    if given.isdigit() and int(given[:9]) < len(_NUMBERS):
        given = _NUMBERS[int(given)]
    if given not in _ORDERS:
        raise UsageError("executeType", f"{given!r:.60} is none of {', '.join(_ORDERS)}")
    return _ORDERS[given]


def _put(call: Call, number: int, kind: CommandType) -> PutCommand:
    version = call.text(ParamKey.VERSION)
    if version not in (None, LATEST):
        raise UsageError(ParamKey.VERSION, f"{version!r:.60} is not {LATEST!r}")
    try:
        return put_command(call.session, number, kind, takes_latest=version is not None)
    except NotAllowedError as error:
        raise _explained(call, number, kind, error) from error


def _explained(
    call: Call, number: int, kind: CommandType, error: NotAllowedError
) -> RefusedError | NotAllowedError:
    """Tell a refused order as the original does: already so, not in this state, or busy."""
    if isinstance(error, ForbiddenError):
        return error
    found = find_instance(call.session, number)
    state = call.dialect.process_state(found.state)
    if isinstance(error, PendingCommandError):
        return RefusedError(Status.INSTANCE_BUSY, found.name, more=str(error))
    if found.state in _ALREADY.get(kind, ()):
        return RefusedError(Status.INSTANCE_ALREADY, found.name, state)
    return RefusedError(Status.INSTANCE_STATE, found.name, state, kind.name, more=str(error))


_EXECUTORS: Final = "projects/{project}/executors"
ROWS: Final[tuple[Row, ...]] = (
    Row(
        serve=start,
        takes=Action.OPERATE,
        thing=Thing.DEFINITION,
        classic=("POST", f"{_EXECUTORS}/start-process-instance"),
        later=("POST", f"{_EXECUTORS}/start-process-instance"),
        refused=Status.START,
    ),
    Row(
        serve=start,
        takes=Action.OPERATE,
        thing=Thing.DEFINITION,
        later=("POST", f"{_EXECUTORS}/start-{{word}}-instance"),
        refused=Status.START,
    ),
    Row(
        serve=start_many,
        takes=Action.OPERATE,
        thing=Thing.DEFINITION,
        later=("POST", f"{_EXECUTORS}/batch-start-{{word}}-instance"),
        refused=Status.START,
    ),
    Row(
        serve=check_start,
        takes=Action.VIEW,
        thing=Thing.DEFINITION,
        classic=("POST", f"{_EXECUTORS}/start-check"),
        later=("POST", f"{_EXECUTORS}/start-check"),
    ),
    Row(
        serve=execute,
        takes=Action.OPERATE,
        thing=Thing.INSTANCE,
        classic=("POST", f"{_EXECUTORS}/execute"),
        later=("POST", f"{_EXECUTORS}/execute"),
        refused=Status.EXECUTE,
    ),
    Row(
        serve=execute_many,
        takes=Action.OPERATE,
        thing=Thing.INSTANCE,
        later=("POST", f"{_EXECUTORS}/batch-execute"),
        refused=Status.EXECUTE,
    ),
    Row(
        serve=execute_task,
        takes=Action.OPERATE,
        thing=Thing.INSTANCE,
        later=("POST", f"{_EXECUTORS}/execute-task"),
        refused=Status.EXECUTE,
    ),
)
