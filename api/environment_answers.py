"""The shapes of answers and requests about environments; no answer has a secret."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from pydantic import Field, StringConstraints

from api.answers import Answer, Shape
from api.grant_answers import Projects

_Name = Annotated[str, StringConstraints(min_length=1, max_length=1000)]
_Config = Annotated[str, StringConstraints(max_length=1_000_000)]
_Groups = Annotated[list[_Name], Field(max_length=1000)]


class EnvironmentAnswer(Answer):
    """An environment; `config` is null for whoever is no administrator, secrets are masked."""

    id: int
    code: int
    name: str
    description: str | None
    worker_groups: list[str]
    config: str | None
    create_time: datetime
    update_time: datetime


class EnvironmentPage(Answer):
    """A page of environments."""

    items: list[EnvironmentAnswer]
    next: str | None


class EnvironmentUpdate(Shape):
    """The settings of an environment to change: lines `export NAME=value`, and what is beside."""

    name: _Name | None = None
    config: _Config | None = Field(default=None, repr=False)
    description: Annotated[str, StringConstraints(max_length=1000)] | None = None
    worker_groups: _Groups | None = None


class NewEnvironment(Shape):
    """An environment to make; `code` is the one that it has in the system that it comes from."""

    name: _Name
    config: _Config = Field(default="", repr=False)
    description: Annotated[str, StringConstraints(max_length=1000)] | None = None
    worker_groups: _Groups = Field(default_factory=list)
    code: int | None = None
    projects: Projects = Field(default_factory=list)


class DeletedEnvironment(Answer):
    """An environment that is gone."""

    id: int
    code: int
    name: str
    deleted: bool
