"""The alerts that the stores write (contract §5.14), in memory."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime

from common.model.alerts import title_about
from common.model.cluster import Node
from common.model.commands import CommandType
from common.model.states import ProcessState, TaskState, WarningType
from common.store.transaction import storable
from tests.memory.database import Transaction
from tests.memory.rows import AlertRecord, ProcessRecord, TaskRecord

_TABLE, _TEXT = 0, 1
_ADMINS = 1
_TITLE_LIMIT = 64

_WORTH_IT = {
    WarningType.SUCCESS: (ProcessState.SUCCESS,),
    WarningType.FAILURE: (ProcessState.FAILURE,),
    WarningType.ALL: tuple(state for state in ProcessState if state.is_terminal),
}
_COMMAND_NAMES = {
    CommandType.START_PROCESS: "start process",
    CommandType.START_CURRENT_TASK_PROCESS: "start current task process",
    CommandType.START_FAILURE_TASK_PROCESS: "start failure task process",
    CommandType.RECOVER_TOLERANCE_FAULT_PROCESS: "recover tolerance fault process",
    CommandType.RECOVER_SUSPENDED_PROCESS: "recover suspended process",
    CommandType.REPEAT_RUNNING: "repeat running",
    CommandType.SCHEDULER: "scheduler",
    CommandType.COMPLEMENT_DATA: "complement data",
    CommandType.PAUSE: "pause",
    CommandType.STOP: "stop",
}


def alert_of_end(tx: Transaction, process: ProcessRecord) -> None:
    """Alert about the end of a process instance, if its warning type asks for that."""
    state = ProcessState(process.state)
    asked = {int(kind): states for kind, states in _WORTH_IT.items()}
    if process.is_sub_process or state not in asked.get(process.warning_type, ()):
        return
    known = {int(kind): name for kind, name in _COMMAND_NAMES.items()}
    command = known.get(process.command_type, "unknown type")
    definition = tx.database.definitions.get(process.process_definition_id)
    content = ""
    if state is ProcessState.SUCCESS:
        content = _of_success(process, command)
    elif state is ProcessState.FAILURE:
        content = _of_failure(tx.database.attempts(process.id))
    good = state is ProcessState.SUCCESS
    assert process.end_time is not None
    _write(
        tx,
        title=title_about(f"{command} {'success' if good else 'failed'}", process.name),
        show_type=_TEXT if good else _TABLE,
        content=content,
        group_id=process.warning_group_id,
        at=process.end_time,
        receivers=None if definition is None else definition.receivers,
        receivers_cc=None if definition is None else definition.receivers_cc,
    )


def alert_of_lost_attempts(
    tx: Transaction, process: ProcessRecord, tasks: Sequence[TaskRecord], at: datetime
) -> None:
    """Alert about attempts whose worker was lost and which are retried."""
    content = [
        {
            "process name": process.name,
            "task name": task.name,
            "host": task.host or "",
            "task retry times": str(task.retry_times),
        }
        for task in tasks
    ]
    _write(
        tx,
        title=title_about("worker fault tolerance", process.name),
        content=_json(content),
        group_id=process.warning_group_id,
        at=at,
    )


def alert_of_lost_daemon(tx: Transaction, kind: str, dead: Node, at: datetime) -> None:
    """Alert about a lost daemon."""
    _write(
        tx,
        title="Fault tolerance warning",
        content=f"[{{'type':'{kind}','host':'{dead.address}','event':'server down',"
        "'warning level':'serious'}]",
        group_id=_ADMINS,
        at=at,
    )


def alert_of_long_process(tx: Transaction, process: ProcessRecord, at: datetime) -> None:
    """Alert about a process instance that exceeds its time."""
    _write(
        tx,
        title=title_about("Process Timeout Warn", process.name),
        content=_too_long(process.id, process.name),
        group_id=process.warning_group_id,
        at=at,
    )


def alert_of_long_task(
    tx: Transaction, process: ProcessRecord, task: TaskRecord, at: datetime
) -> None:
    """Alert about an attempt that exceeds its time."""
    _write(
        tx,
        title=title_about("Task Timeout Warn", process.name),
        content=_too_long(task.id, task.name),
        group_id=process.warning_group_id,
        at=at,
    )


def alert_of_supervisor(tx: Transaction, name: str, words: str, at: datetime) -> None:
    """Alert about the supervisor of a stream."""
    _write(
        tx,
        title=f"supervisor {name}",
        content=words,
        group_id=_ADMINS,
        at=at,
        show_type=_TEXT,
    )


def _write(
    tx: Transaction,
    *,
    title: str,
    content: str,
    group_id: int,
    at: datetime,
    show_type: int = _TABLE,
    receivers: str | None = None,
    receivers_cc: str | None = None,
) -> None:
    tx.insert(
        tx.database.alerts,
        AlertRecord(
            title=storable(title, _TITLE_LIMIT),
            show_type=show_type,
            content=content,
            alertgroup_id=group_id or _ADMINS,
            receivers=receivers,
            receivers_cc=receivers_cc,
            create_time=at,
            update_time=at,
        ),
    )


def _of_success(process: ProcessRecord, command: str) -> str:
    return _json(
        [
            f"id:{process.id}",
            f"name:{process.name}",
            f"job type: {command}",
            "state: SUCCESS",
            f"recovery:{'YES' if process.recovery else 'NO'}",
            f"run time: {process.run_times}",
            f"start time: {_moment(process.start_time)}",
            f"end time: {_moment(process.end_time)}",
            f"host: {process.host or ''}",
        ]
    )


def _of_failure(tasks: Sequence[TaskRecord]) -> str:
    return _json(
        [
            {
                "task id": str(task.id),
                "task name": task.name,
                "task type": task.task_type,
                "task state": TaskState(task.state).name,
                "task start time": _moment(task.start_time),
                "task end time": _moment(task.end_time),
                "host": task.host or "",
                "log path": task.log_path or "",
            }
            for task in tasks
            if task.flag == 1 and not TaskState(task.state).is_success
        ]
    )


def _too_long(row_id: int, name: str) -> str:
    return f"[{{'id':'{row_id}','name':'{name}','event':'timeout','warnLevel':'middle'}}]"


def _moment(moment: datetime | None) -> str:
    return "" if moment is None else f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def _json(document: object) -> str:
    return json.dumps(document, ensure_ascii=False, separators=(",", ":"))
