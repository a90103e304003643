"""The errors of operations: input that is not accepted, and commands that had no effect.

An operation never knows if a command line or a program calls it: it names the parameter, and the
caller derives from it an option's name, a key of a request or a field of a form.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final

from common.errors import NotAllowedError, NotFoundError, SchedulerError

if TYPE_CHECKING:
    from common.model.grants import GrantKind
    from common.store.people.ledger import CommandView


class NoGrantError(NotFoundError):
    """An object that is missing or not granted to the project; both have the same text."""

    def __init__(self, kind: GrantKind, text: str) -> None:
        super().__init__(text)
        self.kind = kind


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


class ForbiddenError(NotAllowedError):
    """The principal may see the object and not do this to it. Report it; asking again is no use."""


class UnownedDatasetError(NotAllowedError):
    """A dataset does not belong to a project. Report it; an administrator can assign a project."""


class NameTakenError(NotAllowedError):
    """Another object has the name already. Report it; the sender has to choose another one."""


class ChangedMeanwhileError(NotAllowedError):
    """Somebody else has saved the object since it was read. Read it again, and decide anew.

    `tag` is that of the object as it is now.
    """

    def __init__(self, message: str, *, tag: str) -> None:
        super().__init__(message)
        self.tag: Final = tag


class PendingCommandError(NotAllowedError):
    """A command to the same instance waits for a master. Report it; it may be put again later."""


class CommandFailedError(SchedulerError):
    """A master has dropped or refused the command. Report it; the same command won't fare better.

    `command` is its line of the ledger. It names an instance if one was made and ended at once.
    """

    def __init__(self, command: CommandView) -> None:
        outcome = "not taken" if command.outcome is None else command.outcome.name.lower()
        super().__init__(f"command {command.id} was {outcome}: {command.reason or 'no reason'}")
        self.command: Final = command
