"""Decides when errors in the steps of a supervisor make it unhealthy, and writes the alert's text.

Pure. A single error raises no alert: the next step reads the tables again and usually succeeds. The
keeper has one `Failing` per supervisor from the first error to the next good step, also while the
supervisor is parked or another master has it. Each master counts only the steps that it made.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from common.errors import SchedulerError
from master.supervisors.health import ErrorEvent, Health, State

_LEAST: Final = 3
_PATIENCE: Final = timedelta(seconds=15)
_FORGOTTEN: Final = timedelta(minutes=10)
"""The age of the last error after which counting starts again: another master had good steps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failing:
    """Failed steps in a row."""

    since: datetime
    last: datetime
    count: int = 1
    text: str = ""
    is_known: bool = False
    """True once an alert was written."""

    @property
    def is_due(self) -> bool:
        """Return True if the supervisor counts as unhealthy."""
        return self.count >= _LEAST and self.last >= self.since + _PATIENCE

    def is_forgotten(self, now: datetime) -> bool:
        return now >= self.last + _FORGOTTEN

    @property
    def health(self) -> Health:
        """The health of the supervisor, with the last error."""
        error = ErrorEvent(at=self.last, text=self.text, of_stream=False)
        return Health(state=State.UNHEALTHY_SUPERVISOR).with_error(error)

    @property
    def alert(self) -> str:
        """The text of the alert."""
        return f"it is unhealthy: {self.count} steps in a row have failed; {self.text}"


RECOVERED: Final = "its steps succeed again"
"""The text of the alert after the first good step."""


def after_error(
    failing: Failing | None, error: Exception, *, master: str, now: datetime
) -> Failing:
    """Count a failed step.

    The text includes the message of a `SchedulerError` only: other messages may contain secrets.
    """
    message = f": {error}" if isinstance(error, SchedulerError) else ""
    text = f"{type(error).__name__}{message} (the log of the master {master} has the details)"
    if failing is None or failing.is_forgotten(now):
        return Failing(since=now, last=now, text=text)
    return replace(failing, last=now, count=failing.count + 1, text=text)
