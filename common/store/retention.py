"""Finds and deletes what is old enough: ended process instances and lines of history.

Adds the word *marked*: an instance whose deletion has begun (`flag` 0). It can't be restarted, no
DEPENDENT task counts it, and whoever purges next deletes it, whatever became of the one before. A
*root* is a run with all that its SUB_PROCESS attempts have begun; it goes as a whole. Each method
is one transaction, small enough to hold its locks for milliseconds. Used by masters and by people.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any, Final, Protocol

from sqlalchemy import (
    ColumnElement,
    Connection,
    Engine,
    Select,
    Table,
    and_,
    bindparam,
    case,
    delete,
    exists,
    func,
    or_,
    select,
    text,
    tuple_,
    update,
)

from common.model.complement_states import ComplementState, DateState
from common.model.date_rules import DateRule
from common.model.states import (
    LIVE_PROCESS_CODES,
    LIVE_TASK_CODES,
    TERMINAL_PROCESS_CODES,
    ProcessState,
)
from common.retention import Need, Wait
from common.store.business_times import DATED, MOMENT
from common.store.sharing import candidates_named_in, reached_by
from common.store.tables import (
    alert,
    audit_log,
    command,
    command_ledger,
    complement,
    complement_date,
    process_definition,
    process_instance,
    relation_process_instance,
    schedule_fire,
    task_instance,
)
from common.store.transaction import any_of, repeatable, transaction

_AUDIT_KEPT: Final = timedelta(days=365)


class History(StrEnum):
    """The tables of history that age line by line, in the order of their deletion."""

    FIRES = "t_ds_schedule_fire"
    COMPLEMENTS = "t_ds_complement"
    COMMANDS = "t_ds_command_ledger"
    ALERTS = "t_ds_alert"
    AUDIT = "t_ds_audit_log"
    """Kept for a year at least, whatever the age of the rest."""

    def limit(self, before: datetime, now: datetime) -> datetime:
        """Return the time before which lines of this table go, if all others go `before`."""
        return min(before, now - _AUDIT_KEPT) if self is History.AUDIT else before


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """A place in the order in which runs began."""

    start_time: datetime
    id: int


FIRST: Final = Place(datetime.min.replace(tzinfo=UTC), 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Marked:
    """The instances that are marked, and the place to go on from; None if that was the last."""

    ids: tuple[int, ...]
    place: Place | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """The number of deleted lines, and the id to go on from; None if that was the last."""

    deleted: int
    after: int | None


class RetentionStore(Protocol):
    """The tables, as a purge sees them."""

    def waits(self, *, now: datetime) -> tuple[Wait, ...]:
        """Return the definitions of live runs and unfinished complements with DEPENDENT tasks."""
        ...

    def mark(
        self,
        *,
        before: datetime,
        after: Place,
        limit: int,
        needs: Sequence[Need],
        definition_id: int | None = None,
    ) -> Marked:
        """Mark the roots among the next `limit` runs that nothing keeps, with all their instances.

        Ended before that time as a whole, and not paused. Kept: the newest run of a definition; one
        of which an attempt is live or may have processes left; one with a waiting command; a date
        of a complement that goes on or is paused; one that a need covers; one that is locked.
        """
        ...

    def delete_attempts(self, ids: Collection[int], *, limit: int) -> int:
        """Delete at most so many attempts of marked instances, with what refers to them."""
        ...

    def delete_instances(self, ids: Collection[int], *, limit: int) -> list[tuple[int, int]]:
        """Delete at most so many marked instances without attempts.

        Returns the ids of their definitions and their own.
        """
        ...

    def delete_history(
        self,
        history: History,
        *,
        before: datetime,
        after: int,
        limit: int,
        definition_id: int | None = None,
    ) -> Page:
        """Delete the old lines among the next `limit` after an id; the lines are in order of age.

        A complement goes with its dates, by itself, if it is neither paused nor awaited by another
        one. Alerts and lines of the audit belong to no definition.
        """
        ...


_GOES: Final = tuple(code for code in TERMINAL_PROCESS_CODES if code != ProcessState.PAUSE)
_KEEPING: Final = tuple(
    state for state in ComplementState if not state.is_ended or state is ComplementState.PAUSE
)
_UNBEGUN: Final = (DateState.PENDING, DateState.SUBMITTED)
_WAITING_RUNS: Final = (
    select(
        process_instance.c.process_instance_json.label("document"),
        process_definition.c.project_id,
        MOMENT.label("first"),
        func.coalesce(DATED, bindparam("now")).label("last"),
    )
    .outerjoin_from(
        process_instance,
        process_definition,
        process_definition.c.id == process_instance.c.process_definition_id,
    )
    .where(process_instance.c.state.in_(LIVE_PROCESS_CODES))
    .where(process_instance.c.process_instance_json.contains("DEPENDENT"))
)
_WAITING_DATES: Final = (
    select(
        process_definition.c.process_definition_json.label("document"),
        process_definition.c.project_id,
        func.min(complement_date.c.schedule_time).label("first"),
        (
            func.max(complement_date.c.schedule_time)
            + case(
                (complement.c.date_rule == DateRule.BUSINESS_DATE, timedelta(days=2)),
                else_=timedelta(0),
            )
        ).label("last"),
    )
    .join_from(complement, complement_date)
    .join(process_definition, process_definition.c.id == complement.c.process_definition_id)
    .where(complement.c.state.in_([int(state) for state in _KEEPING]))
    .where(complement_date.c.state.in_([state.value for state in _UNBEGUN]))
    .where(process_definition.c.process_definition_json.contains("DEPENDENT"))
    .group_by(complement.c.id, process_definition.c.id)
)

_PARENT: Final = process_instance.alias("parent")
_HAS_PARENT: Final = (
    exists()
    .where(relation_process_instance.c.process_instance_id == process_instance.c.id)
    .where(relation_process_instance.c.parent_process_instance_id == _PARENT.c.id)
)
_CANDIDATES: Final = (
    select(process_instance.c.id, process_instance.c.start_time)
    .where(
        tuple_(process_instance.c.start_time, process_instance.c.id)
        > tuple_(bindparam("after_time"), bindparam("after_id"))
    )
    .where(process_instance.c.start_time < bindparam("before"))
    .where(process_instance.c.state.in_(_GOES))
    .where(or_(process_instance.c.is_sub_process == 0, ~_HAS_PARENT))
    .order_by(process_instance.c.start_time, process_instance.c.id)
    .limit(bindparam("page"))
)
_ROOT: Final = (
    select(process_instance.c.id.label("root"), process_instance.c.id)
    .where(process_instance.c.id == any_of("ids"))
    .cte("tree", recursive=True)
)
# UNION, not UNION ALL: rows that somebody has tied into a ring by hand must come to an end.
_TREE: Final = _ROOT.union(
    select(_ROOT.c.root, relation_process_instance.c.process_instance_id).join_from(
        _ROOT,
        relation_process_instance,
        relation_process_instance.c.parent_process_instance_id == _ROOT.c.id,
    )
)
# Not joined with the instances: of a recursion PostgreSQL expects so many rows that it would read
# the whole table.
_MEMBERS: Final = select(_TREE.c.root, _TREE.c.id)
_EXISTING: Final = select(process_instance.c.id).where(process_instance.c.id == any_of("ids"))
_ABOUT: Final = (
    select(
        process_instance.c.id,
        process_instance.c.state,
        process_instance.c.end_time,
        process_instance.c.flag,
        process_instance.c.process_definition_id,
        MOMENT.label("moment"),
    )
    .where(process_instance.c.id == any_of("ids"))
    .order_by(process_instance.c.id)
)
_NEWEST: Final = (
    select(func.max(process_instance.c.id))
    .where(process_instance.c.process_definition_id == process_definition.c.id)
    .correlate(process_definition)
    .scalar_subquery()
)
_NEWEST_RUNS: Final = select(_NEWEST).where(process_definition.c.id == any_of("ids"))
_COMMANDED: Final = select(command.c.process_instance_id).where(
    command.c.process_instance_id == any_of("ids")
)
_CALLING: Final = (
    select(task_instance.c.process_instance_id)
    .join_from(command, task_instance, command.c.parent_task_instance_id == task_instance.c.id)
    .where(task_instance.c.process_instance_id == any_of("ids"))
)
_DATED: Final = (
    select(complement_date.c.process_instance_id)
    .join_from(complement_date, complement)
    .where(complement_date.c.process_instance_id == any_of("ids"))
    .where(complement_date.c.process_instance_id != 0)
    .where(complement.c.state.in_([int(state) for state in _KEEPING]))
)
_IN_USE: Final = (
    select(task_instance.c.process_instance_id)
    .where(task_instance.c.process_instance_id == any_of("ids"))
    .where(or_(task_instance.c.lost_at.is_not(None), task_instance.c.state.in_(LIVE_TASK_CODES)))
)
_MARK: Final = (
    update(process_instance)
    .where(process_instance.c.id == any_of("ids"))
    .where(process_instance.c.flag == 1)
    .where(process_instance.c.state.in_(_GOES))
    .values(flag=0)
)

_OLD_ATTEMPTS: Final = (
    select(task_instance.c.id)
    .join_from(
        task_instance,
        process_instance,
        process_instance.c.id == task_instance.c.process_instance_id,
    )
    .where(task_instance.c.process_instance_id == any_of("ids"))
    .where(process_instance.c.flag == 0)
    .where(process_instance.c.state.in_(_GOES))
    .limit(bindparam("page"))
    .with_for_update(of=task_instance, skip_locked=True)
)
_DELETE_ATTEMPTS: Final = delete(task_instance).where(
    task_instance.c.id.in_(_OLD_ATTEMPTS.scalar_subquery())
)
_OLD_INSTANCES: Final = (
    select(process_instance.c.id)
    .where(process_instance.c.id == any_of("ids"))
    .where(process_instance.c.flag == 0)
    .where(process_instance.c.state.in_(_GOES))
    .where(~exists().where(task_instance.c.process_instance_id == process_instance.c.id))
    .order_by(process_instance.c.id)
    .limit(bindparam("page"))
    .with_for_update(skip_locked=True)
)
_DELETE_INSTANCES: Final = (
    delete(process_instance)
    .where(process_instance.c.id.in_(_OLD_INSTANCES.scalar_subquery()))
    .returning(process_instance.c.process_definition_id, process_instance.c.id)
)
_DELETE_RELATIONS: Final = delete(relation_process_instance).where(
    or_(
        relation_process_instance.c.parent_process_instance_id == any_of("ids"),
        relation_process_instance.c.process_instance_id == any_of("ids"),
    )
)

_FOLLOWING: Final = complement.alias("following")
_AWAITED: Final = (
    exists()
    .where(_FOLLOWING.c.after_id == complement.c.id)
    .where(_FOLLOWING.c.after_id != 0)
    .where(_FOLLOWING.c.state.in_([int(state) for state in _KEEPING]))
)
_OVER: Final = and_(
    complement.c.state.not_in([int(state) for state in _KEEPING]),
    complement.c.end_time < bindparam("before"),
    ~_AWAITED,
)


class PostgresRetentionStore(RetentionStore):
    """`RetentionStore` on PostgreSQL."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def waits(self, *, now: datetime) -> tuple[Wait, ...]:
        return repeatable(self._engine, lambda db: waits(db, now=now), begin=transaction)

    def mark(
        self,
        *,
        before: datetime,
        after: Place,
        limit: int,
        needs: Sequence[Need],
        definition_id: int | None = None,
    ) -> Marked:
        with transaction(self._engine) as db:
            chosen = choose(
                db,
                before=before,
                after=after,
                limit=limit,
                needs=needs,
                definition_id=definition_id,
                locks=True,
            )
            if chosen.ids:
                db.execute(_MARK, {"ids": list(chosen.ids)})
            return chosen

    def delete_attempts(self, ids: Collection[int], *, limit: int) -> int:
        with transaction(self._engine) as db:
            asked = {"ids": sorted(ids), "page": limit}
            return db.execute(_DELETE_ATTEMPTS, asked).rowcount

    def delete_instances(self, ids: Collection[int], *, limit: int) -> list[tuple[int, int]]:
        with transaction(self._engine) as db:
            rows = db.execute(_DELETE_INSTANCES, {"ids": sorted(ids), "page": limit}).all()
            gone = sorted((row.process_definition_id, row.id) for row in rows)
            if gone:
                db.execute(_DELETE_RELATIONS, {"ids": [each[1] for each in gone]})
            return gone

    def delete_history(
        self,
        history: History,
        *,
        before: datetime,
        after: int,
        limit: int,
        definition_id: int | None = None,
    ) -> Page:
        with transaction(self._engine) as db:
            page = history_page(
                db,
                history,
                before=before,
                after=after,
                limit=1 if history is History.COMPLEMENTS else limit,
                definition_id=definition_id,
                locks=True,
            )
            deleted = 0
            if page.ids:
                table = _HISTORIES[history].table
                if history is History.AUDIT:
                    # Its trigger refuses everybody else.
                    db.execute(text("SET LOCAL orcaflow.retention = 'on'"))
                statement = delete(table).where(table.c.id == any_of("ids"))
                deleted = db.execute(statement, {"ids": list(page.ids)}).rowcount
            return Page(deleted=deleted, after=page.after)


