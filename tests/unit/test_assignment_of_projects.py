"""Tasks that ask for a worker do not keep the tasks of another project from the workers."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.model.assignments import AskedEnd, AskingTask, AssignmentFacts, RunningTasks
from common.model.worker_needs import WorkerNeed
from common.model.workers import WorkerStatus
from master.logic.assignment import MOST_TRIES, AssignmentConfig, decide

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
DEV, PROD = 1, 2
HOSTS = ("a:1", "b:1", "c:1", "d:1", "e:1")


def status(capacity: int, **values: Any) -> WorkerStatus:
    return WorkerStatus(
        **{"capacity": capacity, "used": 0, "version": "1", "share_percent": 80} | values
    )


def task(number: int, project: int, **values: Any) -> AskingTask:
    need = WorkerNeed(
        capacity=values.pop("capacity", 1), availability_group=values.pop("group", None)
    )
    return AskingTask(id=number, task_type="SHELL", need=need, project=project, **values)


def assigned(
    *tasks: AskingTask,
    workers: dict[str, WorkerStatus] | None = None,
    **facts: Any,
) -> dict[int, str]:
    """Return the choices on workers with 10 slots, while several projects have definitions."""
    known: dict[str, Any] = {"now": NOON, "several_projects": True, "tasks": tasks}
    given_facts = AssignmentFacts(**known | facts)
    chosen = decide(
        given_facts,
        workers={"a:1": status(10)} if workers is None else workers,
        config=AssignmentConfig(),
    )
    return dict(chosen.assigned)


def running(project: int, slots: int, **values: Any) -> RunningTasks:
    given_values: dict[str, Any] = {
        "worker": "a:1",
        "project": project,
        "slots": slots,
        "capacity": slots,
    }
    return RunningTasks(**given_values | values)


def test_the_capacity_of_a_task_counts_for_its_own_project_alone() -> None:
    greedy = running(DEV, 1, capacity=8)
    assert assigned(task(1, PROD), running=(greedy,)) == {1: "a:1"}
    assert assigned(task(1, DEV), running=(greedy,)) == {}
    assert assigned(task(1, DEV, capacity=8), task(2, DEV), task(3, PROD)) == {1: "a:1", 3: "a:1"}


def test_an_availability_group_is_a_group_of_one_project() -> None:
    groups = {"a:1": frozenset({(DEV, "load")})}
    assert assigned(task(1, PROD, group="load"), groups=groups) == {1: "a:1"}
    assert assigned(task(1, DEV, group="load"), groups=groups) == {}
    both = (task(1, DEV, group="load"), task(2, PROD, group="load"))
    assert assigned(*both) == {1: "a:1", 2: "a:1"}


def test_an_unclaimed_task_stops_the_choices_for_its_own_project_alone() -> None:
    given_to = task(1, DEV, worker="a:1", since=NOON - timedelta(seconds=6))
    assert assigned(given_to, task(2, DEV), task(3, PROD)) == {3: "a:1"}


@pytest.mark.parametrize(
    ("capacity", "held", "is_chosen"), [(8, 0, True), (9, 0, False), (1, 7, True), (1, 8, False)]
)
def test_a_task_is_given_to_a_worker_only_within_the_share_of_its_project(
    capacity: int, held: int, *, is_chosen: bool
) -> None:
    asking = task(1, DEV, capacity=capacity)
    facts: dict[str, Any] = {"running": (running(DEV, held, capacity=held),)}
    assert bool(assigned(asking, **facts)) == is_chosen
    # Without other projects, and where the share is turned off, free slots are enough.
    assert assigned(asking, several_projects=False, **facts) == {1: "a:1"}
    assert assigned(asking, workers={"a:1": status(10, share_percent=100)}, **facts) == {1: "a:1"}


def test_a_project_takes_all_slots_of_a_worker_that_is_reserved_for_it() -> None:
    workers = {"a:1": status(10, group_ids=frozenset({7}), is_reserved=True)}
    asking = task(1, DEV, capacity=10, group_id=7)
    assert assigned(asking, workers=workers, granted={7: frozenset({DEV})}) == {1: "a:1"}
    assert assigned(asking, workers=workers, granted={7: frozenset({DEV, PROD})}) == {}


def test_complements_do_not_take_slots_from_the_tasks_of_other_runs() -> None:
    dates = running(DEV, 10, yields=True)
    assert assigned(task(1, PROD), task(2, PROD, yields=True), running=(dates,)) == {1: "a:1"}


def test_failing_tasks_do_not_close_the_only_worker_of_a_group() -> None:
    hosts = [f"{host}:1" for host in "abcde"]
    workers = {
        host: status(10, group_ids=frozenset({7} if host == "a:1" else ())) for host in hosts
    }
    listed: dict[str, Any] = {
        "until": {(PROD, "a:1"): NOON + timedelta(minutes=1)},
        "failures": {(PROD, "a:1"): 6},
    }
    made = assigned(task(1, PROD, group_id=7), task(2, PROD), workers=workers, **listed)
    assert made == {1: "a:1", 2: "b:1"}


def test_x109_failing_tasks_of_a_project_take_no_worker_from_another_project() -> None:
    workers = {f"{host}:1": status(10) for host in "abcde"}
    failed = AskedEnd(worker="a:1", succeeded=False, project=DEV)
    failing = AssignmentFacts(now=NOON, several_projects=True, ends=(failed,) * 6)
    made = decide(failing, workers=workers, config=AssignmentConfig())
    assert made.failures == {(DEV, "a:1"): 6}
    known: dict[str, Any] = {"failures": made.failures, "until": made.until}
    assert assigned(task(1, DEV), task(2, PROD), workers=workers, **known) == {1: "b:1", 2: "a:1"}
    # Nor does a success of another project end the time of this one.
    good = AskedEnd(worker="a:1", succeeded=True, project=PROD)
    assert assigned(task(1, DEV), workers=workers, ends=(good,), **known) == {1: "b:1"}


def _tasks_of(project: int, first: int, *, most_capacity: int) -> st.SearchStrategy[AskingTask]:
    """Draw tasks of a project in all stages of a choice, with the groups of every project."""
    return st.builds(
        lambda number, capacity, group, worker, age, yields, tries: AskingTask(
            id=first + number,
            task_type="SHELL",
            need=WorkerNeed(capacity=capacity, availability_group=group),
            worker=worker,
            since=None if worker is None else NOON - timedelta(seconds=age),
            tries=tries,
            project=project,
            yields=yields,
        ),
        st.integers(0, 9),
        st.integers(1, most_capacity),
        st.sampled_from([None, "g", "h"]),
        st.sampled_from([None, *HOSTS]),
        st.sampled_from([0, 6, 600]),
        st.booleans(),
        st.integers(0, MOST_TRIES),
    )


def _running_of(project: int, most_capacity: int) -> st.SearchStrategy[RunningTasks]:
    return st.builds(
        lambda worker, surplus, yields: RunningTasks(
            worker=worker, project=project, capacity=1 + surplus, yields=yields
        ),
        st.sampled_from(HOSTS),
        st.integers(0, most_capacity),
        st.booleans(),
    )


def _ends_of(project: int) -> st.SearchStrategy[AskedEnd]:
    return st.builds(
        AskedEnd,
        worker=st.sampled_from(HOSTS),
        succeeded=st.sampled_from([False, False, False, True, None]),
        project=st.just(project),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Tasks:
    """The waiting and the running tasks of one project."""

    asking: tuple[AskingTask, ...]
    running: tuple[RunningTasks, ...]
    groups: dict[str, frozenset[tuple[int, str]]]
    ends: tuple[AskedEnd, ...]


def _all_of(project: int, first: int, *, most_capacity: int) -> st.SearchStrategy[_Tasks]:
    group = st.tuples(st.just(project), st.sampled_from(["g", "h"]))
    asking = _tasks_of(project, first, most_capacity=most_capacity)
    return st.builds(
        _Tasks,
        asking=st.lists(asking, max_size=6, unique_by=lambda each: each.id).map(tuple),
        running=st.lists(_running_of(project, most_capacity), max_size=4).map(tuple),
        groups=st.dictionaries(st.sampled_from(HOSTS), st.frozensets(group)),
        ends=st.lists(_ends_of(project), max_size=12).map(tuple),
    )


@given(
    own=_all_of(PROD, 100, most_capacity=3),
    other=_all_of(DEV, 0, most_capacity=1_000_000),
    kind=st.sampled_from(["fillCapacity", "equalDistribution"]),
)
def test_tasks_of_one_project_never_change_which_tasks_of_another_get_a_worker(
    own: _Tasks, other: _Tasks, kind: str
) -> None:
    # The share of each project has room: its tasks need 50 slots of a worker at most.
    workers = {host: status(200) for host in HOSTS}
    strategy = {"selectStrategy": {"type": kind}}
    alone = assigned(
        *own.asking,
        running=own.running,
        groups=own.groups,
        ends=own.ends,
        workers=workers,
        strategy=strategy,
    )
    beside = assigned(
        *other.asking,
        *own.asking,
        running=(*other.running, *own.running),
        groups={
            host: own.groups.get(host, frozenset()) | other.groups.get(host, frozenset())
            for host in HOSTS
        },
        ends=(*other.ends, *own.ends),
        workers=workers,
        strategy=strategy,
    )
    assert {each for each in beside if each >= 100} == alone.keys()
