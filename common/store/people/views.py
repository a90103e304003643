"""Rows as people see them: process instances and attempts.

Read only, and tolerant: a state is given as its number, since a row may hold a code that this
version has no word for. No daemon decides anything by these views.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import cache, partial
from typing import Any, Final, TypeAlias

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    FromClause,
    Integer,
    Select,
    and_,
    bindparam,
    func,
    or_,
    select,
    true,
)

from common.masking import shown_reason
from common.model.rights import DATABASE, Principal
from common.model.states import FINISHED_TASK_CODES
from common.store.executed import duration_from
from common.store.fixed_statement import FixedRead
from common.store.people.project_column import project_name
from common.store.people.run_details import ProcessInstanceDetail
from common.store.people.view_rows import (  # Re-exported.
    ProcessInstanceView as ProcessInstanceView,  # noqa: PLC0414
)
from common.store.people.view_rows import (
    TaskInstanceView as TaskInstanceView,  # noqa: PLC0414
)
from common.store.tables import (
    RARE_ENDS_OF_RUNS,
    process_definition,
    process_instance,
    task_instance,
)

_Seen: TypeAlias = Callable[[ColumnElement[Any]], ColumnElement[bool]]


def process_instances(
    db: Connection,
    *,
    definition_name: str | None = None,
    states: Sequence[int] | None = None,
    limit: int = 50,
    principal: Principal = DATABASE,
    definition_id: int | None = None,
    before: int | None = None,
    ids: Collection[int] | None = None,
) -> list[ProcessInstanceView]:
    """List the newest that the principal sees first, at most `limit`; in any state if none named.

    `before`: only those with smaller ids. `ids`: only these.
    """
    filters = (definition_name, states, definition_id, ids)
    if all(each is None for each in filters) and principal.projects is None:
        return _newest_instances(db, principal, limit=limit, before=before)
    of_one = definition_id is not None and all(
        each is None for each in (definition_name, states, ids)
    )
    if of_one and principal.projects is None and not principal.owns_database:
        from common.store.people.rights import told

        values = {**told(principal), "definition_id": definition_id}
        found = _newest_of_one().rows(db, {**values, "limit": limit, "last": _last(before)})
        return [_instance(row) for row in found]
    if states is not None and len(states) == 1 and not principal.owns_database:
        of_a_state = all(each is None for each in (definition_name, definition_id, ids))
        if of_a_state and principal.projects is None and states[0] in RARE_ENDS_OF_RUNS:
            from common.store.people.rights import told

            values = {**told(principal), "limit": limit, "last": _last(before)}
            found = _newest_of_state(states[0]).rows(db, values)
            if found:
                return [_instance(row) for row in found]
    statement = _INSTANCES.order_by(process_instance.c.id.desc()).limit(limit)
    if not principal.sees_all:
        # Here, since who reads the tables themselves has no use for rights.
        from common.store.people.rights import seen_projects, sees_everything

        no_definition = definition_id is None and definition_name is None and ids is None
        if no_definition and not sees_everything(db, principal):
            return _among_others(db, principal, states=states, limit=limit, before=before)
        statement = statement.where(seen_projects(principal, process_definition.c.project_id))
    if definition_id is not None:
        statement = statement.where(process_instance.c.process_definition_id == definition_id)
    if before is not None:
        statement = statement.where(process_instance.c.id < before)
    if ids is not None:
        statement = statement.where(process_instance.c.id.in_(ids))
    if definition_name is not None:
        # By numbers, of which the database knows how many runs they have.
        named = select(process_definition.c.id).where(process_definition.c.name == definition_name)
        statement = statement.where(
            process_instance.c.process_definition_id.in_(db.scalars(named).all())
        )
    if states is not None:
        statement = statement.where(process_instance.c.state.in_(states))
    return [_instance(row) for row in db.execute(statement)]


def _newest_instances(
    db: Connection, principal: Principal, *, limit: int, before: int | None
) -> list[ProcessInstanceView]:
    values = {"limit": limit, "last": _last(before)}
    if principal.owns_database:
        return [_instance(row) for row in _newest().rows(db, values)]
    from common.store.people.rights import told

    values |= told(principal)
    found = _newest_seen().rows(db, values)
    if found and found[-1].place == _LOOKED_THROUGH:
        # Most that is new belongs to others: what is seen is looked for by its definitions.
        values["last"] = found.pop().id
        values["limit"] = limit - len(found)
        found += _newest_of_definitions().rows(db, values)
    return [_instance(row) for row in found]


def _among_others(
    db: Connection,
    principal: Principal,
    *,
    states: Sequence[int] | None,
    limit: int,
    before: int | None,
) -> list[ProcessInstanceView]:
    """List runs in these states, or for a token of some projects, for who may see few of all."""
    from common.store.people.rights import seen_projects

    seen = partial(seen_projects, principal)
    values = {"limit": limit, "last": _last(before)}
    found = list(db.execute(_look_through(seen, states), values))
    if found and found[-1].place == _LOOKED_THROUGH:
        last = found.pop().id
        is_seen = seen(process_definition.c.project_id)
        # By numbers, of which the database knows how many runs they have.
        definitions = db.scalars(select(process_definition.c.id).where(is_seen)).all()
        more = (
            _INSTANCES.where(is_seen)
            .where(process_instance.c.process_definition_id.in_(definitions))
            .where(process_instance.c.id <= last)
            .order_by(process_instance.c.id.desc())
            .limit(limit - len(found))
        )
        if states is not None:
            more = more.where(process_instance.c.state.in_(states))
        found += db.execute(more)
    return [_instance(row) for row in found]


def _last(before: int | None) -> int:
    return _LARGEST_ID if before is None else min(before - 1, _LARGEST_ID)


@cache
def _newest() -> FixedRead:
    return FixedRead(
        _INSTANCES.where(process_instance.c.id <= bindparam("last", type_=Integer))
        .order_by(process_instance.c.id.desc())
        .limit(bindparam("limit", type_=BigInteger))
    )


@cache
def _newest_of_one() -> FixedRead:
    from common.store.people.rights import told_seen

    of_one = process_instance.c.process_definition_id == bindparam("definition_id", type_=Integer)
    return FixedRead(
        _INSTANCES.where(of_one)
        .where(process_instance.c.id <= bindparam("last", type_=Integer))
        .where(told_seen(process_definition.c.project_id))
        .order_by(process_instance.c.id.desc())
        .limit(bindparam("limit", type_=BigInteger))
    )


@cache
def _newest_of_state(state: int) -> FixedRead:
    """For administrators. The state stands in the text, as in the condition of its index."""
    from common.store.people.rights import told_everything

    return FixedRead(
        _INSTANCES.where(process_instance.c.state == state)
        .where(process_instance.c.id <= bindparam("last", type_=Integer))
        .where(told_everything())
        .order_by(process_instance.c.id.desc())
        .limit(bindparam("limit", type_=BigInteger))
    )


@cache
def _newest_seen() -> FixedRead:
    from common.store.people.rights import told_seen

    return FixedRead(_look_through(told_seen))


@cache
def _newest_of_definitions() -> FixedRead:
    from common.store.people.rights import told_seen

    return FixedRead(_by_definitions(told_seen))


def _look_through(seen: _Seen, states: Sequence[int] | None = None) -> Select[Any]:
    """Build the look through the newest runs of all, whose last comes whether it is seen or not."""
    newest = (
        select(process_instance)
        .where(process_instance.c.id <= bindparam("last", type_=Integer))
        .order_by(process_instance.c.id.desc())
        .limit(_LOOKED_THROUGH)
        .subquery()
    )
    # The order tells the database that it need not sort, nor read more than it shows.
    place = func.row_number().over(order_by=newest.c.id.desc()).label("place")
    numbered = select(newest, place).subquery()
    shown = seen(process_definition.c.project_id)
    if states is not None:
        shown = and_(shown, numbered.c.state.in_(states))
    return (
        select(*_instance_columns(numbered), numbered.c.place)
        .outerjoin_from(
            numbered,
            process_definition,
            process_definition.c.id == numbered.c.process_definition_id,
        )
        .where(or_(numbered.c.place == _LOOKED_THROUGH, shown))
        .order_by(numbered.c.id.desc())
        .limit(bindparam("limit", type_=BigInteger))
    )


def _by_definitions(seen: _Seen) -> Select[Any]:
    """Build the look at the newest runs of each definition that is seen.

    The newest of all belong to those definitions whose newest ones are.
    """
    last = bindparam("last", type_=Integer)
    limit = bindparam("limit", type_=BigInteger)

    def of_definition(definition: ColumnElement[int], most: Any) -> FromClause:
        run = process_instance.alias().c
        found = select(run.id).where(run.process_definition_id == definition).where(run.id <= last)
        return found.order_by(run.id.desc()).limit(most).lateral()

    of_each = of_definition(process_definition.c.id, 1)
    newest = (
        select(process_definition.c.id)
        .join_from(process_definition, of_each, true())
        .where(seen(process_definition.c.project_id))
        .order_by(of_each.c.id.desc())
        .limit(limit)
        .subquery()
    )
    runs = of_definition(newest.c.id, limit)
    chosen = (
        select(runs.c.id)
        .join_from(newest, runs, true())
        .order_by(runs.c.id.desc())
        .limit(limit)
        .subquery()
    )
    return (
        select(*_instance_columns(process_instance))
        .join_from(chosen, process_instance, process_instance.c.id == chosen.c.id)
        .outerjoin(
            process_definition,
            process_definition.c.id == process_instance.c.process_definition_id,
        )
        .order_by(process_instance.c.id.desc())
    )


def process_instance_by_id(db: Connection, process_instance_id: int) -> ProcessInstanceView | None:
    """Read a process instance without its tasks: cheap enough to poll."""
    if not 0 < process_instance_id <= _LARGEST_ID:
        return None
    found = _by_id().rows(db, {"id": process_instance_id})
    return _instance(found[0]) if found else None


@cache
def _by_id() -> FixedRead:
    return FixedRead(_INSTANCES.where(process_instance.c.id == bindparam("id", type_=Integer)))


@cache
def _detail_by_id() -> FixedRead:
    return FixedRead(
        _INSTANCES.add_columns(
            process_instance.c.process_instance_json,
            process_instance.c.command_param,
            process_instance.c.global_params,
            process_instance.c.business_time,
            process_instance.c.timezone_id,
        ).where(process_instance.c.id == bindparam("id", type_=Integer))
    )


def process_instance_detail(
    db: Connection, process_instance_id: int, *, with_tasks: bool = True
) -> ProcessInstanceDetail | None:
    """Read a process instance with its tasks; None if there is no such instance."""
    if not 0 < process_instance_id <= _LARGEST_ID:
        return None
    rows = _detail_by_id().rows(db, {"id": process_instance_id})
    if not rows:
        return None
    (found,) = rows
    return ProcessInstanceDetail(
        instance=_instance(found),
        process_instance_json=found.process_instance_json,
        command_param=found.command_param,
        global_params=found.global_params,
        tasks=tuple(task_instances(db, process_instance_id=process_instance_id))
        if with_tasks
        else (),
        business_time=found.business_time,
        timezone_id=found.timezone_id,
    )


def task_instances(
    db: Connection,
    *,
    process_instance_id: int | None = None,
    states: Sequence[int] | None = None,
    valid_only: bool = False,
    limit: int | None = None,
    ids: Collection[int] | None = None,
    principal: Principal = DATABASE,
) -> list[TaskInstanceView]:
    """List attempts in the order in which they were made; with a `limit`, the newest.

    The principal's projects limit the list, unless the caller names a run or `ids`, for which it
    has checked the right.
    """
    if process_instance_id is not None and states is None and ids is None and not valid_only:
        values = {"process_instance_id": process_instance_id, "limit": limit}
        return [_task(row) for row in reversed(_attempts().rows(db, values))]
    statement = select(*_TASK_COLUMNS).order_by(task_instance.c.id.desc()).limit(limit)
    if ids is not None:
        statement = statement.where(task_instance.c.id.in_(ids))
    if process_instance_id is not None:
        statement = statement.where(task_instance.c.process_instance_id == process_instance_id)
    if states is not None:
        statement = statement.where(task_instance.c.state.in_(states))
    if process_instance_id is None and ids is None and not principal.sees_all:
        from common.store.people.rights import seen_projects

        runs = (
            select(process_instance.c.id)
            .join_from(
                process_instance,
                process_definition,
                process_definition.c.id == process_instance.c.process_definition_id,
            )
            .where(seen_projects(principal, process_definition.c.project_id))
        )
        statement = statement.where(task_instance.c.process_instance_id.in_(runs))
    if valid_only:
        # A lost one may still run beside the attempt that has taken its place.
        statement = statement.where(
            or_(task_instance.c.flag == 1, task_instance.c.lost_at.is_not(None))
        )
    return [_task(row) for row in reversed(db.execute(statement).all())]


@cache
def _attempts() -> FixedRead:
    return FixedRead(
        select(*_TASK_COLUMNS)
        .where(
            task_instance.c.process_instance_id == bindparam("process_instance_id", type_=Integer)
        )
        .order_by(task_instance.c.id.desc())
        .limit(bindparam("limit", type_=BigInteger))
    )


def lost_task_instances(db: Connection) -> list[TaskInstanceView]:
    """List ended attempts of which processes may still run, oldest first; a thousand at most."""
    statement = (
        select(*_TASK_COLUMNS)
        .where(task_instance.c.lost_at.is_not(None))
        .where(task_instance.c.state.in_(FINISHED_TASK_CODES))
        .order_by(task_instance.c.id)
        .limit(1_000)
    )
    return [_task(row) for row in db.execute(statement)]


def task_instance_by_id(db: Connection, task_instance_id: int) -> TaskInstanceView | None:
    if not 0 < task_instance_id <= _LARGEST_ID:
        return None
    found = _task_by_id().rows(db, {"id": task_instance_id})
    return _task(found[0]) if found else None


@cache
def _task_by_id() -> FixedRead:
    return FixedRead(
        select(*_TASK_COLUMNS).where(task_instance.c.id == bindparam("id", type_=Integer))
    )


_LARGEST_ID: Final = 2**31 - 1
_LOOKED_THROUGH: Final = 2_000
"""The newest runs among which a list looks before it asks for definitions."""


def _columns_of(
    view: type[ProcessInstanceView | TaskInstanceView], *columns: ColumnElement[Any]
) -> tuple[ColumnElement[Any], ...]:
    """Put columns into the order of the view's fields, by name: rows are made to views by place."""
    by_name = {each.key: each for each in columns}
    return tuple(by_name[each] for each in view._fields)


