"""The dates of a complement, and the definitions that follow it (contract §8.6). Pure.

`COMPLEMENT_DATA` rows, `orcaflow complement` and its `--plan` all use it, so that the plan shown
beforehand is the one that runs. The dates are computed once, sorted, without repetition and with
both ends of the range (traps T31, T32); all is written or nothing (T73).

| `command_param` of a COMPLEMENT_DATA row | means |
|---|---|
| `complementStartDate`, `complementEndDate` | the range, with its ends; if equal, one date |
| `complementScheduleDateList` | instead: dates, joined by commas |
| `schedule_timezone` | the zone of all these; else the schedule's, else the cluster's |
| `expectedParallelismNumber` | how many dates run at the same time; else 1 |
| `executionOrder` | `ASC_ORDER` (else) or `DESC_ORDER` |
| `complementDependentMode` | `OFF_MODE` (else) or `ALL_DEPENDENT`: and those that wait for it |
| `allLevelDependent` | `true`: and those that wait for these |
| `onFailure` | `stop` (else) or `continue` |
| `reprocess` | `missing`, `failed` or `all` (else) |
| `complementDateRule` | `schedule_time` or `business_date`; else the definition's rule |
| `confirmed` | `true`: more dates than the limit are meant |
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, time, timedelta
from enum import StrEnum
from itertools import chain, islice
from typing import Final, TypeVar
from zoneinfo import ZoneInfo

from common.business_dates import check_moment, moment_of_date
from common.cron import Timetable, merged
from common.dag import DagError, build_dag
from common.errors import BadCommandError, InvalidDefinitionError
from common.firing import ScheduleFaultError, timetable_of
from common.model.command_param import ParamKey, example
from common.model.commands import Command
from common.model.complement_states import Downstream, OnFailure, Reprocess, RunOrder
from common.model.complements import ComplementRequest, NewComplement, RunSettings
from common.model.control import Dependent
from common.model.date_rules import DateRule
from common.model.definitions import ProcessGraph
from common.model.depend_items import DependItem
from common.model.plans import DefinitionSnapshot, DependentDefinition
from common.model.reach import FOREIGN, Target, resolve
from common.model.schedules import Schedule
from common.params import ParameterError, format_moment, parse_moment
from common.params.moments import days_later, in_zone, on_wall
from common.zones import UnknownZoneError, zone_named

DATE_LIMIT: Final = 10_000
"""More dates than this need a confirmation."""
UTMOST_DATES: Final = 1_000_000
"""More than this are refused even so."""
UTMOST_DATES_OF_ROW: Final = 100_000
"""More than this are refused of a row of `t_ds_command`: others wait while a master takes it."""
PARALLELISM_LIMIT: Final = 1000

_SHOWN = 3
_A_MONTH: Final = {
    ParamKey.FIRST_DATE: "2020-01-01 00:00:00",
    ParamKey.LAST_DATE: "2020-01-31 00:00:00",
}
_Word = TypeVar("_Word", bound=StrEnum)


def read_request(command: Command, *, zone: ZoneInfo) -> ComplementRequest:
    """The request of a row of type COMPLEMENT_DATA. Raises `BadCommandError` with key and place.

    `zone` is that of its texts if it names none. A row without dates in its `command_param` is
    about its own `schedule_time`.
    """
    param = command.param
    zone_name = param.get(ParamKey.TIME_ZONE) or None
    own_zone = _zone(zone_name, zone)
    first, last = (
        _moment(param, key, own_zone) for key in (ParamKey.FIRST_DATE, ParamKey.LAST_DATE)
    )
    dates = _date_list(param, own_zone)
    if dates and (first or last):
        raise BadCommandError(
            f"command_param: {ParamKey.DATES} is instead of {ParamKey.FIRST_DATE} and"
            f" {ParamKey.LAST_DATE}; give one or the other"
        )
    if not dates and first is None and last is None:
        if command.schedule_time is None:
            raise BadCommandError(
                f"COMPLEMENT_DATA needs its dates: {example(_A_MONTH)}, or"
                " schedule_time for a single one"
            )
        dates = (command.schedule_time,)
    elif not dates and (first is None or last is None or first == last):
        # One moment is a date by itself, whether or not a schedule fires then.
        dates = tuple(each for each in (first or last,) if each)
    return ComplementRequest(
        process_definition_id=command.process_definition_id,
        first=first,
        last=last,
        dates=dates,
        timezone_id=zone_name,
        parallelism=_number(param, ParamKey.PARALLELISM),
        order=_order(param),
        on_failure=_word(param, ParamKey.ON_FAILURE, OnFailure, OnFailure.STOP),
        reprocess=_word(param, ParamKey.REPROCESS, Reprocess, Reprocess.ALL),
        downstream=_downstream(param),
        confirmed=_flag(param, ParamKey.CONFIRMED),
        date_rule=param.date_rule,
        settings=RunSettings(
            task_depend_type=command.task_depend_type,
            failure_strategy=command.failure_strategy,
            warning_type=command.warning_type,
            warning_group_id=command.warning_group_id,
            executor_id=command.executor_id,
            priority=command.priority,
            worker_group_id=command.worker_group_id,
            environment_code=param.environment_code or -1,
            start_node_names=command.start_node_names,
            start_params=param.start_params,
        ),
    )


def zone_of_dates(schedules: Sequence[Schedule], *, zone: ZoneInfo) -> ZoneInfo:
    """The zone in which a definition's dates are read by default.

    That of its online schedules; `zone`, the cluster's, if they have none.
    """
    return _zone(_zone_of(schedules), zone)


def plan_complements(
    request: ComplementRequest,
    definition: DefinitionSnapshot,
    *,
    schedules: Sequence[Schedule],
    dependents: Sequence[DependentDefinition],
    zone: ZoneInfo,
    graph: Callable[[str], ProcessGraph],
    utmost: int = UTMOST_DATES,
    date_rule: DateRule = DateRule.SCHEDULE_TIME,
) -> tuple[NewComplement, ...]:
    """The complements to be written: of the definition itself, then of those downstream in turn.

    `schedules` are the online ones of the definition, `dependents` the definitions with DEPENDENT
    tasks, `zone` the cluster's. All complements together have at most `utmost` dates. They follow
    one rule of dates: the request's, else the definition's, else the cluster's, `date_rule`. Raises
    `BadCommandError` with the mistake.
    """
    request = replace(request, date_rule=request.date_rule or definition.date_rule or date_rule)
    dates, zone_name = complement_dates(request, schedules, zone=zone, utmost=utmost)
    found = [_new(request, request.process_definition_id, dates, zone_name, schedules, after=None)]
    if request.downstream is Downstream.NONE:
        return tuple(found)
    spans = _spans(request, dates, _zone(zone_name, zone))
    limit = utmost if request.confirmed else DATE_LIMIT
    left = utmost - len(dates)
    for each in downstream_of(
        definition, dependents, graph=graph, all_levels=request.downstream is Downstream.ALL
    ):
        own_dates, own_zone = dates, zone_name
        if each.schedules:
            own_zone = zone_of_dates(each.schedules, zone=zone).key
            fires = _fires_within(spans, each.schedules, zone=zone, most=min(limit, left))
            if len(fires) <= left:
                _check_number(
                    len(fires),
                    request.confirmed,
                    utmost,
                    of=f"process definition {each.name!r}"
                    if each.project_id == definition.project_id
                    else FOREIGN,
                )
            own_dates = _in_order(fires, request.order)
        # Searching a span takes time even if no fire is in it.
        left -= max(len(own_dates), len(spans) if each.schedules else 0)
        if left < 0:
            raise BadCommandError(
                f"this complement and those downstream have more than {utmost:,} dates in all;"
                " split it"
            )
        # One that fires once a month has nothing to do for a week in the middle of it.
        if own_dates:
            own = each.schedules
            found.append(_new(request, each.id, own_dates, own_zone, own, after=len(found) - 1))
    return tuple(found)


def _spans(
    request: ComplementRequest, dates: Collection[datetime], zone: ZoneInfo
) -> list[tuple[datetime, datetime]]:
    """The spans that those downstream cover: a whole range, or the days of a list's dates."""
    if not request.dates and request.first is not None and request.last is not None:
        return [(request.first, request.last)]
    spans = []
    for day in sorted({in_zone(date, zone).date() for date in dates}):
        midnight = on_wall(datetime.combine(day, time.min), zone)
        spans.append((midnight, days_later(midnight, 1) - timedelta(seconds=1)))
    return spans


