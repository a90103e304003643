"""A page as the tables of `api.console.pages` have it; its right is a policy, as a route's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from fastapi import Request, Response

from api.policy import Policy
from operations.rights import may_administer
from operations.session import Session


@dataclass(frozen=True, slots=True, kw_only=True)
class Visit:
    """A request of somebody who is logged in: `form` is what a POST has sent, each field once."""

    session: Session
    request: Request
    csrf: str
    """The token that forms of the answer have to send."""
    id: int
    """The number in the path, 0 without one."""
    query: Mapping[str, str]
    form: Mapping[str, str]

    @property
    def administers(self) -> bool:
        """True for administrators."""
        return may_administer(self.session)


Serve: TypeAlias = Callable[[Visit], Response]


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """A method and a path, the rights that it takes, and what serves it."""

    method: str
    path: str
    policy: Policy
    serve: Serve


def page(path: str, policy: Policy, serve: Serve) -> Page:
    return Page(method="GET", path=path, policy=policy, serve=serve)


def order(path: str, policy: Policy, serve: Serve) -> Page:
    """Return the page of a form that changes something; its answer leads to another page."""
    return Page(method="POST", path=path, policy=policy, serve=serve)
