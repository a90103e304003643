"""Why something is not running: facts from the tables turned into a chain of causes.

Pure: it is given rows of one moment, who was alive then, and the time;
`common.store.people.reasons` reads the rows. A *cause* says what holds something back, since when,
and what will be looked at next; the causes behind a cause hang below it. The word in `Cause.cause`
is for programs and never changes its meaning; the sentence is for people.
"""

from common.why.causes import Cause, CauseKind
from common.why.explain import task_names, why_command, why_instance, why_task
from common.why.facts import (
    Alive,
    Attempt,
    Facts,
    Holder,
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
    "Facts",
    "Holder",
    "Other",
    "PendingCommand",
    "PoolWait",
    "QueuePlace",
    "Run",
    "CauseKind",
    "task_names",
    "why_command",
    "why_instance",
    "why_task",
]
