"""The codes of alerts (contract §5.14), and the group that hears of a run's end."""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from common.model.run_names import definition_in
from common.model.states import WarningType

ADMINISTRATORS: Final = 1
"""The group that every database has (`t_ds_alertgroup`)."""


class AlertStatus(IntEnum):
    """The delivery of an alert; the values are those of `t_ds_alert.alert_status`."""

    WAIT_EXECUTION = 0
    EXECUTION_SUCCESS = 1
    EXECUTION_FAILURE = 2

    @property
    def word(self) -> str:
        """A shorter name, for people: WAITING, SENT or FAILED."""
        return ("WAITING", "SENT", "FAILED")[self.value]


class ShowType(IntEnum):
    """The form in which an alert is shown; the values are those of `t_ds_alert.show_type`."""

    TABLE = 0
    TEXT = 1
    ATTACHMENT = 2
    TABLEATTACHMENT = 3


class AlertType(IntEnum):
    """The way an alert goes; the values are those of `t_ds_alert.alert_type`."""

    EMAIL = 0
    SMS = 1


def warning_group_of(warning_type: WarningType) -> int:
    """Return the group for runs that name none: the administrators', or 0 where nobody is told."""
    return 0 if warning_type is WarningType.NONE else ADMINISTRATORS


def title_about(event: str, run: str) -> str:
    """Return the title of an alert about a run: the original's, then the name of the definition."""
    return f"{event}: {definition_in(run)}"
