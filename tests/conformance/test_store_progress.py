"""The progress of streams, for DEPENDENT attempts that wait for intervals of datasets."""

from __future__ import annotations

import uuid
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from common.model.segments import Published
from common.model.streams.progress import (
    DatasetProgress,
    Feeding,
    OpenTask,
    PartitionProgress,
)
from common.model.streams.tasks import Assignment, offsets_document
from common.model.upstream import Absence, DatasetQuestion, Question, UpstreamRun
from common.store.listen import Channel
from common.store.master.supervisor_ports import (
    Standing,
    StartAssignment,
    SupervisorStep,
)
from tests.builders import NOON
from tests.conformance.store_tables import (
    LATER,
    MASTER,
    MINUTE,
    Tables,
    a_begin,
    a_definition,
    a_run,
    always,
    claim,
    submit,
    take,
)
from tests.conformance.streams import STREAM, Streams, streams_of


def feed(db: Tables, progress: DatasetProgress, *, supervised: bool = True) -> DatasetQuestion:
    """Make a dataset whose stream has come so far; return the question about it."""
    name = f"ds-{uuid.uuid4().hex[:8]}"
    streams = streams_of(db)
    for number, partition in progress.partitions.items():
        streams.set_offset(name, number, partition.offset, partition.latest_event)
    if supervised:
        streams.make(name, {})
        streams.add_version(name, 2, {}, suspended=progress.feeding is Feeding.SUSPENDED)
        _keep(db, streams, name, progress)
    return DatasetQuestion(dataset=name)


def _keep(db: Tables, streams: Streams, name: str, progress: DatasetProgress) -> None:
    """Begin the tasks, and beside each another one that is closed; tell what the stream has."""
    (lease,) = streams.supervisors.claim(MASTER, lease=timedelta(hours=1), limit=9)
    begun = [
        Assignment(
            name=f"{name}-{number}-{end}",
            supervisor=name,
            version=1,
            group_id=0,
            base_sequence=name,
            starts=dict.fromkeys(task.starts, 0),
            checkpoints={9: task.starts, 10: dict.fromkeys(task.starts, 1000)},
            min_time=task.min_time,
        )
        for number, task in enumerate(progress.tasks)
        for end in ("open", "closed")
    ]
    starting = tuple(StartAssignment(assignment=each) for each in begun)
    step = SupervisorStep(version=2, stream=STREAM, changes=starting)
    streams.supervisors.apply(MASTER, lease, step, now=NOON)
    take(db, always(a_begin()))
    looked = progress.looked
    status = {
        "latestOffsets": offsets_document(progress.latest),
        "offsetsLastUpdated": None if looked is None else looked.isoformat(),
    }
    standing = Standing(
        state="RUNNING", detailed_state="RUNNING", healthy=True, recent_errors=(), status=status
    )
    step = SupervisorStep(
        version=2,
        stream=STREAM,
        closed=tuple(each.name for each in begun[1::2]),
        standing=standing,
        ends=progress.feeding is Feeding.ENDED,
    )
    streams.supervisors.apply(MASTER, lease, step, now=NOON)


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
    assert (Channel.DATASET, question.dataset) in db.notifications()
    assert progress_of(db, question) == progress


def test_what_a_publication_has_told_is_the_progress(db: Tables) -> None:
    streams = streams_of(db)
    question = feed(db, DatasetProgress(feeding=Feeding.RUNNING))
    (task_id,) = submit(db, a_run(db), "a")
    claim(db, [task_id])
    outcome = streams.publish(
        task_id,
        question.dataset,
        {},
        sequence="s",
        stream=STREAM,
        starts={0: 3},
        ends={0: 9},
        times={0: LATER},
    )
    assert isinstance(outcome, Published)
    partitions = {0: PartitionProgress(offset=9, since=NOON, latest_event=LATER)}
    expected = DatasetProgress(feeding=Feeding.RUNNING, partitions=partitions)
    assert progress_of(db, question) == expected


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
    fed = feed(db, a_progress(tasks=()))
    unfed = DatasetQuestion(dataset="nobody\0")
    found = db.dependents.look_up([unfed, about_run, fed, unfed])
    assert (found[0], found[3]) == (Absence.NO_STREAM, Absence.NO_STREAM)
    assert isinstance(found[1], UpstreamRun)
    assert found[1].id == owned.process_instance_id
    assert isinstance(found[2], DatasetProgress)
