"""Checks before a schedule is stored or brought ONLINE: its window, columns, pace and definitions.

Nothing is written. `check_released` locks rows, so that they stay as checked.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

from common.cron import Cron
from common.errors import NotAllowedError, NotFoundError
from common.firing import command_param, timetable_of
from common.model.reach import FOREIGN
from common.model.rights import Action, Principal
from common.model.schedules import Schedule
from common.params import format_moment
from operations.awaited import awaited
from operations.errors import UsageError
from operations.stored_documents import stored_document

if TYPE_CHECKING:
    from common.config import ApiConfig
    from common.store.connect import Connection
    from operations.stored_targets import Place


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

    They stay ONLINE until the transaction ends. Raises `NotFoundError` or `NotAllowedError`. The
    text names tasks only of the same project, and sub processes only if that project reaches them.
    """
    from common.store.people.schedule_requests import lock_definitions

    needed = _with_sub_processes(db, definition_ids)
    locked = lock_definitions(db, [each.id for each in needed if each.id is not None])
    for each in needed:
        found = None if each.id is None else locked.get(each.id)
        if found is None:
            target = f"{each.target!r:.200}" if each.is_known else "that one of them names"
            raise NotFoundError(f"there is no process definition {target}{each.why}")
        name = f"process definition {found.name!r}" if each.is_known else FOREIGN
        if not found.is_usable:
            raise NotAllowedError(f"{name}{each.why} is not usable (flag 0); import it again")
        if not found.is_released:
            cure = f": orcaflow definition online {found.name!r}" if each.is_known else ""
            raise NotAllowedError(f"{name}{each.why} is OFFLINE; release it first{cure}")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Needed:
    """A definition that has to be ONLINE.

    `id` is set if `target` was resolved. The checked definition belongs to the project `home`. Its
    members read the mistake; `is_known` is True if they may see the name.
    """

    id: int | None
    target: int | str
    home: int | None = None
    is_known: bool = True
    why: str = ""


def _with_sub_processes(db: Connection, definition_ids: Iterable[int]) -> list[_Needed]:
    """Return the definitions and their sub processes at all levels, each once.

    A definition that another project does not share counts as missing.
    """
    from common.store.people.definitions import definitions_with_ids

    level = [_Needed(id=each, target=each) for each in dict.fromkeys(definition_ids)]
    needed: dict[int | str, _Needed] = {}
    while level:
        by_id: dict[int, _Needed] = {}
        for each in level:
            needed.setdefault(each.id or each.target, each)
            if each.id is not None:
                by_id.setdefault(each.id, each)
        places = [
            (row, place)
            for row in definitions_with_ids(db, list(by_id))
            for place in awaited(stored_document(row))
            if place.is_start
        ]
        level = [
            each for each in _started(db, places, by_id) if (each.id or each.target) not in needed
        ]
    return list(needed.values())


def _started(
    db: Connection, places: Sequence[Place], by_id: Mapping[int, _Needed]
) -> Iterator[_Needed]:
    """Yield the definitions that these places start; `by_id` holds the starting definitions."""
    from common.store.people.shares import targets_with_ids
    from operations.stored_targets import numbers_in

    number = numbers_in(db, places)
    found = [(row, place, number(row, place)) for row, place in places]
    wanted: dict[int, set[int]] = {}
    for row, _, each in found:
        for project in (row.project_id, by_id[row.id].home or row.project_id):
            wanted.setdefault(project, set()).update(() if each is None else (each,))
    reached = {project: targets_with_ids(db, project, ids) for project, ids in wanted.items()}
    for row, place, each in found:
        home = by_id[row.id].home or row.project_id
        is_own = row.project_id == home
        why = f", which task {place.node!r:.100} of {row.name!r} runs as a sub process,"
        is_there = each is not None and each in reached[row.project_id]
        yield _Needed(
            id=each if is_there else None,
            target=place.target,
            home=home,
            is_known=is_own or (is_there and each in reached[home]),
            why=why if is_own else ", which runs as a sub process within a shared one,",
        )
