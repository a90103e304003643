"""`orcaflow schedule simulate`: sets the stage of a simulation from the tables, prints what comes.

Reads and never writes. What the model is, and what it leaves out, says `common.schedule_simulator`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Final
from zoneinfo import ZoneInfo

import typer

from operations.texts import counted, duration
from orcaflow.cli.output import Format, FormatOption, escaped, print_json, print_rows, shown, write

if TYPE_CHECKING:
    from common.config import Config
    from common.model.schedules import Schedule
    from common.schedule_simulator import (
        ClusterReport,
        Outage,
        Peak,
        Problem,
        RunCost,
        ScheduleReport,
        Simulation,
        Stage,
    )
    from common.store.connect import Connection
    from common.store.people.durations import DefinitionShape
    from common.store.people.schedule_views import ScheduleView

EXAMPLES = (
    "\b\n"
    "Examples:\n"
    "  orcaflow schedule simulate --days 30\n"
    "  orcaflow schedule simulate --definition flights --all --pessimistic\n"
    "  orcaflow schedule simulate --outage '2026-03-29 01:00/3h' --slots 8\n"
    "  orcaflow schedule simulate --from 2026-10-20 --days 10 --strict -o json\n"
)

MAX_DAYS = 3660
MAX_FIRES = 1_000_000
"""As `common.schedule_simulator` has it, which takes too long to import for `--help`."""

_FIRST_FIRE: Final = datetime(1970, 1, 1, tzinfo=UTC)
_PATIENCE: Final = timedelta(seconds=3)
_MAX_METRICS: Final = 4_000_000
_MAX_SLOTS: Final = 1_000_000
_SLOTS: Final = re.compile(r"^ds_slots\{[^}\n]*\} (\S+)$", re.MULTILINE)
_SHOWN_PROBLEMS: Final = 20
_SHOWN_ODDITIES: Final = 20
_SHOWN_NAMES: Final = 20
_COLUMNS = (
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


def simulate(
    *,
    days: Annotated[
        float,
        typer.Option(metavar="N", help="How many days, 0.01 to 3660.", min=0.01, max=MAX_DAYS),
    ] = 30,
    first: Annotated[
        str | None, typer.Option("--from", metavar="DATE", help="Where it begins; else now.")
    ] = None,
    definition: Annotated[
        str | None, typer.Option(metavar="NAME", help="Only the schedules of this definition.")
    ] = None,
    offline_too: Annotated[
        bool, typer.Option("--all", help="Also schedules that are OFFLINE, as if they were not.")
    ] = False,
    pessimistic: Annotated[
        bool,
        typer.Option(
            "--pessimistic", help="Runs take the longest of their last 20, not the median."
        ),
    ] = False,
    assume: Annotated[
        str,
        typer.Option(metavar="SPAN", help="How long runs take that have no history, as 60s or 2h."),
    ] = "60s",
    slots: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Slots of all workers; else of those that live."),
    ] = None,
    outages: Annotated[
        list[str] | None,
        typer.Option(
            "--outage",
            metavar="FROM/SPAN",
            help="No master is there, as '2026-03-29 01:00/3h'; repeatable.",
        ),
    ] = None,
    max_fires: Annotated[
        int, typer.Option(min=1, metavar="N", help="Refuse more fires than this.")
    ] = MAX_FIRES,
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit with 1 if there is any problem.")
    ] = False,
    form: FormatOption = Format.TABLE,
) -> None:
    """Play schedules on a virtual clock: overlaps, queueing and misfires before they happen.

    Fires are exactly those that will happen, clock changes included; runs take as long, and as many
    slots, as they did before. Nothing is started or written. It leaves out failures, retries, what
    runs already, and what people start. Exit code 0 whatever comes out, but for --strict.

    Fields: from, to, zone, assumed (definitions without history), cluster (slots, slots_known_by,
    peak, peak_at, peak_wanted, busiest_hour, busiest_slots, backlog, most_backlog,
    never_catches_up, pools), schedules (id, definition, crontab, timezone_id, execution_type,
    priority, takes, takes_slots, takes_of_pools, history, fires, outcomes, not_fired, undecided,
    late, runs, ended, going_on, stopped, discarded, waiting, overlaps, at_once, waited,
    median_wait, longest_wait, never_catches_up, oddities, fault), problems (kind, schedule_id,
    text).
    """
    import gc

    from common.clock import SystemClock
    from common.schedule_simulator import simulate
    from operations.scheduling import cluster_zone, moment_option
    from operations.session import opened

    assumed = _span(assume, "--assume")
    with opened() as session:
        zone = cluster_zone(session.config)
        begin = (
            SystemClock().now().replace(microsecond=0)
            if first is None
            else _begin(moment_option(first, zone, option="--from"))
        )
        absences = tuple(_outage(text, zone) for text in outages or ())
        capacity = _Capacity(slots, "--slots") if slots else _living_slots(session.config)
        with session.engine.connect() as db:
            stage = _stage(
                db,
                _views(db, definition, offline_too=offline_too),
                zone=zone,
                begin=begin,
                end=_end(begin, days),
                as_they_are=first is None,
                pessimistic=pessimistic,
                assumed=timedelta(seconds=assumed),
            )
        threshold = timedelta(seconds=session.config.master.misfire_threshold_seconds)
    # Nothing made here is garbage before the end, so that looking for some would only cost time.
    gc.disable()
    try:
        result = simulate(
            replace(
                stage,
                slots=capacity.slots,
                outages=absences,
                threshold=threshold,
                max_fires=max_fires,
            )
        )
    finally:
        gc.enable()
    if form is Format.JSON:
        print_json(_document(result, zone, capacity))
    else:
        _print(result, zone, capacity)
    if strict and result.problems:
        raise typer.Exit(1)


@dataclass(frozen=True, slots=True)
class _Capacity:
    """How many slots there are (None: nobody knows), and how that is known."""

    slots: int | None
    known_by: str


def _views(db: Connection, definition: str | None, *, offline_too: bool) -> list[ScheduleView]:
    from common.errors import NotFoundError
    from common.store.people.schedule_views import schedules
    from operations.lookup import definition_named

    chosen = None if definition is None else definition_named(db, definition).id
    found = schedules(db, definition_id=chosen, online_only=not offline_too)
    if found:
        return found
    whose = "" if definition is None else f" of {definition!r:.200}"
    if offline_too:
        raise NotFoundError(f"there is no schedule{whose}; make one: orcaflow schedule create")
    raise NotFoundError(f"no schedule{whose} is ONLINE; --all takes those that are OFFLINE too")


def _stage(
    db: Connection,
    views: Sequence[ScheduleView],
    *,
    zone: ZoneInfo,
    begin: datetime,
    end: datetime,
    as_they_are: bool,
    pessimistic: bool,
    assumed: timedelta,
) -> Stage:
    """`as_they_are`: what is overdue counts too, so that it begins as it would begin now."""
    from common.schedule_simulator import Stage
    from common.store.people.durations import shapes
    from common.store.people.views import pools

    ids = sorted({view.process_definition_id for view in views})
    known = shapes(db, ids)
    all_pools = pools(db)
    return Stage(
        schedules=tuple(_played(view, begin, as_it_is=as_they_are) for view in views),
        run_costs=_run_costs(
            db,
            ids,
            known,
            pool_names={str(pool.id): pool.name for pool in all_pools},
            pessimistic=pessimistic,
            assumed=assumed,
        ),
        execution_types={each: shape.execution_type for each, shape in known.items()},
        faults={view.id: view.fault for view in views if view.fault is not None},
        pools={pool.name: pool.size for pool in all_pools},
        zone=zone,
        begin=begin,
        end=end,
    )


def _played(view: ScheduleView, begin: datetime, *, as_it_is: bool) -> Schedule:
    """The schedule as it is, or as if it were set ONLINE just in time for the first fire."""
    from common.model.states import Priority, ReleaseState
    from operations.scheduling import as_schedule

    schedule = replace(as_schedule(view), priority=Priority(view.priority))
    is_online = view.release_state == ReleaseState.ONLINE
    if as_it_is and is_online:
        return schedule
    return replace(
        schedule,
        counted_from=begin - timedelta(microseconds=1),
        next_fire_time=None,
        # To set a schedule ONLINE, its definition has to be so.
        definition_is_online=schedule.definition_is_online or not is_online,
    )


def _run_costs(
    db: Connection,
    ids: Sequence[int],
    known: Mapping[int, DefinitionShape],
    *,
    pool_names: Mapping[str, str],
    pessimistic: bool,
    assumed: timedelta,
) -> dict[int, RunCost]:
    from common.schedule_simulator import RunCost, run_cost_of
    from common.store.people.durations import recent_durations, recent_peaks

    durations, peaks = recent_durations(db, ids), recent_peaks(db, ids)
    run_costs: dict[int, RunCost] = {}
    for each in ids:
        guess = RunCost(duration=assumed)
        if not peaks[each]:
            guess = replace(guess, peak=_guessed_peak(known.get(each), pool_names))
        run_costs[each] = run_cost_of(
            durations[each], peaks[each], pessimistic=pessimistic, assumed=guess
        )
    return run_costs


def _guessed_peak(shape: DefinitionShape | None, pool_names: Mapping[str, str]) -> Peak:
    """By the definition itself; one that can't be read is taken for a single task."""
    from common.errors import InvalidDefinitionError
    from common.model.definitions import read_process_json
    from common.schedule_simulator import Peak, peak_of
    from common.task_types import known_task_types

    try:
        text = (shape and shape.process_definition_json) or ""
        found = peak_of(read_process_json(text, task_types=known_task_types()))
    except InvalidDefinitionError:
        return Peak()
    pools: Counter[str] = Counter()
    for name, number in found.pools.items():
        pools[pool_names.get(name, name)] += number
    return replace(found, pools=pools)


