"""Decisions of the engine on a run, in the imperative.

Pure. The engine makes them and applies them to the run in memory; the store writes the same list
in one fenced transaction. They are here and not in the engine because both sides use them and the
store may not import the master. An attempt is named by (task name, attempt number): the engine
draws no ids, so a decision means the same before and after its row exists.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TypeAlias

from common.model.definitions import PoolShare, TaskTimeout
from common.model.failures import FailureReason
from common.model.lock_needs import LockNeed
from common.model.states import Priority, ProcessState, TaskState
from common.model.values import value
from common.model.worker_needs import WorkerNeed


@value
class SubmitTask:
    """Write the row of a new attempt and offer it to the workers; supersedes the one before.

    One with `due_at` is held back until then, one with `pools` until all their slots are free, and
    one with `locks` until it has them all. One with a `worker_need` is offered to the worker that
    is chosen for it.
    `input_pool`: a JSON list of the properties that its upstream put out. A SUB_PROCESS also puts a
    command for its child. `child_definition` is the id or the name of the child's definition, and
    `child_project` is the project that may be given with the name. The worker
    multiplies the configured memory by `memory_factor`.
    """

    name: str
    attempt: int
    retry_times: int
    task_type: str
    task_json: str
    priority: Priority
    worker_group_id: int
    max_retry_times: int
    retry_interval: timedelta
    due_at: datetime | None = None
    pools: tuple[PoolShare, ...] = ()
    pool_priority: int = 0
    locks: tuple[LockNeed, ...] = ()
    worker_need: WorkerNeed | None = None
    timeout: TaskTimeout | None = None
    input_pool: str | None = None
    child_definition: int | str | None = None
    child_project: int | str | None = None
    memory_factor: float = 1.0


@value
class DecideTask:
    """Write the row of an attempt that the engine itself has begun and ended: a branch was chosen.

    `branch` names the direct downstream that is taken; None if none could be chosen, which `reason`
    explains and which makes the state FAILURE.
    """

    name: str
    attempt: int
    task_type: str
    task_json: str
    priority: Priority
    state: TaskState
    branch: tuple[str, ...] | None
    reason: str | None = None
    failure: FailureReason | None = None
    input_pool: str | None = None


@value
class FinishTask:
    """Settle an attempt's end: the run has processed its final `state`.

    The row holds `var_pool` and `at` (its end) already; the run in memory takes them over.
    """

    name: str
    attempt: int
    state: TaskState
    var_pool: str | None = None
    at: datetime | None = None

    @property
    def is_without_output(self) -> bool:
        """True if tasks downstream get no output. The row must then have no output either."""
        return self.state is TaskState.SUCCESS and self.var_pool is None


@value
class RetryTask:
    """Settle a failed attempt and promise a retry, due at `at`.

    The row holds `failure`, its reason, already; the run in memory takes it over.
    """

    name: str
    attempt: int
    state: TaskState
    at: datetime
    failure: FailureReason | None = None


@value
class GiveUpRetry:
    """Take back a promised retry: the run is being stopped or has failed for good."""

    name: str
    attempt: int


@value
class KillTask:
    """Withdraw an unclaimed attempt, or request its worker or its child to end it."""

    name: str
    attempt: int


@value
class PauseTask:
    """Withdraw an unclaimed attempt, or request its child to pause; others go on."""

    name: str
    attempt: int


@value
class AbandonTask:
    """End an attempt as KILL without a report: the deadline of the stop is over.

    A worker that still runs it finds its row lost, and ends it.
    """

    name: str
    attempt: int


@value
class PassForbidden:
    """Treat a node that its author switched off as done. Nothing is stored: loading derives it."""

    name: str


@value
class SkipTask:
    """Leave out a node that no branch leads to. Nothing is stored: loading derives it."""

    name: str


@value
class PauseProcess:
    """Show the requested pause in the state: READY_PAUSE."""


@value
class StopProcess:
    """Show the requested stop in the state: READY_STOP, to be over by `deadline`."""

    deadline: datetime
    failing: bool = False
    """True if it is to end as FAILURE, since it took too long, and not as STOP."""


@value
class FinishProcess:
    """End the run. `reason`: for people, the cause if it did not succeed.

    `var_pool`: the properties that a sub process hands to the task that began it, as a JSON list.
    """

    state: ProcessState
    reason: str | None = None
    var_pool: str | None = None


Decision: TypeAlias = (
    SubmitTask
    | DecideTask
    | FinishTask
    | RetryTask
    | GiveUpRetry
    | KillTask
    | PauseTask
    | AbandonTask
    | PassForbidden
    | SkipTask
    | PauseProcess
    | StopProcess
    | FinishProcess
)