def _fires_within(
    spans: Sequence[tuple[datetime, datetime]],
    schedules: Sequence[Schedule],
    *,
    zone: ZoneInfo,
    most: int,
) -> list[datetime]:
    """The fires within any of these, each once; one more than `most` if there are that many."""
    timetables = _timetables(schedules, zone=zone)
    fires = chain.from_iterable(merged(timetables, first, last) for first, last in spans)
    return list(dict.fromkeys(islice(fires, most + 1)))


def complement_dates(
    request: ComplementRequest,
    schedules: Sequence[Schedule],
    *,
    zone: ZoneInfo,
    utmost: int = UTMOST_DATES,
) -> tuple[tuple[datetime, ...], str]:
    """The dates in the order in which they are to run, and the name of the zone they are read in.

    Those of a list; else the fire times of the schedules within the range, whatever their own
    windows are; else, without a schedule, one a day from the first on, at its time of day (T93).
    """
    zone_name = request.timezone_id or _zone_of(schedules) or zone.key
    own_zone = _zone(zone_name, zone)
    if request.dates:
        dates = sorted({each.astimezone(UTC) for each in request.dates})
        _check_number(len(dates), request.confirmed, utmost, of="the list")
    else:
        dates = _dates_of_range(request, schedules, zone=zone, own_zone=own_zone, utmost=utmost)
    if not dates:
        raise BadCommandError(
            "no date lies in the range: the online schedules of the definition"
            f" ({_lines(schedules)}) don't fire in it"
        )
    return _in_order(dates, request.order), zone_name