def _living_slots(config: Config) -> _Capacity:
    """The slots of the workers that live, by what they say of themselves over HTTP."""
    from concurrent.futures import ThreadPoolExecutor

    from common.errors import ServiceUnreachableError
    from common.model.cluster import NodeKind
    from operations.members import registry

    try:
        with registry(config, patience=_PATIENCE) as opened:
            workers = sorted(opened.membership.nodes(NodeKind.WORKER))
    except ServiceUnreachableError:
        return _Capacity(None, "ZooKeeper does not answer, so no worker is known")
    if not workers:
        return _Capacity(None, "no worker is alive")
    with ThreadPoolExecutor(max_workers=8) as pool:
        told = list(pool.map(slots_told_by, [worker.address for worker in workers]))
    silent = told.count(None)
    found = sum(config.worker.exec_threads if each is None else each for each in told)
    known_by = counted(len(workers), "living worker")
    if silent:
        known_by += f", {silent} of which did not say: {config.worker.exec_threads} slots each"
    return _Capacity(found, known_by)


def slots_told_by(address: str) -> int | None:
    """The slots of the worker at an address, by its metrics; None if it does not say."""
    import http.client

    host, _, port = address.rpartition(":")
    try:
        connection = http.client.HTTPConnection(host, int(port), timeout=_PATIENCE.total_seconds())
        try:
            connection.request("GET", "/metrics")
            text = connection.getresponse().read(_MAX_METRICS).decode("utf-8", "replace")
        finally:
            connection.close()
        found = [float(number) for number in _SLOTS.findall(text)]
    except (OSError, ValueError, http.client.HTTPException):
        return None
    return int(sum(found)) if found and 0 < sum(found) < _MAX_SLOTS else None


