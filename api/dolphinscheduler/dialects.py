"""The dialects of DolphinScheduler's API: 1.x, 2.0 to 3.2, and 3.3 with its successors.

They differ in paths, in the words of parameters and fields, and in the names of states. A path that
the two later ones share is served in both words at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from common.model.commands import CommandType
from common.model.states import ProcessState, TaskState

_PROCESS_STATES: Final[Mapping[int, str]] = {
    ProcessState.SUBMITTED: "SUBMITTED_SUCCESS",
    ProcessState.RUNNING: "RUNNING_EXECUTION",
    ProcessState.READY_PAUSE: "READY_PAUSE",
    ProcessState.PAUSE: "PAUSE",
    ProcessState.READY_STOP: "READY_STOP",
    ProcessState.STOP: "STOP",
    ProcessState.FAILURE: "FAILURE",
    ProcessState.SUCCESS: "SUCCESS",
    ProcessState.WAITING_THREAD: "SUBMITTED_SUCCESS",
    ProcessState.SERIAL_WAIT: "SERIAL_WAIT",
}
_TASK_STATES: Final[Mapping[int, str]] = {
    TaskState.SUBMITTED: "SUBMITTED_SUCCESS",
    TaskState.RUNNING: "RUNNING_EXECUTION",
    TaskState.PAUSE: "PAUSE",
    TaskState.FAILURE: "FAILURE",
    TaskState.SUCCESS: "SUCCESS",
    TaskState.NEED_FAULT_TOLERANCE: "NEED_FAULT_TOLERANCE",
    TaskState.KILL: "KILL",
    TaskState.WAITING_DEPEND: "SUBMITTED_SUCCESS",
    TaskState.DELAY_EXECUTION: "DELAY_EXECUTION",
    TaskState.FORCED_SUCCESS: "FORCED_SUCCESS",
}
# 1.x has one enum for both, spells one of its names like this, and knows no later state.
_CLASSIC: Final = {
    "RUNNING_EXECUTION": "RUNNING_EXEUTION",
    "SERIAL_WAIT": "SUBMITTED_SUCCESS",
    "DELAY_EXECUTION": "SUBMITTED_SUCCESS",
    "FORCED_SUCCESS": "SUCCESS",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """A dialect; `words` stand before the names of parameters and fields, as in `processId`."""

    name: str
    words: tuple[str, ...]
    is_classic: bool = False

    def process_state(self, code: int) -> str:
        name = _PROCESS_STATES.get(code, "SUBMITTED_SUCCESS")
        if code == ProcessState.WAITING_THREAD and self.is_classic:
            return "WAITTING_THREAD"
        return _CLASSIC.get(name, name) if self.is_classic else name

    def task_state(self, code: int) -> str:
        name = _TASK_STATES.get(code, "SUBMITTED_SUCCESS")
        if code == TaskState.WAITING_DEPEND and self.is_classic:
            return "WAITTING_DEPEND"
        return _CLASSIC.get(name, name) if self.is_classic else name

    def command_type(self, code: int) -> str | None:
        if code not in set(CommandType):
            return None
        kind = CommandType(code)
        if kind is CommandType.RECOVER_WAITTING_THREAD and not self.is_classic:
            return "RECOVER_SERIAL_WAIT"
        return kind.name

    def process_states_named(self, name: str) -> list[int]:
        """Return the codes of a state's name in any dialect; none for an unknown name."""
        return [code for code, known in _PROCESS_STATES.items() if name in _spellings(known)]

    def task_states_named(self, name: str) -> list[int]:
        """Return the codes of a state's name in any dialect; none for an unknown name."""
        return [code for code, known in _TASK_STATES.items() if name in _spellings(known)]


def _spellings(name: str) -> tuple[str, ...]:
    return (name, "RUNNING_EXEUTION") if name == "RUNNING_EXECUTION" else (name,)


CLASSIC: Final = Dialect(name="1.x", words=("process",), is_classic=True)
PROCESS: Final = Dialect(name="2.0 to 3.2", words=("process",))
WORKFLOW: Final = Dialect(name="3.3 and later", words=("workflow",))
LATER: Final = Dialect(name="2.0 and later", words=("process", "workflow"))
"""Of paths that both have."""
