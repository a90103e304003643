"""The evidence that the checker judges: rows, lines that tasks wrote, processes; no opinions.

Nothing of it comes from a daemon's answers or logs.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A command whose insertion was acknowledged. `instance` is the one that it is about, or 0."""

    command_id: int
    command_type: int
    definition: str = ""
    instance: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A line of the ledger of commands."""

    command_id: int
    outcome: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """A row of `t_ds_process_instance`; `parent` is the attempt that a sub process is for, or 0."""

    id: int
    definition: str
    state: int
    wanted: int | None = None
    has_ended: bool = True
    command_id: int | None = None
    parent: int = 0
    root: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """A row of `t_ds_task_instance`."""

    id: int
    instance: int
    name: str
    state: int
    type: str = "SHELL"
    number: int = 1
    is_valid: bool = True
    is_settled: bool = True
    is_lost: bool = False
    retries: int = 0
    max_retries: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A line that an attempt appended to the common file: `begin`, `end`, or `fail`."""

    word: str
    attempt: int
    number: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """A process that belongs to an attempt, by its environment."""

    pid: int
    attempt: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Everything that there is after the faults.

    `unsure` counts the commands to begin whose insertion got no answer, and `unsure_stops` are the
    instances that such a stop was about. `lines` are in the order in which they were appended.
    """

    asked: tuple[Asked, ...] = ()
    unsure: int = 0
    unsure_stops: tuple[int, ...] = ()
    ledger: tuple[Entry, ...] = ()
    refused: tuple[int, ...] = ()
    instances: tuple[Instance, ...] = ()
    attempts: tuple[Attempt, ...] = ()
    lines: tuple[Line, ...] = ()
    running: tuple[Running, ...] = ()
    commands: tuple[int, ...] = ()
    queued: tuple[str, ...] = ()
    claimed: tuple[str, ...] = ()
    kills: tuple[str, ...] = ()
    slots: tuple[int, ...] = ()
    """The attempts that have or want slots of a pool."""
