"""Names of DolphinScheduler 3.x: an attempt, its run, definition and project; a response.

The first are system parameters. The other system parameters are the run's dates
(`common.params.scope`). A master computes the parameters of control tasks and of locks before the
attempt exists, without `ATTEMPT_NAMES`.
"""

from __future__ import annotations

from typing import Final

from common.model.origins import Origin

TASK_ID: Final = "system.task.instance.id"
TASK_FOLDER: Final = "system.task.execute.path"
TASK_NAME: Final = "system.task.definition.name"
TASK_CODE: Final = "system.task.definition.code"
RUN_ID: Final = "system.workflow.instance.id"
DEFINITION_NAME: Final = "system.workflow.definition.name"
DEFINITION_CODE: Final = "system.workflow.definition.code"
PROJECT_NAME: Final = "system.project.name"
PROJECT_CODE: Final = "system.project.code"
BUILT_IN_NAMES: Final = (
    TASK_ID,
    TASK_FOLDER,
    TASK_NAME,
    TASK_CODE,
    RUN_ID,
    DEFINITION_NAME,
    DEFINITION_CODE,
    PROJECT_NAME,
    PROJECT_CODE,
)


ATTEMPT_NAMES: Final = (TASK_ID, TASK_FOLDER)
"""The names of values that only an attempt at a worker has."""


def response_name(task: str) -> str:
    """Return the name of the output that 3.x gives an HTTP task with the body of its response.

    Here a task has this output only if it declares the name, because outputs are limited in size.
    """
    return f"{task}.response"


def built_in_parameters(
    origin: Origin,
    *,
    process_instance_id: int,
    task_name: str,
    task_code: int,
    task_instance_id: int | None = None,
    folder: str = "",
) -> dict[str, str]:
    """Return the values of an attempt, without the names of unknown values."""
    values = {
        TASK_ID: str(task_instance_id or ""),
        TASK_FOLDER: folder,
        TASK_NAME: task_name,
        TASK_CODE: str(task_code),
        RUN_ID: str(process_instance_id),
        DEFINITION_NAME: origin.definition_name,
        DEFINITION_CODE: str(origin.definition_code or ""),
        PROJECT_NAME: origin.project_name,
        PROJECT_CODE: str(origin.project_code or ""),
    }
    return {name: value for name, value in values.items() if value}
