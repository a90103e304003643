"""The shapes of answers and requests about versions of definitions and their differences."""

from __future__ import annotations

from datetime import datetime

from api.answers import Answer, Document, Id, Shape, Value


class Version(Answer):
    """A version of a definition; `user` is null if nobody is known to have saved it."""

    version: int
    current: bool
    user: str | None
    create_time: datetime
    note: str | None


class VersionPage(Answer):
    """A page of versions, the newest first."""

    items: list[Version]
    next: str | None


class VersionDocument(Answer):
    """A definition as it was, and the variables that stand for its secrets."""

    version: int
    document: Document
    references: list[str]


class ValueChange(Answer):
    """A value that differs; the lines of a text as `diff -u` prints them."""

    key: str
    before: Value
    after: Value
    lines: list[str]


class TaskChange(Answer):
    """A task whose values differ, or whose name does."""

    name: str
    was: str
    changes: list[ValueChange]


class Changes(Answer):
    """The differences between two documents of a definition; edges are pairs of names.

    `contents` lists the values of each added task.
    """

    added: list[str]
    removed: list[str]
    changed: list[TaskChange]
    contents: list[TaskChange]
    edges_added: list[list[str]]
    edges_removed: list[list[str]]
    settings: list[ValueChange]
    risks: list[str]


class Difference(Changes):
    """The difference of two versions of a definition."""

    definition: str
    before: int
    after: int


class RunDifference(Changes):
    """The difference between a run's copy of its definition and the latest version.

    A restart with the latest version keeps the results of the tasks in `kept` and starts the tasks
    in `runs`. The latest version does not contain the tasks in `removed_tasks`.
    """

    process_instance_id: int
    definition: str
    version: int | None
    latest_version: int
    kept: list[str]
    runs: list[str]
    removed_tasks: list[str]


class DeletedVersion(Answer):
    """A version that is gone."""

    definition: str
    version: int
    deleted: bool


class RestoreRequest(Shape):
    """The version to save once more."""

    version: Id
