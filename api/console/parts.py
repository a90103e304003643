"""The parts of a page that change while it is open.

A template marks a part by `{% call part("facts") %}…{% endcall %}`. A whole page has each in an
element of its own, with the digest of its content. A browser that shows the page asks again with
the header `Orcaflow-Parts: facts=DIGEST,…`, and is given those of them that look otherwise by now;
a part that it does not name is not even made.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import Final

from markupsafe import Markup

HEADER: Final = "Orcaflow-Parts"
_MOST: Final = 20


class Parts:
    """The parts of one answer, as its template makes them."""

    def __init__(self, known: Mapping[str, str] | None) -> None:
        """`known` has the digests of the parts that are asked for; None asks for a whole page."""
        self._known = known
        self.changed: dict[str, dict[str, str]] = {}
        """The parts that look otherwise than the browser knows them: content and digest."""

    def part(
        self, name: str, tag: str = "div", *, caller: Callable[[], str], **attributes: object
    ) -> Markup:
        """Return the element of a part; `_` in names of attributes stands for a hyphen."""
        if self._known is not None and name not in self._known:
            return Markup()
        content = caller()
        digest = hashlib.sha256(content.encode()).hexdigest()[:12]
        if self._known is not None and self._known[name] != digest:
            self.changed[name] = {"html": content, "digest": digest}
        given = Markup("").join(
            Markup(' {}="{}"').format(key.replace("_", "-"), value)
            for key, value in attributes.items()
        )
        opened = Markup('<{} data-part="{}" data-digest="{}"{}>').format(tag, name, digest, given)
        return opened + Markup(content) + Markup("</{}>").format(tag)  # noqa: S704  # A template's.


def known_parts(header: str | None) -> dict[str, str] | None:
    """Read the header; None if a whole page is asked for."""
    if header is None:
        return None
    named = (each.partition("=") for each in header.split(",", _MOST)[:_MOST])
    return {name.strip(): digest.strip() for name, _, digest in named}