def waits(db: Connection, *, now: datetime) -> tuple[Wait, ...]:
    """Return what `RetentionStore.waits` does."""
    rows = [*db.execute(_WAITING_RUNS, {"now": now}), *db.execute(_WAITING_DATES)]
    named = candidates_named_in(db, (row.document for row in rows))
    return tuple(
        Wait(
            document=row.document,
            first=row.first,
            last=row.last,
            project_id=row.project_id,
            named=reached_by(named, row.project_id),
        )
        for row in rows
    )


def choose(
    db: Connection,
    *,
    before: datetime,
    after: Place,
    limit: int,
    needs: Sequence[Need],
    definition_id: int | None,
    locks: bool,
) -> Marked:
    """Return the instances that `RetentionStore.mark` would mark; `locks` locks them too."""
    statement = _CANDIDATES
    asked: dict[str, Any] = {
        "after_time": after.start_time,
        "after_id": after.id,
        "before": before,
        "page": limit,
    }
    if definition_id is not None:
        statement = statement.where(process_instance.c.process_definition_id == definition_id)
    candidates = db.execute(statement, asked).all()
    place = None
    if len(candidates) == limit:
        place = Place(candidates[-1].start_time, candidates[-1].id)
    if not candidates:
        return Marked(ids=(), place=None)
    trees = _trees(db, [row.id for row in candidates])
    ids = sorted({each for tree in trees.values() for each in tree})
    about = _ABOUT.with_for_update(skip_locked=True) if locks else _ABOUT
    known = {row.id: row for row in db.execute(about, {"ids": ids})}
    kept = _kept(db, known, before=before, needs=needs)
    chosen = {
        each
        for tree in trees.values()
        if all(each in known and each not in kept for each in tree)
        for each in tree
    }
    return Marked(ids=tuple(sorted(chosen)), place=place)


