"""A route as the tables of `api.routes` have it; its policy stands in `api.policy`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, TypeAlias

from fastapi import Path

Id: TypeAlias = Annotated[int, Path(ge=1, le=2**31 - 1)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """A method and a path below `/api/v1`, the function that serves it, and its answer."""

    method: str
    path: str
    serve: Callable[..., Any]
    answer: Any
    status: int = 200


def get(path: str, serve: Callable[..., Any], answer: Any) -> Route:
    return Route(method="GET", path=path, serve=serve, answer=answer)


def post(path: str, serve: Callable[..., Any], answer: Any, *, status: int = 200) -> Route:
    return Route(method="POST", path=path, serve=serve, answer=answer, status=status)
