"""The choice of a worker by strategy, affinity and category, lazy workers, and the blacklist."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from common.model.worker_strategy import (
    Affinity,
    Categories,
    CategoryRule,
    Filling,
    Preference,
    Strategy,
)
from master.logic.worker_choice import (
    Blacklist,
    BlacklistConfig,
    ChoiceConfig,
    TaskNeed,
    WorkerRoom,
    choose,
    is_runnable,
    lazy_workers,
)

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
FILL = Strategy(filling=Filling.FILL_CAPACITY)
EQUAL = Strategy()


def worker(name: str, used: int = 0, **values: Any) -> WorkerRoom:
    given = {"capacity": 10, "version": "1"} | values
    return WorkerRoom(address=f"{name}:1234", used=used, **given)


def task(**values: Any) -> TaskNeed:
    return TaskNeed(**{"type": "index_kafka", "dataset": "flights"} | values)


def chosen(
    strategy: Strategy, *workers: WorkerRoom, config: ChoiceConfig | None = None, **need: Any
) -> str | None:
    address = choose(strategy, workers, task(**need), config or ChoiceConfig())
    return None if address is None else address.partition(":")[0]


def preferring(preference: Preference, filling: Filling = Filling.EQUAL_DISTRIBUTION) -> Strategy:
    return Strategy(filling=filling, preference=preference)


def test_fill_capacity_takes_the_fullest_worker_that_has_room() -> None:
    workers = (worker("a", 3), worker("b", 9), worker("c", 10))
    assert chosen(FILL, *workers) == "b"
    assert chosen(FILL, *workers, capacity=2) == "a"


def test_equal_distribution_takes_the_worker_with_most_room() -> None:
    workers = (worker("a", 3), worker("b", 1), worker("c", 5, capacity=20))
    assert chosen(EQUAL, *workers) == "c"
    assert chosen(EQUAL, *workers[:2]) == "b"


@pytest.mark.parametrize("strategy", [FILL, EQUAL])
def test_equal_workers_are_taken_in_order_whatever_the_order_of_arguments(
    strategy: Strategy,
) -> None:
    workers = [worker(each) for each in "cab"]
    assert chosen(strategy, *workers) == chosen(strategy, *reversed(workers)) == "a"


@pytest.mark.parametrize("strategy", [FILL, EQUAL])
def test_without_a_runnable_worker_a_task_waits(strategy: Strategy) -> None:
    assert chosen(strategy) is None
    assert chosen(strategy, worker("a", 10)) is None


@pytest.mark.parametrize(
    "values",
    [
        {"used": 10},
        {"used": 9, "capacity": 8},
        {"is_lazy": True},
        {"is_blacklisted": True},
        {"is_assigned": True},
        {"version": ""},
        {"availability_groups": frozenset({"base"})},
    ],
)
def test_a_worker_that_must_not_take_a_task_is_not_runnable(values: dict[str, Any]) -> None:
    assert not is_runnable(worker("a", **values), task(availability_group="base"), ChoiceConfig())


def test_a_replica_goes_beside_other_groups_but_not_its_twin() -> None:
    twin = worker("a", availability_groups=frozenset({"base"}))
    other = worker("b", 8, availability_groups=frozenset({"another"}))
    assert chosen(EQUAL, twin, other, availability_group="base") == "b"
    assert chosen(EQUAL, twin, availability_group="base") is None
    assert chosen(EQUAL, twin, other) == "a"


@pytest.mark.parametrize(
    ("version", "least", "runs"),
    [
        ("0", "0", True),
        ("1.2", "1.10", True),
        ("1.1", "1.2", False),
        ("", "0", False),
        ("", "", False),
    ],
)
def test_versions_are_compared_as_texts_and_the_empty_one_is_disabled(
    version: str, least: str, runs: bool
) -> None:
    config = ChoiceConfig(min_version=least)
    assert is_runnable(worker("a", version=version), task(), config) is runs


@pytest.mark.parametrize(
    ("share", "capacity", "used_by_parallel", "runs"),
    [
        (1.0, 10, 9, True),
        (0.5, 10, 4, True),
        (0.5, 10, 5, False),
        (0.01, 10, 0, True),
        (0.01, 10, 1, False),
        (9.0, 10, 10, False),
    ],
)
def test_parallel_tasks_have_a_share_of_the_slots(
    share: float, capacity: int, used_by_parallel: int, runs: bool
) -> None:
    room = worker("a", capacity=capacity, used_by_parallel=used_by_parallel)
    config = ChoiceConfig(parallel_share=share)
    assert is_runnable(room, task(is_parallel=True), config) is runs
    assert is_runnable(room, task(), config)


AFFINITY = {"flights": ("a", "b:1234"), "hotels": ("c",)}


@pytest.mark.parametrize("filling", Filling)
@pytest.mark.parametrize(
    ("dataset", "is_strong", "full", "answer"),
    [
        ("flights", False, "", "a"),
        ("flights", False, "a", "b"),
        ("flights", False, "ab", "d"),
        ("flights", True, "ab", None),
        ("hotels", True, "", "c"),
        ("others", False, "", "d"),
        ("others", True, "", "d"),
        ("others", False, "d", None),
    ],
)
def test_affinity_keeps_datasets_and_hosts_together(
    filling: Filling, dataset: str, is_strong: bool, full: str, answer: str | None
) -> None:
    workers = [worker(each, 10 if each in full else 2) for each in "abcd"]
    strategy = preferring(Affinity(hosts=AFFINITY, is_strong=is_strong), filling)
    assert chosen(strategy, *workers, dataset=dataset) == answer


RULES = {
    "index_kafka": CategoryRule(default="stream", by_dataset={"flights": "fast"}),
    "shell": CategoryRule(by_dataset={"flights": "fast"}),
}


@pytest.mark.parametrize("filling", Filling)
@pytest.mark.parametrize(
    ("type_", "dataset", "is_strong", "full", "answer"),
    [
        ("index_kafka", "flights", True, "", "a"),
        ("index_kafka", "hotels", True, "", "b"),
        ("index_kafka", "flights", True, "a", None),
        ("index_kafka", "flights", False, "a", "b"),
        ("shell", "flights", True, "", "a"),
        ("shell", "hotels", True, "a", "b"),
        ("spark", "flights", True, "ab", "c"),
    ],
)
def test_categories_are_preferred_by_task_type_and_dataset(
    *, filling: Filling, type_: str, dataset: str, is_strong: bool, full: str, answer: str | None
) -> None:
    workers = [
        worker(name, 10 if name in full else 2, category=category)
        for name, category in (("a", "fast"), ("b", "stream"), ("c", ""))
    ]
    strategy = preferring(Categories(rules=RULES, is_strong=is_strong), filling)
    assert chosen(strategy, *workers, type=type_, dataset=dataset) == answer


def test_affinity_and_category_choose_by_the_order_of_their_strategy() -> None:
    workers = [worker("a", 1, category="x"), worker("b", 5, category="x")]
    affinity = Affinity(hosts={"flights": ("a", "b")})
    categories = Categories(rules={"index_kafka": CategoryRule(default="x")})
    for preference in (affinity, categories):
        assert chosen(preferring(preference), *workers) == "a"
        assert chosen(preferring(preference, Filling.FILL_CAPACITY), *workers) == "b"


def test_only_idle_workers_become_lazy_and_no_more_than_allowed() -> None:
    workers = [
        worker("a", 1),
        worker("c"),
        worker("b"),
        worker("d", is_lazy=True),
        worker("e", is_assigned=True),
    ]
    assert lazy_workers(workers, most=2) == ("b:1234",)
    assert lazy_workers(workers, most=9) == ("b:1234", "c:1234")
    assert lazy_workers(workers, most=0) == ()


def failed(times: int, *, workers: int = 10, listed: Blacklist | None = None) -> Blacklist:
    found = listed or Blacklist()
    for _ in range(times):
        found = found.after_failure("a:1", workers=workers, config=BlacklistConfig(), now=NOON)
    return found


def test_a_worker_is_blacklisted_after_more_failures_in_a_row_than_allowed() -> None:
    assert failed(5).until == {}
    assert failed(6).until == {"a:1": NOON + timedelta(minutes=15)}
    assert failed(5, listed=failed(5).after_success("a:1")).until == {}


def test_a_success_or_the_end_of_the_back_off_takes_a_worker_off_the_list() -> None:
    listed = failed(6)
    assert listed.after_success("a:1") == Blacklist()
    assert listed.after_success("b:1") == listed
    assert listed.cleaned(NOON + timedelta(minutes=14)) == listed
    assert listed.cleaned(NOON + timedelta(minutes=15)) == Blacklist()
    assert failed(9).until == listed.until


@pytest.mark.parametrize(("workers", "listed"), [(4, 0), (5, 1), (9, 1), (10, 2)])
def test_only_a_share_of_the_workers_may_be_blacklisted(workers: int, listed: int) -> None:
    found = Blacklist()
    for name in "abc":
        for _ in range(6):
            found = found.after_failure(name, workers=workers, config=BlacklistConfig(), now=NOON)
    assert len(found.until) == listed
