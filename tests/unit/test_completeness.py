"""Complete intervals of a dataset, and what is told of one that is not complete."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from common.depend_intervals import Interval, intervals
from common.model.depend_items import DatasetItem
from common.model.states import TaskState
from common.model.streams.progress import (
    DatasetProgress,
    Feeding,
    OpenTask,
    PartitionProgress,
)
from common.model.upstream import Absence, DatasetQuestion
from common.why.control_tasks import dependent_cause
from common.why.facts import Attempt, Facts
from master.logic.completeness import lacking
from master.logic.dependent import evaluate, questions
from tests.unit.dependences import FAILED, SUCCESS, UTC_ZONE, WAITING, verdict, waits_for

HOUR = timedelta(hours=1)
MINUTE = timedelta(minutes=1)
# The run of 05:00 waits for the hour from 04:00 to 05:00.
END = datetime(2026, 11, 20, 5, tzinfo=UTC)
LAST_HOUR = Interval(start=END - HOUR, end=END)


def an_item(**changes: Any) -> DatasetItem:
    values: dict[str, Any] = {"dataset": "flights", "cycle": "hour", "date_value": "last1Hour"}
    return DatasetItem(**values | changes)


def a_partition(latest_event: datetime | None = END, **changes: Any) -> PartitionProgress:
    values: dict[str, Any] = {"offset": 100, "since": END, "latest_event": latest_event}
    return PartitionProgress(**values | changes)


def progress(*partitions: PartitionProgress, **changes: Any) -> DatasetProgress:
    values: dict[str, Any] = {
        "feeding": Feeding.RUNNING,
        "partitions": dict(enumerate(partitions)),
        "latest": {number: 100 for number, _ in enumerate(partitions)},
        "looked": END,
    }
    return DatasetProgress(**values | changes)


def is_complete(found: DatasetProgress, **item: Any) -> bool:
    return lacking(found, an_item(**item), LAST_HOUR) is None


def test_an_interval_is_complete_once_every_partition_has_published_what_is_later() -> None:
    assert is_complete(progress(a_partition(), a_partition(END + HOUR)))
    assert not is_complete(progress(a_partition(), a_partition(END - MINUTE)))
    assert not is_complete(progress(a_partition(), a_partition(None)))


def test_rows_may_be_as_late_as_the_item_says() -> None:
    assert not is_complete(progress(a_partition(END + 9 * MINUTE)), lateness=10 * MINUTE)
    assert is_complete(progress(a_partition(END + 10 * MINUTE)), lateness=10 * MINUTE)


def test_a_partition_that_nothing_was_published_of_is_awaited() -> None:
    assert not is_complete(progress(a_partition(), latest={0: 100, 1: 5}))
    assert not is_complete(progress())


@pytest.mark.parametrize(
    ("changes", "complete"),
    [
        ({}, True),
        ({"min_time": END - MINUTE}, False),
        ({"min_time": None}, False),
        # What it begins behind may be read by another task.
        ({"starts": {0: 101}}, False),
        ({"starts": {1: 0}}, False),
    ],
)
def test_what_all_readers_reject_can_not_be_added(changes: dict[str, Any], complete: bool) -> None:
    values: dict[str, Any] = {"starts": {0: 100}, "min_time": END}
    reader = OpenTask(**values | changes)
    behind = a_partition(END - MINUTE)
    assert is_complete(progress(behind, tasks=(reader,))) is complete


def test_one_reader_that_takes_such_rows_is_enough() -> None:
    publishing = OpenTask(starts={0: 90}, min_time=END - MINUTE)
    reading = OpenTask(starts={0: 100}, min_time=END)
    behind = a_partition(END - MINUTE)
    assert not is_complete(progress(behind, tasks=(publishing, reading)))


@pytest.mark.parametrize(
    ("changes", "complete"),
    [
        ({}, True),
        ({"latest": {0: 101}}, False),
        ({"latest": {}}, False),
        ({"looked": None}, False),
        ({"looked": END + 9 * MINUTE}, False),
    ],
)
def test_an_idle_partition_is_not_awaited_if_the_item_says_so(
    changes: dict[str, Any], complete: bool
) -> None:
    still = a_partition(END - MINUTE, since=END - HOUR)
    found = progress(still, **{"looked": END + 10 * MINUTE} | changes)
    assert is_complete(found, idle_after=10 * MINUTE) is complete
    assert not is_complete(found)


def test_a_partition_that_has_moved_lately_is_not_idle() -> None:
    moved = a_partition(END - MINUTE, since=END + MINUTE)
    assert not is_complete(progress(moved, looked=END + 10 * MINUTE), idle_after=10 * MINUTE)
    assert is_complete(progress(moved, looked=END + 11 * MINUTE), idle_after=10 * MINUTE)


def test_a_partition_is_idle_only_after_the_lateness_too() -> None:
    still = a_partition(END - MINUTE, since=END - HOUR)
    late = {"idle_after": 10 * MINUTE, "lateness": 5 * MINUTE}
    assert not is_complete(progress(still, looked=END + 14 * MINUTE), **late)
    assert is_complete(progress(still, looked=END + 15 * MINUTE), **late)


def test_what_an_interval_lacks_is_told() -> None:
    behind = progress(
        a_partition(), a_partition(END - MINUTE), a_partition(None), feeding=Feeding.SUSPENDED
    )
    assert lacking(behind, an_item(lateness=MINUTE), LAST_HOUR) == (
        "partition 0 has published rows up to 2026-11-20T05:00:00.000Z, and needs"
        " 2026-11-20T05:01:00.000Z, and 2 more are behind; its supervisor is suspended"
    )
    assert lacking(progress(), an_item(), LAST_HOUR) == (
        "nothing is known of its stream yet, and its supervisor is running"
    )


def test_the_end_of_the_calendar_is_no_mistake() -> None:
    last = datetime.max.replace(tzinfo=UTC)
    interval = Interval(start=last - HOUR, end=last)
    item = an_item(lateness=HOUR, idle_after=HOUR)
    assert lacking(progress(a_partition(last)), item, interval) is None


def test_a_task_waits_for_a_dataset_and_says_what_it_lacks() -> None:
    dependent = waits_for(an_item())
    assert questions(dependent, END, UTC_ZONE) == (DatasetQuestion(dataset="flights"),)
    assert intervals(an_item(), END, UTC_ZONE) == (LAST_HOUR,)
    assert evaluate(dependent, END, UTC_ZONE, {}).result is WAITING
    assert verdict(dependent, progress(a_partition()), at=END).result is SUCCESS
    found = verdict(dependent, progress(a_partition(None)), at=END)
    assert found.result is WAITING
    (entry,) = found.evidence
    assert (entry["dataset"], entry["run"]) == ("flights", None)
    assert entry["why"].startswith("partition 0 has published nothing with a time")
    missing = verdict(dependent, Absence.NO_STREAM, at=END)
    assert missing.result is FAILED
    assert "submit a supervisor" in missing.evidence[0]["why"]


def test_every_interval_has_to_be_complete_unless_any_is_enough() -> None:
    hours = an_item(date_value="last2Hours")
    found = progress(a_partition(END - MINUTE))
    assert verdict(waits_for(hours), found, at=END).result is WAITING
    assert verdict(waits_for(replace(hours, any_interval=True)), found, at=END).result is SUCCESS


def test_why_names_the_dataset_and_what_it_lacks() -> None:
    found = verdict(waits_for(an_item()), progress(a_partition(None)), at=END)
    attempt = Attempt(
        id=10,
        name="a",
        task_type="DEPENDENT",
        attempt=1,
        state=int(TaskState.RUNNING),
        evidence=json.dumps(found.evidence),
    )
    cause = dependent_cause(Facts(now=END, alive=None, seen=frozenset()), attempt)
    assert cause.text == "task 'a' waits for datasets to be complete"
    (behind,) = cause.because
    assert "flights-hour-last1Hour from 2026-11-20T04:00:00+00:00" in behind.text
    assert "is not complete: partition 0 has published nothing" in behind.text
    assert behind.next == "orcaflow stream status flights tells more"
