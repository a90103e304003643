"""Takes commands off `t_ds_command`, a batch a transaction, and carries out what each amounts to.

What a command amounts to is decided by the planner it is given; here it only becomes rows. Adds the
word *batch*: the commands that one `take` has locked. Used by the command loop of a master.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeAlias, assert_never

from sqlalchemy import (
    Connection,
    Engine,
    Integer,
    Text,
    case,
    cast,
    delete,
    exists,
    func,
    insert,
    literal,
    not_,
    select,
    text,
    update,
)
from sqlalchemy.exc import DBAPIError, OperationalError

from common.errors import SchedulerError
from common.model.cluster import Node
from common.model.commands import BadCommandError, Command, CommandRow, CommandType, read_command
from common.model.instances import Ownership
from common.model.plans import (
    Begin,
    DefinitionSnapshot,
    Drop,
    Handled,
    InstanceSnapshot,
    Plan,
    Reject,
    Resume,
    Signal,
    Snapshot,
)
from common.model.states import LIVE_PROCESS_STATES, ProcessState, ReleaseState
from common.store.protocol import Planner
from common.store.tables import command, error_command, process_definition, process_instance
from common.store.transaction import (
    AnyRow,
    StoreConflictError,
    any_of,
    passes,
    refusal,
    repeatable,
    storable,
    transaction,
    unnested,
    unstorable,
)

log = logging.getLogger(__name__)

PARAM_LIMIT_BYTES: Final = 1_000_000

_LOCK_NOT_AVAILABLE: Final = "55P03"


def understand(row: CommandRow, *, param_limit_bytes: int) -> Command | Reject:
    """The command that a row holds, or why it is none."""
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
    """What the planner makes of a command; a planner that fails rejects that command alone."""
    try:
        return planner(found, snapshot())
    except SchedulerError as error:
        return Reject(reason=storable(str(error)))
    except Exception as error:
        # A mistake of ours must not hold up the commands behind this one for ever.
        log.exception("command could not be planned", extra={"command_id": found.id})
        return Reject(reason=storable(f"planning failed: {type(error).__name__}: {error}"))


def known_state(process_instance_id: int, state: int) -> ProcessState:
    """The state of the instance that a command is about."""
    try:
        return ProcessState(state)
    except ValueError as error:
        raise BadCommandError(
            f"process instance {process_instance_id} has state {state}, which is not known here"
        ) from error


def refused(cause: str) -> Reject:
    """The end of a `Begin` whose row PostgreSQL does not take."""
    return Reject(reason=storable(f"PostgreSQL refused the process instance: {cause}"))


def new_process_instance(plan: Begin, *, node: Node, now: datetime) -> dict[str, Any]:
    """The columns of a new process instance (specification §3.5), owned by `node`."""
    return {
        "name": plan.name,
        "process_definition_id": plan.process_definition_id,
        "state": int(ProcessState.RUNNING),
        "recovery": 0,
        "start_time": now,
        "run_times": 1,
        "host": node.address,
        "owner_incarnation": node.incarnation,
        "owner_epoch": 1,
        "command_type": int(plan.command_type),
        "command_param": plan.command_param,
        "task_depend_type": int(plan.task_depend_type),
        "max_try_times": 0,
        "failure_strategy": int(plan.failure_strategy),
        "warning_type": int(plan.warning_type),
        "warning_group_id": plan.warning_group_id,
        "schedule_time": plan.schedule_time,
        "command_start_time": plan.command_start_time,
        "global_params": plan.global_params,
        "process_instance_json": plan.process_instance_json,
        "flag": 1,
        "update_time": now,
        "is_sub_process": 0,
        "executor_id": plan.executor_id,
        "locations": plan.locations,
        "connects": plan.connects,
        "history_cmd": plan.command_type.name,
        "process_instance_priority": int(plan.priority),
        "worker_group_id": plan.worker_group_id,
        "timeout": plan.timeout_minutes,
        "tenant_id": plan.tenant_id,
    }


# A day within what a `datetime` holds, so that it does in every time zone.
_EARLIEST: Final = literal(datetime(1, 1, 2, tzinfo=UTC))
_LATEST: Final = literal(datetime(9999, 12, 30, tzinfo=UTC))


def _fetchable(moment: Any) -> Any:
    """The time, or NULL: psycopg2 fails with the whole batch on one that Python can't hold."""
    return case((moment.between(_EARLIEST, _LATEST), moment), else_=None).label(moment.name)


