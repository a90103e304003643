"""Begins runs: puts START_PROCESS commands, whose outcomes `operations.commands` reads."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from common.errors import NotAllowedError
from common.model.command_param import CommandParam
from common.model.rights import Action
from common.model.states import (
    FailureStrategy,
    Priority,
    ReleaseState,
    TaskDependType,
    WarningType,
)
from common.store.people.commands import put_start
from common.store.people.definitions import DefinitionRow
from operations.errors import UsageError
from operations.lookup import (
    definition_given,
    environment_named,
    nodes_named,
    worker_group_named,
)
from operations.repeating import Once, first_answer, keep_answer
from operations.rights import change
from operations.session import Session, moment_of, operation
from operations.start_params import checked_params, marked_params


@operation
def begin_run(
    session: Session,
    definition: str | int,
    *,
    params: Mapping[str, str],
    date: str | None = None,
    start_nodes: str | None = None,
    depend: TaskDependType = TaskDependType.TASK_POST,
    failure_strategy: FailureStrategy = FailureStrategy.CONTINUE,
    priority: Priority = Priority.MEDIUM,
    worker_group: str | None = None,
    warning_type: WarningType = WarningType.NONE,
    environment: str | int | None = None,
    once: Once | None = None,
) -> int:
    """Put a command that begins a run of an ONLINE definition, and return its id.

    `date` is the text of the date that time placeholders count from, `start_nodes` a comma list.
    `environment`, by name or code, is that of tasks which name none. The definition is given by
    id, or by name to the owner of the database. A request that was
    carried out before (`once`) puts nothing, and has the id of the command of then.
    """
    name = definition if isinstance(definition, str) else None
    number = definition if isinstance(definition, int) else None
    with change(
        session, "definition.run", "definition", object_id=number, object_name=name
    ) as made:
        db = made.db
        row = definition_given(db, session.principal, Action.OPERATE, definition)
        made.object_id, made.object_name = row.id, row.name
        made.project_id = row.project_id
        if once is not None:
            answered = first_answer(db, session.principal, once)
            if answered is not None:
                made.detail = f"command {answered}, as before"
                return answered
        moment = None if date is None else _moment(date, session)
        check_online(row)
        names: list[str] = []
        if start_nodes is not None:
            names = nodes_named(
                row.process_definition_json or "",
                start_nodes,
                owner=repr(row.name),
                field="start_nodes",
            )
        code, group = None, -1
        if environment is not None:
            code = environment_named(db, environment, row.project_id)
        if worker_group is not None:
            group = worker_group_named(db, worker_group, row.project_id)
        param = CommandParam.of(
            start_params=marked_params(checked_params(params, row), row) if params else params,
            start_node_names=names,
            environment_code=code,
        )
        _check_size(session, param)
        command_id = put_start(
            db,
            process_definition_id=row.id,
            param=param,
            schedule_time=moment,
            task_depend_type=depend,
            failure_strategy=failure_strategy,
            priority=priority,
            worker_group_id=group,
            warning_type=warning_type,
            executor_id=session.principal.user_id,
        )
        made.detail = f"command {command_id}"
        if once is not None:
            keep_answer(db, session.principal, once, command_id)
        return command_id


def _moment(date: str, session: Session) -> datetime:
    try:
        return moment_of(date, session.zone)
    except (ValueError, OverflowError) as error:
        raise UsageError("date", str(error)) from error


def check_online(definition: DefinitionRow) -> None:
    """Refuse a definition of which no run can begin."""
    if not definition.usable or definition.release_state is not ReleaseState.ONLINE:
        raise NotAllowedError(
            f"{definition.name!r} is OFFLINE; release it first: "
            f"orcaflow definition online {definition.name!r}"
        )


def _check_size(session: Session, param: CommandParam) -> None:
    limit = session.config.command.param_limit_bytes
    text = param.row_text()
    if "\\u0000" in text:
        raise UsageError("param", "a parameter has a NUL character")
    if len(text.encode("utf-8", "replace")) > limit:
        raise NotAllowedError(
            f"the parameters are larger than {limit} bytes (command.param_limit_bytes)"
        )
