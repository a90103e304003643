"""The process definition of a supervisor, whose runs are its tasks: what a submission makes of it.

It has one node. Later submissions change what they are given and leave the rest, as people set
`cores` or `conf` in it; one without a node that could be run is made anew.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final

from common.clock import SystemClock
from common.model.grants import GrantKind
from common.model.states import ReleaseState
from common.model.streams.tasks import TASK_NAME, TASK_TYPE
from common.store.connect import Connection
from common.store.people.definitions import (
    DefinitionRow,
    definition_by_name,
    save_definition,
    set_release_state,
)
from operations.errors import NameTakenError, UsageError
from operations.grants import Granted
from operations.stored_documents import stored_document

_PROFILE_CHARS: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskPlace:
    """The place where tasks of a supervisor run; None leaves it as it is.

    `profile`: the Spark profile whose servers they share; `classic` gives each a driver of its own.
    """

    worker_group: str | None = None
    profile: str | None = None


AS_IT_IS: Final = TaskPlace()
"""The place that a supervisor's tasks have already; of a new one, any worker, without a profile."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TasksDefinition:
    """The definition as a submission wants it, and as it is, if there is one."""

    name: str
    document: dict[str, Any]
    there: DefinitionRow | None

    @property
    def is_there(self) -> bool:
        """True if the definition is as it is wanted already."""
        return self.there is not None and self.document == stored_document(self.there)


def wanted_definition(
    db: Connection, supervisor: str, place: TaskPlace, *, project_id: int, is_new: bool
) -> TasksDefinition:
    """Return the definition that a supervisor is to have; writes nothing.

    `is_new`: the supervisor is, and takes no definition over.
    """
    name = f"stream {supervisor}"
    there = definition_by_name(db, name, project_id=project_id)
    if is_new and there is not None:
        raise NameTakenError(
            f"there is a process definition {name!r}, and the supervisor's tasks need one of that"
            " name: rename it, or name another dataSource"
        )
    document = {} if there is None else stored_document(there)
    if not _stream_nodes(document):
        # Nobody could run it.
        document = _fresh(supervisor)
    for node in _stream_nodes(document):
        if place.worker_group is not None:
            node["workerGroupId"] = Granted(db, project_id).number_of(
                GrantKind.WORKER_GROUP, place.worker_group
            )
        if place.profile is not None:
            node["params"]["profile"] = _profile(place.profile)
    return TasksDefinition(name=name, document=document, there=there)


def put_definition(
    db: Connection, wanted: TasksDefinition, supervisor: str, *, project_id: int, user_id: int
) -> int:
    """Write the definition if it is not there, and have it online; its id."""
    at = SystemClock().now()
    if wanted.is_there and wanted.there is not None:
        definition_id = wanted.there.id
    else:
        definition_id = save_definition(
            db,
            name=wanted.name,
            process_definition_json=json.dumps(wanted.document),
            at=at,
            project_id=project_id,
            user_id=user_id,
            description=f"The tasks of the supervisor {supervisor}; made by its submission.",
            global_params="[]",
        ).id
    set_release_state(db, definition_id, wanted=ReleaseState.ONLINE, at=at)
    return definition_id


def _fresh(supervisor: str) -> dict[str, Any]:
    node = {
        "id": "tasks-1",
        "type": TASK_TYPE,
        "name": TASK_NAME,
        "params": {"supervisor": supervisor},
        "runFlag": "NORMAL",
        "maxRetryTimes": "0",
        "workerGroupId": -1,
        # A master keeps replicas apart, and spreads the tasks.
        "workerSelect": {"dataset": supervisor},
        "preTasks": [],
    }
    return {"tasks": [node], "globalParams": [], "timeout": 0}


def _stream_nodes(document: dict[str, Any]) -> list[dict[str, Any]]:
    nodes = document.get("tasks")
    return [
        each
        for each in (nodes if isinstance(nodes, list) else ())
        if isinstance(each, dict)
        and each.get("type") == TASK_TYPE
        and isinstance(each.get("params"), dict)
    ]


def _profile(name: str) -> str:
    given = name.strip()
    if not given or len(given) > _PROFILE_CHARS or not given.isprintable():
        raise UsageError("profile", "must be a Spark profile of the workers, or classic")
    return given
