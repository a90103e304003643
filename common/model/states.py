"""The states of process instances and task instances, and which of them are final.

The numbers are those of `t_ds_process_instance.state` and `t_ds_task_instance.state`
(specification §2.1). The original's misspelt names (`RUNNING_EXEUTION`) live in its source alone:
what is stored is the number.
"""

from __future__ import annotations

from enum import IntEnum


class ProcessState(IntEnum):
    """The life of one process instance."""

    SUBMITTED = 0
    RUNNING = 1
    READY_PAUSE = 2
    PAUSE = 3
    READY_STOP = 4
    STOP = 5
    FAILURE = 6
    SUCCESS = 7
    WAITING_THREAD = 10
    SERIAL_WAIT = 14

    @property
    def is_terminal(self) -> bool:
        """Whether only a new command can change it."""
        return self in _TERMINAL_PROCESS_STATES


_TERMINAL_PROCESS_STATES = frozenset(
    {ProcessState.PAUSE, ProcessState.STOP, ProcessState.FAILURE, ProcessState.SUCCESS}
)

LIVE_PROCESS_STATES = tuple(state for state in ProcessState if not state.is_terminal)


class TaskState(IntEnum):
    """The life of one attempt."""

    SUBMITTED = 0
    RUNNING = 1
    PAUSE = 3
    FAILURE = 6
    SUCCESS = 7
    NEED_FAULT_TOLERANCE = 8
    KILL = 9
    WAITING_DEPEND = 11
    """Held back for want of slots in a pool."""
    DELAY_EXECUTION = 12
    """Held back until its delay is over."""
    FORCED_SUCCESS = 13
    """A person has declared a failed attempt to be good."""

    @property
    def is_finished(self) -> bool:
        """Whether the attempt is over; but for a forced success its row keeps this state."""
        return self not in LIVE_TASK_STATES

    @property
    def is_success(self) -> bool:
        """Whether what is downstream may build on it."""
        return self in (TaskState.SUCCESS, TaskState.FORCED_SUCCESS)


HELD_TASK_STATES = (TaskState.WAITING_DEPEND, TaskState.DELAY_EXECUTION)
UNSTARTED_TASK_STATES = (TaskState.SUBMITTED, *HELD_TASK_STATES)
LIVE_TASK_STATES = (TaskState.RUNNING, *UNSTARTED_TASK_STATES)
FINISHED_TASK_STATES = tuple(state for state in TaskState if state.is_finished)


class Priority(IntEnum):
    """Smaller goes first."""

    HIGHEST = 0
    HIGH = 1
    MEDIUM = 2
    LOW = 3
    LOWEST = 4


class FailureStrategy(IntEnum):
    """What a final failure of one task means for the others."""

    END = 0
    CONTINUE = 1


class TaskDependType(IntEnum):
    """Which nodes run, seen from the start nodes of a command."""

    TASK_ONLY = 0
    TASK_PRE = 1
    TASK_POST = 2


class WarningType(IntEnum):
    """When an end of the process instance is worth an alert."""

    NONE = 0
    SUCCESS = 1
    FAILURE = 2
    ALL = 3


class ReleaseState(IntEnum):
    """Whether new runs of a definition may begin."""

    OFFLINE = 0
    ONLINE = 1


class TimeoutStrategy(IntEnum):
    """What becomes of a task or a process that takes too long."""

    WARN = 0
    FAILED = 1
    WARNFAILED = 2

    @property
    def warns(self) -> bool:
        """Whether an alert is made, once."""
        return self is not TimeoutStrategy.FAILED

    @property
    def fails(self) -> bool:
        """Whether it is ended as a failure."""
        return self is not TimeoutStrategy.WARN


class ExecutionType(IntEnum):
    """What a new run does while another run of the same definition goes on."""

    PARALLEL = 0
    SERIAL_WAIT = 1
    SERIAL_DISCARD = 2
    SERIAL_PRIORITY = 3
