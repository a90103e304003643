"""Checks before a schedule is stored or brought ONLINE: its window, columns, pace and definitions.

Nothing is written. `check_released` locks rows, so that they stay as checked.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

from common.cron import Cron
from common.errors import NotAllowedError, NotFoundError
from common.firing import command_param, timetable_of
from common.model.rights import Action, Principal
from common.model.schedules import Schedule
from common.params import format_moment
from operations.errors import UsageError
from operations.stored_documents import stored_document

if TYPE_CHECKING:
    from common.config import ApiConfig
    from common.store.connect import Connection


def check_schedule(made: Schedule, *, zone: ZoneInfo, limit_bytes: int) -> None:
    """Raise `ScheduleFaultError` or `NotAllowedError` for a schedule that could never fire."""
    timetable_of(made, zone=zone)
    param = command_param(made)
    if len(param.encode("utf-8", "replace")) > limit_bytes:
        raise NotAllowedError(
            f"the parameters are larger than {limit_bytes} bytes (command.param_limit_bytes)"
        )


def check_window(first: datetime, last: datetime, *, zone: ZoneInfo) -> None:
    """Raise a `UsageError` of the field `to` for an empty window (contract §8.1)."""
    if last > first:
        return
    span = f"{format_moment(first, zone)} to {format_moment(last, zone)} ({zone.key})"
    mistake = "ends as it starts" if last == first else "ends before it starts"
    raise UsageError("to", f"the window {span} {mistake}")


def too_often(
    db: Connection, principal: Principal, settings: ApiConfig, crontab: str, definition_id: int
) -> str | None:
    """Return why the principal may not let a definition's schedule fire so often, else None."""
    from common.store.people.rights import Thing, held, is_administrator

    if principal.owns_database or is_administrator(db, principal):
        return None
    found = held(db, principal, Thing.DEFINITION, definition_id)
    is_admin = found is not None and bool(found.actions & Action.ADMIN)
    role = "admin" if is_admin else "author"
    least = settings.schedule_seconds_admin if is_admin else settings.schedule_seconds_author
    gap = Cron.parse(crontab).least_gap
    if gap >= least:
        return None
    helper = "an administrator" if is_admin else "one of its admins"
    return (
        f"it fires {gap} s apart, and schedules of the project's {role}s fire at least {least} s"
        f" apart (api.schedule_seconds_{role}): let it fire less often, or ask {helper} to do this"
    )


def check_released(db: Connection, definition_ids: Iterable[int]) -> None:
    """Lock these definitions and all their sub processes; raise for the first that is not ONLINE.

    They stay ONLINE until the transaction ends. Raises `NotFoundError` or `NotAllowedError`.
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
    """The definitions and those that they run as sub processes, level by level, each once."""
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
            for place in awaited(stored_document(row))
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
