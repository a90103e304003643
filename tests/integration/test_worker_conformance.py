"""Every task type through the same life: success, failure, mistakes, time-out, stops, loss, flood.

A *kind* is a task type with what it runs on: it has params for each outcome,
a check that the task runs, and a check that nothing of it is left.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from common.model.states import TaskState
from common.store.worker.ports import AttemptEnd
from common.task_types import find_task_types
from tests.integration.task_kinds import KINDS, LOG_LIMIT_BYTES, Kind, Place

EVERY = pytest.mark.parametrize("name", KINDS)
# Spark's success is covered elsewhere, and takes seconds.
EVERY_QUICK = pytest.mark.parametrize(
    "name", [name for name in KINDS if "SPARK" not in name and name != "DATA_QUALITY"]
)


@pytest.fixture
def place(
    tmp_path: Path, new_database: Callable[..., str], request: pytest.FixtureRequest
) -> Iterator[Place]:
    place = Place(tmp_path, new_database, warm=lambda: request.getfixturevalue("warm"))
    yield place
    place.close()


@pytest.fixture
def hasty_place(
    tmp_path: Path, new_database: Callable[..., str], request: pytest.FixtureRequest
) -> Iterator[Place]:
    """A place where kills have a short grace: a TERM may come before a program handles it."""
    place = Place(
        tmp_path,
        new_database,
        warm=lambda: request.getfixturevalue("warm"),
        grace=timedelta(seconds=1),
    )
    yield place
    place.close()


def ended(place: Place, kind: Kind, params: Mapping[str, Any], **changes: Any) -> AttemptEnd:
    return place.host.run(kind.task(place.host, params, **changes))


def test_every_built_in_type_is_in_the_suite() -> None:
    # A stream's task needs a supervisor too: `test_kafka_source.py`, `tests/system`. What a
    # compaction needs is a dataset: `test_compaction.py`, and a topology is submitted first.
    kinds = {name.partition(" on ")[0] for name in KINDS} | {"STREAM", "COMPACT", "TOPOLOGY"}
    assert kinds == set(find_task_types().built_in)


@EVERY_QUICK
def test_what_goes_well_succeeds(place: Place, name: str) -> None:
    kind = place.kind(name)
    end = ended(place, kind, kind.good)
    assert (end.state, end.exit_code, end.reason) == (TaskState.SUCCESS, 0, None), place.host.log(1)
    assert kind.said in place.host.log(1)
    assert place.nothing_left()


@EVERY
def test_what_goes_wrong_fails_with_a_reason(place: Place, name: str) -> None:
    kind = place.kind(name)
    end = ended(place, kind, kind.bad)
    assert end.state is TaskState.FAILURE, place.host.log(1)
    assert end.exit_code not in (None, 0)
    assert kind.why in (end.reason or "")
    assert kind.why in place.host.log(1)


@EVERY
def test_a_mistake_in_the_parameters_is_named_and_nothing_runs(place: Place, name: str) -> None:
    kind = place.kind(name)
    end = ended(place, kind, kind.mistaken)
    assert (end.state, end.exit_code, end.pid) == (TaskState.FAILURE, None, None)
    assert kind.key in (end.reason or "")
    assert kind.key in place.host.log(1)


@EVERY
def test_what_takes_too_long_fails_and_nothing_is_left_of_it(place: Place, name: str) -> None:
    kind = place.kind(name)
    end = ended(place, kind, kind.endless, timeout=timedelta(seconds=0.6))
    assert end.state is TaskState.FAILURE
    assert end.reason == "timed out after 0.01 minutes (timeout strategy FAILED)"
    assert end.reason in place.host.log(1)
    assert place.nothing_left()


@EVERY
def test_a_stop_while_it_starts_ends_it(hasty_place: Place, name: str) -> None:
    kind = hasty_place.kind(name)
    hasty_place.host.begin(kind.task(hasty_place.host, kind.endless))
    hasty_place.host.supervisor.kill(1)
    assert hasty_place.host.end_of(1).state is TaskState.KILL
    assert hasty_place.nothing_left()


@EVERY
def test_t18_a_stop_while_it_runs_ends_it_wherever_it_works(place: Place, name: str) -> None:
    kind = place.kind(name)
    place.host.begin(kind.task(place.host, kind.endless))
    place.host.until(kind.runs)
    place.host.supervisor.kill(1)
    end = place.host.end_of(1)
    assert (end.state, end.var_pool) == (TaskState.KILL, None)
    assert not kind.left(), place.host.log(1)
    assert place.nothing_left()


@EVERY_QUICK
def test_a_flood_of_output_fills_no_log(place: Place, name: str) -> None:
    kind = place.kind(name)
    end = ended(place, kind, kind.flood)
    assert end.state is TaskState.SUCCESS, place.host.log(1)
    assert len(place.host.log(1).encode()) < 1.5 * LOG_LIMIT_BYTES
    assert place.host.log(1).endswith("[orcaflow] exit code 0\n")


@EVERY
def test_a_lost_worker_leaves_nothing_running_and_blames_no_task(place: Place, name: str) -> None:
    kind = place.kind(name)
    place.host.begin(kind.task(place.host, kind.endless))
    if not kind.is_slow:
        place.host.until(kind.runs)
    place.host.supervisor.kill_all()
    assert place.host.end_of(1).state is TaskState.NEED_FAULT_TOLERANCE
    assert place.nothing_left()
    # PostgreSQL checks every two seconds that its client still lives.
    place.host.until(lambda: not kind.left())
