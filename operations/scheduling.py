"""What the commands about time work out: the times, spans and zones that people write, what a
schedule is made of, and whether its definitions are released.

Everything that a schedule fires by is asked of `common.firing`, never worked out here. The
functions that are given a connection write nothing.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final
from zoneinfo import ZoneInfo

import typer

from common.errors import NotAllowedError, NotFoundError
from common.firing import command_param, plan_fires, timetable_of
from common.model.schedules import FirePlan, MisfirePolicy, Schedule
from common.model.states import (
    ExecutionType,
    FailureStrategy,
    Priority,
    ReleaseState,
)
from common.params import format_moment, parse_moment
from common.zones import UnknownZoneError, zone_named

if TYPE_CHECKING:
    from common.config import Config
    from common.store.connect import Connection
    from common.store.people.definitions import NamedDefinition
    from common.store.people.schedule_views import ScheduleView

NO_END: Final = datetime(9999, 1, 1, tzinfo=UTC)
"""The end of a window that has none, as the table's default is."""

_ANYBODYS_ZONES: Final = frozenset({"localtime", "posixrules"})
"""Files beside the zones, which are another zone on the next computer."""
MAX_ZONE_LENGTH: Final = 40
MAX_SECONDS: Final = 2**31 - 1

_EARLIEST = datetime(1, 1, 2, tzinfo=UTC)
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_MOMENT = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})[ T]([0-9]{2}:[0-9]{2})(:[0-9]{2})?"
    r"(Z|[+-][0-9]{2}:[0-9]{2})?"
)
_SPAN = re.compile(r"([0-9]{1,10}) *([smhd]?)")
_UNITS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86_400}


def moment_in(text: str, zone: ZoneInfo, *, ends_day: bool = False) -> datetime:
    """The instant that a person wrote; `ValueError` says what is wrong with it.

    A date, or a date with a time, on the wall of `zone`; with an offset it needs none. A date alone
    is its first second, or with `ends_day` its last one.
    """
    given = text.strip()
    if _DATE.fullmatch(given):
        found = parse_moment(f"{given} {'23:59:59' if ends_day else '00:00:00'}", zone)
    else:
        found = _with_time(given, zone)
    if found is None:
        raise ValueError(f"{text!r:.60} is no time, as 2026-01-31 or '2026-01-31 02:30:00' is")
    try:
        return found.astimezone(UTC)
    except OverflowError:
        raise ValueError(f"{text!r:.60} is outside the years 1 to 9999") from None


def _with_time(text: str, zone: ZoneInfo) -> datetime | None:
    found = _MOMENT.fullmatch(text)
    if found is None:
        return None
    date, clock, seconds, offset = found.groups()
    if offset is None:
        return parse_moment(f"{date} {clock}{seconds or ':00'}", zone)
    try:
        return datetime.fromisoformat(f"{date} {clock}{seconds or ':00'}{offset}")
    except ValueError:
        return None


def moment_option(text: str, zone: ZoneInfo, *, option: str, ends_day: bool = False) -> datetime:
    """As `moment_in`, with a usage error that names the option."""
    try:
        return moment_in(text, zone, ends_day=ends_day)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=option) from error


def seconds_of(text: str) -> int:
    """Whole seconds of a span like 90, 90s, 10m, 2h or 1d; `ValueError` for anything else."""
    found = _SPAN.fullmatch(text.strip())
    seconds = 0 if found is None else int(found[1]) * _UNITS[found[2]]
    if not 0 < seconds <= MAX_SECONDS:
        raise ValueError(f"{text!r:.60} is no span of time, as 90s, 10m, 2h or 1d is")
    return seconds


def params_of(pairs: Sequence[str]) -> dict[str, str]:
    """Names and values of NAME=VALUE pairs; a usage error for what is none, or given twice."""
    params: dict[str, str] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        name = name.strip()
        if not equals or not name:
            raise typer.BadParameter(f"{pair!r:.200} is not NAME=VALUE", param_hint="--param")
        if name in params:
            raise typer.BadParameter(f"{name!r:.200} is given twice", param_hint="--param")
        if "\0" in pair or any("\ud800" <= character <= "\udfff" for character in pair):
            raise typer.BadParameter(
                f"{pair!r:.200} has a character that can't be stored", param_hint="--param"
            )
        params[name] = value
    return params


