"""Process instances and attempts as people see them: the values that `views` reads."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import NamedTuple

from common.model.run_names import version_in
from common.model.states import ProcessState


class ProcessInstanceView(NamedTuple):
    """One process instance. `definition_name` is None if the definition has been deleted.

    `root_id` is the instance at the top of the tree that a sub process belongs to, else 0. A frozen
    dataclass takes fifteen times as long to make, which was a third of a page's work.
    """

    id: int
    name: str
    process_definition_id: int
    definition_name: str | None
    state: int
    wanted_state: int | None
    state_reason: str | None
    command_type: int
    run_times: int
    failure_strategy: int
    priority: int
    schedule_time: datetime | None
    start_time: datetime
    end_time: datetime | None
    host: str | None
    owner_epoch: int
    root_id: int = 0
    parent_task_instance_id: int = 0
    wanted_deadline: datetime | None = None
    project_name: str | None = None
    definition_version: int | None = None
    """The version that a restart has given it; None: the one in its name."""
    latest_version: int | None = None
    """The present version of its definition; None if that has been deleted."""
    duration_from: datetime | None = None
    """The start of its duration; later than its start by the time that it was idle."""
    first_command: str = ""
    """The type of the command that started it; a recovery has another `command_type`."""

    def duration(self, now: datetime) -> timedelta | None:
        """Return the time in which the run was live until `now`, without its idle time.

        None before the first turn of a run that waits for others of its definition.
        """
        if self.state == ProcessState.SERIAL_WAIT:
            return None
        return max(timedelta(), (self.end_time or now) - (self.duration_from or self.start_time))

    @property
    def version(self) -> int | None:
        """The version of the definition that it has a copy of; None if that is not known."""
        if self.definition_version is not None:
            return self.definition_version
        return version_in(self.name)

    @property
    def has_newer_version(self) -> bool:
        """True if its definition has a later version than the run."""
        return (self.latest_version or 0) > (self.version or 0) > 0


class TaskInstanceView(NamedTuple):
    """One attempt. `valid` is its `flag`: False once another attempt has taken its place."""

    id: int
    process_instance_id: int
    name: str
    task_type: str
    attempt: int
    state: int
    valid: bool
    wanted_state: int | None
    submit_time: datetime | None
    start_time: datetime | None
    end_time: datetime | None
    host: str | None
    pid: int | None
    exit_code: int | None
    reason: str | None
    retry_at: datetime | None
    retry_times: int
    max_retry_times: int
    execute_path: str | None
    log_path: str | None
    app_link: str | None
    due_at: datetime | None = None
    branch: str | None = None
    failure_reason: str | None = None
    memory_factor: float = 1.0
    ui_link: str | None = None
    history_link: str | None = None
    progress: str | None = None
    usage: str | None = None
    lost_at: datetime | None = None
    """The time at which the contact with its processes was lost; None during a contact."""
