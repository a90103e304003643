"""Decides when people are told of a supervisor's lag, health and failing tasks.

Pure. An *alarm* is raised once when its limit is passed, and taken back once it is kept again, each
time with words for an alert. Used by the keeper of a supervisor, which remembers what is raised; a
new keeper raises anew what still holds.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import Enum

from common.model.streams.spec import AlertRule
from master.supervisors.health import Health, State


class Alarm(Enum):
    """The alarms of a supervisor."""

    LAG = "LAG"
    HEALTH = "HEALTH"
    TASKS = "TASKS"


@dataclass(frozen=True, slots=True, kw_only=True)
class Alarms:
    """The alarms that are raised, and since when the lag is above its limit."""

    raised: frozenset[Alarm] = frozenset()
    behind_since: datetime | None = None
    texts: tuple[str, ...] = field(default=(), compare=False)
    """The words of what has just been raised or taken back."""


def watched(
    alarms: Alarms, rule: AlertRule, health: Health, lag: int | None, *, now: datetime
) -> Alarms:
    """Return the alarms as they are now; a `lag` that is None raises nothing and ends nothing."""
    behind_since = alarms.behind_since
    if rule.lag is None or (lag is not None and lag <= rule.lag):
        behind_since = None
    elif lag is not None and behind_since is None:
        behind_since = now
    found = replace(alarms, behind_since=behind_since, texts=())
    wanted = frozenset(_wanted(found, rule, health, lag, now))
    texts = [
        _raised(alarm, rule, health, _behind(lag, behind_since))
        for alarm in Alarm
        if alarm in wanted - alarms.raised
    ]
    texts += [_over(alarm, health, lag) for alarm in Alarm if alarm in alarms.raised - wanted]
    return replace(found, raised=wanted, texts=tuple(texts))


def _wanted(
    alarms: Alarms, rule: AlertRule, health: Health, lag: int | None, now: datetime
) -> Iterator[Alarm]:
    since = alarms.behind_since
    is_due = since is not None and lag is not None and now >= since + rule.lag_for
    if is_due or (since is not None and Alarm.LAG in alarms.raised):
        yield Alarm.LAG
    # Failing tasks have an alarm of their own.
    is_bad = not health.state.is_healthy and health.state is not State.UNHEALTHY_TASKS
    if rule.unhealthy and (
        is_bad or (Alarm.HEALTH in alarms.raised and not health.state.is_healthy)
    ):
        yield Alarm.HEALTH
    if rule.task_failures and health.failed_tasks >= rule.task_failures:
        yield Alarm.TASKS


def _raised(alarm: Alarm, rule: AlertRule, health: Health, behind: str) -> str:
    match alarm:
        case Alarm.LAG:
            return (
                f"it is behind by more than {rule.lag} records: {behind}. Its status names tasks"
                " that stand still; more tasks read more (taskCount, autoScalerConfig)"
            )
        case Alarm.HEALTH:
            last = f": {health.errors[-1].text}" if health.errors else ""
            return f"it is unhealthy, {health.state.value}{last}"
        case Alarm.TASKS:
            return (
                f"{health.failed_tasks} of its tasks in a row have failed; each one's instance"
                " tells its reason"
            )


def _behind(lag: int | None, since: datetime | None) -> str:
    return "" if since is None else f"{lag}, since {since.isoformat(timespec='seconds')}"


def _over(alarm: Alarm, health: Health, lag: int | None) -> str:
    match alarm:
        case Alarm.LAG:
            now = "its limit is gone" if lag is None else f"{lag} records"
            return f"its lag is within its limit again: {now}"
        case Alarm.HEALTH:
            return f"it is healthy again: {health.state.value}"
        case Alarm.TASKS:
            return "a task of it has succeeded again"
