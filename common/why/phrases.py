"""Wording that all causes share: subjects, names of states, counted things. Pure."""

from __future__ import annotations

from typing import Final

from common.model.cluster import Node
from common.model.commands import CommandType
from common.model.states import ProcessState, TaskState
from common.why.causes import Cause, CauseKind
from common.why.facts import Attempt

MAX_LISTED: Final = 10
"""The largest number of like things that are listed one by one; the others are counted."""


def process_state(code: int) -> ProcessState | None:
    try:
        return ProcessState(code)
    except ValueError:
        return None


def state_name(kind: type[ProcessState | TaskState | CommandType], code: int) -> str:
    try:
        return kind(code).name
    except ValueError:
        return str(code)


def counted(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def task_subject(attempt: Attempt) -> str:
    return f"task instance {attempt.id}"


def by_address(node: Node) -> str:
    return node.address


def unreadable_cause(subject: str, problem: str) -> Cause:
    return Cause(cause=CauseKind.UNREADABLE, subject=subject, text=f"{subject}: {problem}")