def _bad_time(*moments: Any) -> Any:
    return case(
        *(
            (
                not_(moment.between(_EARLIEST, _LATEST)),
                func.concat(literal(f"{moment.name} is "), cast(moment, Text)),
            )
            for moment in moments
        ),
        else_=None,
    ).label("bad_time")


def _waiting(limit: int, param_limit_bytes: int) -> Any:
    size = func.coalesce(func.octet_length(command.c.command_param), 0)
    return (
        select(
            command.c.id,
            command.c.command_type,
            command.c.process_definition_id,
            # A text of megabytes is not even fetched: its size alone condemns it.
            case((size > param_limit_bytes, None), else_=command.c.command_param).label(
                "command_param"
            ),
            size.label("param_bytes"),
            command.c.task_depend_type,
            command.c.failure_strategy,
            command.c.warning_type,
            command.c.warning_group_id,
            _fetchable(command.c.schedule_time),
            _fetchable(command.c.start_time),
            command.c.executor_id,
            command.c.process_instance_priority,
            command.c.worker_group_id,
            _bad_time(command.c.schedule_time, command.c.start_time),
        )
        .order_by(command.c.process_instance_priority, command.c.update_time, command.c.id)
        .limit(limit)
        .with_for_update(skip_locked=True)
    )


_BACKLOG: Final = select(
    func.count().label("waiting"), (func.now() - func.min(command.c.start_time)).label("age")
)
_IS_WAITING: Final = select(exists().select_from(command))

_DEFINITIONS: Final = select(
    process_definition.c.id,
    process_definition.c.name,
    process_definition.c.version,
    process_definition.c.release_state,
    process_definition.c.flag,
    process_definition.c.process_definition_json,
    process_definition.c.global_params,
    process_definition.c.timeout,
    process_definition.c.tenant_id,
    process_definition.c.locations,
    process_definition.c.connects,
).where(process_definition.c.id == any_of("ids"))

# Locked, so that a plan still holds when it is carried out; in order of id, as every transaction
# that locks several runs does it, so that two can't wait for each other.
_INSTANCES: Final = (
    select(
        process_instance.c.id,
        process_instance.c.state,
        process_instance.c.host,
        process_instance.c.owner_incarnation,
        process_instance.c.owner_epoch,
    )
    .where(process_instance.c.id == any_of("ids"))
    .order_by(process_instance.c.id)
)
_EXISTING_INSTANCES: Final = select(process_instance.c.id).where(
    process_instance.c.id == any_of("ids")
)

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
_DELETE: Final = delete(command).where(command.c.id == any_of("ids"))