def _span(text: str, option: str) -> int:
    from operations.scheduling import seconds_of

    try:
        return seconds_of(text)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=option) from error


def _outage(text: str, zone: ZoneInfo) -> Outage:
    from common.schedule_simulator import Outage
    from operations.scheduling import moment_option

    first, slash, span = text.rpartition("/")
    if not slash:
        raise typer.BadParameter(
            f"{text!r:.80} is no outage, as '2026-03-29 01:00/3h' is", param_hint="--outage"
        )
    begin = moment_option(first, zone, option="--outage")
    return Outage(begin=begin, end=begin + timedelta(seconds=_span(span, "--outage")))


def _begin(moment: datetime) -> datetime:
    if moment < _FIRST_FIRE:
        raise typer.BadParameter("no cron line fires before 1970", param_hint="--from")
    return moment


def _end(begin: datetime, days: float) -> datetime:
    try:
        return begin + timedelta(days=days)
    except OverflowError:
        raise typer.BadParameter(
            f"{days:g} days from then are beyond the year 9999", param_hint="--days"
        ) from None


def _document(result: Simulation, zone: ZoneInfo, capacity: _Capacity) -> dict[str, object]:
    return {
        "from": result.begin,
        "to": result.end,
        "zone": zone.key,
        "assumed": _assumed(result),
        "cluster": _cluster_row(result.cluster, capacity),
        "schedules": [_schedule_row(report, zone) for report in result.schedules],
        "problems": [
            {"kind": each.kind.value, "schedule_id": each.schedule_id, "text": each.text}
            for each in result.problems
        ],
    }


def _cluster_row(cluster: ClusterReport, capacity: _Capacity) -> dict[str, object]:
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


def _schedule_row(report: ScheduleReport, zone: ZoneInfo) -> dict[str, object]:
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


def _assumed(result: Simulation) -> list[str | None]:
    """The definitions whose runs take what is assumed, by name, each once."""
    return list(
        dict.fromkeys(
            report.schedule.definition_name
            for report in result.schedules
            if report.run_cost.is_assumed
        )
    )


def _print(result: Simulation, zone: ZoneInfo, capacity: _Capacity) -> None:
    rows = [_schedule_row(report, zone) for report in result.schedules]
    print_rows(rows, form=Format.TABLE, columns=_COLUMNS, zone=zone)
    fires = sum(report.fires for report in result.schedules)
    runs = sum(report.runs for report in result.schedules)
    write("")
    write(
        f"from {shown(result.begin, zone)} to {shown(result.end, zone)} ({escaped(zone.key)}):"
        f" {fires:,} fires, {runs:,} runs"
    )
    _print_cluster(result.cluster, zone, capacity)
    assumed = _assumed(result)
    if assumed:
        span = next(
            report.run_cost.duration for report in result.schedules if report.run_cost.is_assumed
        )
        write(f"assumed to take {duration(span)}, for want of history: {_some(assumed)}")
    _print_clock_changes(result.schedules)
    _print_problems(result.problems)


def _print_cluster(cluster: ClusterReport, zone: ZoneInfo, capacity: _Capacity) -> None:
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
    from common.schedule_simulator import ClockChangeKind

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
        _write_some(lines, _SHOWN_ODDITIES)


def _print_problems(problems: Sequence[Problem]) -> None:
    """The worst at the end, where a person looks first."""
    from common.schedule_simulator import ProblemKind

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