def _in_order(dates: list[datetime], order: RunOrder) -> tuple[datetime, ...]:
    return tuple(reversed(dates) if order is RunOrder.DESCENDING else dates)


def _lines(schedules: Sequence[Schedule]) -> str:
    return ", ".join(repr(each.crontab) for each in schedules[:_SHOWN])


def downstream_of(
    definition: DefinitionSnapshot,
    dependents: Sequence[DependentDefinition],
    *,
    graph: Callable[[str], ProcessGraph],
    all_levels: bool,
) -> tuple[DependentDefinition, ...]:
    """The definitions whose DEPENDENT tasks wait for this one, each after those it waits for.

    A definition that can't be read waits for nothing. Raises `BadCommandError` for a ring.
    """
    by_id = {each.id: each for each in dependents if each.id != definition.id}
    projects = {each.id: each.project_id for each in dependents}
    projects[definition.id] = definition.project_id
    waits_for = {each.id: _awaited(each, projects, graph) for each in by_id.values()}
    chosen: dict[int, None] = {definition.id: None}
    level: Collection[int] = (definition.id,)
    while level:
        level = [
            each
            for each, awaited in waits_for.items()
            if each not in chosen and not awaited.isdisjoint(level)
        ]
        chosen.update(dict.fromkeys(level))
        if not all_levels:
            break
    edges = {
        str(each): [
            str(above) for above in sorted(waits_for.get(each, frozenset())) if above in chosen
        ]
        for each in chosen
    }
    try:
        in_order = build_dag(edges).names
    except DagError as error:
        is_own = all(projects[each] == definition.project_id for each in chosen)
        # The error contains the ids of the ring. The reader may not see ids of other projects.
        ring = f": {error}" if is_own else ""
        raise BadCommandError(
            f"the definitions downstream of {definition.name!r} wait for each other in a ring{ring}"
        ) from error
    return tuple(by_id[int(each)] for each in in_order if int(each) in by_id)


def _awaited(
    definition: DependentDefinition,
    projects: Mapping[int, int | None],
    graph: Callable[[str], ProcessGraph],
) -> frozenset[int]:
    """Return the definitions in `projects` that the DEPENDENT tasks of a definition wait for.

    A definition reaches the definitions of its project and the definitions shared with it.
    """
    try:
        nodes = graph(definition.process_definition_json).nodes
    except InvalidDefinitionError:
        return frozenset()
    items = [
        item
        for node in nodes.values()
        if isinstance(node.control, Dependent)
        for group in node.control.groups
        for item in group.items
        if isinstance(item, DependItem)
    ]
    numbers = (_definition_of(item, definition) for item in items)
    return frozenset(
        each
        for each in numbers
        if each is not None
        and each in projects
        and each != definition.id
        and (projects[each] == definition.project_id or each in definition.shared)
    )


