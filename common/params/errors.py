"""The errors of parameters, worded for their author.

A catcher rejects the command or fails the task with the message; a retry cannot help.
"""

from collections.abc import Sequence

from common.errors import SchedulerError

_SHOWN_CHARS = 60


def shown(text: str) -> str:
    """The text as it may stand in a message: quoted, escaped and cut."""
    return ascii(text if len(text) <= _SHOWN_CHARS else text[: _SHOWN_CHARS - 1] + "~")


class ParameterError(SchedulerError):
    """A parameter is malformed, or its value cannot be worked out."""


class CircularParameterError(ParameterError):
    """A parameter needs its own value; `chain` names the way round, first name repeated last."""

    def __init__(self, chain: Sequence[str]) -> None:
        self.chain = tuple(chain)
        super().__init__(f"circular parameters: {' -> '.join(map(shown, self.chain))}")


class ParameterLimitError(ParameterError):
    """Parameters refer to each other too deeply, or their values grow too large."""
