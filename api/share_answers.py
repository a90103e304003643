"""The shapes of answers and requests about shares of definitions and datasets."""

from __future__ import annotations

from datetime import datetime

from api.answers import Answer, Id, Shape, Text


class Share(Answer):
    """A project with which a definition or a dataset is shared.

    `project` is null if you may not see that project.
    """

    project_id: int
    project: str | None
    user: str | None
    create_time: datetime


class Shares(Answer):
    """The projects with which a definition or a dataset is shared."""

    items: list[Share]


class NewShare(Shape):
    """The project to share with, by name or id."""

    project: Id | Text


class Shared(Answer):
    """The outcome of a share or of its end; `changed` is false if it was so already."""

    definition: str
    id: int
    project: int | str
    changed: bool


class SharedDataset(Answer):
    """The outcome of a dataset's share or of its end; `changed` is false if it was so already."""

    dataset: str
    project: int | str
    changed: bool
