"""Deletes old history on request, or tells what would go.

`common.purging` deletes, a short transaction at a time, as the loop of a master does; the plan asks
the same questions and writes nothing. Logs and directories of this computer go after their rows;
those of others are removed by their workers.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

from common.clock import SystemClock
from common.purging import Purge, Purged
from common.store.people.purging import Planned, planned
from common.store.retention import PostgresRetentionStore
from operations.deleting import remove_folders
from operations.errors import UsageError
from operations.lookup import definition_named
from operations.rights import change, check_administrator
from operations.session import Session

_AGE = re.compile(r"([0-9]{1,5})([hdwy])")
_UNITS = {"h": timedelta(hours=1), "d": timedelta(days=1), "w": timedelta(weeks=1)}
_UNITS["y"] = timedelta(days=365)


@dataclass(frozen=True, slots=True, kw_only=True)
class PurgeResult:
    """The rows that are gone, the time before which they ended, and this computer's files.

    `left`: what could not be removed, and why.
    """

    before: datetime
    purged: Purged
    folders: int
    left: tuple[str, ...]


def age_of(text: str) -> timedelta:
    """Read an age, as 90d; `UsageError` for any other text, and for less than an hour."""
    found = _AGE.fullmatch(text.strip())
    age = int(found[1]) * _UNITS[found[2]] if found else timedelta()
    if not timedelta(hours=1) <= age <= timedelta(days=36_500):
        raise UsageError(
            "older-than", f"{text!r} is no age; write hours, days, weeks or years as 12h, 90d, 2y"
        )
    return age


def plan_purge(
    session: Session, *, older_than: str, definition: str | None
) -> tuple[datetime, Planned]:
    """Count what `purge` would delete; nothing is written or locked."""
    now = SystemClock().now()
    before = now - age_of(older_than)
    number = _definition(session, definition)
    with session.engine.connect() as db:
        found = planned(db, before=before, now=now, definition_id=number)
    return before, found


def purge(
    session: Session,
    *,
    older_than: str,
    definition: str | None,
    progress: Callable[[Purged], None] = lambda _: None,
) -> PurgeResult:
    """Delete what ended longer ago than that and is needed by nothing; safe to end at any time."""
    number = _definition(session, definition)
    clock = SystemClock()
    before = clock.now() - age_of(older_than)
    with change(session, "history.purge", "history", object_name=definition) as made:
        check_administrator(made.db, session.principal)
        made.detail = f"older than {older_than}"
    run = Purge(
        PostgresRetentionStore(session.engine),
        clock=clock,
        before=before,
        definition_id=number,
    )
    seen = folders = 0
    left: list[str] = []
    goes_on = True
    while goes_on:
        goes_on = run.step()
        # At once, so that the files of what is gone don't stay behind if this is ended.
        removed, faults = remove_folders(session.config.home, run.done.instances[seen:])
        seen, folders = len(run.done.instances), folders + removed
        left += faults
        progress(run.done)
    return PurgeResult(before=before, purged=run.done, folders=folders, left=tuple(left))


def _definition(session: Session, name: str | None) -> int | None:
    if name is None:
        if session.project is not None:
            raise UsageError(
                "project", "the history of all projects is deleted; name a definition with it"
            )
        return None
    with session.engine.connect() as db:
        return definition_named(db, session.principal, name).id
