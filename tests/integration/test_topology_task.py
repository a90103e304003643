"""The task of a topology, which obeys people and reports: with Spark, and without a worker."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from common.model.topologies import Report, RunState, Wanted
from tests.integration.topology_people import (
    KilledError,
    People,
    Place,
    executed,
    for_ever,
    until,
)
from tests.integration.topology_stage import topology_session
from worker.spark.diagnosis.failures import WorkFailedError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[SparkSession]]:
    with topology_session(tmp_path_factory.mktemp("warehouse")) as made:
        held = [made]
        yield held
        held[0].stop()


@pytest.fixture
def place(session: list[SparkSession], tmp_path: Path) -> Iterator[Place]:
    made = Place(session[0], tmp_path)
    yield made
    session[0] = made.spark


def test_a_topology_is_paused_rebalanced_renewed_and_killed(place: Place) -> None:
    place.add("the cat", "the dog")

    def script(people: People) -> Iterator[None]:
        yield from until(people, lambda report: executed(report, "keep") == 4)
        assert people.last.state is RunState.RUNNING
        people.want(active=False)
        yield from until(people, lambda report: report.state is RunState.PAUSED)
        place.add("a cat and a dog")
        yield from until(people, lambda report: report.lag == {"lines": 1})
        people.want(active=True)
        yield from until(people, lambda report: executed(report, "keep") == 9)
        people.want(rebalanced=0, tasks={"count": 3, "split": 1, "keep": 5}, cores=2)
        yield from until(people, lambda report: report.obeyed == people.wanted.number)
        assert people.last.cores == 2
        place.add("the end")
        yield from until(people, lambda report: executed(report, "keep") == 11)
        people.work_ = replace(people.work_, version=2, code=place.coded(step=10))
        people.want()
        yield from until(people, lambda report: report.version == 2)
        place.add("the end")
        yield from until(people, lambda report: executed(report, "keep") == 13)
        people.work_ = replace(people.work_, version=3, code=place.coded(count="other"))
        people.want()
        yield from until(people, lambda report: "version 3 can't take over" in report.trouble)
        assert people.last.version == 2
        people.want(killed=True)
        yield from for_ever()

    people = place.run(script)
    assert place.counts() == {"the": 13, "cat": 2, "dog": 2, "a": 2, "and": 1, "end": 11}
    assert not (place.folder / "state").exists()
    assert people.reports[0].state is RunState.STARTING
    assert not people.reports[0].components
    beat = json.loads((place.folder / "scratch-1" / "beat.json").read_text())
    assert (beat["topology"], beat["version"], beat["batch"]) == ("words", 2, people.last.batch)
    states = {report.state for report in people.reports}
    assert states >= {RunState.STARTING, RunState.RUNNING, RunState.PAUSED}
    count = next(each for each in people.last.components if each.id == "count")
    assert count.tasks == 3
    assert "the" in count.hot_key
    acked = next(each for each in people.last.components if each.id == "lines")
    assert acked.windows[":all-time"].acked == {"default": 5}


def test_another_task_goes_on_where_the_former_was_lost(place: Place) -> None:
    place.add("the cat", "the dog")

    def lost(people: People) -> Iterator[None]:
        yield from until(people, lambda report: executed(report, "keep") == 4)
        # The figures are kept every ten seconds.
        place.skipped_seconds += 11
        yield
        raise KilledError

    place.run(lost)
    place.add("the end")

    def more(people: People) -> Iterator[None]:
        # The figures go on too.
        yield from until(people, lambda report: executed(report, "keep") == 6)

    place.run(more)
    assert place.counts() == {"the": 3, "cat": 1, "dog": 1, "end": 1}

    shutil.rmtree(place.folder / "state")
    with pytest.raises(WorkFailedError, match="the checkpoints of topology words are gone"):
        place.run(more)


def test_a_batch_that_was_begun_is_done_in_its_shape_before_a_rebalance(place: Place) -> None:
    place.add("the cat", "poison")

    def lost(people: People) -> Iterator[None]:
        yield from until(people, lambda report: report.failures == 1)
        people.want(rebalanced=0, tasks={"count": 3, "keep": 1})
        yield
        raise KilledError

    place.run(lost)
    (place.folder / "cure").touch()

    def spread(people: People) -> Iterator[None]:
        yield from until(people, lambda report: report.obeyed == people.wanted.number)
        place.add("the dog")
        yield from until(people, lambda report: executed(report, "keep") == 5)

    people = place.run(spread)
    assert next(each for each in people.last.components if each.id == "count").tasks == 3
    assert place.counts() == {"the": 2, "cat": 1, "poison": 1, "dog": 1}
    assert people.last.failures == 0


def test_a_version_that_can_not_take_over_is_refused_by_the_next_task_too(place: Place) -> None:
    place.add("the cat")

    def lost(people: People) -> Iterator[None]:
        yield from until(people, lambda report: executed(report, "keep") == 2)
        raise KilledError

    place.run(lost)
    place.code, place.code_version = place.coded(count="other"), 2
    place.add("the end")

    def more(people: People) -> Iterator[None]:
        yield from until(people, lambda report: "version 2 can't take over" in report.trouble)
        yield from until(people, lambda _: place.counts().get("end") == 1)

    people = place.run(more)
    assert people.last.version == 1
    assert place.counts() == {"the": 2, "cat": 1, "end": 1}


def test_a_batch_that_fails_is_done_by_a_version_that_can(place: Place) -> None:
    place.add("the cat", "poison")

    def mended(people: People) -> Iterator[None]:
        yield from until(people, lambda report: report.failures == 1)
        people.work_ = replace(people.work_, version=2, code=place.coded(poison="none"))
        people.want()
        yield from until(people, lambda report: executed(report, "keep") == 3)

    assert place.run(mended).last.version == 2
    assert place.counts() == {"the": 1, "cat": 1, "poison": 1}


def test_a_killed_topology_ends_though_its_task_was_lost_while_it_removed_the_folder(
    place: Place,
) -> None:
    (place.folder / "state" / "checkpoints").mkdir(parents=True)
    place.report = Report(state=RunState.DRAINING, batch=3)
    place.wanted = Wanted(number=2, killed=True, wait_seconds=0)
    place.run(lambda _: for_ever())
    assert not (place.folder / "state").exists()


def test_what_checkpoints_depend_on_is_kept_before_a_query_begins(place: Place) -> None:
    metadata = place.folder / "state" / "checkpoints" / "count" / "metadata"
    metadata.parent.mkdir(parents=True)
    metadata.write_text("none of Spark's")

    def script(people: People) -> Iterator[None]:
        yield from until(people, lambda report: report.failures == 1)
        assert (place.folder / "state" / "heritage.json").exists()

    place.run(script)


def test_a_batch_that_fails_is_tried_again_and_then_given_up(place: Place) -> None:
    place.add("the cat", "poison")

    def healed(people: People) -> Iterator[None]:
        yield from until(people, lambda report: report.failures == 1)
        assert people.last.state is RunState.WAITING
        assert "split, task" in people.last.trouble
        (place.folder / "cure").touch()
        yield from until(people, lambda report: executed(report, "keep") == 3)

    people = place.run(healed)
    assert people.last.failures == 0
    assert place.counts() == {"the": 1, "cat": 1, "poison": 1}
    (error,) = {(each.component, each.error) for each in people.last.errors}
    assert error[0] == "split"
    assert "ValueError: poison (words_topology.py:" in error[1]

    (place.folder / "cure").unlink()
    place.add("poison")
    with pytest.raises(WorkFailedError, match="a batch has failed 3 times: split, task"):
        place.run(lambda _: for_ever())
