"""Checks the stored offsets of a dataset against the stream of a submitted specification.

A specification of another topic is refused. A change between `topic` and `topicPattern` keeps the
offsets, as in Druid, if the pattern matches the topic. The change moves the rows to another table,
so the tasks of the former specification must have ended.
"""

from __future__ import annotations

from common.errors import NotAllowedError
from common.model.streams.spec import SupervisorSpec
from common.model.streams.topic_patterns import (
    PatternError,
    PatternTooSlowError,
    read_pattern,
)
from common.store.connect import Connection
from common.store.people.supervisors import SupervisorView, open_tasks
from common.store.streams.offsets import move_offsets, other_stream, streams_of_dataset


def check_stream(db: Connection, spec: SupervisorSpec, found: SupervisorView | None) -> None:
    """Raise `NotAllowedError` if the dataset has offsets of a stream that is not read any more.

    Move the offsets at a change between `topic` and `topicPattern`.
    """
    other = other_stream(db, spec.id, spec.io.topic, has_pattern=spec.io.has_pattern)
    if other is None:
        return
    if not _continues(db, spec):
        raise NotAllowedError(
            f"dataset {spec.id!r} has offsets of the stream {other!r}; to have it read"
            f" {spec.io.topic!r}, terminate the supervisor, forget the offsets (orcaflow stream"
            f" reset {spec.id}), and submit it anew; or name another dataSource"
        )
    if found is not None and (found.active or open_tasks(db, spec.id)):
        raise NotAllowedError(
            f"supervisor {spec.id!r} reads {other!r}. The offsets are kept at a change between"
            " topic and topicPattern, but only after its tasks have ended: terminate it (orcaflow"
            f" stream terminate {spec.id}), wait until it has no tasks (orcaflow stream status"
            f" {spec.id}), and submit this again"
        )
    move_offsets(db, spec.id, by_topic=spec.io.has_pattern)


def _continues(db: Connection, spec: SupervisorSpec) -> bool:
    """Return True if all stored offsets are of the other kind, and their topics are read."""
    stored = streams_of_dataset(db, spec.id)
    if any(by_topic is spec.io.has_pattern for _, by_topic in stored):
        return False
    if not spec.io.has_pattern:
        return all(stream == spec.io.topic for stream, _ in stored)
    try:
        pattern = read_pattern(spec.io.topic)
        return all(pattern.matches(stream) for stream, _ in stored)
    except (PatternError, PatternTooSlowError):
        return False
