"""Questions of DEPENDENT tasks to the tables, and the answers.

Pure. A *question* names a definition, perhaps one task of it, and an interval of time; the answer
is the newest run of that definition that counts in the interval (contract §10.3, DO). Or it names a
dataset; the answer is how far its stream has come. They are here because the master asks and the
store answers.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import TypeAlias

from common.model.states import ProcessState, TaskState
from common.model.streams.progress import DatasetProgress


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A question for the newest run of this definition whose moment lies in [start, end).

    The definition is named by id or, where that is None, by name. `common.business_dates` defines
    the moment of a run. `task`: the node in question; None for the run as a whole. `apart_from`:
    the waiting run, which never answers itself. `asking_project`: the project of the waiting run,
    which must reach the definition; None if the run's definition was deleted. `project`: the
    project that the item gives with the name.
    """

    definition_id: int | None
    definition_name: str | None
    task: str | None
    start: datetime
    end: datetime
    apart_from: int = 0
    asking_project: int | None = None
    project: str | int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetQuestion:
    """A question for the progress of the stream that feeds this dataset.

    `asking_project`: the project of the waiting run, which must reach the dataset; None if the
    run's definition was deleted.
    """

    dataset: str
    asking_project: int | None = None


AnyQuestion: TypeAlias = Question | DatasetQuestion


@dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamTask:
    """The valid attempt at the task that was asked about."""

    id: int
    state: TaskState
    retry_pending: bool
    end_time: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamRun:
    """The run that answers a question.

    `task` is None if no task was asked about, or if the run has no attempt at it; then `has_node`
    tells whether its definition has such a node at all.
    """

    id: int
    state: ProcessState
    schedule_time: datetime | None
    moment: datetime
    start_time: datetime
    end_time: datetime | None
    task: UpstreamTask | None = None
    has_node: bool = True


class Absence(Enum):
    """The reason why nothing answers a question."""

    NO_RUN = "no run in the interval yet"
    NO_DEFINITION = "there is no such definition in this project, and none is shared with it"
    FIRST_RUN = "the task's own definition has never run before"
    NO_STREAM = "no stream feeds the dataset: submit a supervisor for it, or mend its name"


Answer: TypeAlias = UpstreamRun | DatasetProgress | Absence | None
"""None is `Absence.NO_RUN`."""
