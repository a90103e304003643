"""The error of an operation for input that it can't accept; its caller reports it.

An operation never knows if a command line or a program calls it: it names the parameter, and the
caller derives from it an option's name, a key of a request or a field of a form.
"""

from __future__ import annotations

from typing import ClassVar, Final

from common.errors import SchedulerError


class UsageError(SchedulerError):
    """An input is wrong, whatever the database holds. Report it with its field; don't retry.

    `field` is the name of the operation's parameter, as `start_nodes`; None if the input is wrong
    as a whole.
    """

    exit_code: ClassVar[int] = 2

    def __init__(self, field: str | None, message: str) -> None:
        super().__init__(message)
        self.field: Final = field
        self.message: Final = message
