"""COMPLEMENT_DATA (5): a run for a past date, which is its `schedule_time` (§8.6)."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from common.model.commands import Command
from common.model.plans import Plan, Reject, Snapshot
from common.params import parse_moment
from master.commands.begin import plan_begin
from master.commands.origin import Origin

_FIRST, _LAST = "complementStartDate", "complementEndDate"


def plan(command: Command, snapshot: Snapshot, *, now: datetime, origin: Origin) -> Plan:
    """A new instance for one date: the row's `schedule_time`, or that of the two dates."""
    dates: list[datetime] = []
    for key in (_FIRST, _LAST):
        text = command.param.get(key)
        if text is None:
            continue
        moment = parse_moment(text, origin.zone)
        if moment is None:
            return Reject(
                reason=f"command_param: {key} must be written as 2020-01-31 00:00:00,"
                f" not {text[:40]!r}"
            )
        dates.append(moment)
    if command.parent_task_instance_id:
        # A sub process runs for the date of its parent, which the row holds.
        dates = dates[:1]
    if len(set(dates)) > 1:
        return Reject(
            reason=f"COMPLEMENT_DATA runs one date a command, and {_FIRST} and {_LAST} differ;"
            " put one command for each date"
        )
    if command.schedule_time is None and not dates:
        return Reject(
            reason="COMPLEMENT_DATA needs its date: schedule_time, or command_param"
            f' {{"{_FIRST}": "2020-01-31 00:00:00", "{_LAST}": "2020-01-31 00:00:00"}}'
        )
    moment = command.schedule_time or dates[0]
    return plan_begin(replace(command, schedule_time=moment), snapshot, now=now, origin=origin)
