"""Requests of people to the tables beyond what is shown: putting a command, following it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import (
    URL,
    ColumnElement,
    Connection,
    Engine,
    NullPool,
    create_engine,
    delete,
    func,
    insert,
    make_url,
    select,
    text,
    update,
)
from sqlalchemy.dialects.postgresql import insert as pg_insert
from sqlalchemy.exc import ArgumentError, NoSuchModuleError, SQLAlchemyError

from common.errors import ServiceUnreachableError
from common.model.command_param import CommandParam
from common.model.commands import CommandType
from common.model.states import (
    TERMINAL_PROCESS_CODES,
    FailureStrategy,
    Priority,
    TaskDependType,
    TaskState,
)
from common.store.tables import (
    ASKED_RECOVERY,
    command,
    datasource,
    error_command,
    process_definition,
    process_instance,
    project,
    task_group,
    task_instance,
    tenant,
    worker_group,
)

# The two types are named here for those who only hand them on, and need not know the library.
__all__ = [
    "Connection",
    "Engine",
    "NamedDefinition",
    "Outcome",
    "PendingRecovery",
    "RunShape",
    "TaskDocument",
    "create_pool",
    "datasource_names",
    "definitions_named",
    "definitions_with_ids",
    "drawing",
    "execution_type_of",
    "force_success",
    "insert_definition",
    "is_waiting",
    "keep_drawing",
    "known_pools",
    "lock_imports",
    "lock_pool",
    "make_worker_group",
    "new_definition_id",
    "outcome",
    "put_pause",
    "put_recovery",
    "put_start",
    "put_stop",
    "refusal_of",
    "remove_datasource",
    "remove_pool",
    "resize_pool",
    "run_shape",
    "save_datasource",
    "server_time",
    "set_execution_type",
    "task_document",
    "tenant_ids",
    "try_database",
    "worker_group_id",
    "worker_group_names",
    "worker_groups",
]

_IMPORT_LOCK = "orcaflow imports"
# The same as that of workers which make the groups that they serve.
_GROUP_LOCK = "orcaflow worker groups"
_DATASOURCE_LOCK = "orcaflow data sources"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The fate of a command: it waits, was refused, became an instance, or none of these."""

    waits: bool = False
    refusal: str | None = None
    process_instance_id: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskDocument:
    """What a task instance was, or will be, worked out from."""

    task_json: str
    global_params: str | None
    schedule_time: datetime | None
    start_time: datetime | None
    history_cmd: str | None
    input_pool: str | None
    var_pool: str | None
    command_param: str | None
    timezone_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunShape:
    """What decides which nodes a process instance has."""

    process_instance_json: str
    command_param: str
    task_depend_type: int


def put_start(
    db: Connection,
    *,
    process_definition_id: int,
    param: CommandParam,
    schedule_time: datetime | None = None,
    task_depend_type: TaskDependType = TaskDependType.TASK_POST,
    failure_strategy: FailureStrategy = FailureStrategy.CONTINUE,
    priority: Priority = Priority.MEDIUM,
    worker_group_id: int = -1,
) -> int:
    """Put a START_PROCESS command with these parameters; returns its id."""
    return _put(
        db,
        command_type=int(CommandType.START_PROCESS),
        process_definition_id=process_definition_id,
        command_param=param.row_text(),
        schedule_time=schedule_time,
        task_depend_type=int(task_depend_type),
        failure_strategy=int(failure_strategy),
        process_instance_priority=int(priority),
        worker_group_id=worker_group_id,
    )


def put_stop(db: Connection, *, process_definition_id: int, process_instance_id: int) -> int:
    """Put a STOP command for an instance; the command's id."""
    return _put_signal(db, CommandType.STOP, process_definition_id, process_instance_id)


def put_pause(db: Connection, *, process_definition_id: int, process_instance_id: int) -> int:
    """Put a PAUSE command for an instance; the command's id."""
    return _put_signal(db, CommandType.PAUSE, process_definition_id, process_instance_id)


