"""Fires due schedules: a ledger row and a command for each fire, in one transaction.

Any master may fire any schedule; the tables' locks and the ledger's unique key decide between two.
`common.firing` computes the due fires and their outcomes. Nothing is kept in memory but the time of
the next check, so a master that dies loses no fire.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from common.clock import Clock
from common.firing import MISFIRE_THRESHOLD, plan_fires
from common.model.schedules import FireOutcome, FirePlan, Schedule
from common.runtime import metrics
from common.store.master.ports import ScheduleStore
from master.identity import Identity

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleConfig:
    """`interval`: between checks while nothing is due and no notification comes.

    `breath`: the least rest while a schedule stays due that another master works on. `batch` is the
    most schedules per transaction, `fires` the most fires of one schedule.
    """

    interval: timedelta = timedelta(seconds=5)
    breath: timedelta = timedelta(milliseconds=50)
    misfire_threshold: timedelta = MISFIRE_THRESHOLD
    batch: int = 500
    fires: int = 1000


class ScheduleLoop:
    """Rests until the next fire of any schedule; woken when one was changed."""

    name = "schedule"

    def __init__(
        self,
        store: ScheduleStore,
        *,
        identity: Identity,
        clock: Clock,
        zone: ZoneInfo,
        config: ScheduleConfig | None = None,
    ) -> None:
        self._store = store
        self._identity = identity
        self._clock = clock
        self._zone = zone
        self._config = config or ScheduleConfig()

    def run_once(self) -> timedelta:
        """Fire due schedules; return the time until the next is due."""
        if self._identity.trusted() is None:
            return self._config.interval
        now = self._clock.now()
        plans: list[tuple[Schedule, FirePlan]] = []

        def planner(schedule: Schedule) -> FirePlan:
            plan = plan_fires(
                schedule,
                now=now,
                zone=self._zone,
                threshold=self._config.misfire_threshold,
                limit=self._config.fires,
            )
            plans.append((schedule, plan))
            return plan

        fired = self._store.fire(planner=planner, now=now, limit=self._config.batch)
        for schedule, plan in plans:
            _log_fires(schedule, plan, now)
        if fired.fires:
            log.info(
                "schedules were fired", extra={"fires": fired.fires, "commands": fired.commands}
            )
        if fired.next_due is None:
            return self._config.interval
        until_due = fired.next_due - self._clock.now()
        if until_due <= timedelta() and fired.fires:
            return timedelta()
        return min(max(until_due, self._config.breath), self._config.interval)


def _log_fires(schedule: Schedule, plan: FirePlan, now: datetime) -> None:
    """Count the fires, and log those that did not happen."""
    if plan.fault is not None:
        log.warning("schedule can't fire", extra={"schedule_id": schedule.id, "reason": plan.fault})
    for fire in plan.fires:
        metrics.schedule_fires.labels(outcome=fire.outcome.value).inc()
        if fire.outcome is FireOutcome.FIRED:
            metrics.schedule_lag_seconds.observe((now - fire.fire_time).total_seconds())
    left_out = [fire for fire in plan.fires if fire.reason is not None]
    if left_out:
        log.warning(
            "fires did not happen",
            extra={
                "schedule_id": schedule.id,
                "count": len(left_out),
                "fire_time": left_out[0].fire_time.isoformat(),
                "outcome": left_out[0].outcome.value,
                "reason": left_out[0].reason,
            },
        )
