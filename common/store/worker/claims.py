"""The statements that claim attempts: the lean statement, and the statement with all checks.

An attempt that names neither a tenant nor a worker group needs no grant, and most name neither.
Most also run on no cluster with queues. The lean statement claims these, without the joins to
tenants, users and queues. Only `common.store.worker.tasks` uses this module.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from sqlalchemy import (
    Boolean,
    ColumnElement,
    Connection,
    Select,
    Text,
    bindparam,
    case,
    cast,
    func,
    literal,
    null,
    or_,
    select,
    update,
)

from common.model.command_param import ParamKey
from common.model.grants import GrantKind
from common.model.states import LIVE_PROCESS_STATES, TaskState
from common.store.business_times import MOMENT
from common.store.fixed_statement import FixedStatement
from common.store.origins import ORIGIN
from common.store.queue_entries import IS_COMPLEMENT
from common.store.tables import (
    WORKERLESS_TASK_TYPES,
    process_definition,
    process_instance,
    project,
    queue,
    task_instance,
    tenant,
    user,
)
from common.store.transaction import AnyRow, any_of
from common.store.worker.granted import GROUP_OF_ATTEMPT, NOTHING_LACKED, unless_granted

_OWN_TENANT: Final = tenant.alias("own_tenant")
_CREATOR: Final = user.alias("creator")
_CREATORS_TENANT: Final = tenant.alias("creators_tenant")
_EXECUTOR: Final = user.alias("executor")


def _of_tenant(column: str) -> ColumnElement[Any]:
    """Select a column of the run's tenant: its own, else the creator's (contract §6.3)."""
    return case(
        (process_definition.c.id.is_(None), None),
        (_OWN_TENANT.c.id.is_not(None), _OWN_TENANT.c[column]),
        else_=_CREATORS_TENANT.c[column],
    )


def named_in(state: TaskState) -> ColumnElement[bool]:
    """Return the condition that a row is in a state, for rows that are named by their ids.

    An expression instead of the bare column keeps a plan for a small table from using an index of
    all rows in some states.
    """
    return task_instance.c.state + 0 == int(state)


_GROUP: Final = func.greatest(task_instance.c.worker_group_id, process_instance.c.worker_group_id)
"""Greater than 0 if the attempt is bound to a worker group."""
WITHOUT_QUEUE: Final = ("SHELL", "PYTHON", "SQL", "HTTP")
"""Types of tasks that run on no cluster with queues."""


def _claimable(*others: ColumnElement[Any]) -> Select[Any]:
    """Select the attempts that may be claimed, with their runs and these other columns.

    A row that is locked elsewhere is being claimed or withdrawn: there is nothing to wait for.
    """
    return (
        select(
            task_instance.c.id,
            task_instance.c.process_instance_id,
            task_instance.c.process_definition_id,
            process_instance.c.name.label("process_name"),
            task_instance.c.name,
            task_instance.c.attempt,
            task_instance.c.task_type,
            task_instance.c.task_json,
            task_instance.c.submit_time,
            task_instance.c.input_pool,
            task_instance.c.timeout_seconds,
            task_instance.c.timeout_strategy,
            task_instance.c.memory_factor,
            # The text may be long, and most runs have neither key.
            case(
                (
                    or_(
                        process_instance.c.command_param.contains(f'"{ParamKey.START_PARAMS}"'),
                        process_instance.c.command_param.contains(f'"{ParamKey.ENVIRONMENT_CODE}"'),
                    ),
                    process_instance.c.command_param,
                ),
                else_=None,
            ).label("command_param"),
            process_instance.c.global_params,
            MOMENT.label("moment"),
            IS_COMPLEMENT.label("complement"),
            process_instance.c.timezone_id,
            process_instance.c.executor_id,
            process_definition.c.project_id,
            ORIGIN,
            *others,
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
        .where(named_in(TaskState.SUBMITTED))
        .where(task_instance.c.flag + 0 == 1)
        .where(task_instance.c.wanted_state.is_(None))
        .where(task_instance.c.task_type.not_in(WORKERLESS_TASK_TYPES))
        # If a worker was chosen for an attempt, only that worker may claim it.
        .where(
            or_(task_instance.c.host.is_(None), task_instance.c.host == bindparam("worker_host"))
        )
        .where(process_instance.c.state.in_(LIVE_PROCESS_STATES))
        # Only masters write queue entries, and the name of an entry contains the worker group.
        .where(or_(cast(bindparam("queued"), Boolean), _GROUP <= 0))
        # This covers the queue, hints, and a choice from before the worker was reserved.
        .where(or_(cast(bindparam("takes_any"), Boolean), _GROUP > 0))
        .with_for_update(of=task_instance, key_share=True, skip_locked=True)
    )


def _claiming(claimable: Select[Any]) -> FixedStatement:
    """Build the statement that claims these. It is one transaction: it returns what it changed."""
    rows = claimable.cte("claimable")
    place = func.concat(
        rows.c.process_definition_id, "/", rows.c.process_instance_id, "/", rows.c.id
    )
    return FixedStatement(
        update(task_instance)
        .where(task_instance.c.id == rows.c.id)
        .where(named_in(TaskState.SUBMITTED))
        .values(
            state=int(TaskState.RUNNING),
            host=bindparam("worker_host"),
            worker_incarnation=bindparam("incarnation"),
            start_time=bindparam("now"),
            # As `AttemptFolders.paths` gives them.
            execute_path=func.concat(cast(bindparam("work"), Text), "/", place),
            log_path=func.concat(cast(bindparam("logs"), Text), "/", place, ".log"),
        )
        .returning(*rows.c, task_instance.c.execute_path, task_instance.c.log_path),
        prepared=True,
    )


_CLAIM: Final = _claiming(
    _claimable(
        cast(null(), Text).label("tenant_code"),
        cast(null(), Text).label("queue"),
        literal(False).label("names_tenant"),
        *NOTHING_LACKED,
    )
    .where(process_instance.c.tenant_id <= 0)
    .where(_GROUP <= 0)
    .where(task_instance.c.task_type.in_(WITHOUT_QUEUE))
)
_CLAIM_CHECKED: Final = _claiming(
    _claimable(
        _of_tenant("tenant_code").label("tenant_code"),
        # The executing user's own queue goes before the tenant's (contract §6.2).
        func.coalesce(func.nullif(_EXECUTOR.c.queue, ""), queue.c.queue).label("queue"),
        _OWN_TENANT.c.id.is_not(None).label("names_tenant"),
        # A grant may be revoked after the attempt was submitted.
        unless_granted(GrantKind.TENANT, _of_tenant("id")).label("lacked_tenant"),
        unless_granted(GrantKind.WORKER_GROUP, GROUP_OF_ATTEMPT).label("lacked_group"),
    )
    .outerjoin(_OWN_TENANT, _OWN_TENANT.c.id == process_instance.c.tenant_id)
    .outerjoin(_CREATOR, _CREATOR.c.id == process_definition.c.user_id)
    .outerjoin(_CREATORS_TENANT, _CREATORS_TENANT.c.id == _CREATOR.c.tenant_id)
    .outerjoin(_EXECUTOR, _EXECUTOR.c.id == process_instance.c.executor_id)
    .outerjoin(queue, queue.c.id == _of_tenant("queue_id"))
)
"""The statement for every attempt, which takes the server a third longer."""


class ClaimStatements:
    """The choice of the statement for each claim of a worker."""

    def __init__(self, *, checks_creators: bool) -> None:
        """`checks_creators`: also read and check the tenants that runs have from their creators."""
        self._checks_all = checks_creators

    def rows(self, db: Connection, values: Mapping[str, Any]) -> list[AnyRow]:
        """Claim attempts; return a row of each."""
        if self._checks_all:
            return _CLAIM_CHECKED.rows(db, values)
        rows: list[AnyRow] = _CLAIM.rows(db, values)
        claimed = {row.id for row in rows}
        left = [each for each in values["ids"] if each not in claimed]
        if left:
            checked = _CLAIM_CHECKED.rows(db, {**values, "ids": left})
            # Where one attempt needs this statement others will, and one statement is then enough.
            self._checks_all = bool(checked)
            rows += checked
        return rows