def _trees(db: Connection, roots: Collection[int]) -> dict[int, list[int]]:
    """Return each of these runs with all of its instances that exist, by the root."""
    members = db.execute(_MEMBERS, {"ids": sorted(roots)}).all()
    children = sorted({row.id for row in members}.difference(roots))
    existing = set(roots).union(db.scalars(_EXISTING, {"ids": children}) if children else ())
    trees: dict[int, list[int]] = {}
    for row in members:
        if row.id in existing:
            trees.setdefault(row.root, []).append(row.id)
    return trees


def _kept(
    db: Connection, known: dict[int, Any], *, before: datetime, needs: Sequence[Need]
) -> frozenset[int]:
    """Return those of these instances that may not go."""
    wanted = {"ids": sorted(known)}
    definitions = {"ids": sorted({row.process_definition_id for row in known.values()})}
    kept = {
        found
        for statement in (_COMMANDED, _CALLING, _DATED, _IN_USE)
        for found in db.scalars(statement, wanted)
    }
    newest = frozenset(db.scalars(_NEWEST_RUNS, definitions))
    for row in known.values():
        if row.state not in _GOES:
            kept.add(row.id)
        elif row.flag == 0:
            # Its deletion has begun: only what may still write it can hold that up.
            continue
        elif (
            row.end_time >= before
            or row.id in newest
            or any(need.covers(row.process_definition_id, row.moment) for need in needs)
        ):
            kept.add(row.id)
    return frozenset(kept)


