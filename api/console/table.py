"""A page as the tables of `api.console.pages` have it; its right is a policy, as a route's."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from fastapi import Request, Response

from api.console.languages import said
from api.policy import Policy
from operations.errors import UsageError
from operations.repeating import Once
from operations.rights import may_administer, may_author
from operations.session import Session

_NOT_SAID: Final = frozenset({"csrf_token", "once"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Visit:
    """A request of somebody who is logged in: `form` is what a POST has sent, each field once."""

    session: Session
    request: Request
    csrf: str
    """The token that forms of the answer have to send."""
    id: int
    """The number in the path, 0 without one."""
    name: str
    """The name in the path, empty without one."""
    query: Mapping[str, str]
    form: Mapping[str, str]

    @property
    def administers(self) -> bool:
        """True for administrators."""
        return may_administer(self.session)

    @property
    def authors(self) -> bool:
        """True for authors of any project."""
        return may_author(self.session)

    def said(self, text: str, /, **values: object) -> str:
        """Return a text in the language of the visit, with values in its places."""
        return said(self.request, text, **values)

    def once(self, *about: object) -> Once | None:
        """Return the key of the form that was shown, with the hash of all that it says.

        None without a key: whoever writes forms of their own may send one as often as they like.
        """
        key = self.form.get("once")
        if not key:
            return None
        given = {name: text for name, text in self.form.items() if name not in _NOT_SAID}
        text = json.dumps([*about, sorted(given.items())])
        return Once(key=key, request_sha256=hashlib.sha256(text.encode()).hexdigest())


def unknown(visit: Visit, field: str, given: str, known: Iterable[str]) -> UsageError:
    """Return the error of a word that is none of those that are known."""
    words = ", ".join(known)
    text = visit.said("%(text)s is none; known are %(words)s", text=f"{given!r:.50}", words=words)
    return UsageError(field, text)


Serve: TypeAlias = Callable[[Visit], Response]


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """A method and a path, the rights that it takes, and what serves it."""

    method: str
    path: str
    policy: Policy
    serve: Serve
    is_heavy: bool = False
    """True for long work, like `is_heavy` of a route."""


def page(path: str, policy: Policy, serve: Serve, *, is_heavy: bool = False) -> Page:
    return Page(method="GET", path=path, policy=policy, serve=serve, is_heavy=is_heavy)


def order(path: str, policy: Policy, serve: Serve, *, is_heavy: bool = False) -> Page:
    """Return the page of a form that changes something; its answer leads to another page."""
    return Page(method="POST", path=path, policy=policy, serve=serve, is_heavy=is_heavy)
