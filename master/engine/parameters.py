"""The parameters of a task where the master itself needs them: for branches and locks. Pure."""

from __future__ import annotations

from dataclasses import replace

from common.model.codes import code_of_node, task_code
from common.model.lock_needs import LockNeed
from common.params import (
    ParameterError,
    Property,
    built_in_parameters,
    effective_parameters,
    parse_properties,
    substitute,
    system_parameters,
)
from master.engine.run import ProcessRun
from master.engine.task_run import TaskRun
from master.engine.variables import values_of
from master.logic.node_json import local_parameters


def task_values(run: ProcessRun, task: TaskRun, variables: dict[str, str]) -> dict[str, str]:
    """Return the effective parameters of a task that is given these variables."""
    context, node = run.context, task.node
    code = code_of_node(node.task_json) or task_code(context.definition_id, node.name)
    built_ins = built_in_parameters(
        context.origin,
        process_instance_id=run.ownership.process_instance_id,
        task_name=node.name,
        task_code=code,
    )
    return effective_parameters(
        parse_properties(context.global_params),
        parse_properties(local_parameters(task.node.task_json)),
        system=system_parameters(moment=context.moment, zone=context.zone, built_ins=built_ins),
        moment=context.moment,
        zone=context.zone,
        pool=[Property(prop=name, value=value) for name, value in variables.items()],
        start_params=context.start_params,
    )


def needed_locks(run: ProcessRun, name: str) -> tuple[LockNeed, ...]:
    """Return the locks that the task asks for, with the values of parameters in their intervals.

    A text that can't be worked out stays as it is: the attempt fails with that mistake.
    """
    task, context = run.tasks[name], run.context
    try:
        values = task_values(run, task, values_of(run.input_variables(name)))
        return tuple(
            replace(
                need,
                interval=substitute(
                    need.interval, values, moment=context.moment, zone=context.zone
                ),
            )
            for need in task.node.locks
        )
    except ParameterError:
        return task.node.locks
