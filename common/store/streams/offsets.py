"""The offsets of datasets: how far each has its stream, by partition.

Offsets of one topic are in `t_ds_dataset_offsets`, offsets of several topics by topic in
`t_ds_dataset_topic_offsets`. Only this module knows both: callers have partitions.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    Connection,
    DateTime,
    Integer,
    Select,
    Table,
    Text,
    and_,
    bindparam,
    case,
    cast,
    delete,
    func,
    literal,
    or_,
    select,
    true,
    union_all,
    update,
)
from sqlalchemy.dialects.postgresql import insert

from common.model.streams.partitions import (
    Partition,
    TopicPartition,
    number_of,
    topic_of,
)
from common.model.streams.spec import Offsets
from common.store.tables import dataset_offsets, dataset_topic_offsets
from common.store.transaction import unnested

_TIME: Final = DateTime(timezone=True)


def _rows_of(table: Table, *, by_topic: bool) -> Select[Any]:
    return select(
        table.c.dataset,
        table.c.stream,
        table.c.partition,
        table.c.offset,
        table.c.max_event_time,
        table.c.update_time,
        literal(by_topic).label("by_topic"),
    )


ALL_OFFSETS: Final = union_all(
    _rows_of(dataset_offsets, by_topic=False), _rows_of(dataset_topic_offsets, by_topic=True)
).subquery("all_offsets")
"""The rows of both tables; `by_topic` is true for rows by topic."""


def partition_of(stream: str, number: int, *, by_topic: bool) -> Partition:
    """Return the partition of a row of `ALL_OFFSETS`."""
    return TopicPartition(stream, number) if by_topic else number


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionOffset:
    """The offset of a partition up to which a dataset has its stream.

    `by_topic`: the dataset is fed by several topics, and `stream` is one of them.
    """

    stream: str
    partition: int
    offset: int
    max_event_time: datetime | None
    by_topic: bool = False

    @property
    def key(self) -> Partition:
        return partition_of(self.stream, self.partition, by_topic=self.by_topic)


_OF_DATASET: Final = (
    select(ALL_OFFSETS)
    .where(ALL_OFFSETS.c.dataset == bindparam("dataset"))
    .order_by(ALL_OFFSETS.c.by_topic, ALL_OFFSETS.c.stream, ALL_OFFSETS.c.partition)
)


def offsets_of_dataset(db: Connection, dataset: str) -> tuple[PartitionOffset, ...]:
    """Return how far a dataset has its stream, in order of the partitions."""
    return tuple(
        PartitionOffset(
            stream=row.stream,
            partition=row.partition,
            offset=row.offset,
            max_event_time=row.max_event_time,
            by_topic=row.by_topic,
        )
        for row in db.execute(_OF_DATASET, {"dataset": dataset})
    )


class _Statements:
    """The statements of one of the tables."""

    def __init__(self, table: Table, *, by_topic: bool) -> None:
        asked = unnested("asked", stream=Text, partition=Integer)
        reached = unnested(
            "reached", stream=Text, partition=Integer, offset=BigInteger, max_event_time=_TIME
        )

        def is_same(rows: Any) -> Any:
            same = table.c.partition == rows.c.partition
            return and_(same, table.c.stream == rows.c.stream) if by_topic else same

        self.table = table
        self.key = ["dataset", "stream", "partition"] if by_topic else ["dataset", "partition"]
        self.locked = (
            select(table.c.stream, table.c.partition, table.c.offset)
            .join_from(table, asked, is_same(asked))
            .where(table.c.dataset == bindparam("dataset"))
            .order_by(table.c.stream, table.c.partition)
            .with_for_update(of=table)
        )
        self.advance = (
            update(table)
            .where(table.c.dataset == bindparam("of_dataset"))
            .where(is_same(reached))
            .values(
                offset=reached.c.offset,
                max_event_time=func.greatest(table.c.max_event_time, reached.c.max_event_time),
                version=table.c.version + 1,
            )
        )
        rows = {
            "dataset": cast(bindparam("of_dataset"), Text),
            "stream": reached.c.stream,
            "partition": reached.c.partition,
            "offset": reached.c.offset,
            "max_event_time": reached.c.max_event_time,
        }
        put = insert(table).from_select(list(rows), select(*rows.values()))
        self.begin = put.on_conflict_do_nothing()
        self.add = put.on_conflict_do_nothing(index_elements=self.key)
        self.replace = put.on_conflict_do_update(
            index_elements=self.key,
            set_={
                "stream": put.excluded.stream,
                "offset": put.excluded.offset,
                # What is read again from here may be of any time once more.
                "max_event_time": case(
                    (
                        and_(
                            table.c.stream == put.excluded.stream,
                            table.c.offset <= put.excluded.offset,
                        ),
                        table.c.max_event_time,
                    )
                ),
                "version": table.c.version + 1,
            },
        )
        named = delete(table).where(table.c.dataset == bindparam("of_dataset"))
        self.drop = named.where(is_same(asked))
        self.drop_expected = named.where(is_same(reached)).where(table.c.offset == reached.c.offset)


_ONE_TOPIC: Final = _Statements(dataset_offsets, by_topic=False)
_SEVERAL_TOPICS: Final = _Statements(dataset_topic_offsets, by_topic=True)


def _statements(partitions: Iterable[Partition]) -> Sequence[tuple[_Statements, list[Partition]]]:
    """Return the statements of each table with its partitions, sorted. Usually it is one table."""
    found = []
    for statements, kind in ((_ONE_TOPIC, int), (_SEVERAL_TOPICS, TopicPartition)):
        own = sorted(each for each in partitions if isinstance(each, kind))
        if own:
            found.append((statements, own))
    return found


def locked_offsets(
    db: Connection, dataset: str, partitions: Collection[Partition], *, stream: str
) -> dict[Partition, tuple[str, int]]:
    """Lock the rows of these partitions; return the stream and the offset of each that has one."""
    found: dict[Partition, tuple[str, int]] = {}
    for statements, own in _statements(partitions):
        by_topic = statements is _SEVERAL_TOPICS
        values = {"dataset": dataset, **_places("asked", own, stream)}
        for row in db.execute(statements.locked, values):
            key = partition_of(row.stream, row.partition, by_topic=by_topic)
            found[key] = (row.stream, row.offset)
    return found


def advance_offsets(
    db: Connection,
    dataset: str,
    ends: Offsets,
    *,
    stream: str,
    known: Collection[Partition],
    event_times: Mapping[Partition, datetime],
) -> int:
    """Set the offsets of partitions and return the number of changed rows.

    `known` are the partitions that have rows.
    """
    changed = 0
    for statements, own in _statements(ends):
        for is_known, statement in ((True, statements.advance), (False, statements.begin)):
            chosen = [each for each in own if (each in known) is is_known]
            if chosen:
                values = {"of_dataset": dataset, **_reached(chosen, ends, stream, event_times)}
                changed += db.execute(statement, values).rowcount
    return changed


def put_offsets(
    db: Connection, dataset: str, offsets: Offsets, *, stream: str, replace: bool
) -> None:
    """Store offsets; without `replace`, keep stored offsets."""
    for statements, own in _statements(offsets):
        statement = statements.replace if replace else statements.add
        db.execute(statement, {"of_dataset": dataset, **_reached(own, offsets, stream)})


def drop_offsets(
    db: Connection,
    dataset: str,
    partitions: Collection[Partition] | None,
    *,
    expected: Offsets | None = None,
) -> int:
    """Forget the offsets of partitions, or of all (None); return their number.

    With `expected`, only offsets that are stored so are forgotten.
    """
    if partitions is None:
        tables = (dataset_offsets, dataset_topic_offsets)
        return sum(
            db.execute(delete(each).where(each.c.dataset == dataset)).rowcount for each in tables
        )
    count = 0
    for statements, own in _statements(partitions):
        if expected is None:
            values = _places("asked", own, "")
            statement = statements.drop
        else:
            values = _reached([each for each in own if each in expected], expected, "")
            statement = statements.drop_expected
        count += db.execute(statement, {"of_dataset": dataset, **values}).rowcount
    return count


def other_stream(db: Connection, dataset: str, stream: str, *, has_pattern: bool) -> str | None:
    """Return a stream that the dataset has offsets of and that a supervisor would not read on.

    Offsets of several topics fit each pattern. They fit no single topic, nor the other way round.
    """
    table = ALL_OFFSETS
    is_other = (
        table.c.by_topic.is_(False)
        if has_pattern
        else or_(table.c.by_topic, table.c.stream != stream)
    )
    found: str | None = db.scalar(
        select(table.c.stream)
        .where(table.c.dataset == dataset)
        .where(is_other)
        .order_by(table.c.stream)
        .limit(1)
    )
    return found


def streams_of_dataset(db: Connection, dataset: str) -> list[tuple[str, bool]]:
    """Return the streams that a dataset has offsets of; True for offsets by topic."""
    rows = db.execute(
        select(ALL_OFFSETS.c.stream, ALL_OFFSETS.c.by_topic)
        .where(ALL_OFFSETS.c.dataset == dataset)
        .distinct()
        .order_by(ALL_OFFSETS.c.by_topic, ALL_OFFSETS.c.stream)
    )
    return [(row.stream, row.by_topic) for row in rows]


def move_offsets(db: Connection, dataset: str, *, by_topic: bool) -> None:
    """Move all offsets of a dataset between the tables; True moves them to the offsets by topic.

    The dataset must have offsets of one kind only, and by number only of one stream.
    """
    source, target = dataset_offsets, dataset_topic_offsets
    if not by_topic:
        source, target = target, source
    columns = [column.name for column in source.columns]
    gone = delete(source).where(source.c.dataset == dataset).returning(*source.columns).cte("gone")
    moved = insert(target).from_select(columns, select(*(gone.c[name] for name in columns)))
    db.execute(moved.add_cte(gone))


def has_offsets(name: str) -> Any:
    """Return the condition that a dataset has offsets of a stream."""
    return select(true()).select_from(ALL_OFFSETS).where(ALL_OFFSETS.c.dataset == name).exists()


def _reached(
    partitions: Sequence[Partition],
    offsets: Offsets,
    stream: str,
    event_times: Mapping[Partition, datetime] | None = None,
) -> dict[str, Any]:
    """Return the parameters of the rows of `reached`.

    These are arrays, because the number of parameters of a statement has a limit.
    """
    times = event_times or {}
    return {
        **_places("reached", partitions, stream),
        "reached_offset": [offsets[each] for each in partitions],
        "reached_max_event_time": [times.get(each) for each in partitions],
    }


def _places(alias: str, partitions: Sequence[Partition], stream: str) -> dict[str, Any]:
    return {
        f"{alias}_stream": [topic_of(each, stream) for each in partitions],
        f"{alias}_partition": [number_of(each) for each in partitions],
    }
