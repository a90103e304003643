"""The specifications of the master's own task types: they take no worker's slot.

Pure. Their parts of a node stand outside `params` but for SUB_PROCESS's; `common.model.control`
reads them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from common.model.task_type import Key, Shape, TaskKind, TaskTypeSpec


def _one_item(item: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a `dependence` of one item, as both types of tasks have it."""
    tasks = [{"relation": "AND", "dependItemList": [item]}]
    return {"relation": "AND", "dependTaskList": tasks}


SUB_PROCESS: Final = TaskTypeSpec(
    name="SUB_PROCESS",
    about="Runs another definition as one task.",
    kind=TaskKind.CONTROL,
    keys=(
        Key(
            name="processDefinitionName",
            about="The definition, by its name.",
        ),
        Key(
            name="processDefinitionId",
            shape=Shape.NUMBER,
            about="The definition, by its id in this database.",
        ),
        Key(
            name="projectName",
            about="The project of the definition, by its name; else the own one goes first.",
        ),
        Key(
            name="projectId",
            shape=Shape.NUMBER,
            about="The project of the definition, by its id in this database.",
        ),
        Key(
            name="projectCode",
            shape=Shape.NUMBER,
            about="The project of the definition, by its code; compared when it is imported.",
        ),
    ),
    # It retries inside.
    is_retried=False,
)
CONDITIONS: Final = TaskTypeSpec(
    name="CONDITIONS",
    about="Takes one of two branches by how tasks upstream ended.",
    kind=TaskKind.CONTROL,
    node_keys=("dependence", "conditionResult"),
    starts_with={
        "dependence": _one_item({"depTasks": "", "status": "SUCCESS"}),
        "conditionResult": {"successNode": [], "failedNode": []},
    },
    # Trying a branch again gives the same branch.
    is_retried=False,
)
SWITCH: Final = TaskTypeSpec(
    name="SWITCH",
    about="Takes the first branch whose condition holds.",
    kind=TaskKind.CONTROL,
    node_keys=("switchResult",),
    starts_with={
        "switchResult": {"dependTaskList": [{"condition": "", "nextNode": ""}], "nextNode": ""}
    },
    is_retried=False,
)
DEPENDENT: Final = TaskTypeSpec(
    name="DEPENDENT",
    about="Waits for runs of other definitions.",
    kind=TaskKind.CONTROL,
    node_keys=("dependence",),
    starts_with={
        "dependence": _one_item(
            {"definitionName": "", "depTasks": "ALL", "cycle": "day", "dateValue": "today"}
        )
    },
)

CONTROL_TYPES: Final[Mapping[str, TaskTypeSpec]] = {
    spec.name: spec for spec in (SUB_PROCESS, DEPENDENT, CONDITIONS, SWITCH)
}
MASTER_TASK_TYPES: Final = frozenset(CONTROL_TYPES)
"""The names of the types that the master decides."""
