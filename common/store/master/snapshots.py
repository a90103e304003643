"""Reads the planner's view of a batch: definitions, instances and parents.

The instances that commands name are locked, so that a plan still holds when it is carried out. A
command to a sub process is about the *root* of its tree, unless it is for that very instance.
Used by `common.store.master.commands` alone.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import Any, Final

from sqlalchemy import (
    Connection,
    Integer,
    bindparam,
    case,
    cast,
    func,
    literal,
    or_,
    select,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.exc import OperationalError

from common.errors import BadCommandError
from common.model.cluster import Node
from common.model.command_param import CommandParam, ParamKey
from common.model.commands import RESTARTING_COMMANDS, Command, CommandType
from common.model.date_rules import DateRule
from common.model.grants import GrantKind
from common.model.plans import (
    DefinitionSnapshot,
    DependentDefinition,
    InstanceSnapshot,
    ParentSnapshot,
    Snapshot,
)
from common.model.schedules import Schedule
from common.model.states import (
    LIVE_PROCESS_STATES,
    ExecutionType,
    ProcessState,
    ReleaseState,
    TaskDependType,
    TaskState,
)
from common.store.complements import read_dependents
from common.store.fixed_statement import FixedStatement
from common.store.grants import grants_of, is_granted, objects_in
from common.store.master.ports import LiveMasters
from common.store.master.runs import ATTEMPTS, names_in, task_row
from common.store.master.trees import SUB_PROCESS
from common.store.origins import ORIGIN, ORIGIN_OF_DEFINITION, origin_of
from common.store.schedules import read_schedules
from common.store.sharing import definitions_shared
from common.store.tables import (
    process_definition,
    process_instance,
    project,
    task_instance,
    tenant,
)
from common.store.transaction import LOCK_NOT_AVAILABLE, AnyRow, any_of

log = logging.getLogger(__name__)

# These speak of the instance that they name, whatever tree it belongs to.
_OF_ITSELF: Final = (
    CommandType.RECOVER_TOLERANCE_FAULT_PROCESS,
    CommandType.RECOVER_WAITTING_THREAD,
    CommandType.RECOVER_SERIAL_WAIT,
    CommandType.EXECUTE_TASK,
)

DEFINITION_COLUMNS: Final = (
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
    process_definition.c.execution_type,
    process_definition.c.project_id,
    grants_of(process_definition.c.project_id).label("grants"),
    select(tenant.c.id)
    .where(tenant.c.id == process_definition.c.tenant_id)
    .where(~is_granted(GrantKind.TENANT, tenant.c.id, process_definition.c.project_id))
    .correlate(process_definition)
    .scalar_subquery()
    .label("lacked_tenant"),
    process_definition.c.complement_date_rule,
    ORIGIN_OF_DEFINITION,
)
_DEFINITIONS: Final = FixedStatement(
    select(*DEFINITION_COLUMNS).where(process_definition.c.id == any_of("ids"))
)

_NAMED: Final = process_instance.alias("named")
_NAMED_AND_ROOTS: Final = process_instance.c.id == func.any(
    func.array_cat(
        cast(bindparam("ids"), ARRAY(Integer)),
        func.array(
            select(_NAMED.c.root_id).where(_NAMED.c.id == any_of("of_trees")).scalar_subquery()
        ),
    )
)
# Locked, so that a plan still holds when it is carried out; in order of id, as every transaction
# that locks several runs does it, so that two can't wait for each other.
_INSTANCES: Final = (
    select(
        process_instance.c.id,
        process_instance.c.state,
        process_instance.c.host,
        process_instance.c.owner_incarnation,
        process_instance.c.owner_epoch,
        process_instance.c.process_definition_id,
        process_instance.c.root_id,
    )
    .where(_NAMED_AND_ROOTS)
    .order_by(process_instance.c.id)
)
_EXISTING_INSTANCES: Final = select(process_instance.c.id).where(_NAMED_AND_ROOTS)

_DETAILS: Final = select(
    process_instance.c.id,
    process_instance.c.command_param,
    process_instance.c.process_instance_json,
    process_instance.c.global_params,
    process_instance.c.task_depend_type,
    process_instance.c.history_cmd,
    process_instance.c.schedule_time,
    process_instance.c.business_time,
    process_instance.c.run_scope,
    process_instance.c.timezone_id,
    process_instance.c.execution_type,
    process_instance.c.start_time,
    process_instance.c.worker_group_id,
    select(process_definition.c.project_id)
    .where(process_definition.c.id == process_instance.c.process_definition_id)
    .scalar_subquery()
    .label("project_id"),
).where(process_instance.c.id == any_of("ids"))

_PARENTS: Final = (
    select(
        task_instance.c.id,
        task_instance.c.process_instance_id,
        task_instance.c.name,
        task_instance.c.task_json,
        task_instance.c.input_pool,
        task_instance.c.state,
        process_instance.c.state.label("process_state"),
        process_instance.c.root_id,
        process_instance.c.history_cmd,
        process_instance.c.global_params,
        process_instance.c.schedule_time,
        process_instance.c.business_time,
        process_instance.c.timezone_id,
        # Mostly it has neither, and then the text need not travel.
        case(
            (
                or_(
                    process_instance.c.command_param.contains(f'"{ParamKey.ENVIRONMENT_CODE}"'),
                    process_instance.c.command_param.contains(f'"{ParamKey.VERSION}"'),
                ),
                process_instance.c.command_param,
            ),
            else_=None,
        ).label("command_param"),
        process_definition.c.project_id,
        definitions_shared(process_definition.c.project_id).label("shared"),
        ORIGIN,
    )
    .join_from(
        task_instance,
        process_instance,
        process_instance.c.id == task_instance.c.process_instance_id,
    )
    .outerjoin(
        process_definition, process_definition.c.id == process_instance.c.process_definition_id
    )
    .outerjoin(project, project.c.id == process_definition.c.project_id)
    .where(task_instance.c.id == any_of("ids"))
    .where(task_instance.c.task_type == SUB_PROCESS)
)
# No tree is that deep; rows that somebody has tied into a ring by hand must come to an end.
_DEEPEST: Final = 1000
_LINE: Final = (
    select(
        process_instance.c.id.label("start_id"),
        process_instance.c.process_definition_id,
        process_instance.c.parent_task_instance_id,
        literal(0).label("height"),
    )
    .where(process_instance.c.id == any_of("ids"))
    .cte("line", recursive=True)
)
_ABOVE: Final = _LINE.union_all(
    select(
        _LINE.c.start_id,
        process_instance.c.process_definition_id,
        process_instance.c.parent_task_instance_id,
        _LINE.c.height + 1,
    )
    .join_from(_LINE, task_instance, task_instance.c.id == _LINE.c.parent_task_instance_id)
    .join(process_instance, process_instance.c.id == task_instance.c.process_instance_id)
    .where(_LINE.c.parent_task_instance_id != 0)
    .where(_LINE.c.height < _DEEPEST)
)
_ANCESTORS: Final = select(_ABOVE.c.start_id, _ABOVE.c.process_definition_id).order_by(
    _ABOVE.c.start_id, _ABOVE.c.height.desc()
)


def known_state(process_instance_id: int, state: int) -> ProcessState:
    """Return the state of the instance that a command is about."""
    try:
        return ProcessState(state)
    except ValueError as error:
        raise BadCommandError(
            f"process instance {process_instance_id} has state {state}, which is not known here"
        ) from error


def speaks_of_tree(found: Command) -> bool:
    """Return True if a command to a sub process goes to the whole tree that it belongs to."""
    return (
        found.process_instance_id is not None
        and not found.parent_task_instance_id
        and found.command_type not in _OF_ITSELF
    )


def asks_for_dates(found: Command) -> bool:
    """Return True if a command becomes a complement, whose dates are computed from schedules."""
    return (
        found.command_type is CommandType.COMPLEMENT_DATA
        and not found.complement_date_id
        and not found.parent_task_instance_id
    )


def asks_for_masters(commands: Iterable[Command]) -> bool:
    """Return True if a failover is among them, which is for runs of masters that are gone."""
    return any(
        found.command_type is CommandType.RECOVER_TOLERANCE_FAULT_PROCESS for found in commands
    )


def asks_for_dependents(found: Command) -> bool:
    """Return True if definitions downstream of it are to be complemented too."""
    return (
        asks_for_dates(found)
        and found.param.get(ParamKey.DOWNSTREAM, "").strip() == "ALL_DEPENDENT"
    )


class Snapshots:
    """The rows that the commands of one batch are about, read together."""

    def __init__(
        self, db: Connection, commands: Sequence[Command], *, live_masters: LiveMasters
    ) -> None:
        self.instances, self._busy = _instances(db, commands)
        # Only now: whoever has become the owner of a locked row joined before that.
        self._live_masters = live_masters() if asks_for_masters(commands) else frozenset()
        self._details: dict[int, AnyRow] = {}
        self._attempts: dict[int, list[AnyRow]] = {}
        self._parents: dict[int, ParentSnapshot] = {}
        self._read_details(db, commands)
        self._read_parents(db, commands)
        self._schedules: dict[int, tuple[Schedule, ...]] = {}
        self._dependents: tuple[DependentDefinition, ...] = ()
        self._fault_of_schedules: str | None = None
        self._read_schedules(db, [found for found in commands if asks_for_dates(found)])
        ids = sorted({self._definition_id(found) for found in commands} - {0})
        self._definitions = (
            {row.id: row for row in _DEFINITIONS.execute(db, {"ids": ids})} if ids else {}
        )

    def is_busy(self, found: Command) -> bool:
        """Return True if the instance stays locked elsewhere, so that the command has to wait."""
        return found.process_instance_id in self._busy or self._target(found) in self._busy

    def of(self, found: Command) -> Snapshot:
        """Return the planner's view. Raises `BadCommandError` if a row can't be read."""
        row = self.instances.get(self._target(found) or 0)
        definition = self._definitions.get(self._definition_id(found))
        if asks_for_dates(found) and self._fault_of_schedules is not None:
            raise BadCommandError(self._fault_of_schedules)
        return Snapshot(
            definition=None if definition is None else definition_of(definition),
            instance=None if row is None else self._instance(row, found),
            asked_instance_id=found.process_instance_id,
            parent=self._parents.get(found.parent_task_instance_id),
            live_masters=self._live_masters,
            schedules=(
                self._schedules.get(self._definition_id(found), ()) if asks_for_dates(found) else ()
            ),
            dependents=self._dependents if asks_for_dependents(found) else (),
        )

    def _target(self, found: Command) -> int | None:
        named_id = found.process_instance_id
        row = self.instances.get(named_id or 0)
        if row is not None and row.root_id and speaks_of_tree(found):
            root_id: int = row.root_id
            return root_id
        return named_id

    def _definition_id(self, found: Command) -> int:
        row = self.instances.get(self._target(found) or 0)
        if row is not None and (
            not found.process_definition_id or row.id != found.process_instance_id
        ):
            definition_id: int = row.process_definition_id
            return definition_id
        return found.process_definition_id

    def _read_details(self, db: Connection, commands: Sequence[Command]) -> None:
        ids = sorted(
            {
                target
                for found in commands
                if found.command_type in RESTARTING_COMMANDS
                and (target := self._target(found)) in self.instances
                and target is not None
            }
        )
        if not ids:
            return
        self._details = {row.id: row for row in db.execute(_DETAILS, {"ids": ids})}
        self._attempts = {instance_id: [] for instance_id in ids}
        for row in db.execute(ATTEMPTS, {"ids": ids}):
            self._attempts[row.process_instance_id].append(row)

    def _read_schedules(self, db: Connection, commands: Sequence[Command]) -> None:
        if not commands:
            return
        try:
            self._schedules = read_schedules(db, {self._definition_id(found) for found in commands})
            if any(asks_for_dependents(found) for found in commands):
                self._dependents = read_dependents(db)
        except ValueError as error:
            self._fault_of_schedules = f"a row of t_ds_schedules can't be read: {error}"

    def _read_parents(self, db: Connection, commands: Sequence[Command]) -> None:
        ids = sorted(
            {
                found.parent_task_instance_id
                for found in commands
                if found.parent_task_instance_id > 0
            }
        )
        if not ids:
            return
        rows = db.execute(_PARENTS, {"ids": ids}).all()
        ancestors: dict[int, list[int]] = {row.process_instance_id: [] for row in rows}
        if ancestors:
            for above in db.execute(_ANCESTORS, {"ids": sorted(ancestors)}):
                ancestors[above.start_id].append(above.process_definition_id)
        for row in rows:
            self._parents[row.id] = _parent(row, ancestors[row.process_instance_id])

    def _instance(self, row: AnyRow, found: Command) -> InstanceSnapshot:
        owned = row.host is not None and row.owner_incarnation is not None
        brief: dict[str, Any] = {
            "id": row.id,
            "state": known_state(row.id, row.state),
            "owner": Node(address=row.host, incarnation=row.owner_incarnation) if owned else None,
            "owner_epoch": row.owner_epoch,
            "process_definition_id": row.process_definition_id,
            "root_id": row.root_id,
        }
        details = self._details.get(row.id)
        if details is None or found.command_type not in RESTARTING_COMMANDS:
            return InstanceSnapshot(**brief)
        try:
            return InstanceSnapshot(
                **brief,
                command_param=details.command_param or "",
                process_instance_json=details.process_instance_json,
                global_params=details.global_params,
                task_depend_type=TaskDependType(details.task_depend_type),
                history=names_of(details.history_cmd),
                schedule_time=details.schedule_time,
                business_time=details.business_time,
                run_scope=names_in(details.run_scope, "run_scope"),
                tasks=tuple(task_row(task) for task in self._attempts[row.id]),
                timezone_id=details.timezone_id,
                execution_type=(
                    None
                    if details.execution_type is None
                    else ExecutionType(details.execution_type)
                ),
                start_time=details.start_time,
                worker_group_id=details.worker_group_id,
                project_id=details.project_id,
            )
        except ValueError as error:
            raise BadCommandError(f"process instance {row.id} can't be read: {error}") from error


def names_of(history_cmd: str | None) -> tuple[str, ...]:
    """Return the commands of an instance, the first one first."""
    return tuple(name for name in (history_cmd or "").split(",") if name)


def definition_of(row: Any) -> DefinitionSnapshot:
    """Return the definition, given a row with `DEFINITION_COLUMNS`."""
    return DefinitionSnapshot(
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
        execution_type=ExecutionType(row.execution_type),
        project_id=row.project_id,
        grants=objects_in(row.grants),
        lacked_tenant=row.lacked_tenant,
        date_rule=None if row.complement_date_rule is None else DateRule(row.complement_date_rule),
        origin=origin_of(row.origin),
    )


def _parent(row: AnyRow, ancestors: Sequence[int]) -> ParentSnapshot:
    param = CommandParam.as_stored(row.command_param)
    return ParentSnapshot(
        process_instance_id=row.process_instance_id,
        task_instance_id=row.id,
        task_name=row.name,
        task_json=row.task_json,
        input_pool=row.input_pool,
        waits=row.state == TaskState.SUBMITTED and row.process_state in LIVE_PROCESS_STATES,
        root_id=row.root_id or row.process_instance_id,
        history=names_of(row.history_cmd),
        global_params=row.global_params,
        schedule_time=row.schedule_time,
        business_time=row.business_time,
        ancestors=tuple(ancestors),
        timezone_id=row.timezone_id,
        environment_code=param.stored_environment_code,
        project_id=row.project_id,
        shared=frozenset(row.shared),
        took_latest=param.took_latest,
        wants_fresh_child=row.name in param.fresh_children,
        origin=origin_of(row.origin),
    )


def _instances(
    db: Connection, commands: Sequence[Command]
) -> tuple[dict[int, AnyRow], frozenset[int]]:
    """Lock the instances that the commands are about; also return those that stay locked elsewhere.

    A master that was frozen within a transaction holds those: their commands have to wait, and must
    not delay the others.
    """
    named = {found.process_instance_id for found in commands} - {None}
    if not named:
        return {}, frozenset()
    trees = {found.process_instance_id for found in commands if speaks_of_tree(found)}
    ids = {"ids": sorted(filter(None, named)), "of_trees": sorted(filter(None, trees))}
    busy: frozenset[int] = frozenset()
    try:
        with db.begin_nested():
            db.execute(text("SET LOCAL lock_timeout = '1s'"))
            rows = db.execute(_INSTANCES.with_for_update(key_share=True), ids).all()
    except OperationalError as error:
        if getattr(error.orig, "pgcode", None) != LOCK_NOT_AVAILABLE:
            raise
        free = _INSTANCES.with_for_update(key_share=True, skip_locked=True)
        rows = db.execute(free, ids).all()
        existing = db.scalars(_EXISTING_INSTANCES, ids).all()
        busy = frozenset(existing) - {row.id for row in rows}
        log.warning("instances of waiting commands stayed locked", extra={"instances": len(busy)})
    return {row.id: row for row in rows}, busy