def _definition_of(item: DependItem, definition: DependentDefinition) -> int | None:
    if item.definition_id is not None:
        return item.definition_id
    found = resolve(
        [each for each in definition.named if each.name == item.definition_name],
        own_project=definition.project_id or 0,
        project=item.project,
    )
    return found.id if isinstance(found, Target) else None


def _new(
    request: ComplementRequest,
    definition_id: int,
    dates: tuple[datetime, ...],
    zone_name: str,
    schedules: Sequence[Schedule],
    *,
    after: int | None,
) -> NewComplement:
    rule, zone = request.date_rule, zone_named(zone_name)
    assert rule is not None, "the rule was chosen"
    try:
        for each in (min(dates), max(dates)):
            check_moment(moment_of_date(each, rule, zone), zone)
    except ParameterError as error:
        raise BadCommandError(
            f"the day before or after a date is missing, which its run needs: {error}"
        ) from error
    # Start nodes are those of the definition that was asked for.
    own = after is None
    settings = request.settings
    return NewComplement(
        process_definition_id=definition_id,
        dates=dates,
        timezone_id=zone_name,
        parallelism=request.parallelism,
        order=request.order,
        on_failure=request.on_failure,
        reprocess=request.reprocess,
        settings=settings
        if own
        else RunSettings(
            failure_strategy=settings.failure_strategy,
            warning_type=settings.warning_type,
            warning_group_id=settings.warning_group_id,
            executor_id=settings.executor_id,
            priority=settings.priority,
            worker_group_id=settings.worker_group_id,
            environment_code=settings.environment_code,
            start_params=settings.start_params,
        ),
        after=after,
        date_rule=rule,
        at_most_daily=_fire_at_most_daily(schedules, zone),
    )


def _fire_at_most_daily(schedules: Sequence[Schedule], zone: ZoneInfo) -> bool:
    """Return True if the definition has one run a day at most, as far as its schedules say it."""
    if len(schedules) != 1:
        return not schedules
    try:
        return timetable_of(schedules[0], zone=zone).cron.fires_at_most_daily
    except ScheduleFaultError:
        return False


def _dates_of_range(
    request: ComplementRequest,
    schedules: Sequence[Schedule],
    *,
    zone: ZoneInfo,
    own_zone: ZoneInfo,
    utmost: int,
) -> list[datetime]:
    first, last = request.first, request.last
    assert first is not None, "a request has a range or a list"
    assert last is not None, "a range has two ends"
    span = f"{format_moment(first, own_zone)} to {format_moment(last, own_zone)} ({own_zone.key})"
    if last < first:
        raise BadCommandError(
            f"the range {span} ends before it starts: complementEndDate must not be before"
            " complementStartDate"
        )
    if schedules:
        dates = merged(_timetables(schedules, zone=zone), first, last)
        span += f", fires of {_lines(schedules)},"
    else:
        dates = _daily(first, last, own_zone)
    limit = utmost if request.confirmed else DATE_LIMIT
    found = list(islice(dates, limit + 1))
    _check_number(len(found), request.confirmed, utmost, of=f"the range {span}")
    return found


def _timetables(schedules: Sequence[Schedule], *, zone: ZoneInfo) -> list[Timetable]:
    timetables = []
    for each in schedules:
        try:
            # The window says when a schedule fires by itself, not which dates there are.
            timetables.append(replace(timetable_of(each, zone=zone), first=None, last=None))
        except ScheduleFaultError as error:
            raise BadCommandError(
                f"schedule {each.id} can't say which dates there are: {error}; mend it, or set it"
                " offline"
            ) from error
    return timetables


def _daily(first: datetime, last: datetime, zone: ZoneInfo) -> Iterator[datetime]:
    """One moment a day from `first` on, at its time of day on the wall clock."""
    local = in_zone(first, zone)
    passed: datetime | None = None
    for day in range(UTMOST_DATES + 1):
        try:
            # Always from the first: a time that one day's clock skips does not shift the rest.
            moment = days_later(local, day).astimezone(UTC)
        except ParameterError:
            return
        if moment > last:
            return
        # A day that a zone skips altogether comes to the same instant as the next.
        if moment != passed:
            yield moment
        passed = moment


