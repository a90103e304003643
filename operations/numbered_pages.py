"""Pages by number of a project's definitions, runs, attempts and schedules, with their totals.

For DolphinScheduler's clients; everything else goes on from the last id. A page is bounded by
`LARGEST_PAGE`: a larger one is given as long as all rows fit, and refused otherwise, so that no row
is left out in silence.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, TypeVar
from weakref import WeakKeyDictionary

from common.clock import SystemClock
from common.errors import NotFoundError
from common.model.rights import Action
from common.store.connect import Connection, Engine
from common.store.people import numbered_pages as store
from common.store.people.definitions import DefinitionRow
from common.store.people.numbered_pages import MOST_COUNTED, RunName, Slice
from common.store.people.rights import Thing
from common.store.people.schedule_views import ScheduleView
from common.store.people.views import ProcessInstanceView, TaskInstanceView, process_instances
from operations.errors import UsageError
from operations.kept_totals import KeptTotals
from operations.rights import seen

if TYPE_CHECKING:
    from operations.session import Session

LARGEST_PAGE: Final = 1000
_kept: WeakKeyDictionary[Engine, KeptTotals] = WeakKeyDictionary()
_Row = TypeVar("_Row")


def slice_of(page: int, size: int) -> Slice:
    """Return the rows of a page, which is counted from 1."""
    if page < 1:
        raise UsageError("pageNo", "is a whole number from 1")
    if size < 1:
        raise UsageError("pageSize", "is a whole number from 1")
    return Slice(offset=min((page - 1) * size, MOST_COUNTED), limit=min(size, LARGEST_PAGE))


def check_whole(total: int, page: int, size: int) -> None:
    """Refuse a page that is larger than any may be, unless it has all rows."""
    if size > LARGEST_PAGE and (page > 1 or total > LARGEST_PAGE):
        raise UsageError(
            "pageSize", f"has at most {LARGEST_PAGE} rows, and there are {total}: ask page by page"
        )


def check_project(session: Session, project_id: int) -> None:
    """Refuse a foreign project as a missing one."""
    with session.engine.connect() as db:
        seen(db, session.principal, Action.VIEW, Thing.PROJECT, project_id)


def definitions(
    session: Session, project_id: int, page: int, size: int, *, search: str | None = None
) -> tuple[list[DefinitionRow], int]:
    """List definitions, the newest first, and count them all."""
    return _page(session, project_id, page, size, store.definition_slice, search=search)


def instances(
    session: Session,
    project_id: int,
    page: int,
    size: int,
    *,
    definition_id: int | None = None,
    states: Sequence[int] = (),
    search: str | None = None,
    host: str | None = None,
    executor: str | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
) -> tuple[list[ProcessInstanceView], int]:
    """List runs, the newest first, and count them all."""
    return _page(
        session,
        project_id,
        page,
        size,
        store.instance_slice,
        definition_id=definition_id,
        states=states,
        search=search,
        host=host,
        executor=executor,
        since=since,
        until=until,
    )


def tasks(
    session: Session,
    project_id: int,
    page: int,
    size: int,
    *,
    process_instance_id: int | None = None,
    states: Sequence[int] = (),
    search: str | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
) -> tuple[list[TaskInstanceView], int]:
    """List valid attempts, the newest first, and count them all."""
    return _page(
        session,
        project_id,
        page,
        size,
        store.task_slice,
        process_instance_id=process_instance_id,
        states=states,
        search=search,
        since=since,
        until=until,
    )


def schedules(
    session: Session,
    project_id: int,
    page: int,
    size: int,
    *,
    definition_id: int | None = None,
    search: str | None = None,
) -> tuple[list[ScheduleView], int]:
    """List schedules, the newest first, and count them all."""
    return _page(
        session,
        project_id,
        page,
        size,
        store.schedule_slice,
        definition_id=definition_id,
        search=search,
    )


def runs_of(
    session: Session, project_id: int, *, command_id: int = 0, complement_id: int = 0
) -> list[int]:
    """Return the ids of the runs that a command or a complement has begun so far.

    `NotFoundError` for one of another project.
    """
    thing, number = (
        (Thing.COMPLEMENT, complement_id) if complement_id else (Thing.COMMAND, command_id)
    )
    with session.engine.connect() as db:
        held = seen(db, session.principal, Action.VIEW, thing, number)
        if held.project_id != project_id:
            raise NotFoundError(f"there is no {thing.value} {number} in this project")
        if complement_id:
            return store.instances_of_complement(db, complement_id, limit=LARGEST_PAGE)
        return store.instances_of_command(db, command_id)


def instances_with_ids(session: Session, ids: Collection[int]) -> list[ProcessInstanceView]:
    """Read runs that the principal sees, the newest first, by one statement."""
    if not ids:
        return []
    with session.engine.connect() as db:
        return process_instances(db, ids=ids, limit=len(ids), principal=session.principal)


def run_names(session: Session, ids: Collection[int]) -> dict[int, RunName]:
    """Read the names of runs that the principal sees, by their ids."""
    with session.engine.connect() as db:
        return store.run_names(db, session.principal, ids)


def _page(
    session: Session,
    project_id: int,
    page: int,
    size: int,
    read: Callable[..., tuple[list[_Row], int]],
    **filters: Any,
) -> tuple[list[_Row], int]:
    wanted = slice_of(page, size)
    if any(isinstance(each, str) and "\0" in each for each in filters.values()):
        return [], 0
    kept = _kept_of(session.engine)
    asked = (read.__name__, project_id, *((name, _hashable(filters[name])) for name in filters))
    with session.engine.connect() as db:
        seen(db, session.principal, Action.VIEW, Thing.PROJECT, project_id)
        known = kept.find(asked)
        found, total = _read(db, read, project_id, replace(wanted, total=known), filters)
    if known is None:
        kept.keep(asked, total)
    check_whole(total, page, size)
    return found, total


def _hashable(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _kept_of(engine: Engine) -> KeptTotals:
    return _kept.setdefault(engine, KeptTotals(SystemClock()))


def _read(
    db: Connection,
    read: Callable[..., tuple[list[_Row], int]],
    project_id: int,
    wanted: Slice,
    filters: dict[str, Any],
) -> tuple[list[_Row], int]:
    return read(db, project_id, wanted, **filters)