def cluster_zone(config: Config) -> ZoneInfo:
    """The zone of what names none: the daemons' rule."""
    if config.time_zone:
        return ZoneInfo(config.time_zone)
    # Here, because only a computer without a configured zone has to be asked for its own.
    from tzlocal import get_localzone

    return get_localzone()


def zone_asked(name: str) -> ZoneInfo:
    """The zone that a person named; a usage error names near ones."""
    from zoneinfo import available_timezones

    try:
        if len(name) <= MAX_ZONE_LENGTH and name.strip() not in _ANYBODYS_ZONES:
            return zone_named(name.strip())
    except UnknownZoneError:
        pass
    known = {each.lower(): each for each in sorted(available_timezones() - _ANYBODYS_ZONES)}
    near = difflib.get_close_matches(name.strip().lower()[:80], list(known), n=1)
    perhaps = f"; did you mean {known[near[0]]}?" if near else ", as America/New_York or UTC is"
    raise typer.BadParameter(
        f"{name!r:.80} is no zone of the tz database{perhaps}", param_hint="--zone"
    )


def stored_name(zone: ZoneInfo) -> str | None:
    """What `timezone_id` is to say; None for the zone of a computer that has no name for it."""
    try:
        return zone_named(zone.key).key
    except UnknownZoneError:
        return None


def as_schedule(view: ScheduleView) -> Schedule:
    """The row as `common.firing` takes it."""
    return Schedule(
        id=view.id,
        process_definition_id=view.process_definition_id,
        definition_name=view.definition_name,
        definition_is_online=view.definition_is_online,
        crontab=view.crontab,
        timezone_id=view.timezone_id,
        missing_time=view.missing_time,
        repeated_time=view.repeated_time,
        start_time=view.start_time,
        end_time=view.end_time,
        misfire_policy=MisfirePolicy(view.misfire_policy),
        misfire_limit=view.misfire_limit,
        deadline=view.deadline,
        execution_type=None if view.execution_type is None else ExecutionType(view.execution_type),
        start_params=view.start_params,
        failure_strategy=FailureStrategy(view.failure_strategy),
        user_id=view.user_id,
        priority=Priority(view.priority),
        worker_group_id=view.worker_group_id,
        counted_from=view.counted_from,
        next_fire_time=view.next_fire_time,
    )


def check_schedule(made: Schedule, *, zone: ZoneInfo, limit_bytes: int) -> None:
    """Raise what keeps it from firing as it stands: `ScheduleFaultError`, `NotAllowedError`."""
    timetable_of(made, zone=zone)
    param = command_param(made)
    if len(param.encode("utf-8", "replace")) > limit_bytes:
        raise NotAllowedError(
            f"the parameters are larger than {limit_bytes} bytes (command.param_limit_bytes)"
        )


def next_plan(view: ScheduleView, *, zone: ZoneInfo) -> FirePlan:
    """When an ONLINE schedule fires next, be that in the past, or why it can't (`fault`)."""
    if view.release_state != ReleaseState.ONLINE or view.fault is not None:
        return FirePlan(fault=view.fault)
    return plan_fires(as_schedule(view), now=_EARLIEST, zone=zone)


def zone_of_schedule(view: ScheduleView, zone: ZoneInfo) -> ZoneInfo:
    """The zone that it fires by; `zone`, that of the cluster, if it names none or one unknown."""
    try:
        return zone if view.timezone_id is None else zone_named(view.timezone_id)
    except UnknownZoneError:
        return zone


def local_text(moment: datetime | None, zone: ZoneInfo) -> str | None:
    """An instant as the wall clock of the zone shows it, with its offset."""
    if moment is None:
        return None
    try:
        return moment.astimezone(zone).isoformat(sep=" ", timespec="seconds")
    except OverflowError:
        return moment.isoformat(sep=" ", timespec="seconds")