def _check_number(number: int, confirmed: bool, utmost: int, *, of: str) -> None:
    if number > utmost:
        way = "" if utmost == UTMOST_DATES else ", or let `orcaflow complement` write it"
        raise BadCommandError(f"{of} has more than {utmost:,} dates; split it{way}")
    if number > DATE_LIMIT and not confirmed:
        raise BadCommandError(
            f"{of} has more than {DATE_LIMIT:,} dates; if that is meant, confirm it:"
            ' "confirmed": true in command_param, or --yes'
        )


def _zone_of(schedules: Sequence[Schedule]) -> str | None:
    """The zone of the first schedule that names one; runs of the definition read dates in it."""
    return next((each.timezone_id for each in schedules if each.timezone_id), None)


def _zone(name: str | None, zone: ZoneInfo) -> ZoneInfo:
    if name is None:
        return zone
    try:
        return zone_named(name)
    except UnknownZoneError as error:
        raise BadCommandError(f"command_param: {ParamKey.TIME_ZONE}: {error}") from error


def _moment(param: Mapping[str, str], key: str, zone: ZoneInfo) -> datetime | None:
    text = param.get(key)
    if text is None:
        return None
    moment = parse_moment(text.strip(), zone)
    if moment is None:
        raise BadCommandError(
            f"command_param: {key} must be written as 2020-01-31 00:00:00, not {text[:40]!r}"
        )
    return moment


def _date_list(param: Mapping[str, str], zone: ZoneInfo) -> tuple[datetime, ...]:
    key = ParamKey.DATES
    text = param.get(key)
    if text is None:
        return ()
    places: dict[datetime, int] = {}
    for place, part in enumerate(text.split(","), start=1):
        local = parse_moment(part.strip(), zone)
        if local is None:
            raise BadCommandError(
                f"command_param: {key}: date {place} must be written as 2020-01-31 00:00:00,"
                f" not {part.strip()[:40]!r}"
            )
        # Two wall times may be one instant, where a zone skips a whole day.
        moment = local.astimezone(UTC)
        if moment in places:
            raise BadCommandError(
                f"command_param: {key}: date {place} ({part.strip()[:40]}) is date"
                f" {places[moment]} again"
            )
        places[moment] = place
    return tuple(places)


def _number(param: Mapping[str, str], key: str) -> int:
    text = param.get(key, "1").strip()
    if text.isascii() and text.isdecimal() and len(text) <= len(str(PARALLELISM_LIMIT)):
        number = int(text)
        if 1 <= number <= PARALLELISM_LIMIT:
            return number
    raise BadCommandError(
        f"command_param: {key} must be a whole number from 1 to {PARALLELISM_LIMIT},"
        f" not {text[:40]!r}"
    )


def _order(param: Mapping[str, str]) -> RunOrder:
    words = {"ASC_ORDER": RunOrder.ASCENDING, "DESC_ORDER": RunOrder.DESCENDING}
    return _one_of(param, ParamKey.RUN_ORDER, words, "ASC_ORDER")


def _downstream(param: Mapping[str, str]) -> Downstream:
    modes = {"OFF_MODE": Downstream.NONE, "ALL_DEPENDENT": Downstream.DIRECT}
    mode = _one_of(param, ParamKey.DOWNSTREAM, modes, "OFF_MODE")
    if mode is Downstream.DIRECT and _flag(param, ParamKey.ALL_LEVELS):
        return Downstream.ALL
    return mode


def _flag(param: Mapping[str, str], key: str) -> bool:
    return _one_of(param, key, {"true": True, "false": False}, "false")


def _word(param: Mapping[str, str], key: str, known: type[_Word], default: _Word) -> _Word:
    return _one_of(param, key, {word.value: word for word in known}, default.value)


_Meaning = TypeVar("_Meaning")


def _one_of(
    param: Mapping[str, str], key: str, meanings: Mapping[str, _Meaning], default: str
) -> _Meaning:
    text = param.get(key, default).strip()
    if text not in meanings:
        raise BadCommandError(
            f"command_param: {key} must be one of {', '.join(meanings)}, not {text[:40]!r}"
        )
    return meanings[text]
