"""The versions of a definition: listed, compared, and restored after a look ahead."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from fastapi import Response
from fastapi.responses import RedirectResponse

from api import cursors
from api.console.differences import shown
from api.console.rendering import rendered
from api.console.table import Visit, order, page
from api.policy import Policy
from common.model.rights import Action
from common.store.people.rights import Thing
from common.store.people.views import ProcessInstanceView
from operations.definition_versions import (
    Version,
    compare,
    plan_restore,
    restore,
    versions,
)
from operations.definitions import definition_detail
from operations.errors import ChangedMeanwhileError, UsageError
from operations.instances import list_instances
from operations.rights import may

_LIMIT: Final = 50
_RUNS: Final = 100
"""The newest runs of a definition, whose versions are counted."""
_LIST: Final = "versions"
_LARGEST: Final = 2**31 - 1
_VIEW: Final = Policy(takes=Action.VIEW, thing="definition")
_AUTHOR: Final = Policy(takes=Action.AUTHOR, thing="definition")


@dataclass(frozen=True, slots=True, kw_only=True)
class Used:
    """The runs of a version among the newest ones of its definition."""

    count: int
    newest: int


def show_all(visit: Visit) -> Response:
    """Show the versions of a definition, the newest first."""
    session = visit.session
    row = definition_detail(session, visit.id, with_tag=False).row
    before = cursors.read(_LIST, visit.query.get("after"))
    found = versions(session, visit.id, limit=_LIMIT, before=before)
    runs = list_instances(session, definition_id=visit.id, limit=_RUNS)
    return rendered(
        "versions.html",
        zone=session.zone,
        visit=visit,
        definition=row,
        rows=found,
        former=_former(found, is_last=len(found) < _LIMIT),
        used=_used(runs),
        runs=len(runs),
        may_restore=may(session, Action.AUTHOR, Thing.DEFINITION, visit.id),
        next=cursors.next_of(_LIST, [each.version for each in found], _LIMIT),
    )


def show_difference(visit: Visit) -> Response:
    """Show the difference of two versions; unless others are named, the last two."""
    session = visit.session
    found = compare(
        session,
        visit.id,
        before=_version(visit.query, "from"),
        after=_version(visit.query, "to"),
    )
    known = versions(session, visit.id, limit=cursors.LARGEST_PAGE)
    return rendered(
        "compare.html",
        zone=session.zone,
        visit=visit,
        compared=found,
        difference=shown(found.difference),
        versions=_choices(known, found.before, found.after),
        may_restore=may(session, Action.AUTHOR, Thing.DEFINITION, visit.id),
    )


def look_ahead(visit: Visit) -> Response:
    """Show how a restore will change a definition; if no version is named, of the one before."""
    return _look_ahead(visit, _version(visit.query, "version"))


def carry_out(visit: Visit) -> Response:
    """Restore a version of a definition that is still as the look ahead has shown it."""
    version, tag = _version(visit.form, "version"), visit.form.get("tag")
    if version is None or not tag:
        raise UsageError("version", "is missing: load the page again")
    try:
        restore(visit.session, visit.id, version, expected=tag)
    except ChangedMeanwhileError:
        return _look_ahead(visit, version, is_late=True)
    return RedirectResponse(f"/definitions/{visit.id}/versions", status_code=303)


def _look_ahead(visit: Visit, version: int | None, *, is_late: bool = False) -> Response:
    plan = plan_restore(visit.session, visit.id, version)
    return rendered(
        "restore.html",
        zone=visit.session.zone,
        visit=visit,
        status=409 if is_late else 200,
        definition=plan.row,
        version=plan.version,
        # As a condition names it.
        tag=f'"{plan.tag}"',
        is_late=is_late,
        difference=shown(plan.difference),
    )


def _version(given: Mapping[str, str], name: str) -> int | None:
    text = given.get(name)
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= 10 and 0 < int(text) <= _LARGEST):
        raise UsageError(name, f"{text!r:.50} is no number of a version")
    return int(text)


def _former(found: Sequence[Version], *, is_last: bool) -> frozenset[int]:
    """Return the versions that have a known one before them, with which to compare them."""
    # One before the last of a full page is on the next, unless the last is the first of all.
    kept = found[:-1] if is_last or (found and found[-1].version == 1) else found
    return frozenset(each.version for each in kept)


def _used(runs: Sequence[ProcessInstanceView]) -> dict[int, Used]:
    by_version: dict[int, list[int]] = defaultdict(list)
    for each in runs:
        version = each.version
        if version is not None:
            by_version[version].append(each.id)
    return {version: Used(count=len(ids), newest=max(ids)) for version, ids in by_version.items()}


def _choices(known: Sequence[Version], *compared: int) -> list[int]:
    """Return the versions to choose from; those that are compared may be older than the list."""
    return sorted({*(each.version for each in known), *compared}, reverse=True)


PAGES: Final = (
    page("/definitions/{id}/versions", _VIEW, show_all),
    page("/definitions/{id}/compare", _VIEW, show_difference, is_heavy=True),
    page("/definitions/{id}/restore", _AUTHOR, look_ahead, is_heavy=True),
    order("/definitions/{id}/restore", _AUTHOR, carry_out, is_heavy=True),
)
