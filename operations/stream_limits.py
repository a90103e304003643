"""Checks the limits of a project before one of its supervisors starts or gets more tasks.

The limits are settings (`streams.*`). The row of the project is locked first, so that two requests
that start at the same time can't exceed a limit together. Supervisors that already exceed a limit,
because an administrator has lowered it, keep running.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from common.errors import InvalidSpecError, NotAllowedError
from common.model.streams.reading import read_spec
from common.model.streams.spec import SupervisorSpec
from common.store.people.projects import hold_project
from common.store.people.supervisors import active_supervisors

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from common.config import StreamsConfig
    from common.store.connect import Connection
    from common.store.people.supervisors import SupervisorView

_CURE = "or have an administrator raise the limit"


def check_limits(
    db: Connection,
    limits: StreamsConfig,
    project_id: int,
    *,
    spec: SupervisorSpec,
    former: SupervisorView | None,
) -> None:
    """Raise `NotAllowedError` if a supervisor would exceed a limit; the text names the cure.

    `spec` is the next specification; `former` is the supervisor as it is now.
    """
    hold_project(db, project_id)
    active = active_supervisors(db, project_id)
    others = {each.id: each for each in active if each.id != spec.id}
    is_new = former is None or not former.active
    if is_new and len(others) >= limits.max_supervisors_per_project:
        raise NotAllowedError(
            f"the project already has {len(others):,} supervisors, and the limit is"
            f" {limits.max_supervisors_per_project:,} (streams.max_supervisors_per_project):"
            f" terminate a supervisor (orcaflow stream terminate), {_CURE}"
        )
    tasks = 0 if spec.suspended else spec.io.most_tasks
    runs_now = former is not None and former.active and not former.suspended
    if tasks <= (most_tasks_of(former.document) if runs_now and former is not None else 0):
        return
    if tasks > limits.max_tasks_per_supervisor:
        raise NotAllowedError(
            f"supervisor {spec.id!r} would have {tasks:,} tasks at a time (taskCount × replicas),"
            f" and the limit is {limits.max_tasks_per_supervisor:,}"
            f" (streams.max_tasks_per_supervisor): lower taskCount, taskCountMax or replicas,"
            f" {_CURE}"
        )
    running = sum(most_tasks_of(each.document) for each in others.values() if not each.suspended)
    if running + tasks > limits.max_tasks_per_project:
        raise NotAllowedError(
            f"the supervisors of the project would have {running + tasks:,} tasks at a time"
            f" (taskCount × replicas), and the limit is {limits.max_tasks_per_project:,}"
            f" (streams.max_tasks_per_project): suspend a supervisor, lower taskCount,"
            f" taskCountMax or replicas, {_CURE}"
        )


def most_tasks_of(document: Mapping[str, Any] | None) -> int:
    """Return the number of tasks that a stored specification allows at a time."""
    try:
        spec = read_spec(document or {}).spec
    except InvalidSpecError:
        # No master starts a task of it.
        return 0
    return spec.io.most_tasks if isinstance(spec, SupervisorSpec) else 0