class _BatchRefusedError(Exception):
    """PostgreSQL refused one of a batch's new rows, and does not say which."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Taker:
    """Who takes a batch, and when."""

    node: Node
    now: datetime
    live_masters: frozenset[Node]
    planner: Planner


class PostgresCommandStore:
    """`CommandStore` on PostgreSQL."""

    def __init__(self, engine: Engine, *, param_limit_bytes: int = PARAM_LIMIT_BYTES) -> None:
        self._engine = engine
        self._param_limit_bytes = param_limit_bytes

    def waiting(self) -> bool:
        return repeatable(self._engine, lambda db: bool(db.scalar(_IS_WAITING)))

    def backlog(self) -> tuple[int, timedelta]:
        """How many commands wait, and since when the oldest does; for the metrics."""
        row = repeatable(self._engine, lambda db: db.execute(_BACKLOG).one())
        return row.waiting, row.age or timedelta()

    def take(
        self,
        *,
        node: Node,
        limit: int,
        live_masters: frozenset[Node],
        planner: Planner,
        now: datetime,
    ) -> tuple[Handled, ...]:
        if limit <= 0:
            return ()
        taker = _Taker(node=node, now=now, live_masters=live_masters, planner=planner)
        try:
            return self._take(taker, limit, begin=_begin_together)
        except _BatchRefusedError:
            # Nothing of that transaction stands. Slower this time, to find the row that is wrong.
            return self._take(taker, limit, begin=_begin_one_by_one)

    def _take(
        self, taker: _Taker, limit: int, *, begin: Callable[[Connection, _Begins], _Begun]
    ) -> tuple[Handled, ...]:
        with transaction(self._engine) as db:
            batch = [
                (row.id, understand(_command_row(row), param_limit_bytes=self._param_limit_bytes))
                for row in db.execute(_waiting(limit, self._param_limit_bytes))
            ]
            readable = [found for _, found in batch if isinstance(found, Command)]
            definitions = _definitions(db, readable)
            instances, busy = _instances(db, readable)
            plans: dict[int, Plan] = {}
            for command_id, found in batch:
                if isinstance(found, Reject):
                    plans[command_id] = found
                elif found.process_instance_id not in busy:
                    plans[command_id] = _plan(found, definitions, instances, taker)
            return _carry_out(db, plans, taker, begin)


def _command_row(row: AnyRow) -> CommandRow:
    return CommandRow(**row._mapping)  # noqa: SLF001  # Public, whatever its name.


def _definitions(db: Connection, commands: Sequence[Command]) -> dict[int, DefinitionSnapshot]:
    ids = sorted({found.process_definition_id for found in commands})
    if not ids:
        return {}
    return {
        row.id: DefinitionSnapshot(
            id=row.id,
            name=row.name,
            version=row.version,
            release_state=ReleaseState(row.release_state),
            usable=row.flag == 1,
            process_definition_json=row.process_definition_json or "",
            global_params=row.global_params,
            timeout_minutes=row.timeout,
            tenant_id=row.tenant_id,
            locations=row.locations,
            connects=row.connects,
        )
        for row in db.execute(_DEFINITIONS, {"ids": ids})
    }


def _instances(
    db: Connection, commands: Sequence[Command]
) -> tuple[dict[int, AnyRow], frozenset[int]]:
    """The instances that the commands are about, locked; and those that stay locked elsewhere.

    The second are those of a master that was frozen within a transaction: what is asked of them
    has to wait, and must not keep the other commands waiting.
    """
    ids = sorted(
        {found.process_instance_id for found in commands if found.process_instance_id is not None}
    )
    if not ids:
        return {}, frozenset()
    busy: frozenset[int] = frozenset()
    try:
        with db.begin_nested():
            db.execute(text("SET LOCAL lock_timeout = '1s'"))
            rows = db.execute(_INSTANCES.with_for_update(key_share=True), {"ids": ids}).all()
    except OperationalError as error:
        if getattr(error.orig, "pgcode", None) != _LOCK_NOT_AVAILABLE:
            raise
        free = _INSTANCES.with_for_update(key_share=True, skip_locked=True)
        rows = db.execute(free, {"ids": ids}).all()
        existing = db.scalars(_EXISTING_INSTANCES, {"ids": ids}).all()
        busy = frozenset(existing) - {row.id for row in rows}
        log.warning("instances of waiting commands stayed locked", extra={"instances": len(busy)})
    return {row.id: row for row in rows}, busy


def _plan(
    found: Command,
    definitions: dict[int, DefinitionSnapshot],
    instances: dict[int, AnyRow],
    taker: _Taker,
) -> Plan:
    def snapshot() -> Snapshot:
        row = instances.get(found.process_instance_id or 0)
        return Snapshot(
            definition=definitions.get(found.process_definition_id),
            instance=None if row is None else _instance_snapshot(row),
            live_masters=taker.live_masters,
        )

    plan = planned(found, snapshot, taker.planner)
    if isinstance(plan, Begin):
        cause = unstorable(new_process_instance(plan, node=taker.node, now=taker.now))
        return plan if cause is None else refused(cause)
    return plan


def _instance_snapshot(row: AnyRow) -> InstanceSnapshot:
    owned = row.host is not None and row.owner_incarnation is not None
    return InstanceSnapshot(
        id=row.id,
        state=known_state(row.id, row.state),
        owner=Node(address=row.host, incarnation=row.owner_incarnation) if owned else None,
        owner_epoch=row.owner_epoch,
    )


# Columns of new instances, and the id or the refusal of each, by the id of its command.
_Begins: TypeAlias = dict[int, dict[str, Any]]
_Begun: TypeAlias = dict[int, int | Reject]


def _carry_out(
    db: Connection,
    plans: dict[int, Plan],
    taker: _Taker,
    begin: Callable[[Connection, _Begins], _Begun],
) -> tuple[Handled, ...]:
    begins = {
        command_id: new_process_instance(plan, node=taker.node, now=taker.now)
        for command_id, plan in plans.items()
        if isinstance(plan, Begin)
    }
    begun = begin(db, begins) if begins else {}
    handled = tuple(
        _handle(db, command_id, plan, taker, begun) for command_id, plan in plans.items()
    )
    rejects = {one.command_id: one.plan.reason for one in handled if isinstance(one.plan, Reject)}
    if rejects:
        db.execute(
            _MOVE_TO_ERRORS,
            {
                "rejected_id": list(rejects),
                "rejected_message": [storable(reason) for reason in rejects.values()],
            },
        )
    if handled:
        gone = db.execute(_DELETE, {"ids": [one.command_id for one in handled]}).rowcount
        if gone != len(handled):
            # The rows are locked, so this can't be; but if it were, a command would be run twice.
            raise StoreConflictError(f"{len(handled)} commands were taken, {gone} deleted")
    return handled


def _handle(db: Connection, command_id: int, plan: Plan, taker: _Taker, begun: _Begun) -> Handled:
    match plan:
        case Begin():
            result = begun[command_id]
            if isinstance(result, Reject):
                return Handled(command_id=command_id, plan=result)
            owned = Ownership(process_instance_id=result, host=taker.node.address, epoch=1)
            return Handled(command_id=command_id, plan=plan, ownership=owned)
        case Resume():
            return _resume(db, command_id, plan, taker)
        case Signal():
            return _signal(db, command_id, plan, taker)
        case Drop() | Reject():
            return Handled(command_id=command_id, plan=plan)
        case _:
            assert_never(plan)


def _begin_together(db: Connection, begins: _Begins) -> _Begun:
    try:
        return dict(zip(begins, _insert_instances(db, list(begins.values())), strict=True))
    except (DBAPIError, ValueError) as error:
        if passes(error):
            raise
        raise _BatchRefusedError from error


def _begin_one_by_one(db: Connection, begins: _Begins) -> _Begun:
    begun: _Begun = {}
    for command_id, columns in begins.items():
        try:
            with db.begin_nested():
                begun[command_id] = _insert_instances(db, [columns])[0]
        except (DBAPIError, ValueError) as error:
            if passes(error):
                raise
            begun[command_id] = refused(refusal(error))
    return begun


def _insert_instances(db: Connection, rows: list[dict[str, Any]]) -> Sequence[int]:
    statement = insert(process_instance).returning(
        process_instance.c.id, sort_by_parameter_order=True
    )
    return db.scalars(statement, rows).all()


def _resume(db: Connection, command_id: int, plan: Resume, taker: _Taker) -> Handled:
    resumed_as = CommandType.RECOVER_TOLERANCE_FAULT_PROCESS
    epoch = db.scalar(
        update(process_instance)
        .where(process_instance.c.id == plan.process_instance_id)
        .where(process_instance.c.owner_epoch == plan.epoch)
        .where(process_instance.c.state.in_(LIVE_PROCESS_STATES))
        .values(
            host=taker.node.address,
            owner_incarnation=taker.node.incarnation,
            owner_epoch=process_instance.c.owner_epoch + 1,
            recovery=1,
            command_type=int(resumed_as),
            history_cmd=_history(resumed_as),
            update_time=taker.now,
        )
        .returning(process_instance.c.owner_epoch)
    )
    if epoch is None:
        reason = f"process instance {plan.process_instance_id} has been taken over or has ended"
        return Handled(command_id=command_id, plan=Drop(reason=reason))
    owned = Ownership(
        process_instance_id=plan.process_instance_id, host=taker.node.address, epoch=epoch
    )
    return Handled(command_id=command_id, plan=plan, ownership=owned)


def _signal(db: Connection, command_id: int, plan: Signal, taker: _Taker) -> Handled:
    # One narrow update: a run that ends in the same moment keeps the state that it ended in.
    changed = db.execute(
        update(process_instance)
        .where(process_instance.c.id == plan.process_instance_id)
        .where(process_instance.c.state.in_(LIVE_PROCESS_STATES))
        .where(process_instance.c.wanted_state.is_distinct_from(int(plan.wanted_state)))
        .values(
            wanted_state=int(plan.wanted_state),
            wanted_at=taker.now,
            command_type=int(plan.command_type),
            history_cmd=_history(plan.command_type),
            update_time=taker.now,
        )
    )
    if changed.rowcount == 1:
        return Handled(command_id=command_id, plan=plan)
    reason = (
        f"process instance {plan.process_instance_id} has ended or is asked for "
        f"{plan.wanted_state.name} already"
    )
    return Handled(command_id=command_id, plan=Drop(reason=reason))


def _history(command_type: CommandType) -> Any:
    """`history_cmd` with one name more."""
    before = func.nullif(process_instance.c.history_cmd, "")
    return func.concat_ws(",", before, cast(command_type.name, Text))
