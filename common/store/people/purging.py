"""Counts what a purge would delete, by table and definition; locks and writes nothing."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from sqlalchemy import Connection, func, select

from common.retention import needs_of
from common.store.retention import FIRST, History, Place, choose, history_page, waits
from common.store.tables import process_definition, process_instance, task_instance
from common.store.transaction import any_of

_PAGE: Final = 500

_INSTANCES: Final = (
    select(process_instance.c.process_definition_id, func.count())
    .where(process_instance.c.id == any_of("ids"))
    .group_by(process_instance.c.process_definition_id)
)
_ATTEMPTS: Final = (
    select(process_instance.c.process_definition_id, func.count())
    .join_from(
        task_instance,
        process_instance,
        process_instance.c.id == task_instance.c.process_instance_id,
    )
    .where(task_instance.c.process_instance_id == any_of("ids"))
    .group_by(process_instance.c.process_definition_id)
)
_NAMES: Final = select(process_definition.c.id, process_definition.c.name).where(
    process_definition.c.id == any_of("ids")
)


@dataclass(slots=True)
class Planned:
    """The counts of rows by table, and for each definition its instances and their attempts.

    `names` holds those of definitions that still exist.
    """

    rows: Counter[str] = field(default_factory=Counter)
    instances: Counter[int] = field(default_factory=Counter)
    attempts: Counter[int] = field(default_factory=Counter)
    names: dict[int, str] = field(default_factory=dict)


def planned(
    db: Connection, *, before: datetime, now: datetime, definition_id: int | None
) -> Planned:
    """Count what would go, page by page; other daemons go on meanwhile."""
    found = Planned()
    needs = needs_of(waits(db, now=now))
    place: Place | None = FIRST
    while place is not None:
        page = choose(
            db,
            before=before,
            after=place,
            limit=_PAGE,
            needs=needs,
            definition_id=definition_id,
            locks=False,
        )
        asked = {"ids": list(page.ids)}
        if page.ids:
            found.instances.update({row[0]: row[1] for row in db.execute(_INSTANCES, asked)})
            found.attempts.update({row[0]: row[1] for row in db.execute(_ATTEMPTS, asked)})
        place = page.place
    found.rows[task_instance.name] = found.attempts.total()
    found.rows[process_instance.name] = found.instances.total()
    for history in History:
        after: int | None = 0
        while after is not None:
            lines = history_page(
                db,
                history,
                before=history.limit(before, now),
                after=after,
                limit=_PAGE,
                definition_id=definition_id,
                locks=False,
            )
            found.rows[history.value] += len(lines.ids)
            after = lines.after
    ids = {"ids": sorted(found.instances)}
    found.names = {row.id: row.name for row in db.execute(_NAMES, ids)}
    return found
