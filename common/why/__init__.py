"""Explains why something is not running: facts from the tables become a chain of causes.

Pure: it is given rows of one moment, the daemons alive then, and the time;
`common.store.people.reasons` reads the rows. A *cause* names what blocks something, since when, and
the next check; the causes behind a cause hang below it. `Cause.cause` is a code for programs and
never changes its meaning; `Cause.text` is a sentence for people.
"""

from common.why.causes import Cause, CauseKind
from common.why.control_tasks import awaited_intervals, evidence_runs
from common.why.explain import task_names, why_command, why_instance, why_task
from common.why.facts import (
    Alive,
    Attempt,
    ComplementOfRun,
    Facts,
    Holder,
    LockHolder,
    LockWait,
    LostAttempt,
    Other,
    PendingCommand,
    PoolWait,
    QueuePlace,
    Run,
)

__all__ = [
    "Alive",
    "Attempt",
    "Cause",
    "ComplementOfRun",
    "Facts",
    "Holder",
    "LockHolder",
    "LockWait",
    "LostAttempt",
    "Other",
    "PendingCommand",
    "PoolWait",
    "QueuePlace",
    "Run",
    "CauseKind",
    "awaited_intervals",
    "evidence_runs",
    "task_names",
    "why_command",
    "why_instance",
    "why_task",
]
