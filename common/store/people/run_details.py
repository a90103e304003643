"""A process instance with its documents, its attempts and its business date, for one page."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime
from typing import TYPE_CHECKING

from common.model.date_rules import DateRule, rule_of

if TYPE_CHECKING:
    from common.store.people.views import ProcessInstanceView, TaskInstanceView


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessInstanceDetail:
    """A process instance with every attempt, superseded ones included, oldest first."""

    instance: ProcessInstanceView
    process_instance_json: str
    command_param: str | None
    global_params: str | None
    tasks: tuple[TaskInstanceView, ...]
    business_time: datetime | None = None
    """Its moment where that differs from its schedule time (`common.business_dates`)."""
    timezone_id: str | None = None
    business_date: date | None = None
    """The day before its moment; None if its zone is unknown."""

    @property
    def date_rule(self) -> DateRule | None:
        """The meaning of its schedule time; None if it has none."""
        return rule_of(self.instance.schedule_time, self.business_time)
