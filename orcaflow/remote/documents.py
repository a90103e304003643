"""Values of operations, made again from the documents of the HTTP API.

`KeyError`, `TypeError` and `ValueError` mean a document of another version.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import IntEnum
from typing import Any, Final

from common.model.cluster import Heartbeat, NodeKind
from common.model.commands import CommandOutcome, CommandType
from common.model.date_rules import DateRule
from common.model.offers import Offer
from common.model.states import FailureStrategy, Priority, ProcessState, ReleaseState, TaskState
from common.store.people.definitions import DefinitionRow
from common.store.people.families import Relative
from common.store.people.ledger import CommandView
from common.store.people.views import ProcessInstanceView, TaskInstanceView
from common.why import Cause, CauseKind
from operations.commands import WAITING
from operations.control_decisions import ControlDecision, LookedAt
from operations.deleting import Deleted
from operations.members import Member, MemberHealth


def instance_of(row: Mapping[str, Any]) -> ProcessInstanceView:
    """A run."""
    return ProcessInstanceView(
        id=row["id"],
        name=row["name"],
        process_definition_id=row["process_definition_id"],
        definition_name=row["definition"],
        state=row["state"]["code"],
        wanted_state=code_of(ProcessState, row["wanted_state"]),
        state_reason=row["reason"],
        command_type=code_of(CommandType, row["command_type"]) or 0,
        run_times=row["run_times"],
        failure_strategy=code_of(FailureStrategy, row["failure_strategy"]) or 0,
        priority=code_of(Priority, row["priority"]) or 0,
        schedule_time=moment_of(row["schedule_time"]),
        start_time=datetime.fromisoformat(row["start_time"]),
        end_time=moment_of(row["end_time"]),
        host=row["host"],
        owner_epoch=row["owner_epoch"],
        root_id=row["root_id"] or 0,
        parent_task_instance_id=row["parent_task_instance_id"] or 0,
        wanted_deadline=moment_of(row["wanted_deadline"]),
        project_name=row["project"],
        definition_version=row["version"],
        latest_version=row["latest_version"],
        duration_from=moment_of(row["duration_from"]),
        first_command=row["first_command_type"] or "",
    )


def task_of(row: Mapping[str, Any]) -> TaskInstanceView:
    """An attempt at a task."""
    progress, usage, branch = row["progress"], row["usage"], row["branch"]
    plain: dict[str, Any] = {name: row[name] for name in _OF_TASK}
    plain |= {name: moment_of(row[name]) for name in _MOMENTS_OF_TASK}
    return TaskInstanceView(
        **plain,
        state=row["state"]["code"],
        wanted_state=code_of(TaskState, row["wanted_state"]),
        progress=None if progress is None else json.dumps(progress),
        usage=None if usage is None else json.dumps(usage),
        branch=None if branch is None else json.dumps(branch),
    )


_OF_TASK: Final = (
    *("id", "process_instance_id", "name", "task_type", "attempt", "valid", "host", "pid"),
    *("exit_code", "reason", "failure_reason", "retry_times", "max_retry_times", "execute_path"),
    *("log_path", "app_link", "ui_link", "history_link", "memory_factor"),
)
_MOMENTS_OF_TASK: Final = (
    *("submit_time", "start_time", "end_time", "retry_at", "due_at", "lost_at"),
)


def definition_of(row: Mapping[str, Any]) -> DefinitionRow:
    """A definition, without what its document has."""
    return DefinitionRow(
        id=row["id"],
        code=row["id"],
        project_id=row["project_id"],
        name=row["name"],
        version=row["version"],
        release_state=ReleaseState[row["release_state"]],
        process_definition_json=None,
        description=row["description"],
        global_params=None,
        timeout_minutes=0,
        tenant_id=-1,
        user_id=0,
        usable=row["usable"],
        create_time=datetime.fromisoformat(row["create_time"]),
        update_time=datetime.fromisoformat(row["update_time"]),
        project_name=row["project"],
        # A list does not have it.
        date_rule=DateRule(rule) if (rule := row.get("complement_date_rule")) else None,
    )


def deleted_of(row: Mapping[str, Any]) -> Deleted:
    """Runs that are gone."""
    return Deleted(
        ids=tuple(row["deleted"]),
        attempts=row["task_instances"],
        folders=row["folders"],
        left=tuple(row["left"]),
        hosts=tuple(row["hosts"]),
    )


def decision_from(document: Mapping[str, Any]) -> ControlDecision:
    """The decision of a control task."""
    branch, child = document["branch"], document["child"]
    return ControlDecision(
        task=task_of(document["task"]),
        branch=None if branch is None else tuple(branch),
        looked_at=tuple(
            LookedAt(task=each["task"], wanted=each["wanted"], state=each["state"])
            for each in document["looked_at"]
        ),
        evidence=tuple(document["evidence"]),
        child=None
        if child is None
        else Relative(
            process_instance_id=child["process_instance_id"],
            definition_name=child["definition"],
            state=child["state"]["code"],
            task_instance_id=document["task"]["id"],
            task_name=document["task"]["name"],
            attempt=document["task"]["attempt"],
        ),
    )


def relative_of(row: Mapping[str, Any]) -> Relative:
    """A run that a task connects with another."""
    return Relative(
        process_instance_id=row["process_instance_id"],
        definition_name=row["definition"],
        state=row["state"]["code"],
        task_instance_id=row["task_instance_id"],
        task_name=row["task"],
        attempt=row["attempt"],
    )


def command_of(row: Mapping[str, Any]) -> CommandView:
    """A command with its outcome."""
    outcome = row["outcome"]
    return CommandView(
        id=row["id"],
        command_type=row["command_type_code"],
        process_definition_id=row["process_definition_id"],
        definition_name=row["definition"],
        outcome=None if outcome == WAITING else CommandOutcome[outcome],
        reason=row["reason"],
        process_instance_id=row["process_instance_id"],
        start_time=moment_of(row["start_time"]),
        handled_at=moment_of(row["handled_at"]),
        host=row["host"],
    )


def causes_of(rows: Sequence[Mapping[str, Any]]) -> tuple[Cause, ...]:
    """The causes of a list in which each stands before those behind it, one deeper."""
    found, end = _causes(rows, 0, 0)
    if end != len(rows):
        raise ValueError("a cause is deeper than one below the one before it")
    return found


def _causes(
    rows: Sequence[Mapping[str, Any]], at: int, depth: int
) -> tuple[tuple[Cause, ...], int]:
    found: list[Cause] = []
    while at < len(rows) and rows[at]["depth"] == depth:
        row = rows[at]
        behind, at = _causes(rows, at + 1, depth + 1)
        found.append(
            Cause(
                cause=CauseKind(row["cause"]),
                subject=row["subject"],
                text=row["text"],
                since=moment_of(row["since"]),
                next=row["next"],
                next_at=moment_of(row["next_at"]),
                because=behind,
            )
        )
    return tuple(found), at


def member_of(row: Mapping[str, Any]) -> MemberHealth:
    """A living daemon."""
    host = row["address"].rpartition(":")[0]
    beat = None
    if row["pid"] is not None:
        beat = Heartbeat(
            host=host,
            pid=row["pid"],
            cpu=row["cpu"],
            memory=row["memory"],
            load=row["load"],
            created=datetime.fromisoformat(row["since"]),
            beaten=datetime.fromisoformat(row["beaten"]),
            # An older api-server does not report it.
            database_away=row.get("database_away"),
        )
    offer = None
    if row["slots"] is not None:
        offer = Offer(
            slots=row["slots"],
            version=row["version"],
            groups=tuple(row["groups"]),
            # An older api-server does not report it.
            is_reserved=bool(row.get("reserved")),
        )
    return MemberHealth(
        member=Member(
            kind=NodeKind[row["kind"].upper()],
            address=row["address"],
            incarnation=row["incarnation"],
            beat=beat,
        ),
        health=row["health"],
        reason=row["reason"],
        offer=offer,
    )


def moment_of(text: str | None) -> datetime | None:
    """A moment that may be missing."""
    return None if text is None else datetime.fromisoformat(text)


def code_of(kind: type[IntEnum], name: str | None) -> int | None:
    """The number of a code that is given by name, or as itself if it has none."""
    if name is None:
        return None
    return int(kind[name]) if name in kind.__members__ else int(name)