@dataclass(frozen=True, slots=True)
class _Lines:
    """A table of history: the column with the age of its lines, and those that may go."""

    table: Table
    age: ColumnElement[Any]
    goes: Callable[[], ColumnElement[bool]]
    of_definition: ColumnElement[Any] | None


_HISTORIES: Final = {
    History.FIRES: _Lines(
        schedule_fire,
        schedule_fire.c.create_time,
        lambda: schedule_fire.c.create_time < bindparam("before"),
        schedule_fire.c.process_definition_id,
    ),
    History.COMPLEMENTS: _Lines(
        complement, complement.c.create_time, lambda: _OVER, complement.c.process_definition_id
    ),
    History.COMMANDS: _Lines(
        command_ledger,
        command_ledger.c.handled_at,
        lambda: command_ledger.c.handled_at < bindparam("before"),
        command_ledger.c.process_definition_id,
    ),
    History.AUDIT: _Lines(
        audit_log, audit_log.c.at, lambda: audit_log.c.at < bindparam("before"), None
    ),
    History.ALERTS: _Lines(
        alert, alert.c.create_time, lambda: alert.c.create_time < bindparam("before"), None
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Lines:
    """The lines of a page that may go, and the id to go on from; None if it was the last."""

    ids: tuple[int, ...]
    after: int | None


def history_page(
    db: Connection,
    history: History,
    *,
    before: datetime,
    after: int,
    limit: int,
    definition_id: int | None,
    locks: bool,
) -> Lines:
    """Return the lines that `RetentionStore.delete_history` would delete; `locks` locks them."""
    lines = _HISTORIES[history]
    table = lines.table
    goes = lines.goes()
    if definition_id is not None:
        if lines.of_definition is None:
            return Lines(ids=(), after=None)
        goes = and_(goes, lines.of_definition.in_([definition_id]))
    page: Select[Any] = (
        select(table.c.id, lines.age.label("age"), goes.label("goes"))
        .where(table.c.id > after)
        .order_by(table.c.id)
        .limit(limit)
    )
    rows = db.execute(page, {"before": before}).all()
    ids = [row.id for row in rows if row.goes]
    if locks and ids:
        still = select(table.c.id).where(table.c.id == any_of("ids")).where(goes)
        still = still.order_by(table.c.id).with_for_update(of=table, skip_locked=True)
        ids = list(db.scalars(still, {"ids": ids, "before": before}))
    is_last = len(rows) < limit or rows[-1].age >= before
    return Lines(ids=tuple(ids), after=None if is_last else rows[-1].id)