def _instance_columns(run: FromClause) -> tuple[ColumnElement[Any], ...]:
    return _columns_of(
        ProcessInstanceView,
        run.c.id,
        run.c.name,
        run.c.process_definition_id,
        process_definition.c.name.label("definition_name"),
        run.c.state,
        run.c.wanted_state,
        run.c.state_reason,
        run.c.command_type,
        run.c.run_times,
        run.c.failure_strategy,
        run.c.process_instance_priority.label("priority"),
        run.c.schedule_time,
        run.c.start_time,
        run.c.end_time,
        run.c.host,
        run.c.owner_epoch,
        run.c.root_id,
        run.c.parent_task_instance_id,
        run.c.wanted_deadline,
        project_name(process_definition.c.project_id),
        run.c.definition_version,
        process_definition.c.version.label("latest_version"),
        duration_from(run).label("duration_from"),
        func.split_part(func.coalesce(run.c.history_cmd, ""), ",", 1).label("first_command"),
    )


_INSTANCES: Final[Select[Any]] = select(*_instance_columns(process_instance)).outerjoin_from(
    process_instance,
    process_definition,
    process_definition.c.id == process_instance.c.process_definition_id,
)

_TASK_COLUMNS: Final = _columns_of(
    TaskInstanceView,
    task_instance.c.id,
    task_instance.c.process_instance_id,
    task_instance.c.name,
    task_instance.c.task_type,
    task_instance.c.attempt,
    task_instance.c.state,
    (task_instance.c.flag == 1).label("valid"),
    task_instance.c.wanted_state,
    task_instance.c.submit_time,
    task_instance.c.start_time,
    task_instance.c.end_time,
    task_instance.c.host,
    task_instance.c.pid,
    task_instance.c.exit_code,
    task_instance.c.reason,
    task_instance.c.retry_at,
    task_instance.c.retry_times,
    task_instance.c.max_retry_times,
    task_instance.c.execute_path,
    task_instance.c.log_path,
    task_instance.c.app_link,
    task_instance.c.due_at,
    task_instance.c.branch,
    task_instance.c.failure_reason,
    task_instance.c.memory_factor,
    task_instance.c.ui_link,
    task_instance.c.history_link,
    task_instance.c.progress,
    task_instance.c.usage,
    task_instance.c.lost_at,
)


def _instance(row: Any) -> ProcessInstanceView:
    """Make one of a row, which may have more columns behind."""
    made = ProcessInstanceView._make(row[:_INSTANCE_WIDTH])
    if made.state_reason is None:
        return made
    return made._replace(state_reason=shown_reason(made.state_reason))


def _task(row: Any) -> TaskInstanceView:
    made = TaskInstanceView._make(row)
    return made if made.reason is None else made._replace(reason=shown_reason(made.reason))


_INSTANCE_WIDTH: Final = len(ProcessInstanceView._fields)
