"""Chooses the worker for a task by a strategy, and decides which workers are to be shunned.

Pure. `choose` sees workers as they are known at one moment: a *runnable* one has room, a good
version, and no replica of the task. A *strategy* fills workers up or spreads tasks evenly, and may
prefer some of them by the dataset (*affinity*) or by the task's type (*category*). Equal workers
are taken in the order of their addresses, so equal arguments have one answer.

Its caller is `master.logic.assignment`, for tasks that ask for a choice. All others go to whichever
worker claims them first.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final, assert_never

from common.model.worker_strategy import Affinity, Categories, Filling, Strategy

DISABLED_VERSION: Final = ""
"""The version of a worker that takes no tasks; those that run there end as they would."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerRoom:
    """A living worker: its room, what runs there, and what it is kept from.

    `host` is `address` without the port; affinities name either. `is_assigned` means that a task
    was given to it which it has not claimed yet: it gets no other until then. `share` is the number
    of slots that the project of the task may take; None if it has no limit.
    """

    address: str
    version: str
    capacity: int
    used: int = 0
    used_by_parallel: int = 0
    category: str = ""
    availability_groups: frozenset[str] = frozenset()
    is_lazy: bool = False
    is_blacklisted: bool = False
    is_assigned: bool = False
    share: int | None = None

    @property
    def host(self) -> str:
        return self.address.rpartition(":")[0] or self.address

    @property
    def available(self) -> int:
        return self.capacity - self.used


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskNeed:
    """The parts of a task that matter to the choice of its worker.

    Tasks of one `availability_group` are replicas, and are kept on different workers.
    """

    type: str
    dataset: str
    capacity: int = 1
    availability_group: str | None = None
    is_parallel: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ChoiceConfig:
    """Limits that hold for every strategy."""

    min_version: str = "0"
    parallel_share: float = 1.0


def choose(
    strategy: Strategy, workers: Sequence[WorkerRoom], task: TaskNeed, config: ChoiceConfig
) -> str | None:
    """Return the address of the worker for a task; None if it has to wait."""
    runnable = [worker for worker in workers if is_runnable(worker, task, config)]
    preference = strategy.preference
    match preference:
        case None:
            return _best(strategy.filling, runnable)
        case Affinity():
            return _by_affinity(strategy.filling, preference, runnable, task)
        case Categories():
            return _by_category(strategy.filling, preference, runnable, task)
        case _:
            assert_never(preference)


def is_runnable(worker: WorkerRoom, task: TaskNeed, config: ChoiceConfig) -> bool:
    """Return True if a worker may take a task now. Versions are compared as texts."""
    if worker.is_lazy or worker.is_blacklisted or worker.is_assigned:
        return False
    if worker.version == DISABLED_VERSION or worker.version < config.min_version:
        return False
    if task.availability_group is not None and (
        task.availability_group in worker.availability_groups
    ):
        return False
    if worker.available < task.capacity:
        return False
    if worker.share is not None and worker.share < task.capacity:
        return False
    return not task.is_parallel or _parallel_room(worker, config) >= task.capacity


def _parallel_room(worker: WorkerRoom, config: ChoiceConfig) -> int:
    share = math.floor(config.parallel_share * worker.capacity)
    return min(max(share, 1), worker.capacity) - worker.used_by_parallel


def _best(filling: Filling, workers: Sequence[WorkerRoom]) -> str | None:
    if filling is Filling.FILL_CAPACITY:
        ranked = sorted(workers, key=lambda each: (-each.used, each.address))
    else:
        ranked = sorted(workers, key=lambda each: (-each.available, each.address))
    return ranked[0].address if ranked else None


def _by_affinity(
    filling: Filling, affinity: Affinity, workers: Sequence[WorkerRoom], task: TaskNeed
) -> str | None:
    hosts = affinity.hosts.get(task.dataset)
    if hosts is not None:
        found = _best(filling, [each for each in workers if _is_named(each, hosts)])
        if found is not None or affinity.is_strong:
            return found
    named = {host for each in affinity.hosts.values() for host in each}
    return _best(filling, [each for each in workers if not _is_named(each, named)])


def _is_named(worker: WorkerRoom, hosts: Collection[str]) -> bool:
    return worker.host in hosts or worker.address in hosts


def _by_category(
    filling: Filling, categories: Categories, workers: Sequence[WorkerRoom], task: TaskNeed
) -> str | None:
    rule = categories.rules.get(task.type)
    wanted = None if rule is None else rule.by_dataset.get(task.dataset, rule.default)
    if wanted is None:
        return _best(filling, workers)
    found = _best(filling, [each for each in workers if each.category == wanted])
    if found is not None or categories.is_strong:
        return found
    return _best(filling, workers)


def lazy_workers(workers: Sequence[WorkerRoom], *, most: int) -> tuple[str, ...]:
    """Return the workers to mark as lazy, so that they can be removed: idle ones, at most so many.

    Those that are lazy already count.
    """
    room = most - sum(worker.is_lazy for worker in workers)
    idle = [
        worker.address
        for worker in sorted(workers, key=lambda each: each.address)
        if worker.used == 0 and not (worker.is_lazy or worker.is_assigned)
    ]
    return tuple(idle[: max(room, 0)])


@dataclass(frozen=True, slots=True, kw_only=True)
class BlacklistConfig:
    """Limits of the blacklist: failures in a row, its length, its size in percent of workers."""

    max_failures: int = 5
    back_off: timedelta = timedelta(minutes=15)
    max_percentage: int = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Blacklist:
    """Workers on which tasks of a project fail in a row, and the time until they get more."""

    failures: Mapping[str, int] = field(default_factory=dict)
    until: Mapping[str, datetime] = field(default_factory=dict)

    def after_success(self, address: str) -> Blacklist:
        """Forget a worker's failures, and take it off the list."""
        return Blacklist(
            failures={each: count for each, count in self.failures.items() if each != address},
            until={each: end for each, end in self.until.items() if each != address},
        )

    def after_failure(
        self, address: str, *, workers: int, config: BlacklistConfig, now: datetime
    ) -> Blacklist:
        """Count a failure; list the worker if it has had too many and the list has room."""
        count = self.failures.get(address, 0) + 1
        counted = replace(self, failures={**self.failures, address: count})
        has_room = len(self.until) <= workers * config.max_percentage / 100 - 1
        if count > config.max_failures and has_room and address not in self.until:
            return replace(counted, until={**self.until, address: now + config.back_off})
        return counted

    def passed_over(self, addresses: Collection[str], *, config: BlacklistConfig) -> frozenset[str]:
        """Return the workers on the list that get nothing, of those that may take a task.

        The limit of the list holds for these too. Otherwise a few failing tasks could close all
        workers of a worker group.
        """
        listed = [each for each in addresses if each in self.until]
        listed.sort(key=lambda each: (-self.failures.get(each, 0), each))
        return frozenset(listed[: len(addresses) * config.max_percentage // 100])

    def cleaned(self, now: datetime) -> Blacklist:
        """Take off the workers whose time is over; they begin anew."""
        over = {address for address, end in self.until.items() if end <= now}
        return Blacklist(
            failures={each: count for each, count in self.failures.items() if each not in over},
            until={each: end for each, end in self.until.items() if each not in over},
        )
