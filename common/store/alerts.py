"""Rows of `t_ds_alert`, and the alerts of time-outs, which masters and workers both write.

An alert is part of the transaction that brings its cause about, so each cause has exactly one. This
module sends nothing. Used by the stores of masters and of workers.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any, Final

from sqlalchemy import Connection, and_, insert, update

from common.model.alerts import ADMINISTRATORS, ShowType, title_about
from common.model.failures import FailureReason
from common.model.states import TimeoutStrategy
from common.store.tables import alert, process_instance, task_instance
from common.store.transaction import AnyRow, any_of, storable

_TITLE_LIMIT: Final = 64

WARNING_STRATEGIES: Final = tuple(each for each in TimeoutStrategy if each.warns)
"""The strategies of a time-out that raise an alert."""

_IS_UNREPORTED: Final = and_(
    task_instance.c.alert_flag == 0,
    task_instance.c.timeout_strategy.in_(WARNING_STRATEGIES),
    task_instance.c.failure_reason == FailureReason.TIMED_OUT.value,
)
_TIMED_OUT: Final = (
    update(task_instance)
    .where(task_instance.c.id == any_of("ids"))
    .where(_IS_UNREPORTED)
    .where(process_instance.c.id == task_instance.c.process_instance_id)
    .values(alert_flag=1)
    .returning(
        task_instance.c.id,
        task_instance.c.name,
        process_instance.c.name.label("run_name"),
        process_instance.c.warning_group_id,
        task_instance.c.end_time,
    )
)


def alert_of_slow_processes(db: Connection, rows: Sequence[AnyRow], at: datetime) -> None:
    """Write an alert for each of these (`id`, `name`, `warning_group_id`)."""
    write_alerts(db, [_timeout("Process Timeout Warn", row, row.name, at) for row in rows])


def alert_of_slow_attempts(db: Connection, rows: Sequence[AnyRow], at: datetime) -> None:
    """Write an alert for each of these (`id`, `name`, `run_name`, `warning_group_id`)."""
    write_alerts(db, [_timeout("Task Timeout Warn", row, row.run_name, at) for row in rows])


def alert_of_timed_out_attempts(db: Connection, task_instance_ids: Collection[int]) -> None:
    """Write the alerts of attempts that their worker has ended before a master raised them.

    The caller's transaction has reported and locked these attempts.
    """
    rows = db.execute(_TIMED_OUT, {"ids": sorted(task_instance_ids)}).all()
    write_alerts(
        db,
        [
            _timeout("Task Timeout Warn", row, row.run_name, row.end_time)
            for row in sorted(rows, key=lambda row: int(row.id))
        ],
    )


def write_alerts(db: Connection, rows: Sequence[dict[str, Any]]) -> None:
    """Insert these rows of `alert_row`."""
    if rows:
        db.execute(insert(alert), list(rows))


def alert_row(
    *,
    title: str,
    show_type: ShowType,
    content: str,
    group_id: int | None,
    at: datetime,
    receivers: str | None = None,
    receivers_cc: str | None = None,
) -> dict[str, Any]:
    """Return the columns of an alert; the administrators get it if no group is named."""
    return {
        "title": storable(title, _TITLE_LIMIT),
        "show_type": int(show_type),
        "content": content,
        "alert_type": 0,
        "alert_status": 0,
        # Group 0 is the default of a run without an alert at its end. No user is in it.
        "alertgroup_id": group_id or ADMINISTRATORS,
        "receivers": receivers,
        "receivers_cc": receivers_cc,
        "create_time": at,
        "update_time": at,
    }


def _timeout(event: str, row: AnyRow, run_name: str, at: datetime) -> dict[str, Any]:
    return alert_row(
        title=title_about(event, run_name),
        show_type=ShowType.TABLE,
        content=(
            f"[{{'id':'{row.id}','name':'{row.name}','event':'timeout','warnLevel':'middle'}}]"
        ),
        group_id=row.warning_group_id,
        at=at,
    )
