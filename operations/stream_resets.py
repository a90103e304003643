"""Looks ahead at resets of supervisors: the records that would be read again, or never.

Nothing is written. A look takes the right to reset.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from common.model.streams.partitions import Partition
from common.model.streams.reading import read_spec
from common.model.streams.spec import Offsets, SupervisorSpec
from common.model.streams.tasks import offsets_of
from common.store.people.supervisors import SupervisorView
from common.store.streams.offsets import offsets_of_dataset
from operations.session import Session
from operations.streams import (
    check_active,
    check_kind,
    check_operator,
    chosen_partitions,
    stream_given,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionReset:
    """A partition that is reset: how far it is published, and the offset that is read next.

    `start` None: it is read as that of a new supervisor. `latest` is the end of the partition at
    the last run, where it is known.
    """

    partition: Partition
    stored: int | None
    start: int | None
    latest: int | None

    @property
    def again(self) -> int | None:
        """The number of records that are published twice; None if it can't be told."""
        if self.start is None or self.stored is None:
            return None
        return max(0, self.stored - self.start)

    @property
    def left_out(self) -> int | None:
        """The number of records that are never read; None if it can't be told."""
        if self.start is None or self.stored is None:
            return None
        return max(0, self.start - self.stored)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetPlan:
    """A reset before it is ordered; `is_whole`: of all partitions, those to come too.

    `from_earliest`: a new supervisor begins at the earliest offset, and not at the latest.
    """

    view: SupervisorView
    rows: tuple[PartitionReset, ...]
    is_whole: bool
    from_earliest: bool


def plan_reset(
    session: Session,
    stream: str,
    *,
    partitions: Collection[Partition] | None = None,
    topics: Collection[str] = (),
    offsets: Offsets | None = None,
) -> ResetPlan:
    """Return what `reset_stream`, or with `offsets` `reset_stream_to`, would do."""
    check_operator(session, stream)
    view = stream_given(session, stream).view
    with session.engine.connect() as db:
        stored = {each.key: each.offset for each in offsets_of_dataset(db, view.id)}
    latest = offsets_of(view.status.get("latestOffsets") or {})
    named = chosen_partitions(view, partitions, topics, stored=stored)
    if offsets is not None:
        check_active(view)
        check_kind(view, offsets)
        chosen = sorted(offsets)
    else:
        chosen = sorted({*stored, *latest} if named is None else named)
    return ResetPlan(
        view=view,
        rows=tuple(
            PartitionReset(
                partition=each,
                stored=stored.get(each),
                start=None if offsets is None else offsets[each],
                latest=latest.get(each),
            )
            for each in chosen
        ),
        is_whole=named is None and offsets is None,
        from_earliest=_begins_at_the_earliest(view),
    )


def _begins_at_the_earliest(view: SupervisorView) -> bool:
    if view.document is None:
        return False
    spec = read_spec(view.document).spec
    return isinstance(spec, SupervisorSpec) and spec.io.use_earliest_offset
