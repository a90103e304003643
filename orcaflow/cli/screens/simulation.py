"""Prints a simulation of schedules for people: a table, the cluster's use, and the problems."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from datetime import tzinfo
from typing import Final

from common.schedule_simulator import (
    ClockChangeKind,
    ClusterReport,
    Problem,
    ProblemKind,
    ScheduleReport,
)
from operations.documents.simulations import assumed_definitions, simulated_schedule_row
from operations.simulating import SimulatedSchedules
from operations.texts import counted, duration
from operations.worker_slots import Capacity
from orcaflow.cli.output import Format, escaped, print_rows, shown, write

_SHOWN_PROBLEMS: Final = 20
_SHOWN_CLOCK_CHANGES: Final = 20
_SHOWN_NAMES: Final = 20
COLUMNS = (
    "id",
    "definition",
    "fires",
    "runs",
    "takes",
    "overlaps",
    "at_once",
    "median_wait",
    "longest_wait",
    "discarded",
    "stopped",
    "not_fired",
    "waiting",
)


def print_simulation(simulated: SimulatedSchedules) -> None:
    """Print everything; the worst problems come last, where a person looks first."""
    result, zone = simulated.simulation, simulated.zone
    rows = [simulated_schedule_row(report, zone) for report in result.schedules]
    print_rows(rows, form=Format.TABLE, columns=COLUMNS, zone=zone)
    fires = sum(report.fires for report in result.schedules)
    runs = sum(report.runs for report in result.schedules)
    write("")
    write(
        f"from {shown(result.begin, zone)} to {shown(result.end, zone)} ({escaped(zone.key)}):"
        f" {fires:,} fires, {runs:,} runs"
    )
    _print_cluster(result.cluster, zone, simulated.capacity)
    assumed = assumed_definitions(result)
    if assumed:
        span = next(
            report.run_cost.duration for report in result.schedules if report.run_cost.is_assumed
        )
        write(f"assumed to take {duration(span)}, for want of history: {_some(assumed)}")
    _print_clock_changes(result.schedules)
    _print_problems(result.problems)


def _print_cluster(cluster: ClusterReport, zone: tzinfo, capacity: Capacity) -> None:
    if cluster.slots is None:
        use = f"{cluster.peak:,} slots at most are in use, and are taken to be there"
    else:
        use = f"{cluster.peak:,} of {cluster.slots:,} slots at most are in use"
    at = f", from {shown(cluster.peak_at, zone)} on" if cluster.peak_at else ""
    write(f"{use}{at} ({escaped(capacity.known_by)})")
    if cluster.peak_wanted > cluster.peak:
        write(f"{cluster.peak_wanted:,} slots at most are wanted at the same time")
    if cluster.busiest_hour is not None:
        write(
            f"the busiest hour begins {shown(cluster.busiest_hour, zone)}:"
            f" {cluster.busiest_slots:,.1f} slots on average"
        )
    for pool in cluster.pools:
        size = "none knows how many" if pool.size is None else f"{pool.size:,}"
        write(f"pool {escaped(pool.name)}: {pool.peak:,} of {size} slots at most are in use")
    if cluster.most_backlog:
        write(
            f"{cluster.most_backlog:,} runs at most wait at the same time,"
            f" {cluster.backlog:,} at the end"
        )


def _print_clock_changes(reports: Sequence[ScheduleReport]) -> None:
    words = {
        ClockChangeKind.SHIFTED: "shifted, since that time is missing",
        ClockChangeKind.SKIPPED: "skipped, since that time is missing",
        ClockChangeKind.DOUBLED: "doubled, since that time comes twice",
        ClockChangeKind.ONCE: "at one of the two times only",
    }
    lines = [
        f"  schedule {report.schedule.id} ({escaped(str(report.schedule.definition_name))}):"
        f" {each.day} {counted(each.fires, 'fire')} {words[each.kind]}"
        for report in reports
        for each in report.clock_changes
    ]
    if lines:
        write("when clocks change:")
        _write_some(lines, _SHOWN_CLOCK_CHANGES)


def _print_problems(problems: Sequence[Problem]) -> None:
    if not problems:
        write("no problem: nothing overlaps, waits for long or is left out")
        return
    loud = [each for each in problems if each.kind is ProblemKind.NEVER_CATCHES_UP]
    others = [each for each in problems if each.kind is not ProblemKind.NEVER_CATCHES_UP]
    if others:
        by_kind = Counter(each.kind.value.replace("_", " ") for each in others)
        numbers = ", ".join(f"{number} {kind}" for kind, number in by_kind.items())
        write(f"{counted(len(others), 'problem')} ({numbers}):")
        _write_some([f"  {escaped(each.text)}" for each in others], _SHOWN_PROBLEMS)
    if loud:
        write("NEVER CATCHES UP:")
        _write_some([f"  {escaped(each.text)}" for each in loud], _SHOWN_PROBLEMS)


def _write_some(lines: Sequence[str], most: int) -> None:
    for line in lines[:most]:
        write(line)
    if len(lines) > most:
        write(f"  … and {len(lines) - most:,} more (-o json shows all)")


def _some(names: Collection[str | None]) -> str:
    given = [escaped(name or "a definition that is gone") for name in names]
    more = f" and {len(given) - _SHOWN_NAMES:,} more" if len(given) > _SHOWN_NAMES else ""
    return ", ".join(given[:_SHOWN_NAMES]) + more
