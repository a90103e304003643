"""The alerts that masters write: ends of runs, lost daemons and attempts, supervisors.

Worded as contract §5.14 has them. Times are UTC. Used by a save and by failover.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Final

from sqlalchemy import Connection, select

from common.model.alerts import ADMINISTRATORS, ShowType, title_about
from common.model.cluster import Node, NodeKind
from common.model.commands import CommandType
from common.model.states import ProcessState, TaskState, WarningType
from common.store.alerts import alert_row, write_alerts
from common.store.master.attempts import IS_NAMED, NAMED, AttemptName, named
from common.store.tables import process_definition, process_instance, task_instance
from common.store.transaction import AnyRow, any_of, storable

_JOB_TYPES: Final = {
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

_PROCESSES: Final = (
    select(
        process_instance.c.id,
        process_instance.c.name,
        process_instance.c.command_type,
        process_instance.c.state,
        process_instance.c.recovery,
        process_instance.c.run_times,
        process_instance.c.start_time,
        process_instance.c.end_time,
        process_instance.c.host,
        process_instance.c.warning_group_id,
        process_definition.c.receivers,
        process_definition.c.receivers_cc,
    )
    .outerjoin_from(
        process_instance,
        process_definition,
        process_definition.c.id == process_instance.c.process_definition_id,
    )
    .where(process_instance.c.id == any_of("ids"))
    .order_by(process_instance.c.id)
)
_UNSUCCESSFUL: Final = (
    select(
        task_instance.c.process_instance_id,
        task_instance.c.id,
        task_instance.c.name,
        task_instance.c.task_type,
        task_instance.c.state,
        task_instance.c.start_time,
        task_instance.c.end_time,
        task_instance.c.host,
        task_instance.c.log_path,
    )
    .where(task_instance.c.process_instance_id == any_of("ids"))
    .where(task_instance.c.flag == 1)
    .where(task_instance.c.state.not_in((TaskState.SUCCESS, TaskState.FORCED_SUCCESS)))
    .order_by(task_instance.c.id)
)
_FAILED_OVER: Final = (
    select(
        task_instance.c.process_instance_id,
        task_instance.c.name,
        task_instance.c.attempt,
        task_instance.c.host,
        task_instance.c.retry_times,
        process_instance.c.name.label("process_name"),
        process_instance.c.warning_group_id,
    )
    .join_from(task_instance, NAMED, IS_NAMED)
    .join(process_instance, process_instance.c.id == task_instance.c.process_instance_id)
)


def is_worth_an_alert(run: AnyRow, state: ProcessState) -> bool:
    """Return True if the end of this run raises an alert; a sub process leaves it to its root."""
    if run.is_sub_process:
        return False
    return (
        run.warning_type == WarningType.ALL
        or (run.warning_type == WarningType.SUCCESS and state is ProcessState.SUCCESS)
        or (run.warning_type == WarningType.FAILURE and state is ProcessState.FAILURE)
    )


def alert_of_ends(db: Connection, ends: Mapping[int, datetime]) -> None:
    """Write an alert for each of these process instances, whose ends stand in their rows."""
    rows = db.execute(_PROCESSES, {"ids": list(ends)}).all()
    failed = [row.id for row in rows if row.state == ProcessState.FAILURE]
    bad: dict[int, list[AnyRow]] = {run_id: [] for run_id in failed}
    if failed:
        for task in db.execute(_UNSUCCESSFUL, {"ids": failed}):
            bad[task.process_instance_id].append(task)
    write_alerts(
        db,
        [
            alert_row(
                title=title_about(f"{_job_type(row)} {_outcome(row)}", row.name),
                show_type=(ShowType.TEXT if row.state == ProcessState.SUCCESS else ShowType.TABLE),
                content=_end_content(row, bad.get(row.id, ())),
                group_id=row.warning_group_id,
                at=ends[row.id],
                receivers=row.receivers,
                receivers_cc=row.receivers_cc,
            )
            for row in rows
        ],
    )


def alert_of_lost_attempts(db: Connection, lost: Mapping[AttemptName, datetime]) -> None:
    """Write an alert for each run, listing its attempts that are repeated on other workers."""
    rows = {
        (row.process_instance_id, row.name, row.attempt): row
        for row in db.execute(_FAILED_OVER, named(lost))
    }
    runs: dict[int, list[AnyRow]] = {}
    for name in lost:
        if name in rows:
            runs.setdefault(name[0], []).append(rows[name])
    times = {name[0]: at for name, at in lost.items()}
    write_alerts(
        db,
        [
            alert_row(
                title=title_about("worker fault tolerance", tasks[0].process_name),
                show_type=ShowType.TABLE,
                content=_json(
                    [
                        {
                            "process name": task.process_name,
                            "task name": task.name,
                            "host": task.host or "",
                            "task retry times": str(task.retry_times),
                        }
                        for task in tasks
                    ]
                ),
                group_id=tasks[0].warning_group_id,
                at=times[run_id],
            )
            for run_id, tasks in runs.items()
        ],
    )


def alert_of_lost_daemon(db: Connection, kind: NodeKind, node: Node, at: datetime) -> None:
    """Write an alert to the administrators that this daemon is gone."""
    what = {NodeKind.MASTER: "MASTER", NodeKind.WORKER: "WORKER"}[kind]
    content = (
        f"[{{'type':'{what}','host':'{node.address}','event':'server down',"
        "'warning level':'serious'}]"
    )
    write_alerts(
        db,
        [
            alert_row(
                title="Fault tolerance warning",
                show_type=ShowType.TABLE,
                content=content,
                group_id=ADMINISTRATORS,
                at=at,
            )
        ],
    )


def alert_of_supervisor(db: Connection, name: str, words: str, at: datetime) -> None:
    """Write an alert to the administrators about the supervisor of a stream."""
    write_alerts(
        db,
        [
            alert_row(
                title=f"supervisor {name}",
                show_type=ShowType.TEXT,
                content=storable(words),
                group_id=ADMINISTRATORS,
                at=at,
            )
        ],
    )


def _job_type(row: AnyRow) -> str:
    return _JOB_TYPES.get(row.command_type, "unknown type")


def _outcome(row: AnyRow) -> str:
    return "success" if row.state == ProcessState.SUCCESS else "failed"


def _end_content(row: AnyRow, bad: Iterable[AnyRow]) -> str:
    if row.state == ProcessState.SUCCESS:
        return _json(
            [
                f"id:{row.id}",
                f"name:{row.name}",
                f"job type: {_job_type(row)}",
                f"state: {ProcessState(row.state).name}",
                f"recovery:{'YES' if row.recovery else 'NO'}",
                f"run time: {row.run_times}",
                f"start time: {_time(row.start_time)}",
                f"end time: {_time(row.end_time)}",
                f"host: {row.host or ''}",
            ]
        )
    if row.state == ProcessState.FAILURE:
        return _json(
            [
                {
                    "task id": str(task.id),
                    "task name": task.name,
                    "task type": task.task_type,
                    "task state": _state_name(task.state),
                    "task start time": _time(task.start_time),
                    "task end time": _time(task.end_time),
                    "host": task.host or "",
                    "log path": task.log_path or "",
                }
                for task in bad
            ]
        )
    return ""


def _state_name(state: int) -> str:
    try:
        return TaskState(state).name
    except ValueError:
        return str(state)


def _time(moment: datetime | None) -> str:
    return "" if moment is None else f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
