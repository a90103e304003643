"""The few error types that a caller is meant to catch, each saying what its catcher does.

Expected outcomes are return values, not errors. Every type here has an exit code, so that the
command line and the daemons end alike for the same cause (codes: the operator's interface).
"""

from __future__ import annotations

from typing import ClassVar


class SchedulerError(Exception):
    """Anything that Orcaflow itself refuses; its text names the cause and the cure, if any."""

    exit_code: ClassVar[int] = 1


class ConfigurationError(SchedulerError):
    """The configuration or the installation is wrong. Show the text and end; don't retry."""

    exit_code = 78


class NotFoundError(SchedulerError):
    """No object of this name or id exists."""

    exit_code = 3


class NotAllowedError(SchedulerError):
    """The request is understood and refused in the present state."""

    exit_code = 4


class ServiceUnreachableError(SchedulerError):
    """PostgreSQL or ZooKeeper can't be reached. Keep what you have, and try again later."""

    exit_code = 5


class InvalidDefinitionError(SchedulerError):
    """A process definition can't be run as it stands; `mistakes` lists each with its place."""

    def __init__(self, mistakes: tuple[str, ...]) -> None:
        super().__init__("; ".join(mistakes))
        self.mistakes = mistakes


class InvalidSpecError(SchedulerError):
    """A stream's specification can't be used; `mistakes` lists each with its place."""

    def __init__(self, mistakes: tuple[str, ...]) -> None:
        super().__init__("; ".join(mistakes))
        self.mistakes = mistakes


class BadCommandError(SchedulerError):
    """A command can't be carried out, now or ever. Move it to the error table with this text."""
