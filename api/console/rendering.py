"""Makes pages of templates, and serves the files that they name under paths of their content."""

from __future__ import annotations

import base64
import hashlib
import html
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta, tzinfo
from functools import cache, partial
from pathlib import Path
from typing import Any, Final

from fastapi import Request, Response
from fastapi.responses import HTMLResponse, JSONResponse
from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape
from markupsafe import Markup

from api.console.catalogue import ENGLISH, LANGUAGES, translations
from api.console.grid import points_of
from api.console.languages import VARY, language_of
from api.console.looks import MARKS, Look, known_looks
from api.console.navigation import RARE_PARTS, parts_for
from api.console.parts import HEADER, Parts, known_parts
from api.console.table import Visit
from api.console.words import day_text, elided, exact_text, moment_text, span_text
from common.clock import SystemClock
from common.errors import NotFoundError

STATIC: Final = "/static"
_FOLDER: Final = Path(__file__).parent / "static"
_MEDIA: Final[Mapping[str, str]] = {
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
_FILES: Final = frozenset(("orca.svg", "hub.js"))
STYLE: Final = (_FOLDER / "console.css").read_text(encoding="utf-8")
"""In each page: a browser shows nothing before it has the style, and asks for it last."""
_STYLE_HASH: Final = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
POLICY: Final = (
    f"default-src 'none'; script-src 'self'; style-src 'sha256-{_STYLE_HASH}'; img-src 'self';"
    " connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_MODULES: Final = frozenset(("palette", "live", "graph", "grid", "schedule", "editor", "log"))
_A_YEAR: Final = 31_536_000
_HEADERS: Final = {"Content-Security-Policy": POLICY, "Referrer-Policy": "same-origin"}
_clock = SystemClock()


def rendered(
    template: str,
    *,
    zone: tzinfo | None,
    status: int = 200,
    visit: Visit | None = None,
    request: Request | None = None,
    keeps: bool = False,
    **values: object,
) -> Response:
    """Return the page of a template. Texts are escaped; `zone` is that of the moments shown.

    It is in the language of the visit, or of the request. A visit that asks for parts is answered
    with those that have changed, as JSON. An answer of a form that `keeps` is shown again to
    whoever goes back to it, and so must hold no secret.
    """
    asked = request if visit is None else visit.request
    language = ENGLISH if asked is None else language_of(asked)
    now = _clock.now()
    known = None if visit is None else known_parts(visit.request.headers.get(HEADER))
    parts = Parts(known)
    body = (
        _environment(language)
        .get_template(template)
        .render(
            now=now,
            when=_Moments(zone, now).shown,
            part=parts.part,
            visit=visit,
            here=_address(asked),
            page_zone=_zone_name(visit),
            **values,
        )
    )
    headers = {**_HEADERS, "Vary": f"{HEADER}, {VARY}", "Content-Language": language}
    if keeps:
        headers["Cache-Control"] = "private, no-cache"
    if known is None:
        return HTMLResponse(body, status_code=status, headers=headers)
    title = html.unescape(body.partition("<title>")[2].partition("</title>")[0])
    document = {"title": title, "parts": parts.changed}
    return JSONResponse(document, status_code=status, headers=headers)


def static(request: Request) -> Response:
    """Serve a file, for ever under the digest of its content; another digest is missing.

    Modules of a page are joined, as `live+graph.js`: a browser asks for one file instead of many.
    """
    name = str(request.path_params.get("name", ""))
    if not _is_known(name) or request.path_params.get("digest") != _digest(name):
        raise NotFoundError("there is no such file; load the page again")
    return Response(
        _content(name),
        media_type=_MEDIA[Path(name).suffix],
        # A worker has the policy of its own answer, and not that of the page.
        headers={**_HEADERS, "Cache-Control": f"public, max-age={_A_YEAR}, immutable"},
    )


def _zone_name(visit: Visit | None) -> str:
    """Return the name of the zone of a page's times; "" for a page without a user."""
    return "" if visit is None else visit.session.zone.key


def _address(request: Request | None) -> str:
    """Return the address to come back to once another language is chosen."""
    if request is None:
        return "/"
    query = request.url.query if request.method == "GET" else ""
    return f"{request.url.path}?{query}" if query else request.url.path


@cache
def _environment(language: str) -> Environment:
    """Return the templates in a language: each has its own, so that no page can mix two."""
    texts = translations(language)
    say = texts.gettext
    made = Environment(
        loader=PackageLoader("api.console"),
        autoescape=select_autoescape(),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=["jinja2.ext.i18n"],
    )
    made.install_gettext_translations(texts, newstyle=True)  # type: ignore[attr-defined]  # Of the extension.
    made.filters["span"] = partial(span_text, say=say)
    made.filters["day"] = partial(day_text, say=say)
    made.filters["said"] = lambda value: say(str(value))
    made.filters["elided"] = elided
    made.filters["points"] = points_of
    made.tests["look"] = lambda value: isinstance(value, Look)
    made.tests["span"] = lambda value: isinstance(value, timedelta)
    made.globals["known_looks"] = partial(known_looks, say)
    made.globals["task_looks"] = MARKS
    made.globals["language"] = language
    made.globals["languages"] = LANGUAGES
    made.globals["parts_for"] = parts_for
    made.globals["rare_parts"] = RARE_PARTS
    made.globals["static"] = _place
    made.globals["style"] = Markup(STYLE)  # noqa: S704  # A file of our own.
    made.globals["script"] = lambda modules: _place(f"{'+'.join(modules)}.js")
    return made


def _place(name: str) -> str:
    return f"{STATIC}/{_digest(name)}/{name}"


def _is_known(name: str) -> bool:
    modules = name.removesuffix(".js").split("+")
    is_joined = name.endswith(".js") and len(set(modules)) == len(modules)
    return name in _FILES or (is_joined and _MODULES.issuperset(modules))


@cache
def _content(name: str) -> bytes:
    if name in _FILES:
        return (_FOLDER / name).read_bytes()
    texts = [(_FOLDER / f"{each}.js").read_bytes() for each in name.removesuffix(".js").split("+")]
    # Braces keep the names of each to itself, as a module of its own does.
    return b"".join(b"{\n%b}\n" % each for each in texts)


@cache
def _digest(name: str) -> str:
    return hashlib.sha256(_content(name)).hexdigest()[:16]


class _Moments:
    """Shows moments in one zone, as `time` elements that tell them exactly."""

    def __init__(self, zone: tzinfo | None, now: datetime) -> None:
        self._zone = zone
        self._now = now

    def shown(self, moment: Any) -> Markup:
        """Return the element of a moment; nothing for None."""
        if not isinstance(moment, datetime):
            return Markup()
        return Markup('<time datetime="{}" title="{}">{}</time>').format(
            moment.astimezone(UTC).isoformat(timespec="milliseconds"),
            exact_text(moment, zone=self._zone),
            moment_text(moment, zone=self._zone, now=self._now),
        )
