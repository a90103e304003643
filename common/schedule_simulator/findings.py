"""Problems found in a simulation, in sentences; the worst comes first. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta

from common.model.schedules import FireOutcome
from common.schedule_simulator.fires import Stage
from common.schedule_simulator.report import ClusterReport, Problem, ProblemKind, ScheduleReport

_LEFT_OUT = (FireOutcome.SKIPPED, FireOutcome.COALESCED, FireOutcome.MISSED)


def problems_of(
    stage: Stage, schedules: Sequence[ScheduleReport], cluster: ClusterReport
) -> tuple[Problem, ...]:
    """All problems, in the order of their kinds, then of the schedules."""
    found = [*_of_cluster(cluster)]
    for report in schedules:
        found += _of_schedule(stage, report)
    kinds = list(ProblemKind)
    return tuple(sorted(found, key=lambda problem: kinds.index(problem.kind)))


def _of_cluster(cluster: ClusterReport) -> Iterator[Problem]:
    if cluster.backlog_grows:
        yield Problem(
            kind=ProblemKind.NEVER_CATCHES_UP,
            text=(
                f"the cluster never catches up: ever more runs wait,"
                f" {cluster.backlog:,} of them at the end"
            ),
        )


def _of_schedule(stage: Stage, report: ScheduleReport) -> Iterator[Problem]:
    schedule = report.schedule

    def problem(kind: ProblemKind, text: str) -> Problem:
        return Problem(
            kind=kind,
            text=f"schedule {schedule.id} ({schedule.definition_name}): {text}",
            schedule_id=schedule.id,
        )

    if report.fault is not None:
        yield problem(ProblemKind.FAULT, f"it can't fire: {report.fault}")
    if report.backlog_grows:
        yield problem(
            ProblemKind.NEVER_CATCHES_UP,
            f"it never catches up: ever more of its runs wait, {report.waiting:,} at the end",
        )
    left_out = {
        outcome: report.outcomes[outcome] for outcome in _LEFT_OUT if report.outcomes[outcome]
    }
    if left_out:
        by_outcome = ", ".join(f"{number:,} {outcome}" for outcome, number in left_out.items())
        yield problem(
            ProblemKind.LEFT_OUT,
            f"{sum(left_out.values()):,} of {report.fires:,} fires don't happen: {by_outcome}",
        )
    if report.undecided:
        yield problem(
            ProblemKind.UNDECIDED,
            f"{report.undecided:,} fires lie in an outage that goes on at the end",
        )
    if report.discarded:
        yield problem(
            ProblemKind.DISCARDED,
            f"{report.discarded:,} of {report.runs:,} runs are discarded, since another is live",
        )
    if report.stopped:
        yield problem(
            ProblemKind.STOPPED,
            f"{report.stopped:,} of {report.runs:,} runs are stopped by a later one",
        )
    if report.overlaps:
        yield problem(
            ProblemKind.OVERLAP,
            f"{report.overlaps:,} of {report.runs:,} runs begin while another goes on,"
            f" up to {report.most_at_once:,} at once",
        )
    if report.longest_wait > stage.threshold:
        yield problem(
            ProblemKind.LATE,
            f"{report.waited:,} of {report.runs:,} runs wait, up to {_span(report.longest_wait)}",
        )
    peak = report.run_cost.peak
    if stage.slots is not None and peak.slots > stage.slots:
        yield problem(
            ProblemKind.TOO_BIG,
            f"a run has up to {peak.slots:,} tasks at once, for {stage.slots:,} slots",
        )
    for name, number in sorted(peak.pools.items()):
        size = stage.pools.get(name)
        if size is not None and number > size:
            yield problem(
                ProblemKind.TOO_BIG,
                f"a run takes up to {number:,} slots of the pool {name!r}, which has {size:,}",
            )


def _span(span: timedelta) -> str:
    """A span to the second: those reported here are longer than a minute or so."""
    return str(timedelta(seconds=int(span.total_seconds())))
