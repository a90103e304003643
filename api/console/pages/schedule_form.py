"""The form that makes or changes a schedule: its fires beforehand, then the order.

A form that is sent again makes no second schedule, and one that was shown before somebody else has
changed the schedule changes nothing. Mistakes stand beside their fields, and what was typed stays.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from functools import cache
from typing import Any, Final
from zoneinfo import available_timezones

from fastapi import Response
from fastapi.responses import RedirectResponse

from api.console.parts import HEADER
from api.console.rendering import rendered
from api.console.schedule_fields import CHOICES, Mistake, Read, new_texts, read_fields, texts_of
from api.console.table import Visit, order, page
from api.marking import marked
from api.policy import Policy
from common.clock import SystemClock
from common.config import cluster_zone
from common.errors import NotAllowedError, NotFoundError
from common.firing import ScheduleFaultError
from common.model.rights import Action
from common.model.states import ReleaseState
from common.store.people.rights import Thing
from operations import scheduling
from operations.definitions import definition_page
from operations.documents.schedules import preview_document
from operations.environments import list_environments
from operations.errors import ChangedMeanwhileError, ForbiddenError, UsageError
from operations.previewing import preview
from operations.rights import may
from operations.schedule_drafts import Draft, draft_of, look_ahead, new_draft
from operations.schedule_settings import NO_ENVIRONMENT, ScheduleSettings
from operations.scheduling import schedule_tag
from operations.worker_groups import group_names

_NEW: Final = Policy(takes=Action.AUTHOR, thing="definition")
_CHANGE: Final = Policy(takes=Action.AUTHOR, thing="schedule")
_FIRES: Final = 5
_MOST_DEFINITIONS: Final = 50
_LARGEST_ID: Final = 2**31 - 1
_SHOWN: Final = "shown."
"""Before the name of a field: its text as the form was shown with it."""
_KEY: Final = "Idempotency-Key"
_FIELDS: Final[Mapping[str | None, str]] = {"param": "params", None: ""}
"""The fields of operations that have another name in the form; those about the whole have none."""
_clock = SystemClock()


def show_new(visit: Visit) -> Response:
    """Show the form of a new schedule of `definition`; without one, the definitions to choose."""
    number = visit.query.get("definition")
    if number is None:
        return _choose(visit)
    draft = new_draft(visit.session, _id(visit, number))
    return _form(visit, draft, _texts(visit, draft))


def check_new(visit: Visit) -> Response:
    """Show the form again, with the fires of what was typed."""
    draft = new_draft(visit.session, _id(visit, visit.form.get("definition", "")))
    return _looked(visit, draft)


def make(visit: Visit) -> Response:
    """Make the schedule, once for each form that was shown."""
    session = visit.session
    draft = new_draft(session, _id(visit, visit.form.get("definition", "")))
    texts = _texts(visit, draft)
    read = read_fields(visit.form, texts, None)
    if read.mistakes:
        return _form(visit, draft, texts, mistakes=read.mistakes)
    try:
        saved = scheduling.create(
            session,
            draft.definition_id,
            read.settings,
            online="online" in visit.form,
            now=_clock.now(),
            once=visit.once("schedule"),
        )
    except UsageError as error:
        is_again = error.field == _KEY
        told = (
            Mistake(
                text=marked(
                    "This form has made a schedule already. Send it once more to make another."
                ),
                values={},
            )
            if is_again
            else _mistake_of(error)
        )
        mistakes = {"" if is_again else _field(error): told}
        return _form(visit, draft, texts, mistakes=mistakes, once=is_again)
    except (ScheduleFaultError, NotAllowedError, NotFoundError) as error:
        if isinstance(error, ForbiddenError):
            raise
        return _form(visit, draft, texts, mistakes={"": _mistake_of(error)}, status=409)
    return RedirectResponse(f"/schedules/{saved.view.id}", status_code=303)


def show_change(visit: Visit) -> Response:
    """Show the form of a schedule as it is."""
    draft = draft_of(visit.session, visit.id)
    return _form(visit, draft, _texts(visit, draft))


def check_change(visit: Visit) -> Response:
    """Show the form again, with the fires of what was typed."""
    return _looked(visit, draft_of(visit.session, visit.id))


def change(visit: Visit) -> Response:
    """Change the schedule, if it is still as the form was shown for."""
    session = visit.session
    draft = draft_of(session, visit.id)
    texts, tag = _texts(visit, draft), visit.form.get("tag")
    if draft.view is None or not tag:
        raise UsageError("tag", visit.said("is missing: load the page again"))
    read = read_fields(visit.form, texts, draft.view)
    # Whoever comes too late is refused by the operation, which tells the audit.
    if read.mistakes and tag == _tag(draft):
        return _form(visit, draft, texts, mistakes=read.mistakes)
    if not read.mistakes and read.settings == ScheduleSettings():
        return RedirectResponse(f"/schedules/{visit.id}", status_code=303)
    try:
        is_online = draft.view.release_state == ReleaseState.ONLINE
        scheduling.edit(
            session,
            visit.id,
            read.settings,
            now=_clock.now(),
            expected=tag,
            online=is_online,
        )
    except ChangedMeanwhileError:
        draft = draft_of(session, visit.id)
        return _form(visit, draft, _texts(visit, draft), status=409, is_late=True)
    except UsageError as error:
        return _form(visit, draft, texts, mistakes={_field(error): _mistake_of(error)})
    except (ScheduleFaultError, NotAllowedError, NotFoundError) as error:
        if isinstance(error, ForbiddenError):
            raise
        return _form(visit, draft, texts, mistakes={"": _mistake_of(error)}, status=409)
    return RedirectResponse(f"/schedules/{visit.id}", status_code=303)


def delete(visit: Visit) -> Response:
    """Delete the schedule, if it is still as its page was shown for."""
    tag = visit.form.get("tag")
    if not tag:
        raise UsageError("tag", visit.said("is missing: load the page again"))
    (gone,) = scheduling.delete(visit.session, [visit.id], expected=tag)
    place = f"/definitions/{gone.process_definition_id}?view=schedules"
    return RedirectResponse(place if gone.definition_name else "/schedules", status_code=303)


def _choose(visit: Visit) -> Response:
    name = visit.query.get("name", "")
    session = visit.session
    found = definition_page(session, search=name or None, limit=_MOST_DEFINITIONS)
    projects = {
        each: may(session, Action.AUTHOR, Thing.PROJECT, each)
        for each in {each.project_id for each in found}
    }
    return rendered(
        "schedule_choose.html",
        zone=session.zone,
        visit=visit,
        name=name,
        rows=[each for each in found if projects[each.project_id]],
        is_cut=len(found) == _MOST_DEFINITIONS,
    )


def _looked(visit: Visit, draft: Draft) -> Response:
    texts = _texts(visit, draft)
    tag = visit.form.get("tag")
    is_late = draft.view is not None and bool(tag) and tag != _tag(draft)
    read = read_fields(visit.form, texts, draft.view)
    return _form(visit, draft, texts, mistakes=read.mistakes, tag=tag, is_late=is_late)


def _form(
    visit: Visit,
    draft: Draft,
    texts: Mapping[str, str],
    *,
    mistakes: Mapping[str, Mistake] | None = None,
    status: int | None = None,
    tag: str | None = None,
    is_late: bool = False,
    once: bool = False,
) -> Response:
    """Show the form with what was typed, else with `texts`; `once` gives it another key."""
    session, is_sent = visit.session, visit.request.method == "POST"
    is_typing = HEADER in visit.request.headers
    given = {key: _typed(visit, key, text, is_late=is_late) for key, text in texts.items()}
    found = dict(mistakes or {})
    look: dict[str, Any] | None = None
    if not found and given["cron"]:
        look, wrong = _look(visit, draft, read_fields(given, texts, draft.view))
        found |= wrong
    zone = cluster_zone(session.config)
    return rendered(
        "schedule_form.html",
        zone=session.zone,
        visit=visit,
        # While somebody types, a mistake is part of the answer.
        status=status or (422 if found and is_sent and not is_typing else 200),
        draft=draft,
        place="/schedules/new" if draft.view is None else f"/schedules/{draft.view.id}/edit",
        given=given,
        texts=texts,
        # As a form that was never sent has nothing wrong yet.
        mistakes={key: _said(visit, each) for key, each in found.items()} if is_sent else {},
        troubles=[] if is_sent else [_said(visit, each) for each in found.values()],
        look=look,
        is_late=is_late,
        is_online=draft.view is not None and draft.view.release_state == ReleaseState.ONLINE,
        online="online" in visit.form,
        tag=tag if tag and not is_late else _tag(draft),
        once=secrets.token_hex(16) if once else visit.form.get("once") or secrets.token_hex(16),
        choices=CHOICES,
        zones=_zones(),
        zone_name=zone.key,
        groups=_with(group_names(session), given["worker_group"]),
        environments=_with(
            [each.view.name for each in list_environments(session)],
            "" if given["environment"] == NO_ENVIRONMENT else given["environment"],
        ),
    )


def _typed(visit: Visit, key: str, text: str, *, is_late: bool) -> str:
    """Return what was typed into a field; of a form that is late, only what its sender changed."""
    typed, shown = visit.form.get(key, text), visit.form.get(f"{_SHOWN}{key}")
    if is_late and shown is not None and typed.splitlines() == shown.splitlines():
        return text
    return typed


def _look(
    visit: Visit, draft: Draft, read: Read
) -> tuple[dict[str, Any] | None, dict[str, Mistake]]:
    """Return the fires of what the form says, or the mistake because of which there are none."""
    if read.mistakes:
        return None, dict(read.mistakes)
    now = _clock.now()
    try:
        previewed = look_ahead(visit.session, draft, read.settings, now=now)
    except UsageError as error:
        return None, {_field(error): _mistake_of(error)}
    except (ScheduleFaultError, NotFoundError) as error:
        return None, {"": _mistake_of(error)}
    document = preview_document(previewed, preview(previewed, after=None, count=_FIRES, now=now))
    return document | {"head": document["schedules"][0]}, {}


def _texts(visit: Visit, draft: Draft) -> dict[str, str]:
    zone = cluster_zone(visit.session.config)
    return new_texts(zone) if draft.view is None else texts_of(draft.view, zone=zone)


def _tag(draft: Draft) -> str:
    """The tag of the schedule as a condition names it; empty for a new one."""
    return "" if draft.view is None else f'"{schedule_tag(draft.view)}"'


def _with(known: list[str], given: str) -> list[str]:
    """Return the names to choose from, with one that is chosen and perhaps gone."""
    return known if given in known or not given else [*known, given]


def _field(error: UsageError) -> str:
    return _FIELDS.get(error.field, error.field or "")


def _mistake_of(error: Exception) -> Mistake:
    text = error.message if isinstance(error, UsageError) else str(error)
    return Mistake(text=text, values={}, is_told=True)


def _said(visit: Visit, mistake: Mistake) -> str:
    return mistake.text if mistake.is_told else visit.said(mistake.text, **mistake.values)


def _id(visit: Visit, text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 10 and int(text) <= _LARGEST_ID):
        raise UsageError(
            "definition", visit.said("%(text)s is no number of anything here", text=f"{text!r:.50}")
        )
    return int(text)


@cache
def _zones() -> tuple[str, ...]:
    """The zones that are proposed: those of places, and UTC; any other may be typed."""
    return ("UTC", *sorted(each for each in available_timezones() if _is_place(each)))


def _is_place(zone: str) -> bool:
    return "/" in zone and not zone.startswith(("Etc/", "SystemV/", "US/", "posix/", "right/"))


PAGES: Final = (
    page("/schedules/new", _NEW, show_new),
    order("/schedules/new/check", _NEW, check_new),
    order("/schedules/new", _NEW, make),
    page("/schedules/{id}/edit", _CHANGE, show_change),
    order("/schedules/{id}/edit/check", _CHANGE, check_change),
    order("/schedules/{id}/edit", _CHANGE, change),
    order("/schedules/{id}/delete", _CHANGE, delete),
)
