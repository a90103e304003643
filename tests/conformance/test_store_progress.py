"""The progress of streams, for DEPENDENT attempts that wait for intervals of datasets."""

from __future__ import annotations

import uuid
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import insert

from common.model.streams.progress import (
    DatasetProgress,
    Feeding,
    OpenTask,
    PartitionProgress,
)
from common.model.streams.tasks import offsets_document
from common.model.upstream import Absence, DatasetQuestion, Question, UpstreamRun
from common.store import tables as t
from common.store.listen import Channel
from tests.builders import NOON
from tests.conformance.store_tables import (
    LATER,
    MINUTE,
    MemoryTables,
    PostgresTables,
    Tables,
    a_definition,
    a_run,
)


def feed(db: Tables, progress: DatasetProgress, *, supervised: bool = True) -> DatasetQuestion:
    """A dataset whose stream has come so far; return the question about it."""
    name = f"ds-{uuid.uuid4().hex[:8]}"
    if isinstance(db, MemoryTables):
        db.database.progress[name] = progress
        db.database.notifications.append((Channel.DATASET, name))
    else:
        assert isinstance(db, PostgresTables)
        _feed(db, name, progress, supervised=supervised)
    return DatasetQuestion(dataset=name)


def _feed(db: PostgresTables, name: str, progress: DatasetProgress, *, supervised: bool) -> None:
    looked = progress.looked
    with db.engine.begin() as rows:
        for number, partition in progress.partitions.items():
            rows.execute(
                insert(t.dataset_offsets).values(
                    dataset=name,
                    stream="events",
                    partition=number,
                    offset=partition.offset,
                    max_event_time=partition.latest_event,
                )
            )
        if not supervised:
            return
        rows.execute(
            insert(t.supervisor_runtime).values(
                id=name,
                version=2,
                process_definition_id=1,
                active=progress.feeding is not Feeding.ENDED,
                status={
                    "latestOffsets": offsets_document(progress.latest),
                    "offsetsLastUpdated": None if looked is None else looked.isoformat(),
                },
            )
        )
        suspended = progress.feeding is Feeding.SUSPENDED
        for version in (1, 2):
            values = {"id": name, "version": version, "spec": {}}
            rows.execute(
                insert(t.supervisor).values(**values, suspended=suspended and version == 2)
            )
        for number, task in enumerate(progress.tasks):
            first = offsets_document(task.starts)
            document = {
                "starts": dict.fromkeys(first, 0),
                "checkpoints": {"9": first, "10": dict.fromkeys(first, 1000)},
                "minTime": None if task.min_time is None else task.min_time.isoformat(),
            }
            for closed in (False, True):
                rows.execute(
                    insert(t.stream_task).values(
                        name=f"{name}-{number}-{closed}",
                        supervisor=name,
                        version=1,
                        epoch=1,
                        group_id=0,
                        base_sequence=name,
                        assignment=document,
                        command_id=uuid.uuid4().int >> 66,
                        closed=closed,
                    )
                )


def progress_of(db: Tables, question: DatasetQuestion) -> DatasetProgress:
    (found,) = db.dependents.look_up([question])
    assert isinstance(found, DatasetProgress)
    # The database has its own clock.
    partitions = {
        number: replace(each, since=NOON) for number, each in sorted(found.partitions.items())
    }
    return replace(found, partitions=partitions)


def a_progress(**changes: Any) -> DatasetProgress:
    values: dict[str, Any] = {
        "feeding": Feeding.RUNNING,
        "partitions": {
            0: PartitionProgress(offset=7, since=NOON, latest_event=LATER),
            11: PartitionProgress(offset=2**40, since=NOON),
        },
        "tasks": (
            OpenTask(starts={0: 7}, min_time=NOON + timedelta(microseconds=120)),
            OpenTask(starts={0: 9, 11: 2**40}),
        ),
        "latest": {0: 8, 11: 2**40},
        "looked": LATER,
    }
    return DatasetProgress(**values | changes)


@pytest.mark.parametrize("feeding", Feeding)
def test_the_progress_of_a_stream_is_told_with_its_open_tasks(db: Tables, feeding: Feeding) -> None:
    progress = a_progress(feeding=feeding)
    db.notifications()
    question = feed(db, progress)
    assert db.notifications() == [(Channel.DATASET, question.dataset)]
    assert progress_of(db, question) == progress


def test_a_stream_that_nothing_is_known_of_yet_has_a_progress_all_the_same(db: Tables) -> None:
    new = DatasetProgress(feeding=Feeding.RUNNING)
    assert progress_of(db, feed(db, new)) == new


def test_offsets_are_kept_when_the_supervisor_is_gone(db: Tables) -> None:
    left = a_progress(feeding=Feeding.ENDED, tasks=(), latest={}, looked=None)
    assert progress_of(db, feed(db, left, supervised=False)) == left


def test_questions_about_runs_and_datasets_are_answered_in_their_order(db: Tables) -> None:
    definition_id = a_definition(db)
    owned = a_run(db, process_definition_id=definition_id)
    about_run = Question(
        definition_id=definition_id,
        definition_name=None,
        task=None,
        start=NOON,
        end=NOON + MINUTE,
    )
    fed = feed(db, a_progress())
    unfed = DatasetQuestion(dataset="nobody\0")
    found = db.dependents.look_up([unfed, about_run, fed, unfed])
    assert (found[0], found[3]) == (Absence.NO_STREAM, Absence.NO_STREAM)
    assert isinstance(found[1], UpstreamRun)
    assert found[1].id == owned.process_instance_id
    assert isinstance(found[2], DatasetProgress)
