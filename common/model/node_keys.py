"""The keys of a definition and of its nodes outside `params`, each with its JSON schema.

Pure. `common.model.definitions` and `common.model.control` read these keys, leniently as the
original's front end writes them: numbers as text, and objects and lists as text that holds JSON.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeAlias

from common.model.date_rules import DateRule
from common.model.failures import FailureReason
from common.model.states import ExecutionType, Priority

Schema: TypeAlias = Mapping[str, Any]


def whole_number(about: str, *, lowest: int = 0) -> Schema:
    """Return the schema of a whole number, or its digits as text."""
    return {
        "description": about,
        "anyOf": [
            {"type": "integer", "minimum": lowest},
            {"type": "string", "pattern": r"^\s*[+-]?[0-9]*\s*$"},
            {"type": "null"},
        ],
    }


def one_of(about: str, *words: str) -> Schema:
    """Return the schema of one of some words."""
    return {"description": about, "enum": [*words, "", None]}


def structure(about: str, kind: str) -> Schema:
    """Return the schema of an object or a list, as itself or as text that holds it."""
    return {"description": about, "type": [kind, "string", "null"]}


def text(about: str) -> Schema:
    return {"description": about, "type": ["string", "null"]}


_NAMES: Final[Schema] = {
    "anyOf": [{"type": "array", "items": {"type": "string"}}, {"type": ["string", "null"]}]
}
_REASONS: Final[Schema] = {
    "anyOf": [
        {"type": "array", "items": {"enum": [reason.value for reason in FailureReason]}},
        {"type": ["string", "null"]},
    ]
}
_ANY: Final[Schema] = {"description": "Kept, and without effect."}

NODE_KEYS: Final[Mapping[str, Schema]] = {
    "id": _ANY,
    "name": {"description": "The task's name, unique in its definition.", "type": "string"},
    "type": {"description": "The task's type.", "type": "string"},
    "params": structure("The keys of the task's type.", "object"),
    "description": text("A remark."),
    "desc": text("A remark."),
    "runFlag": one_of("FORBIDDEN passes the task.", "NORMAL", "FORBIDDEN"),
    "preTasks": {"description": "The tasks before it.", **_NAMES},
    "depList": {"description": "The tasks before it, if there are no preTasks.", **_NAMES},
    "dependence": structure("The conditions of a CONDITIONS, the items of a DEPENDENT.", "object"),
    "conditionResult": structure("The branches of a CONDITIONS.", "object"),
    "switchResult": structure("The branches of a SWITCH.", "object"),
    "maxRetryTimes": whole_number("Retries after a failure."),
    "retryInterval": whole_number("Minutes between retries."),
    "retryBackoff": structure("The growth of the interval between retries.", "object"),
    "retryOn": {"description": "The reasons after which alone it is retried.", **_REASONS},
    "noRetryOn": {"description": "The reasons after which it is not retried.", **_REASONS},
    "memoryRetry": structure("More memory after OUT_OF_MEMORY: factor and ceiling.", "object"),
    "timeout": structure("The limit of its time: strategy, interval in minutes, enable.", "object"),
    "taskInstancePriority": one_of("Its priority.", *Priority.__members__),
    "workerGroupId": whole_number("The worker group, by its id; -1 for any.", lowest=-1),
    "workerGroup": text("The worker group, by its name."),
    "environmentCode": whole_number(
        "The environment, by its code; -1 for that of the run.", lowest=-1
    ),
    "environmentName": text("The environment, by its name."),
    "extras": _ANY,
    "loc": _ANY,
    "delayTime": whole_number("Minutes between being ready and being submitted."),
    "memoryMax": whole_number("Megabytes of memory that it may have; -1 for any.", lowest=-1),
    "taskGroupId": whole_number("The pool of which it takes a slot."),
    "taskGroupPriority": whole_number("Its priority in pools.", lowest=-1_000_000),
    "taskGroups": structure("The pools of which it takes slots.", "array"),
    "locks": structure("The intervals of datasets that it has to itself.", "array"),
    "workerSelect": {
        "description": "A worker is chosen for it: true, or dataset, availabilityGroup, capacity.",
        "type": ["boolean", "object"],
    },
    "waitStartTimeout": _ANY,
    "taskTimeoutParameter": _ANY,
    "forbidden": _ANY,
    "code": _ANY,
    "version": _ANY,
}
"""The keys of a node."""

DEFINITION_KEYS: Final[Mapping[str, Schema]] = {
    "globalParams": structure("Parameters of every task.", "array"),
    "tasks": {"description": "The tasks.", "type": "array", "minItems": 1},
    "tenantId": whole_number("The tenant, by its id.", lowest=-1),
    "tenantCode": text("The tenant, by its name."),
    "timeout": whole_number("Minutes that a run may take; 0 for any number."),
    "timeoutStrategy": text("WARN, FAILED or WARN,FAILED."),
    "executionType": text(
        f"The meaning of a run while another one is live: {', '.join(ExecutionType.__members__)}."
    ),
    "complementDateRule": text(
        f"The meaning of a complement's date: {', '.join(DateRule)}; else the cluster's."
    ),
    "name": text("The definition's name."),
    "description": text("A remark."),
    "processDefinitionName": text("The definition's name, as in an export."),
    "processDefinitionDescription": text("A remark, as in an export."),
    "code": {"description": "Its code in the system that an export comes from. Kept."},
}
"""The keys of the 1.2 JSON itself."""
