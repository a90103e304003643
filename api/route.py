"""A route as the tables of `api.routes` have it; its policy stands in `api.policy`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, TypeAlias

from fastapi import Path, Response

Id: TypeAlias = Annotated[int, Path(ge=1, le=2**31 - 1)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """A method and a path below `/api/v1`, the function that serves it, and its answer."""

    method: str
    path: str
    serve: Callable[..., Any]
    answer: Any
    status: int = 200
    other_status: int | None = None
    """A second success, with the same body."""
    stream: type[Response] | None = None
    """The class of an answer that is no document."""
    body: Mapping[str, Any] | None = None
    """The JSON schema of a body that the route reads itself."""
    other_media: str | None = None
    """The media type of a second form of the answer, which is read as a document too."""
    is_conditional: bool = False
    """True if it takes `If-Match`."""
    is_quick: bool = False
    """True for a read that asks nothing but the database, and that once or twice."""
    is_heavy: bool = False
    """True for long work on user input, which needs one of the places of `api.heavy`."""


def get(
    path: str,
    serve: Callable[..., Any],
    answer: Any,
    *,
    is_quick: bool = False,
    is_heavy: bool = False,
    other_media: str | None = None,
) -> Route:
    """Return the route of a read; `other_media` is a second form of its answer."""
    return Route(
        method="GET",
        path=path,
        serve=serve,
        answer=answer,
        is_quick=is_quick,
        is_heavy=is_heavy,
        other_media=other_media,
    )


def post(
    path: str,
    serve: Callable[..., Any],
    answer: Any,
    *,
    status: int = 200,
    other_status: int | None = None,
    body: Mapping[str, Any] | None = None,
    is_conditional: bool = False,
    is_heavy: bool = False,
) -> Route:
    """Return the route of an order; `other_status` is a second success, with the same body."""
    return Route(
        method="POST",
        path=path,
        serve=serve,
        answer=answer,
        status=status,
        other_status=other_status,
        body=body,
        is_conditional=is_conditional,
        is_heavy=is_heavy,
    )


def put(
    path: str,
    serve: Callable[..., Any],
    answer: Any,
    *,
    body: Mapping[str, Any] | None = None,
    is_heavy: bool = False,
) -> Route:
    """Return the route of a replacement, which says by `If-Match` what it replaces."""
    return Route(
        method="PUT",
        path=path,
        serve=serve,
        answer=answer,
        body=body,
        is_conditional=True,
        is_heavy=is_heavy,
    )


def patch(
    path: str, serve: Callable[..., Any], answer: Any, *, is_conditional: bool = False
) -> Route:
    return Route(
        method="PATCH", path=path, serve=serve, answer=answer, is_conditional=is_conditional
    )


def delete(
    path: str, serve: Callable[..., Any], answer: Any, *, is_conditional: bool = False
) -> Route:
    return Route(
        method="DELETE", path=path, serve=serve, answer=answer, is_conditional=is_conditional
    )


def stream(
    path: str,
    serve: Callable[..., Any],
    answer: type[Response],
    *,
    other_status: int | None = None,
) -> Route:
    """Return the route of an answer that is no document."""
    return Route(
        method="GET",
        path=path,
        serve=serve,
        answer=None,
        stream=answer,
        other_status=other_status,
    )
