"""The concerns of an overview: objects that need a person. Pure.

The overview says that all is well only without a concern, so the list of kinds is complete as
far as the tables know. `common.store.people.concerns` finds them.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

RECENT: Final = timedelta(days=7)
"""The age up to which refused commands and missed fires are concerns: no later event ends them."""
COMMAND_PATIENCE: Final = timedelta(minutes=1)
"""The time that a command may wait for a master."""


class ConcernKind(StrEnum):
    """The kinds of concerns, in the order in which an overview lists them."""

    NO_MASTER = "no-master"
    """Commands have waited for longer than `COMMAND_PATIENCE`."""
    MISSING_WORKER = "missing-worker"
    """A worker that holds attempts does not report."""
    FAILED_RUN = "failed-run"
    """The last run of a definition, apart from its complements, has failed."""
    FAILED_DATES = "failed-dates"
    """Dates of a complement have failed, or have not started since another one failed."""
    PAUSED_RUN = "paused-run"
    UNHEALTHY_SUPERVISOR = "unhealthy-supervisor"
    TROUBLED_TOPOLOGY = "troubled-topology"
    REFUSED_COMMAND = "refused-command"
    """The last command for a definition was refused."""
    MISSED_FIRES = "missed-fires"
    """Fires of a schedule were missed, and no run has done their dates since."""
    FAULTY_SCHEDULE = "faulty-schedule"
    """An ONLINE schedule can't fire."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Concern:
    """An object that needs a person.

    `id` is the id of a run, complement, command or schedule; `name` names an object without an id,
    such as a worker. `count`: the number of dates, fires, attempts or commands.
    """

    kind: ConcernKind
    id: int | None = None
    name: str | None = None
    process_definition_id: int | None = None
    definition: str | None = None
    project: str | None = None
    since: datetime | None = None
    count: int = 1
    reason: str | None = None
