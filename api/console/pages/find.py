"""Finds definitions, runs by their numbers, projects and pages: for Ctrl-K, and as a page.

The box is `static/palette.js`, which asks for JSON, and adds the verbs of the page that is open.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Final

from fastapi import Response
from fastapi.responses import JSONResponse

from api.console.languages import VARY, language_of
from api.console.looks import of_run
from api.console.navigation import parts_for
from api.console.rendering import rendered
from api.console.table import Visit, page
from api.policy import LIST
from common.errors import NotFoundError
from common.model.rights import Action
from common.model.states import ReleaseState
from common.store.people.rights import Thing
from operations.definitions import definition_page
from operations.instances import find_instance
from operations.projects import list_projects
from operations.rights import may

_SYNONYMS: Final = {"definitions": "workflows dags", "runs": "instances", "complements": "backfill"}
_LONGEST: Final = 255
_MOST: Final = 8
_LARGEST_ID: Final = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A place to go to: a kind of thing, its name, and a word on it."""

    kind: str
    name: str
    told: str
    href: str


def show(visit: Visit) -> Response:
    """Show what is found for `q`; as JSON to whoever accepts that alone."""
    text = " ".join(visit.query.get("q", "").split())[:_LONGEST]
    found = [*_pages(visit, text), *_runs(visit, text), *_definitions(visit, text)]
    found += _projects(visit, text)
    if visit.request.headers.get("accept") == "application/json":
        headers = {"Vary": f"Accept, {VARY}", "Content-Language": language_of(visit.request)}
        return JSONResponse({"items": [asdict(each) for each in found]}, headers=headers)
    return rendered("find.html", zone=visit.session.zone, visit=visit, text=text, found=found)


def _pages(visit: Visit, text: str) -> Iterator[Found]:
    for path, english in parts_for(visit):
        name = visit.said(english)
        words = f"{english} {name} {_SYNONYMS.get(path, '')}".lower().split()
        # Chinese has no spaces between its words.
        is_within = name != english and text in name
        if is_within or any(each.startswith(text.lower()) for each in words):
            yield Found(kind=visit.said("page"), name=name, told="", href=f"/{path}")


def _runs(visit: Visit, text: str) -> Iterator[Found]:
    digits = text.lower().removeprefix("run").removeprefix("#").strip()
    if not (digits.isascii() and digits.isdigit() and 0 < int(digits[:11]) <= _LARGEST_ID):
        return
    try:
        run = find_instance(visit.session, int(digits))
    except NotFoundError:
        return
    look = of_run(run.state, run.wanted_state)
    yield Found(
        kind=visit.said("run"),
        name=visit.said("Run %(number)s", number=run.id),
        told=f"{run.definition_name or ''} {visit.said(look.word)}".strip(),
        href=f"/runs/{run.id}",
    )


def _definitions(visit: Visit, text: str) -> Iterator[Found]:
    word = text.lower().removeprefix("run ").strip()
    if not word:
        return
    found = definition_page(visit.session, search=word, limit=_MOST)
    for each in found:
        place = f"/definitions/{each.id}"
        yield Found(
            kind=visit.said("definition"),
            name=each.name,
            told=visit.said(each.release_state.name.lower()),
            href=place,
        )
    for each in found[:2]:
        is_online = each.release_state is ReleaseState.ONLINE
        if is_online and may(visit.session, Action.OPERATE, Thing.DEFINITION, each.id):
            place = f"/definitions/{each.id}/run"
            name = visit.said("Run %(name)s…", name=each.name)
            yield Found(kind=visit.said("verb"), name=name, told="", href=place)


def _projects(visit: Visit, text: str) -> Iterator[Found]:
    if not text:
        return
    found, _ = list_projects(visit.session, search=text, limit=_MOST)
    for each in found:
        place = f"/definitions?project={each.id}"
        yield Found(kind=visit.said("project"), name=each.name, told="", href=place)


PAGES: Final = (page("/find", LIST, show),)
