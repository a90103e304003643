"""Chooses the language of an answer: the page's own, else what its reader has chosen, or prefers.

A page that is open asks for its parts in its own language (`Orcaflow-Language`), whatever another
page of the browser has chosen since.
"""

from __future__ import annotations

from typing import Final

from fastapi import Request, Response

from api.console.catalogue import ENGLISH, LANGUAGES, translations

COOKIE: Final = "orcaflow_language"
HEADER: Final = "Orcaflow-Language"
VARY: Final = f"{HEADER}, Accept-Language, Cookie"
"""The headers that an answer's language depends on."""
_A_YEAR: Final = 31_536_000
_MOST: Final = 50


def language_of(request: Request) -> str:
    """Return the language in which a request is answered."""
    for named in (request.headers.get(HEADER), request.cookies.get(COOKIE)):
        if named is not None and named in LANGUAGES:
            return named
    return preferred(request.headers.get("accept-language", ""))


def preferred(accepted: str) -> str:
    """Return the language that an `Accept-Language` likes best; English if it knows none of ours.

    Chinese of any region or script is told in ours: who reads one reads it sooner than English.
    """
    liked: list[tuple[float, str]] = []
    for each in accepted.split(",", _MOST)[:_MOST]:
        tag, *parameters = (part.strip().lower() for part in each.split(";"))
        primary = tag.partition("-")[0]
        found = [known for known in LANGUAGES if known.partition("-")[0] == primary]
        weight = _weight(parameters)
        if found and weight > 0:
            liked.append((weight, found[0]))
    # The first of those that are liked alike.
    return max(liked, key=lambda one: one[0])[1] if liked else ENGLISH


def _weight(parameters: list[str]) -> float:
    for each in parameters:
        name, _, text = each.partition("=")
        if name.strip() == "q":
            try:
                weight = float(text)
            except ValueError:
                return 0
            return weight if 0 <= weight <= 1 else 0
    return 1


def choose(response: Response, language: str) -> None:
    """Let the browser keep a choice; one that is none of ours is left out."""
    if language in LANGUAGES:
        response.set_cookie(
            COOKIE, language, path="/", max_age=_A_YEAR, httponly=True, samesite="lax", secure=True
        )


def said(request: Request, text: str, /, **values: object) -> str:
    """Return a text in the language of a request, with values in its places."""
    found = translations(language_of(request)).gettext(text)
    return found % values if values else found
