"""COMPLEMENT_DATA (5): many past dates as one object, and the run of each of them (contract §8.6).

A row that a person or a program has put becomes a complement; the rows that masters put for its
dates, and for the sub processes of these, become runs.
"""

from __future__ import annotations

from datetime import datetime

from common.complementing import UTMOST_DATES_OF_ROW, plan_complements, read_request, zone_of_dates
from common.errors import BadCommandError
from common.model.commands import Command
from common.model.plans import Begin, Complement, Plan, Reject, Snapshot
from common.params import ParameterError
from master.commands.begin import plan_begin
from master.commands.origin import Origin


def plan(command: Command, snapshot: Snapshot, *, now: datetime, origin: Origin) -> Plan:
    """Plan a complement of all dates in the row, or the run of the one date that it is for."""
    if command.complement_date_id or command.parent_task_instance_id:
        return plan_begin(command, snapshot, now=now, origin=origin)
    # A fault that keeps all of its dates from beginning is reported now, not once for each.
    one = plan_begin(command, snapshot, now=now, origin=origin)
    if not isinstance(one, Begin):
        return one
    assert snapshot.definition is not None, "a missing definition is a fault"
    try:
        complements = plan_complements(
            read_request(command, zone=zone_of_dates(snapshot.schedules, zone=origin.zone)),
            snapshot.definition,
            schedules=snapshot.schedules,
            dependents=snapshot.dependents,
            zone=origin.zone,
            graph=origin.graph,
            utmost=UTMOST_DATES_OF_ROW,
            date_rule=origin.date_rule,
        )
    except (BadCommandError, ParameterError) as error:
        return Reject(reason=str(error))
    return Complement(complements=complements)
