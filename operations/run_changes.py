"""A run beside the last good one of its definition: the facts of both, for `common.run_changes`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from common.model.command_param import CommandParam
from common.model.rights import Action
from common.model.run_names import version_in
from common.model.states import FINISHED_TASK_CODES, TaskState
from common.run_changes import (
    RunChanges,
    RunFacts,
    TaskFacts,
    Usual,
    changes,
    slow_tasks,
)
from common.store.people.good_runs import GivenRun, usual_durations, with_last_good
from common.store.people.rights import Thing
from common.store.people.views import ProcessInstanceView, TaskInstanceView, task_instances
from operations.documents.applications import progress_of
from operations.documents.instances import masked_parameters, task_duration
from operations.rights import seen
from operations.secret_references import with_references
from operations.session import Session

_MOST_ATTEMPTS: Final = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class SinceGood:
    """The last good run before a run, and the changes since."""

    good: int
    changes: RunChanges


def changes_since_good(
    session: Session,
    run: ProcessInstanceView,
    attempts: Sequence[TaskInstanceView],
    *,
    now: datetime,
) -> SinceGood | None:
    """Compare a run, whose attempts are given, with the last good one; None if there is none.

    Three statements, however many tasks there are, and one more if some of them are slow.
    """
    with session.engine.connect() as db:
        seen(db, session.principal, Action.VIEW, Thing.INSTANCE, run.id)
        both = with_last_good(db, run.process_definition_id, run.id)
        if both is None:
            return None
        this, good = both
        former = task_instances(db, process_instance_id=good.id, limit=_MOST_ATTEMPTS)
        # Most runs have the same definition, which need not be read then.
        is_same = this.process_instance_json == good.process_instance_json
        before = _facts(good, former, now=now, with_definition=not is_same)
        after = _facts(this, attempts, now=now, with_definition=not is_same)
        slow = slow_tasks(before, after)
        found = usual_durations(db, run.process_definition_id, run.id, slow) if slow else {}
    usual = {name: Usual(p90=p90, runs=runs) for name, (p90, runs) in found.items()}
    return SinceGood(good=good.id, changes=changes(before, after, usual))


def _facts(
    run: GivenRun, attempts: Sequence[TaskInstanceView], *, now: datetime, with_definition: bool
) -> RunFacts:
    param = CommandParam.as_stored(run.command_param)
    code = param.stored_environment_code
    return RunFacts(
        version=(
            version_in(run.name) if run.definition_version is None else run.definition_version
        ),
        definition=own_document(run.process_instance_json) if with_definition else {},
        surroundings={
            "worker group": run.worker_group,
            "environment": None
            if code is None
            else (run.environments or {}).get(str(code), f"{code}"),
            "tenant": run.tenant,
            "time zone": run.timezone_id,
            "only from tasks": ", ".join(param.start_node_names) or None,
        },
        parameters=_parameters(run),
        tasks={
            each.name: _task(each, now=now)
            # The valid attempt of each, or its last.
            for each in sorted(attempts, key=lambda each: (each.valid, each.id))
        },
    )


def own_document(text: str) -> dict[str, Any]:
    """Return a run's copy of its definition as a document without secrets; {} if unreadable."""
    try:
        inner = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return with_references({"processDefinitionJson": inner}).document if inner else {}


def _parameters(run: GivenRun) -> dict[str, str]:
    """Return the global parameters of a run as they were worked out, with secrets masked."""
    text = masked_parameters(run.command_param, run.global_params)["global_params"]
    try:
        found = json.loads(text or "[]")
    except (ValueError, RecursionError):
        return {}
    return {
        str(each["prop"]): str(each.get("value", ""))
        for each in (found if isinstance(found, list) else ())
        if isinstance(each, dict) and "prop" in each
    }


def _task(view: TaskInstanceView, *, now: datetime) -> TaskFacts:
    return TaskFacts(
        attempt=view.attempt,
        span=task_duration(view, now=now),
        host=view.host,
        has_ended=view.state in FINISHED_TASK_CODES,
        is_good=view.state == TaskState.SUCCESS,
        progress=progress_of(view),
    )
