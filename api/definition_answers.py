"""The shapes of answers and requests about definitions, but for those that lists and runs share."""

from __future__ import annotations

from typing import Literal

from api.answers import Answer, DeletedInstances, Document, Ids, Shape


class ImportFinding(Answer):
    """Something that the author of an imported definition should know."""

    node: str | None
    key: str
    problem: str
    cure: str | None


class Unmapped(ImportFinding):
    """A part that stays behind; `keeps_offline` if the definition can't run without it."""

    keeps_offline: bool


class Finding(ImportFinding):
    """A finding as it was made, in the order of all."""

    severity: str
    keeps_offline: bool


class ImportedSchedule(Answer):
    """A schedule that came with a definition; it is OFFLINE."""

    id: int
    crontab: str
    new: bool


class SavedDefinition(Answer):
    """A definition that was saved, with everything that its author should know."""

    id: int
    project: str | None
    name: str
    version: int
    release_state: str
    tasks: int
    changed: bool
    kept_offline: bool
    schedules: list[ImportedSchedule]
    unmapped: list[Unmapped]
    warnings: list[ImportFinding]
    findings: list[Finding]


class SavedDefinitionList(Answer):
    """The definitions that were imported."""

    items: list[SavedDefinition]


class LintedDefinition(Answer):
    """A definition that has no mistake."""

    name: str
    tasks: int


class LintMistake(Answer):
    """A mistake with its place, as far as it has one."""

    definition: str | None
    node: str | None
    key: str | None
    problem: str


class LintFinding(ImportFinding):
    """A finding about one of several definitions."""

    definition: str


class LintUnmapped(Unmapped):
    """A part of one of several definitions that stays behind."""

    definition: str


class Linted(Answer):
    """The result of linting: nothing is kept out without a mistake."""

    definitions: list[LintedDefinition]
    mistakes: list[LintMistake]
    unmapped: list[LintUnmapped]
    warnings: list[LintFinding]


class Exported(Answer):
    """A definition as an import takes it, and the variables that stand for its secrets."""

    document: Document
    references: list[str]


class ReleaseRequest(Shape):
    """Definitions to bring ONLINE or OFFLINE, all or none."""

    ids: Ids
    release_state: Literal["ONLINE", "OFFLINE"]


class ReleasedDefinition(Answer):
    """A release state after a request, and the schedules that went OFFLINE by it."""

    id: int
    name: str
    release_state: str
    changed: bool
    schedules: list[int]
    has_offline_schedules: bool


class ReleasedList(Answer):
    """Definitions after a request."""

    items: list[ReleasedDefinition]


class ExecutionTypeRequest(Shape):
    """The behaviour of new runs while another run of the definition goes on."""

    ids: Ids
    execution_type: Literal["PARALLEL", "SERIAL_WAIT", "SERIAL_DISCARD", "SERIAL_PRIORITY"]


class ExecutionTypeSet(Answer):
    """The execution type of a definition after a request."""

    id: int
    name: str
    execution_type: str
    changed: bool


class ExecutionTypeList(Answer):
    """Definitions after a request."""

    items: list[ExecutionTypeSet]


class DeleteDefinitionsRequest(Shape):
    """Definitions to delete, all or none."""

    ids: Ids
    with_instances: bool = False
    force: bool = False


class Named(Answer):
    """An object with its name."""

    id: int
    name: str


class DeletedDefinitions(Answer):
    """Definitions that are gone, with their schedules; their runs are deleted, or stay."""

    deleted: list[Named]
    schedules: list[int]
    kept_instances: int
    instances: DeletedInstances | None
