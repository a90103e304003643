"""Ends Spark applications whose attempts have ended.

An attempt's own process ends its application, but may be killed before it has, or its host may die.
So every worker asks the managers from time to time for all applications with a tag of this
database, and the tables for the attempts that have ended (`worker.spark.managers.sweep` decides).
Several workers may do the same at once: a kill may be requested twice. A manager without a
conclusive answer is logged and asked again. A loop with a step, and no thread of its own.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Final

from common.clock import Clock
from common.store.worker.ports import TaskStore
from worker.spark.managers.base import ApplicationManager, ManagerError
from worker.spark.managers.settings import ManagerSettings
from worker.spark.managers.sweep import Sight, Sweep, decide, sights
from worker.spark.managers.tags import Tags

log = logging.getLogger(__name__)

_INTERVAL: Final = timedelta(seconds=10)


def configured(settings: ManagerSettings) -> Callable[[], Sequence[ApplicationManager]]:
    """Makes all managers that are configured, for a `SweepLoop`."""

    def make() -> Sequence[ApplicationManager]:
        # Only here, for most workers have none, and what these need takes long to import.
        from worker.spark.managers.choice import all_managers, own_user

        return all_managers(settings, user=own_user())

    return make


class SweepLoop:
    """Asks the managers, asks the tables, and kills."""

    name = "sweep"

    def __init__(
        self,
        *,
        store: TaskStore,
        managers: Callable[[], Sequence[ApplicationManager]],
        tags: Tags,
        clock: Clock,
        interval: timedelta = _INTERVAL,
    ) -> None:
        """`managers` makes them, at the first pass; `tags` are those of this database."""
        self._store = store
        self._make_managers = managers
        self._managers: Sequence[ApplicationManager] | None = None
        self._tags = tags
        self._clock = clock
        self._interval = interval
        self._sweep = Sweep()
        self._silent: dict[str, str] = {}

    def run_once(self) -> timedelta:
        """Look once; how long to rest. `ServiceUnreachableError` passes through."""
        if self._managers is None:
            self._managers = self._make_managers()
        places = {f"{index}": each for index, each in enumerate(self._managers)}
        seen: list[Sight] = []
        asked: list[str] = []
        for place, manager in places.items():
            try:
                seen += sights(place, self._tags, manager.with_prefix(self._tags.prefix))
            except ManagerError as error:
                self._log_trouble(place, manager, str(error))
            else:
                asked.append(place)
                if self._silent.pop(place, ""):
                    log.info("manager answers again", extra={"manager": manager.name})
        # After the look: an application comes after its attempt, so whatever was seen has one.
        over = self._store.over({each.task_instance_id for each in seen}) if seen else {}
        now = timedelta(seconds=self._clock.monotonic())
        before, self._sweep = (
            self._sweep,
            decide(seen, asked=asked, over=over, before=self._sweep, now=now),
        )
        self._log_findings(before)
        for sight in self._sweep.kill:
            self._kill(places[sight.key[0]], sight)
        return self._interval

    def _kill(self, manager: ApplicationManager, sight: Sight) -> None:
        fields = {
            "task_instance_id": sight.task_instance_id,
            "application": sight.application.id,
            "manager": manager.name,
        }
        try:
            manager.kill(sight.application)
        except ManagerError as error:
            log.warning(
                "orphaned application could not be killed", extra={**fields, "cause": str(error)}
            )
        else:
            log.info("orphaned application killed", extra=fields)

    def _log_trouble(self, place: str, manager: ApplicationManager, cause: str) -> None:
        if self._silent.get(place) != cause:
            self._silent[place] = cause
            log.warning("manager gave no answer", extra={"manager": manager.name, "cause": cause})

    def _log_findings(self, before: Sweep) -> None:
        for key in self._sweep.gone:
            log.info(
                "application of an attempt that is over is gone", extra={"application": key[1]}
            )
        for sight in self._sweep.unknown:
            log.warning(
                "application of an unknown attempt seen",
                extra={
                    "task_instance_id": sight.task_instance_id,
                    "application": sight.application.id,
                },
            )
