"""Tasks that ask for a worker: which get which, what is taken back, strategies and their mistakes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from common.model.assignments import (
    AskedEnd,
    AskingTask,
    AssignmentFacts,
    Choices,
    RunningTasks,
)
from common.model.worker_needs import WorkerNeed, read_worker_need
from common.model.worker_strategy import (
    DEFAULT_DOCUMENT,
    Affinity,
    Categories,
    CategoryRule,
    Filling,
    Strategy,
    StrategyError,
    read_strategy,
)
from common.model.workers import WorkerMode, WorkerStatus
from master.logic.assignment import MOST_TRIES, AssignmentConfig, decide
from master.logic.worker_choice import BlacklistConfig

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
CONFIG = AssignmentConfig(
    timeout=timedelta(minutes=5),
    blacklist=BlacklistConfig(max_failures=1, max_percentage=100),
)
SLOW = NOON - timedelta(minutes=5)


def status(capacity: int = 2, **values: Any) -> WorkerStatus:
    return WorkerStatus(**{"capacity": capacity, "used": 0, "version": "1"} | values)


def task(number: int, **values: Any) -> AskingTask:
    return AskingTask(**{"id": number, "task_type": "SHELL", "need": WorkerNeed()} | values)


def running(**slots: int) -> tuple[RunningTasks, ...]:
    """Plain tasks that run on the workers of these hosts."""
    return tuple(
        RunningTasks(worker=f"{host}:1", slots=number, capacity=number)
        for host, number in slots.items()
    )


def choices(
    *tasks: AskingTask, workers: dict[str, WorkerStatus] | None = None, **facts: Any
) -> Choices:
    given = {"a:1": status(), "b:1": status()} if workers is None else workers
    return decide(AssignmentFacts(now=NOON, tasks=tasks, **facts), workers=given, config=CONFIG)


def test_tasks_are_spread_and_wait_when_no_worker_has_room() -> None:
    made = choices(*(task(number) for number in range(1, 6)), running=running(a=1))
    assert made.assigned == {1: "b:1", 2: "a:1", 3: "b:1"}
    assert made.taken_back == ()


def test_the_newest_strategy_decides_and_one_that_can_t_be_read_is_the_default() -> None:
    fill = {"selectStrategy": {"type": "fillCapacity"}}
    assert choices(task(1), running=running(b=1), strategy=fill).assigned == {1: "b:1"}
    assert choices(task(1), running=running(b=1), strategy={"select": 1}).assigned == {1: "a:1"}


def test_replicas_are_not_put_on_the_same_worker() -> None:
    replica = WorkerNeed(availability_group="g")
    made = choices(*(task(number, need=replica) for number in (1, 2, 3)))
    assert made.assigned == {1: "a:1", 2: "b:1"}
    made = choices(task(1, need=replica), groups={"a:1": frozenset({(0, "g")})})
    assert made.assigned == {1: "b:1"}
    given = task(2, need=replica, worker="b:1", since=NOON)
    assert choices(task(1, need=replica), given).assigned == {1: "a:1"}


def test_a_task_of_a_group_goes_to_a_worker_that_serves_it_by_its_start_or_its_host() -> None:
    workers = {"a:1": status(), "b:1": status(group_ids=frozenset({7}))}
    assert choices(task(1, group_id=7), workers=workers).assigned == {1: "b:1"}
    assert choices(task(1, group_id=8, group_hosts=("a",)), workers=workers).assigned == {1: "a:1"}
    assert choices(task(1, group_id=8), workers=workers).assigned == {}


def test_a_reserved_worker_is_chosen_for_tasks_of_its_groups_alone() -> None:
    reserved = status(group_ids=frozenset({7}), is_reserved=True)
    workers = {"a:1": reserved, "b:1": status()}
    made = choices(task(1), task(2), task(3, group_id=7), workers=workers)
    assert made.assigned == {1: "b:1", 2: "b:1", 3: "a:1"}
    assert choices(task(1), workers={"a:1": reserved}).assigned == {}


@pytest.mark.parametrize("mode", [WorkerMode.DISABLED, WorkerMode.LAZY])
def test_who_takes_no_tasks_is_not_chosen_and_loses_what_it_has_not_claimed(
    mode: WorkerMode,
) -> None:
    modes = {"a": mode}
    assert choices(task(1), modes=modes, running=running(b=1)).assigned == {1: "b:1"}
    given = task(1, worker="a:1", since=NOON)
    made = choices(given, modes=modes)
    assert (made.assigned, made.failures) == ({1: "b:1"}, {})
    made = choices(given, modes={**modes, "b:1": mode})
    assert (made.assigned, made.taken_back) == ({}, (1,))


def test_what_a_lost_worker_was_given_goes_to_another_and_is_no_failure() -> None:
    made = choices(task(1, worker="gone:1", since=NOON))
    assert (made.assigned, made.failures) == ({1: "a:1"}, {})


def test_a_worker_that_does_not_claim_in_time_loses_the_task_and_has_failed() -> None:
    given = task(1, worker="a:1", since=SLOW, tries=1)
    made = choices(given)
    assert made.assigned == {1: "b:1"}
    assert made.excluded == {1: ("a:1",)}
    assert made.failures == {(0, "a:1"): 1}
    # A second time: it gets nothing for a while.
    made = choices(given, task(2), failures={(0, "a:1"): 1})
    assert made.until == {(0, "a:1"): NOON + CONFIG.blacklist.back_off}
    assert made.assigned == {1: "b:1", 2: "b:1"}


def test_a_task_with_no_other_worker_is_given_to_the_slow_one_again_and_fails_at_last() -> None:
    alone = {"a:1": status()}
    given = task(1, worker="a:1", since=SLOW, tries=1)
    assert choices(given, workers=alone).assigned == {1: "a:1"}
    last = task(1, worker="a:1", since=SLOW, tries=MOST_TRIES, excluded=("b:1",))
    made = choices(last, workers=alone)
    assert made.assigned == {}
    assert made.failed[1].startswith("no worker took it: none of b:1, a:1 claimed it within 300 s")


def test_a_worker_that_has_something_to_claim_for_seconds_gets_nothing_more() -> None:
    since = NOON - timedelta(seconds=6)
    given = task(1, worker="a:1", since=since)
    made = choices(given, task(2), workers={"a:1": status(capacity=9), "b:1": status()})
    assert (made.assigned, made.taken_back) == ({2: "b:1"}, ())


def test_ends_of_tasks_count_for_their_workers() -> None:
    failed, done = AskedEnd(worker="a:1", succeeded=False), AskedEnd(worker="a:1", succeeded=True)
    killed = AskedEnd(worker="a:1", succeeded=None)
    assert choices(ends=(failed, killed)).failures == {(0, "a:1"): 1}
    until = {(0, "a:1"): NOON + CONFIG.blacklist.back_off}
    assert choices(ends=(failed, failed)).until == until
    assert choices(ends=(failed, failed, done)).until == {}
    over = {(0, "a:1"): NOON - timedelta(seconds=1)}
    assert choices(failures={(0, "a:1"): 2}, until=over).failures == {}


AFFINITY = {"affinityConfig": {"affinity": {"flights": ["a:1"]}, "strong": True}}
CATEGORIES = {
    "workerCategorySpec": {
        "categoryMap": {"STREAM": {"defaultCategory": "c", "categoryAffinity": {"ds": "d"}}}
    }
}


@pytest.mark.parametrize(
    ("select", "strategy"),
    [
        ({"type": "fillCapacity"}, Strategy(filling=Filling.FILL_CAPACITY)),
        (DEFAULT_DOCUMENT["selectStrategy"], Strategy()),
        (
            {"type": "equalDistributionWithAffinity", **AFFINITY},
            Strategy(preference=Affinity(hosts={"flights": ("a:1",)}, is_strong=True)),
        ),
        (
            {"type": "fillCapacityWithCategorySpec", **CATEGORIES},
            Strategy(
                filling=Filling.FILL_CAPACITY,
                preference=Categories(
                    rules={"STREAM": CategoryRule(default="c", by_dataset={"ds": "d"})}
                ),
            ),
        ),
        (
            {
                "type": "equalDistributionWithCategorySpec",
                "taskLimits": {"maxSlotCountByType": {}, "maxSlotRatioByType": {}},
                "workerCategorySpec": {
                    "categoryMap": {
                        "index_kafka": {
                            "defaultCategory": "c",
                            "categoryAffinity": {"ds": "d"},
                            "supervisorIdCategoryAffinity": {"other": "e"},
                        }
                    },
                    "strong": None,
                },
            },
            Strategy(
                preference=Categories(
                    rules={
                        "STREAM": CategoryRule(default="c", by_dataset={"ds": "d", "other": "e"})
                    }
                )
            ),
        ),
        # Druid shows a strategy without its object with null.
        *(
            ({"type": f"{filling.value}{more}", key: None}, Strategy(filling=filling))
            for filling in Filling
            for more, key in (
                ("WithCategorySpec", "workerCategorySpec"),
                ("WithAffinity", "affinityConfig"),
                ("WithCategorySpec", "taskLimits"),
            )
        ),
        (
            {"type": "fillCapacityWithCategorySpec", "workerCategorySpec": {"categoryMap": None}},
            Strategy(filling=Filling.FILL_CAPACITY, preference=Categories(rules={})),
        ),
    ],
)
def test_strategies_are_those_of_druid(select: dict[str, Any], strategy: Strategy) -> None:
    assert read_strategy({"selectStrategy": select}) == strategy


@pytest.mark.parametrize(
    ("document", "mistakes"),
    [
        ([], ["the document: must be an object"]),
        ({"selectStrategy": {"type": "javascript"}}, ["selectStrategy.type: must be one of"]),
        ({"selectStrategy": {"type": "fillCapacity"}, "x": 1}, ["the document: has no key x"]),
        ({"selectStrategy": {"type": "fillCapacity", **AFFINITY}}, ["has no key affinityConfig"]),
        (
            {
                "selectStrategy": {
                    "type": "fillCapacityWithAffinity",
                    "affinityConfig": {"affinity": {"ds": "a"}, "strong": 1},
                }
            },
            ["affinity.ds: must be a list of hosts", "strong: must be true or false"],
        ),
        (
            {
                "selectStrategy": {
                    "type": "fillCapacityWithCategorySpec",
                    "workerCategorySpec": {"categoryMap": {"x": {"categoryAffinity": {"a": 1}}}},
                }
            },
            ["categoryMap.x.categoryAffinity: must name a category"],
        ),
        (
            {
                "selectStrategy": {
                    "type": "fillCapacityWithCategorySpec",
                    "taskLimits": {"maxSlotCountByType": {"index_kafka": 1}},
                    "workerCategorySpec": {"categoryMap": {"STREAM": {}, "index_kafka": {}}},
                }
            },
            ["has no key taskLimits", "categoryMap.index_kafka: STREAM is given too"],
        ),
    ],
)
def test_all_mistakes_of_a_strategy_are_named(document: Any, mistakes: list[str]) -> None:
    with pytest.raises(StrategyError) as refused:
        read_strategy(document)
    told = [each for each in refused.value.mistakes if any(one in each for one in mistakes)]
    assert len(told) == len(mistakes), refused.value.mistakes


@pytest.mark.parametrize(
    ("entry", "need", "told"),
    [
        (None, None, []),
        (False, None, []),
        (True, WorkerNeed(), []),
        ({}, WorkerNeed(), []),
        (
            {"dataset": "ds", "availabilityGroup": "g", "capacity": 3},
            WorkerNeed(dataset="ds", availability_group="g", capacity=3),
            [],
        ),
        (1, None, ["t: must be true"]),
        ({"capacity": 0, "dataset": 1, "x": 2}, None, ["no key x", "t.dataset", "t.capacity"]),
        ({"availabilityGroup": "g" * 256}, None, ["t.availabilityGroup"]),
        ({"capacity": True}, None, ["t.capacity"]),
    ],
)
def test_a_task_asks_for_a_worker_by_a_key_of_its_own(
    entry: Any, need: WorkerNeed | None, told: list[str]
) -> None:
    mistakes: list[str] = []
    assert read_worker_need(entry, "t", mistakes) == need
    assert len(mistakes) == len(told)
    assert all(one in each for one, each in zip(told, mistakes, strict=True))
