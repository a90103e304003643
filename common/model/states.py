"""The states of process instances and task instances, and their groups: live, ended, held.

The numbers are those of `t_ds_process_instance.state` and `t_ds_task_instance.state`
(contract §2.1). The original's misspelt names (`RUNNING_EXEUTION`) live in its source alone:
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
        """True if only a new command can change it."""
        return self in TERMINAL_PROCESS_STATES


TERMINAL_PROCESS_STATES = (
    ProcessState.PAUSE,
    ProcessState.STOP,
    ProcessState.FAILURE,
    ProcessState.SUCCESS,
)
LIVE_PROCESS_STATES = tuple(state for state in ProcessState if state not in TERMINAL_PROCESS_STATES)


# The intents that `wanted_state` may hold: a pause, a stop, or an end as FAILURE after a time-out.
WANTED_PROCESS_STATES = (ProcessState.PAUSE, ProcessState.STOP, ProcessState.FAILURE)


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
        """True if the attempt is over; but for a forced success its row keeps this state."""
        return self not in LIVE_TASK_STATES

    @property
    def is_success(self) -> bool:
        """True if tasks downstream may build on it."""
        return self in (TaskState.SUCCESS, TaskState.FORCED_SUCCESS)


HELD_TASK_STATES = (TaskState.WAITING_DEPEND, TaskState.DELAY_EXECUTION)
UNSTARTED_TASK_STATES = (TaskState.SUBMITTED, *HELD_TASK_STATES)
LIVE_TASK_STATES = (TaskState.RUNNING, *UNSTARTED_TASK_STATES)
FINISHED_TASK_STATES = tuple(state for state in TaskState if state.is_finished)
# The intents that `wanted_state` may hold: a pause of a child, or a kill.
WANTED_TASK_STATES = (TaskState.PAUSE, TaskState.KILL)

# The contract has one enum for both kinds of rows, so a row that a person or another release wrote
# may hold a code that means nothing for its kind here. The tables sort those too: the codes as the
# constraints and the partial indexes have them.
TERMINAL_PROCESS_CODES = tuple(
    sorted((*TERMINAL_PROCESS_STATES, TaskState.KILL, TaskState.FORCED_SUCCESS))
)
LIVE_PROCESS_CODES = tuple(
    sorted((*LIVE_PROCESS_STATES, TaskState.WAITING_DEPEND, TaskState.DELAY_EXECUTION))
)
FINISHED_TASK_CODES = tuple(sorted((*FINISHED_TASK_STATES, ProcessState.STOP)))
LIVE_TASK_CODES = tuple(sorted(LIVE_TASK_STATES))


class Priority(IntEnum):
    """Smaller goes first."""

    HIGHEST = 0
    HIGH = 1
    MEDIUM = 2
    LOW = 3
    LOWEST = 4


class FailureStrategy(IntEnum):
    """The effect of a task's final failure on the others."""

    END = 0
    CONTINUE = 1


class TaskDependType(IntEnum):
    """The nodes that run, seen from the start nodes of a command."""

    TASK_ONLY = 0
    TASK_PRE = 1
    TASK_POST = 2


class WarningType(IntEnum):
    """The ends of a process instance that raise an alert."""

    NONE = 0
    SUCCESS = 1
    FAILURE = 2
    ALL = 3


class ReleaseState(IntEnum):
    """The switch that lets new runs of a definition begin."""

    OFFLINE = 0
    ONLINE = 1


class TimeoutStrategy(IntEnum):
    """The action on a time-out: alert, fail, or both."""

    WARN = 0
    FAILED = 1
    WARNFAILED = 2

    @property
    def warns(self) -> bool:
        """True if an alert is raised, once."""
        return self is not TimeoutStrategy.FAILED

    @property
    def fails(self) -> bool:
        """True if the task or process is ended as a failure."""
        return self is not TimeoutStrategy.WARN


class ExecutionType(IntEnum):
    """The behaviour of a new run while another run of the same definition is live."""

    PARALLEL = 0
    SERIAL_WAIT = 1
    SERIAL_DISCARD = 2
    SERIAL_PRIORITY = 3
