"""Takes commands off `t_ds_command`, a batch per transaction, and carries out the plan of each.

The planner that is passed in decides; here its plans only become rows. Adds the word *batch*: the
commands that one `take` has locked. Used by the command loop of a master.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from time import monotonic
from typing import Any, Final, TypeAlias, TypeVar, assert_never

from sqlalchemy import (
    Connection,
    Engine,
    Integer,
    Text,
    exists,
    func,
    insert,
    select,
)
from sqlalchemy.exc import DataError, DBAPIError, IntegrityError

from common.errors import BadCommandError, SchedulerError
from common.model.cluster import Node
from common.model.commands import Command, CommandRow, CommandType, read_command
from common.model.plans import (
    Begin,
    Complement,
    Drop,
    Handled,
    LedgerLine,
    Plan,
    Reject,
    Restart,
    Resume,
    SetIntent,
    Snapshot,
    line_of,
)
from common.model.slot_share import RoomShare
from common.model.states import ExecutionType
from common.store.complements import create_complements
from common.store.fixed_statement import FixedStatement
from common.store.master.beginnings import (
    BatchRefusedError,
    Beginner,
    Begins,
    Begun,
    begin_one_by_one,
    begin_together,
    is_serial,
    lock_parents,
    new_process_instance,
    note_runs,
    refused,
)
from common.store.master.first_steps import write_first_steps
from common.store.master.lanes import Served
from common.store.master.ledger import enter, forget
from common.store.master.plain_save import HintTarget, no_hint
from common.store.master.plain_take import (
    PlainBegin,
    begins_plainly,
    is_plain,
    look,
    take_plainly,
)
from common.store.master.ports import CommandStore, FirstStep, LiveMasters, Planner, Taken
from common.store.master.recoveries import Recoverer
from common.store.master.serial import lock_definitions
from common.store.master.snapshots import Snapshots, known_state
from common.store.master.trees import MOST_SUB_PROCESSES, fail_childless
from common.store.master.waiting import lock_waiting
from common.store.project_slots import projects_of_runs, several_projects
from common.store.tables import command, error_command
from common.store.transaction import (
    passes,
    refusal,
    repeatable,
    single,
    storable,
    transaction,
    unnested,
    unstorable,
)

__all__ = [
    "PARAM_LIMIT_BYTES",
    "PostgresCommandStore",
    "known_state",
    "new_process_instance",
    "planned",
    "refused",
    "understand",
]

log = logging.getLogger(__name__)

PARAM_LIMIT_BYTES: Final = 1_000_000
BATCH_SECONDS: Final = 0.25
"""The time for which the commands of a batch are read, and for which they are planned."""


def understand(row: CommandRow, *, param_limit_bytes: int) -> Command | Reject:
    """Read the command of a row, or the reason why it holds none."""
    try:
        found = read_command(row, param_limit_bytes=param_limit_bytes)
        # Read here, so that a bad id is the row's own mistake and not the planner's.
        _ = found.process_instance_id
    except BadCommandError as error:
        return Reject(reason=storable(str(error)))
    except Exception as error:
        # Rows are typed by anybody: whatever one brings about must not hold up those behind it.
        log.exception("command could not be read", extra={"command_id": row.id})
        return Reject(reason=storable(f"reading failed: {type(error).__name__}: {error}"))
    return found


def planned(found: Command, snapshot: Callable[[], Snapshot], planner: Planner) -> Plan:
    """Plan a command; a planner that fails rejects that command alone."""
    try:
        return planner(found, snapshot())
    except SchedulerError as error:
        return Reject(reason=storable(str(error)))
    except Exception as error:
        # A mistake of ours must not hold up the commands behind this one for ever.
        log.exception("command could not be planned", extra={"command_id": found.id})
        return Reject(reason=storable(f"planning failed: {type(error).__name__}: {error}"))


_BACKLOG: Final = select(
    func.count().label("waiting"), (func.now() - func.min(command.c.start_time)).label("age")
)
_IS_WAITING: Final = FixedStatement(select(exists().select_from(command)), prepared=True)

_REJECTED: Final = unnested("rejected", id=Integer, message=Text)
_COPIED: Final = [
    column.name for column in error_command.c if column.name not in {"id", "command_id", "message"}
]
_MOVE_TO_ERRORS: Final = insert(error_command).from_select(
    ["command_id", "message", *_COPIED],
    select(command.c.id, _REJECTED.c.message, *(command.c[name] for name in _COPIED))
    .join_from(command, _REJECTED, command.c.id == _REJECTED.c.id)
    .order_by(command.c.id),
)

_BeginAll: TypeAlias = Callable[[Connection, Beginner, Begins], Begun]

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Taker:
    """The master that takes a batch, and the time.

    `run_ids`, by command, is filled by the plain way: a run that it does not begin keeps its id.
    """

    node: Node
    now: datetime
    live_masters: LiveMasters
    planner: Planner
    first_step: FirstStep | None
    most_sub_processes: int
    begin: _BeginAll = begin_together
    run_ids: dict[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Bounds:
    """The most commands of a batch, and the room for their runs."""

    limit: int
    room: int
    spare: int
    share: RoomShare | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Work:
    """The plans of a batch by the ids of their commands, and the rows that these are about.

    `named`: the instance that each names; `parents`: the attempt that wants each child; `serial`:
    the serial definition of which each begins a run.
    """

    plans: Mapping[int, Plan]
    named: Mapping[int, int | None]
    parents: Mapping[int, int]
    serial: Mapping[int, int]


class PostgresCommandStore(CommandStore):
    """`CommandStore` on PostgreSQL. A plain take tells the worker that `hint_to` names of it."""

    def __init__(
        self,
        engine: Engine,
        *,
        param_limit_bytes: int = PARAM_LIMIT_BYTES,
        hint_to: HintTarget = no_hint,
        most_sub_processes: int = MOST_SUB_PROCESSES,
        batch_seconds: float = BATCH_SECONDS,
    ) -> None:
        self._engine = engine
        self._batch_seconds = batch_seconds
        self._most_sub_processes = most_sub_processes
        self._hint_to = hint_to
        self._param_limit_bytes = param_limit_bytes
        self._served = Served()

    def waiting(self) -> bool:
        ((is_waiting,),) = repeatable(self._engine, lambda db: _IS_WAITING.rows_alone(db, {}))
        return bool(is_waiting)

    def backlog(self) -> tuple[int, timedelta]:
        """Count the waiting commands and date the oldest, for the metrics."""
        row = repeatable(self._engine, lambda db: db.execute(_BACKLOG).one())
        return row.waiting, row.age or timedelta()

    def take(
        self,
        *,
        node: Node,
        limit: int,
        room: int,
        spare: int,
        live_masters: LiveMasters,
        planner: Planner,
        now: datetime,
        first_step: FirstStep | None = None,
        share: RoomShare | None = None,
    ) -> Taken:
        if limit <= 0:
            return Taken(handled=())
        taker = _Taker(
            node=node,
            now=now,
            live_masters=live_masters,
            planner=planner,
            first_step=first_step,
            most_sub_processes=self._most_sub_processes,
        )
        bounds = _Bounds(limit=limit, room=room, spare=spare, share=share)
        if first_step is not None:
            taken = self._take_plainly(taker, first_step, bounds)
            if taken is not None:
                return taken
        try:
            return self._take(taker, bounds)
        except BatchRefusedError:
            # Nothing of that transaction stands. Slower this time, to find the row that is wrong.
            taker = replace(taker, begin=begin_one_by_one, first_step=None)
            return self._take(taker, bounds)

    def _take_plainly(self, taker: _Taker, first_step: FirstStep, bounds: _Bounds) -> Taken | None:
        """Take the commands if each begins a run and no more; None if nothing was taken."""
        share = bounds.share
        param_limit = self._param_limit_bytes
        # A row that differs, or one that is refused, is named by the other way to take.
        with suppress(IntegrityError, DataError, ValueError), single(self._engine) as db:
            begins = []
            found_now = look(
                db,
                limit=bounds.limit,
                room=bounds.room,
                spare=bounds.spare,
                param_limit_bytes=param_limit,
                served=self._served,
                full=None if share is None else share.live.full(),
            )
            taker.run_ids.update((seen.row.id, seen.run_id) for seen in found_now)
            if share is not None:
                left = share.live.copy()
                found_now = [seen for seen in found_now if left.take(seen.row.project_id)]
            for seen in self._in_time(found_now):
                found = understand(seen.row, param_limit_bytes=param_limit)
                if isinstance(found, Reject) or not is_plain(found):
                    return None
                plan = _plan(found, seen.snapshot, taker)
                if not isinstance(plan, Begin) or not begins_plainly(plan):
                    return None
                begins.append(PlainBegin(seen=seen, plan=plan))
            if begins:
                taken = take_plainly(
                    db,
                    begins,
                    node=taker.node,
                    now=taker.now,
                    first_step=first_step,
                    hint_to=self._hint_to,
                )
                if taken is not None:
                    self._served.note(each.seen.row for each in begins)
                return taken
        return None

    def _take(self, taker: _Taker, bounds: _Bounds) -> Taken:
        served_before = dict(self._served.last)
        with transaction(self._engine) as db:
            rows = lock_waiting(
                db,
                limit=bounds.limit,
                room=bounds.room,
                spare=bounds.spare,
                param_limit_bytes=self._param_limit_bytes,
                share=bounds.share,
                served=self._served,
            )
            batch = [
                (row.id, understand(row, param_limit_bytes=self._param_limit_bytes))
                for row in self._in_time(rows)
            ]
            readable = [found for _, found in batch if isinstance(found, Command)]
            snapshots = Snapshots(db, readable, live_masters=taker.live_masters)
            plans: dict[int, Plan] = {}
            for command_id, found in self._in_time(batch):
                if isinstance(found, Reject):
                    plans[command_id] = found
                elif not snapshots.is_busy(found):
                    plans[command_id] = _plan(found, partial(snapshots.of, found), taker)
            self._served.last = served_before
            self._served.note(row for row in rows if row.id in plans)
            parents = {
                row.id: row.parent_task_instance_id
                for row in rows
                if row.id in plans and row.parent_task_instance_id
            }
            work = _Work(
                plans=plans,
                named={found.id: found.process_instance_id for found in readable},
                parents=parents,
                serial=_serial_definitions(plans, snapshots),
            )
            return _carry_out(db, work, taker)

    def _in_time(self, items: Sequence[_T]) -> Iterator[_T]:
        """Yield items until the time of the batch is over, and at least one.

        The order of a batch alternates between projects. So slow plans of one project delay
        commands of another project by one short batch.
        """
        until = monotonic() + self._batch_seconds
        for each in items:
            yield each
            if monotonic() >= until:
                return

    def projects(self, process_instance_ids: Collection[int]) -> dict[int, int]:
        return projects_of_runs(self._engine, process_instance_ids)

    def several_projects(self) -> bool:
        return several_projects(self._engine)

    def forget(self, *, before: datetime) -> bool:
        with transaction(self._engine) as db:
            return forget(db, before=before)


def _plan(found: Command, snapshot: Callable[[], Snapshot], taker: _Taker) -> Plan:
    plan = planned(found, snapshot, taker.planner)
    cause = None
    if isinstance(plan, Begin):
        cause = unstorable(
            new_process_instance(plan, command_id=found.id, node=taker.node, now=taker.now)
        )
    elif isinstance(plan, Restart):
        cause = unstorable(
            {"global_params": plan.global_params, "command_param": plan.command_param}
            | {f"run_scope[{index}]": name for index, name in enumerate(plan.run_scope or ())}
        )
    return plan if cause is None else refused(cause)


def _carry_out(db: Connection, work: _Work, taker: _Taker) -> Taken:
    plans = work.plans
    # Each kind of lock is taken once, in order of id, and after those of the instances: so do all
    # transactions that take several kinds.
    late: set[int] = set()
    if work.parents:
        late |= _locked_elsewhere(work.parents, lock_parents(db, work.parents.values()))
    if work.serial:
        late |= _locked_elsewhere(work.serial, lock_definitions(db, work.serial.values()))
    if late:
        log.warning("what commands are about stayed locked", extra={"commands": len(late)})
        plans = {command_id: plan for command_id, plan in plans.items() if command_id not in late}
    begins = {command_id: plan for command_id, plan in plans.items() if isinstance(plan, Begin)}
    begun: Begun = {}
    if begins:
        begun = taker.begin(
            db, Beginner(node=taker.node, now=taker.now, run_ids=taker.run_ids), begins
        )
        note_runs(db, begins, begun)
    recoverer = Recoverer(node=taker.node, now=taker.now)
    handled = tuple(
        _handle(db, command_id, plan, recoverer, begun) for command_id, plan in plans.items()
    )
    _reject(db, handled, work.parents, taker.now)
    lines = [_line(one, begun, work.named) for one in handled]
    enter(db, lines, host=taker.node.address, now=taker.now)
    if taker.first_step is None:
        return Taken(handled=handled)
    steps, saved = write_first_steps(
        db,
        begun.values(),
        taker.first_step,
        now=taker.now,
        most_sub_processes=taker.most_sub_processes,
    )
    return Taken(handled=handled, begun=frozenset(step.ownership for step in steps), saved=saved)


def _line(handled: Handled, begun: Begun, named: Mapping[int, int | None]) -> LedgerLine:
    created = begun.get(handled.command_id)
    return line_of(
        handled,
        named=named.get(handled.command_id),
        made=None if created is None else created.process_instance_id,
        discarded=None if created is None else created.discarded,
    )


def _locked_elsewhere(needed: Mapping[int, int], locked: frozenset[int]) -> set[int]:
    """Return the commands that have to wait, given the needs of each and the locked rows."""
    return {command_id for command_id, row_id in needed.items() if row_id in locked}


def _serial_definitions(plans: Mapping[int, Plan], snapshots: Snapshots) -> dict[int, int]:
    """Return the serial definitions of which a run is to begin, by the ids of the commands."""
    definitions = {}
    for command_id, plan in plans.items():
        if isinstance(plan, Begin):
            if is_serial(plan):
                definitions[command_id] = plan.process_definition_id
        elif (
            isinstance(plan, Restart)
            and plan.child_of is None
            and plan.execution_type is not ExecutionType.PARALLEL
        ) or (isinstance(plan, Resume) and plan.command_type is CommandType.RECOVER_SERIAL_WAIT):
            row = snapshots.instances.get(plan.process_instance_id)
            if row is not None:
                definitions[command_id] = row.process_definition_id
    return definitions


def _handle(
    db: Connection, command_id: int, plan: Plan, recoverer: Recoverer, begun: Begun
) -> Handled:
    match plan:
        case Begin():
            return begun[command_id].handled
        case Complement():
            return _create(db, command_id, plan, recoverer.now)
        case Resume():
            return recoverer.resume(db, command_id, plan)
        case Restart():
            return recoverer.restart(db, command_id, plan)
        case SetIntent():
            return recoverer.set_intent(db, command_id, plan)
        case Drop() | Reject():
            return Handled(command_id=command_id, plan=plan)
        case _:
            assert_never(plan)


def _create(db: Connection, command_id: int, plan: Complement, now: datetime) -> Handled:
    try:
        with db.begin_nested():
            create_complements(db, plan.complements, command_id=command_id, now=now)
    except (DBAPIError, ValueError) as error:
        if passes(error):
            raise
        reason = storable(f"PostgreSQL refused the complement: {refusal(error)}")
        return Handled(command_id=command_id, plan=Reject(reason=reason))
    return Handled(command_id=command_id, plan=plan)


def _reject(
    db: Connection, handled: Sequence[Handled], parents: Mapping[int, int], now: datetime
) -> None:
    rejects = {
        one.command_id: storable(one.plan.reason) for one in handled if isinstance(one.plan, Reject)
    }
    if not rejects:
        return
    db.execute(_MOVE_TO_ERRORS, _rejected(rejects))
    failed = {
        parents[command_id]: reason
        for command_id, reason in rejects.items()
        if command_id in parents
    }
    # The attempt fails if its child can't start.
    if failed:
        fail_childless(db, failed, now=now)


def _rejected(reasons: Mapping[int, str]) -> dict[str, list[Any]]:
    return {"rejected_id": list(reasons), "rejected_message": list(reasons.values())}
