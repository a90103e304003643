"""Simulations of schedules as documents: the documented fields of `-o json`.

The clock changes of a schedule have the key `oddities`.
"""

from __future__ import annotations

from zoneinfo import ZoneInfo

from common.schedule_simulator import ClusterReport, ScheduleReport, Simulation
from operations.simulating import SimulatedSchedules
from operations.worker_slots import Capacity


def simulation_document(simulated: SimulatedSchedules) -> dict[str, object]:
    """A whole simulation: the cluster, each schedule, and the problems that were found."""
    result = simulated.simulation
    return {
        "from": result.begin,
        "to": result.end,
        "zone": simulated.zone.key,
        "assumed": assumed_definitions(result),
        "cluster": _cluster_row(result.cluster, simulated.capacity),
        "schedules": [
            simulated_schedule_row(report, simulated.zone) for report in result.schedules
        ],
        "problems": [
            {"kind": each.kind.value, "schedule_id": each.schedule_id, "text": each.text}
            for each in result.problems
        ],
    }


def simulated_schedule_row(report: ScheduleReport, zone: ZoneInfo) -> dict[str, object]:
    """One schedule with all that is counted of its fires and runs; `zone` is the cluster's."""
    schedule = report.schedule
    return {
        "id": schedule.id,
        "definition": schedule.definition_name,
        "crontab": schedule.crontab,
        "timezone_id": schedule.timezone_id or zone.key,
        "execution_type": report.execution_type.name,
        "priority": schedule.priority.name,
        "takes": report.run_cost.duration,
        "takes_slots": report.run_cost.peak.slots,
        "takes_of_pools": dict(report.run_cost.peak.pools),
        "history": report.run_cost.runs,
        "fires": report.fires,
        "outcomes": {outcome.value: number for outcome, number in report.outcomes.items()},
        "not_fired": report.fires - report.runs,
        "undecided": report.undecided,
        "late": report.late,
        "runs": report.runs,
        "ended": report.ended,
        "going_on": report.going_on,
        "stopped": report.stopped,
        "discarded": report.discarded,
        "waiting": report.waiting,
        "overlaps": report.overlaps,
        "at_once": report.most_at_once,
        "waited": report.waited,
        "median_wait": report.median_wait,
        "longest_wait": report.longest_wait,
        "never_catches_up": report.backlog_grows,
        "oddities": [
            {"day": each.day.isoformat(), "kind": each.kind.value, "fires": each.fires}
            for each in report.clock_changes
        ],
        "fault": report.fault,
    }


def assumed_definitions(result: Simulation) -> list[str | None]:
    """The definitions whose runs take the assumed duration, by name, each once."""
    return list(
        dict.fromkeys(
            report.schedule.definition_name
            for report in result.schedules
            if report.run_cost.is_assumed
        )
    )


def _cluster_row(cluster: ClusterReport, capacity: Capacity) -> dict[str, object]:
    return {
        "slots": cluster.slots,
        "slots_known_by": capacity.known_by,
        "peak": cluster.peak,
        "peak_at": cluster.peak_at,
        "peak_wanted": cluster.peak_wanted,
        "busiest_hour": cluster.busiest_hour,
        "busiest_slots": round(cluster.busiest_slots, 2),
        "backlog": cluster.backlog,
        "most_backlog": cluster.most_backlog,
        "never_catches_up": cluster.backlog_grows,
        "pools": [
            {"name": pool.name, "size": pool.size, "peak": pool.peak} for pool in cluster.pools
        ],
    }
