"""The states of complements and of their dates, and the choices that people have for one.

Apart from `common.model.complements`, since the command line needs them for its help, and the
tables for their constraints, without the rest.
"""

from __future__ import annotations

from enum import IntEnum, StrEnum


class ComplementState(IntEnum):
    """The life of a complement; the numbers are those of a process instance's states."""

    SUBMITTED = 0
    """It waits for the end of the complement named by `after_id`."""
    RUNNING = 1
    READY_PAUSE = 2
    """No further date begins; those that have begun run to their end."""
    PAUSE = 3
    READY_STOP = 4
    """No further date begins; those that have begun are being stopped."""
    STOP = 5
    FAILURE = 6
    """Nothing runs any more, and some date has failed or has not begun."""
    SUCCESS = 7

    @property
    def is_ended(self) -> bool:
        """True if only a person makes it go on: by resuming it, or retrying its failed dates."""
        return self in (
            ComplementState.PAUSE,
            ComplementState.STOP,
            ComplementState.FAILURE,
            ComplementState.SUCCESS,
        )


class DateState(StrEnum):
    """The life of one date of a complement."""

    PENDING = "pending"
    SUBMITTED = "submitted"
    """Its command waits."""
    RUNNING = "running"
    """It has a process instance that goes on, or that is paused and may go on."""
    SUCCESS = "success"
    FAILURE = "failure"
    SKIPPED = "skipped"
    """It has a run already, which `reprocess` leaves as it is."""
    CANCELLED = "cancelled"
    """The complement was cancelled before the date started, or while its run was live."""


class RunOrder(StrEnum):
    """The order of a complement's dates."""

    ASCENDING = "ascending"
    DESCENDING = "descending"


class OnFailure(StrEnum):
    """The effect of a failed date on those after it."""

    STOP = "stop"
    """Its chain ends with it: one date fewer runs at a time."""
    CONTINUE = "continue"


class Reprocess(StrEnum):
    """The dates that run again, of those run before; each member includes the one before it."""

    MISSING = "missing"
    """Only those without any run."""
    FAILED = "failed"
    """Also those whose newest run has ended and is no success."""
    ALL = "all"


class Downstream(StrEnum):
    """The reach of a complement: the definitions with DEPENDENT tasks that it also covers."""

    NONE = "none"
    DIRECT = "direct"
    ALL = "all"
    """Also those that wait for these, and so on."""