def check_window(first: datetime, last: datetime, *, zone: ZoneInfo) -> None:
    """A usage error if a window ends before it starts, or as it starts (specification §8.1)."""
    if last > first:
        return
    span = f"{format_moment(first, zone)} to {format_moment(last, zone)} ({zone.key})"
    what = "ends as it starts" if last == first else "ends before it starts"
    raise typer.BadParameter(f"the window {span} {what}", param_hint="--to")


def check_released(db: Connection, definition_ids: Iterable[int]) -> None:
    """Hold these definitions and all their sub processes, and refuse the first that is no good.

    What is ONLINE then stays so until the transaction ends.
    """
    from common.store.people.schedule_requests import lock_definitions

    needed = _with_sub_processes(db, definition_ids)
    locked = lock_definitions(db, [each.id for each in needed if each.id is not None])
    for each in needed:
        found = None if each.id is None else locked.get(each.id)
        if found is None:
            raise NotFoundError(f"there is no process definition {each.target!r:.200}{each.why}")
        if not found.is_usable:
            raise NotAllowedError(
                f"process definition {found.name!r}{each.why} is not usable (flag 0); import it"
                " again"
            )
        if not found.is_released:
            raise NotAllowedError(
                f"process definition {found.name!r}{each.why} is OFFLINE; release it first:"
                f" orcaflow definition online {found.name!r}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Needed:
    """A definition that has to be ONLINE; `id` is None if there is none of the name in `target`."""

    id: int | None
    target: int | str
    why: str = ""


def _with_sub_processes(db: Connection, definition_ids: Iterable[int]) -> list[_Needed]:
    """The definitions and what they run as sub processes, level by level, each once."""
    from common.store.people.definitions import definitions_named, definitions_with_ids
    from operations.awaited import awaited

    level = [_Needed(id=each, target=each) for each in dict.fromkeys(definition_ids)]
    needed: dict[int | str, _Needed] = {}
    while level:
        for each in level:
            needed.setdefault(each.id or each.target, each)
        places = [
            (row, place)
            for row in definitions_with_ids(db, [each.id for each in level if each.id is not None])
            for place in awaited(_document(row))
            if place.is_start
        ]
        by_name: dict[str, int] = {}
        names = sorted({place.target for _, place in places if isinstance(place.target, str)})
        for found in definitions_named(db, names):
            # The default project's come first, and go before those of the same name elsewhere.
            by_name.setdefault(found.name, found.id)
        level = []
        for row, place in places:
            target = place.target
            number = target if isinstance(target, int) else by_name.get(target)
            if (number or target) not in needed:
                why = f", which task {place.node!r:.100} of {row.name!r} runs as a sub process,"
                level.append(_Needed(id=number, target=target, why=why))
    return list(needed.values())


def _document(row: NamedDefinition) -> Mapping[str, Any]:
    """Its JSON; one that can't be read runs nothing."""
    try:
        found = json.loads(row.process_definition_json or "{}")
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def schedules_of(db: Connection, target: str, *, by_name: bool = False) -> list[ScheduleView]:
    """The schedule with an id, or those of a definition with a name: at least one."""
    from common.store.people.schedule_views import schedules
    from operations.lookup import definition_named

    number = int(target[:18]) if target.isascii() and target.isdigit() and not by_name else None
    if number is not None:
        found = schedules(db, ids=[number])
        if found:
            return found
    try:
        definition = definition_named(db, target)
    except NotFoundError as error:
        if number is not None:
            raise no_schedule(number) from error
        raise
    found = schedules(db, definition_id=definition.id)
    if not found:
        raise NotFoundError(
            f"{definition.name!r} has no schedule; make one: orcaflow schedule create"
            f" {definition.name!r} --cron '0 0 3 * * ? *'"
        )
    return found


def no_schedule(schedule_id: int) -> NotFoundError:
    return NotFoundError(f"there is no schedule {schedule_id}; see `orcaflow schedule list`")