def _put_signal(
    db: Connection, command_type: CommandType, process_definition_id: int, process_instance_id: int
) -> int:
    return _put(
        db,
        command_type=int(command_type),
        process_definition_id=process_definition_id,
        command_param=CommandParam.of(process_instance_id=process_instance_id).text(),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingRecovery:
    """A command that is to recover the same instance, and came first."""

    id: int
    command_type: int
    start_time: datetime


def put_recovery(
    db: Connection,
    *,
    command_type: CommandType,
    process_definition_id: int,
    process_instance_id: int,
    start_node_names: Sequence[str] = (),
    task_depend_type: TaskDependType = TaskDependType.TASK_POST,
    priority: int = int(Priority.MEDIUM),
) -> int | PendingRecovery:
    """Put a command that makes an ended instance live again: its id, or who came first.

    The unique key of pending recoveries decides, so that two that come together are one.
    """
    param = CommandParam.of(
        process_instance_id=process_instance_id, start_node_names=start_node_names
    )
    made: int | None = db.execute(
        pg_insert(command)
        .values(
            command_type=int(command_type),
            process_definition_id=process_definition_id,
            process_instance_id=process_instance_id,
            command_param=param.text(),
            task_depend_type=int(task_depend_type),
            process_instance_priority=priority,
        )
        .on_conflict_do_nothing(
            index_elements=[command.c.process_instance_id],
            index_where=text(ASKED_RECOVERY),
        )
        .returning(command.c.id)
    ).scalar()
    if made is not None:
        return made
    found = db.execute(
        select(command.c.id, command.c.command_type, command.c.start_time).where(
            command.c.process_instance_id == process_instance_id
        )
    ).first()
    if found is None:
        # It was taken at this very moment, so that the instance is not what it was.
        return PendingRecovery(id=0, command_type=-1, start_time=server_time(db))
    return PendingRecovery(
        id=found.id,
        command_type=-1 if found.command_type is None else found.command_type,
        start_time=found.start_time,
    )


def force_success(db: Connection, task_instance_id: int, *, at: datetime, reason: str) -> bool:
    """FAILURE, KILL or lost → FORCED_SUCCESS; False if the attempt or its run is not as it was.

    Only in a run that has ended: a live one is its owner's alone. The lock keeps a master from
    making it live in the same moment.
    """
    owner = (
        select(process_instance.c.id)
        .where(
            process_instance.c.id
            == select(task_instance.c.process_instance_id)
            .where(task_instance.c.id == task_instance_id)
            .scalar_subquery()
        )
        .where(process_instance.c.state.in_(TERMINAL_PROCESS_CODES))
        .with_for_update()
    )
    run = db.scalar(owner)
    if run is None:
        return False
    changed = db.execute(
        update(task_instance)
        .where(task_instance.c.id == task_instance_id)
        .where(task_instance.c.process_instance_id == run)
        .where(task_instance.c.flag == 1)
        .where(task_instance.c.state.in_(_FORCIBLE))
        .values(
            state=int(TaskState.FORCED_SUCCESS),
            # Whatever it reported, this is what counts now.
            settled=True,
            retry_at=None,
            reason=reason,
            end_time=func.coalesce(task_instance.c.end_time, at),
        )
    )
    return changed.rowcount == 1


_FORCIBLE = tuple(
    int(state) for state in (TaskState.FAILURE, TaskState.NEED_FAULT_TOLERANCE, TaskState.KILL)
)


def set_execution_type(db: Connection, definition_id: int, *, wanted: int, at: datetime) -> bool:
    """Whether this changed what a new run does while another goes on."""
    changed = db.execute(
        update(process_definition)
        .where(process_definition.c.id == definition_id)
        .where(process_definition.c.execution_type != wanted)
        .values(execution_type=wanted, update_time=at)
    )
    return changed.rowcount == 1


def execution_type_of(db: Connection, definition_id: int) -> int:
    found: int | None = db.scalar(
        select(process_definition.c.execution_type).where(process_definition.c.id == definition_id)
    )
    return found or 0


def outcome(db: Connection, command_id: int) -> Outcome:
    """Read what became of a start command by now."""
    # In this order: a command is gone in the same moment in which its instance or its refusal is
    # there, so that one that was seen gone has left what can be seen.
    if is_waiting(db, command_id):
        return Outcome(waits=True)
    refusal = refusal_of(db, command_id)
    if refusal is not None:
        return Outcome(refusal=refusal)
    found = db.scalar(
        select(process_instance.c.id)
        .where(process_instance.c.command_id == command_id)
        # The newest, should the ids of commands have been started anew.
        .order_by(process_instance.c.id.desc())
        .limit(1)
    )
    return Outcome(process_instance_id=found)


def is_waiting(db: Connection, command_id: int) -> bool:
    """Whether no master has taken the command yet."""
    return db.scalar(select(command.c.id).where(command.c.id == command_id)) is not None


def refusal_of(db: Connection, command_id: int) -> str | None:
    """Why the command was refused; None if it was not."""
    found = db.execute(
        select(error_command.c.message).where(error_command.c.command_id == command_id).limit(1)
    ).first()
    return None if found is None else (found.message or "no reason was given")


def worker_group_id(db: Connection, name: str) -> int | None:
    """The id of the group with this name; the oldest, should there be several."""
    found: int | None = db.scalar(
        select(worker_group.c.id)
        .where(worker_group.c.name == name)
        .order_by(worker_group.c.id)
        .limit(1)
    )
    return found


def worker_group_names(db: Connection) -> list[str]:
    return [row.name for row in db.execute(select(worker_group.c.name).order_by(worker_group.c.id))]


def run_shape(db: Connection, process_instance_id: int) -> RunShape | None:
    """Read the definition and the selection of a run; None if there is no such run."""
    found = db.execute(
        select(
            process_instance.c.process_instance_json,
            process_instance.c.command_param,
            process_instance.c.task_depend_type,
        ).where(process_instance.c.id == process_instance_id)
    ).first()
    if found is None:
        return None
    return RunShape(
        process_instance_json=found.process_instance_json,
        command_param=found.command_param or "",
        task_depend_type=found.task_depend_type,
    )


def task_document(db: Connection, task_instance_id: int) -> TaskDocument | None:
    """Read an attempt's node with the parameters of its run; None if there is no such attempt."""
    found = db.execute(
        select(
            task_instance.c.task_json,
            task_instance.c.start_time,
            task_instance.c.input_pool,
            task_instance.c.var_pool,
            process_instance.c.command_param,
            process_instance.c.global_params,
            process_instance.c.schedule_time,
            process_instance.c.history_cmd,
            process_instance.c.timezone_id,
        )
        .join_from(
            task_instance,
            process_instance,
            process_instance.c.id == task_instance.c.process_instance_id,
        )
        .where(task_instance.c.id == task_instance_id)
    ).first()
    if found is None:
        return None
    return TaskDocument(
        task_json=found.task_json,
        global_params=found.global_params,
        schedule_time=found.schedule_time,
        start_time=found.start_time,
        history_cmd=found.history_cmd,
        input_pool=found.input_pool,
        var_pool=found.var_pool,
        command_param=found.command_param,
        timezone_id=found.timezone_id,
    )


def lock_imports(db: Connection) -> None:
    """Let one import happen at a time: two together could make a cycle that neither has alone."""
    db.execute(text("SELECT pg_advisory_xact_lock(hashtext(:lock))"), {"lock": _IMPORT_LOCK})


def new_definition_id(db: Connection) -> int:
    """An id that no definition has, to be referred to before the definition itself is there."""
    drawn: int = db.execute(
        select(func.nextval(func.pg_get_serial_sequence(process_definition.name, "id")))
    ).scalar_one()
    return drawn


def insert_definition(
    db: Connection,
    *,
    definition_id: int,
    project_id: int,
    name: str,
    process_definition_json: str,
    at: datetime,
    user_id: int = 1,
    description: str | None = None,
    global_params: str | None = None,
    timeout_minutes: int = 0,
    tenant_id: int = -1,
) -> bool:
    """Make a definition, OFFLINE and at version 1; False if its name has been taken meanwhile."""
    made = db.execute(
        pg_insert(process_definition)
        .values(
            id=definition_id,
            project_id=project_id,
            name=name,
            user_id=user_id,
            version=1,
            process_definition_json=process_definition_json,
            description=description,
            global_params=global_params,
            timeout=timeout_minutes,
            tenant_id=tenant_id,
            create_time=at,
            update_time=at,
        )
        .on_conflict_do_nothing(index_elements=["project_id", "name"])
    )
    return made.rowcount == 1


def keep_drawing(
    db: Connection, definition_id: int, *, locations: str | None, connects: str | None
) -> None:
    """Store what a front end knows of a definition's looks; what is None stays as it was."""
    values = {
        name: value
        for name, value in (("locations", locations), ("connects", connects))
        if value is not None
    }
    if values:
        db.execute(
            update(process_definition)
            .where(process_definition.c.id == definition_id)
            .values(**values)
        )


def drawing(db: Connection, definition_id: int) -> tuple[str | None, str | None]:
    """The locations and connects of a definition."""
    found = db.execute(
        select(process_definition.c.locations, process_definition.c.connects).where(
            process_definition.c.id == definition_id
        )
    ).first()
    return (None, None) if found is None else (found.locations, found.connects)


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedDefinition:
    """A definition as others refer to it, with its JSON."""

    id: int
    project_id: int
    project_name: str | None
    name: str
    process_definition_json: str | None


def definitions_named(db: Connection, names: Collection[str]) -> list[NamedDefinition]:
    """The definitions with one of these names, in every project; the default project's first."""
    return _named_definitions(db, process_definition.c.name.in_(names)) if names else []


def definitions_with_ids(db: Connection, ids: Collection[int]) -> list[NamedDefinition]:
    return _named_definitions(db, process_definition.c.id.in_(ids)) if ids else []


def _named_definitions(db: Connection, which: ColumnElement[bool]) -> list[NamedDefinition]:
    return [
        NamedDefinition(
            id=row.id,
            project_id=row.project_id,
            project_name=row.project_name,
            name=row.name,
            process_definition_json=row.process_definition_json,
        )
        for row in db.execute(
            select(
                process_definition.c.id,
                process_definition.c.project_id,
                project.c.name.label("project_name"),
                process_definition.c.name,
                process_definition.c.process_definition_json,
            )
            .outerjoin_from(
                process_definition, project, project.c.id == process_definition.c.project_id
            )
            .where(which)
            .order_by(process_definition.c.project_id, process_definition.c.id)
        )
    ]


def datasource_names(db: Connection) -> dict[int, str]:
    """Every data source: its name by its id."""
    return {
        row.id: row.name
        for row in db.execute(select(datasource.c.id, datasource.c.name).order_by(datasource.c.id))
    }


def worker_groups(db: Connection) -> dict[int, str]:
    """Every worker group: its name by its id."""
    return {
        row.id: row.name
        for row in db.execute(
            select(worker_group.c.id, worker_group.c.name).order_by(worker_group.c.id)
        )
    }


def tenant_ids(db: Connection, codes: Collection[str]) -> dict[str, int]:
    """The ids of these tenants; the oldest, should a code stand twice."""
    rows = db.execute(
        select(tenant.c.tenant_code, tenant.c.id)
        .where(tenant.c.tenant_code.in_(codes))
        .order_by(tenant.c.id.desc())
    )
    return {row.tenant_code: row.id for row in rows}


def make_worker_group(db: Connection, name: str) -> int:
    """A group without any address, which serves as soon as a worker is started with its name."""
    db.execute(text("SELECT pg_advisory_xact_lock(hashtext(:lock))"), {"lock": _GROUP_LOCK})
    known = worker_group_id(db, name)
    if known is not None:
        return known
    made: int = db.execute(
        insert(worker_group).values(name=name).returning(worker_group.c.id)
    ).scalar_one()
    return made


def create_pool(db: Connection, name: str, *, size: int, description: str | None) -> int | None:
    """The id of the new pool; None if there is one of that name."""
    made: int | None = db.execute(
        pg_insert(task_group)
        .values(name=name, group_size=size, description=description)
        .on_conflict_do_nothing(index_elements=[task_group.c.name])
        .returning(task_group.c.id)
    ).scalar()
    return made


def known_pools(db: Connection, names: Collection[str]) -> frozenset[str]:
    """Those of these names that are names of pools."""
    if not names:
        return frozenset()
    return frozenset(db.scalars(select(task_group.c.name).where(task_group.c.name.in_(names))))


def resize_pool(db: Connection, name: str, *, size: int, at: datetime) -> bool:
    """Whether there is such a pool. Who waits for slots is looked at again at once."""
    changed = db.execute(
        update(task_group).where(task_group.c.name == name).values(group_size=size, update_time=at)
    )
    return changed.rowcount == 1


def lock_pool(db: Connection, name: str) -> bool:
    """Whether there is such a pool; nobody is given slots of it before this transaction ends."""
    found = db.execute(
        select(task_group.c.id).where(task_group.c.name == name).with_for_update()
    ).first()
    return found is not None


def remove_pool(db: Connection, name: str) -> bool:
    """Whether there was such a pool. That nobody uses it has to be seen under `lock_pool`."""
    return db.execute(delete(task_group).where(task_group.c.name == name)).rowcount == 1


def save_datasource(
    db: Connection,
    *,
    name: str,
    type_: int,
    connection_params: str,
    note: str | None,
    replace: bool,
    at: datetime,
) -> tuple[int, bool] | None:
    """The id of the data source and whether it is new; None if its name is taken.

    With `replace` the one of that name, the oldest should there be several, is brought to this.
    """
    db.execute(text("SELECT pg_advisory_xact_lock(hashtext(:lock))"), {"lock": _DATASOURCE_LOCK})
    known: int | None = db.scalar(
        select(func.min(datasource.c.id)).where(datasource.c.name == name)
    )
    values = {
        "type": type_,
        "connection_params": connection_params,
        "note": note,
        "update_time": at,
    }
    if known is None:
        made: int = db.execute(
            insert(datasource)
            .values(name=name, create_time=at, **values)
            .returning(datasource.c.id)
        ).scalar_one()
        return made, True
    if not replace:
        return None
    db.execute(update(datasource).where(datasource.c.id == known).values(**values))
    return known, False


def remove_datasource(db: Connection, datasource_id: int) -> bool:
    return db.execute(delete(datasource).where(datasource.c.id == datasource_id)).rowcount == 1


def try_database(url: str, *, timeout_seconds: int = 10) -> str:
    """Connect to a database of somebody's own and ask it for a row; what it calls itself.

    Raises `ServiceUnreachableError` with the driver's words, in which no password is.
    """
    try:
        address = make_url(url)
        arguments = {"connect_timeout": timeout_seconds} if _knows_connect_timeout(address) else {}
        engine = create_engine(address, poolclass=NullPool, connect_args=arguments)
    except (ArgumentError, NoSuchModuleError, ImportError) as error:
        # The text of an ArgumentError may hold the whole URL.
        words = "the URL can't be read" if isinstance(error, ArgumentError) else str(error)
        raise ServiceUnreachableError(f"no connection can be made: {words}") from None
    try:
        with engine.connect() as db:
            db.execute(select(1))
            found = db.dialect.server_version_info or ()
            return " ".join([db.dialect.name, ".".join(map(str, found))]).strip()
    except SQLAlchemyError as error:
        cause = str(getattr(error, "orig", None) or error).strip().splitlines()
        raise ServiceUnreachableError(
            _without_password(f"no connection: {cause[0] if cause else error}", address)
        ) from None
    finally:
        engine.dispose()


def _knows_connect_timeout(address: URL) -> bool:
    return address.get_backend_name() == "postgresql" and "connect_timeout" not in address.query


def _without_password(words: str, address: URL) -> str:
    password = address.password
    return words.replace(str(password), "***") if password else words


def server_time(db: Connection) -> datetime:
    """The database's clock."""
    now: datetime = db.execute(select(func.clock_timestamp())).scalar_one()
    return now


def _put(db: Connection, **values: object) -> int:
    made: int = db.execute(insert(command).values(**values).returning(command.c.id)).scalar_one()
    return made
