"""The invariants of every history of a stream: each record once, and steps by the owner alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from tests.memory.stream_rows import RuntimeRecord, StreamTaskRecord
from tests.simulation.stream_world import NAME, StreamWorld


def broken_streams(world: StreamWorld) -> list[str]:
    """Every violation, after the faults have ended and some time has gone by."""
    return [
        *_published(world),
        *_owners(world),
        *_ends(world),
        *_given_work(world),
        *_standbys(world),
        *world.violations,
    ]


def _published(world: StreamWorld) -> Iterator[str]:
    """All that was produced is in the files of segments, once; lost is what the stream lost."""
    found: Counter[tuple[int, int]] = Counter()
    for row in world.tables.segments:
        if not row.used:
            continue
        records = world.warehouse.files.get(row.path)
        if records is None:
            yield f"the file {row.path} of a segment is gone, or half written"
        else:
            found.update(records)
    twice = sorted(record for record, times in found.items() if times > 1)
    if twice:
        yield f"published more than once: {twice[:10]} and others, {len(twice)} in all"
    produced = {
        (partition, offset)
        for partition, latest in world.stream.latest.items()
        for offset in range(latest)
    }
    skipped = {partition for partition, _ in world.to_tell - found.keys()}
    told = " ".join(world.tables.told(NAME))
    for partition in sorted(skipped - world.reset_by_people):
        if f"partition {partition} of" not in told:
            yield f"records of partition {partition} were skipped, and nobody was told"
    missing = sorted(produced - found.keys() - world.lost)
    if missing:
        yield f"never published: {missing[:10]} and others, {len(missing)} in all"
    if world.stored != world.stream.latest:
        yield f"the stream stands still at {world.stored} of {world.stream.latest}"


def _owners(world: StreamWorld) -> Iterator[str]:
    """A step is written by the master that has the lease, and by its epoch."""
    for change in world.database.changes:
        old, new = change.old, change.new
        if (
            change.transaction == "apply_step"
            and isinstance(old, RuntimeRecord)
            and isinstance(new, RuntimeRecord)
            and (new.writer, new.writer_epoch) != (old.owner, old.owner_epoch)
        ):
            yield f"{new.writer} of epoch {new.writer_epoch} wrote a step of {old.owner}'s"


def _ends(world: StreamWorld) -> Iterator[str]:
    """Tasks that are told the end of one sequence have begun it at the same offsets."""
    told: dict[tuple[str, int, str], dict[str, object]] = {}
    for change in world.database.changes:
        new = change.new
        if not isinstance(new, StreamTaskRecord) or change.transaction != "apply_step":
            continue
        orders, report = new.orders, new.report
        if orders.end is None or orders.sequence is None or report is None:
            continue
        starts = {each.id: dict(each.start) for each in report.sequences}
        key = (new.assignment.base_sequence, orders.sequence, str(sorted(orders.end.items())))
        if orders.sequence in starts:
            told.setdefault(key, {})[str(starts[orders.sequence])] = new.assignment.name
    for key, by_start in told.items():
        if len(by_start) > 1:
            yield f"tasks with different starts were told the end of {key}: {by_start}"


def _given_work(world: StreamWorld) -> Iterator[str]:
    """A task has no other work than the first that it was given."""
    for change in world.database.changes:
        old, new = change.old, change.new
        if (
            isinstance(old, StreamTaskRecord)
            and isinstance(new, StreamTaskRecord)
            and not old.assignment.is_standby
            and new.assignment != old.assignment
        ):
            yield f"{new.assignment.name} was given other work than it had"


def _standbys(world: StreamWorld) -> Iterator[str]:
    """The supervisor has been suspended for long enough: nobody waits for work any more."""
    for row in world.tables.tasks:
        if row.assignment.is_standby and not row.closed:
            yield f"{row.assignment.name} waits for work that will not come"
