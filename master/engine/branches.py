"""Chooses the branch of a CONDITIONS or SWITCH task, as soon as its upstream is settled. Pure.

Such a task is decided by the engine itself: it takes no worker, no thread and no time, and its row
is written ended. A mistake of its author ends the task as FAILURE with the reason, never the run.
"""

from __future__ import annotations

from common.model.control import Conditions, Outcome, Switch
from common.model.decisions import DecideTask
from common.model.failures import FailureReason
from common.model.states import TaskState
from common.params import ParameterError
from master.engine.parameters import task_values
from master.engine.run import ProcessRun
from master.engine.task_run import TaskPhase, TaskRun
from master.engine.variables import properties_of, too_much, values_of
from master.logic.conditions import decide_conditions
from master.logic.switch import Choice, Undecided, choose


def decide_branch(run: ProcessRun, name: str) -> DecideTask:
    """Build the attempt of a branching task, begun and ended at once."""
    task = run.tasks[name]
    control = task.node.control
    variables = run.input_variables(name)
    input_values = {} if too_much(variables) else values_of(variables)
    branch: tuple[str, ...] | None
    reason: str | None
    failure: FailureReason | None = None
    if isinstance(control, Conditions):
        met = decide_conditions(control, _outcomes(run, name))
        branch = control.success if met else control.failed
        state = TaskState.SUCCESS if met else TaskState.FAILURE
        reason = _taken(branch)
        failure = None if met else FailureReason.CONDITION_FALSE
    elif isinstance(control, Switch):
        fault = too_much(variables)
        try:
            choice = (
                Undecided(why=fault)
                if fault
                else choose(control, task_values(run, task, input_values))
            )
        except ParameterError as error:
            choice = Undecided(why=str(error))
        if isinstance(choice, Choice):
            branch, state = choice.targets, TaskState.SUCCESS
            reason = f"{choice.why}; {_taken(branch)}"
        else:
            branch, state, reason = None, TaskState.FAILURE, choice.why
            failure = FailureReason.CONFIGURATION
    else:
        raise run.impossible(f"{name!r} has no branches")
    return DecideTask(
        name=name,
        attempt=task.attempt + 1,
        task_type=task.node.task_type,
        task_json=task.node.task_json,
        priority=task.node.priority,
        state=state,
        branch=branch,
        reason=reason,
        failure=failure,
        input_pool=None if too_much(variables) else properties_of(variables),
    )


def _taken(branch: tuple[str, ...]) -> str:
    return f"branch {', '.join(branch)}" if branch else "the branch without nodes"


def _outcomes(run: ProcessRun, name: str) -> dict[str, Outcome]:
    return {above: _outcome(run.task(above)) for above in run.whole.upstream[name]}


def _outcome(task: TaskRun) -> Outcome:
    match task.phase:
        case TaskPhase.SUCCEEDED | TaskPhase.PASSED:
            return Outcome.SUCCESS
        case TaskPhase.TOLERATED | TaskPhase.FAILED:
            return Outcome.FAILURE
        case TaskPhase.BRANCHED:
            # A CONDITIONS whose expression is false has taken its other branch: it succeeded.
            return Outcome.SUCCESS
        case _:
            return Outcome.OTHER
