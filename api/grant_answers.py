"""The shapes of answers and requests about grants of shared objects to projects."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from pydantic import Field, StringConstraints

from api.answers import Answer, Shape

_Given: TypeAlias = (
    Annotated[str, StringConstraints(min_length=1, max_length=1000)]
    | Annotated[int, Field(ge=1, le=2**63 - 1, strict=True)]
)
Kind: TypeAlias = Literal["tenant", "datasource", "environment", "pool", "worker-group"]
Projects: TypeAlias = Annotated[list[_Given], Field(max_length=100)]
"""The projects to which a new object is granted, by their names or ids."""


class GrantProject(Answer):
    """A project that can use an object."""

    id: int
    name: str


class ObjectGrants(Answer):
    """A shared object with the projects that can use it."""

    kind: Kind
    id: int
    name: str
    projects: list[GrantProject]


class GrantList(Answer):
    """Shared objects by kind and name."""

    items: list[ObjectGrants]


class GrantChange(Shape):
    """A grant: the object and the project, each by its name or its id."""

    kind: Kind
    object: _Given
    project: _Given
