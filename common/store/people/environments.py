"""Environments as people list, make, change and delete them. A config may hold secrets."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from sqlalchemy import Connection, delete, func, insert, select, text, update

from common.model.command_param import ParamKey
from common.model.complement_states import ComplementState
from common.model.grants import GrantKind
from common.model.rights import Principal
from common.model.states import LIVE_PROCESS_STATES
from common.store.people.grants import is_shown
from common.store.tables import (
    command,
    complement,
    environment,
    environment_worker_group_relation,
    process_instance,
    schedule,
)

_LOCK = "orcaflow environments"


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentView:
    """An environment as its row has it: secrets in `config` are encrypted, or typed by hand."""

    id: int
    code: int
    name: str
    config: str = field(repr=False)
    description: str | None
    worker_groups: tuple[str, ...]
    create_time: datetime
    update_time: datetime


def environments(
    db: Connection,
    *,
    seen_by: Principal | None = None,
    name: str | None = None,
    environment_id: int | None = None,
    code: int | None = None,
    search: str | None = None,
    after: int = 0,
    offset: int = 0,
    limit: int | None = None,
) -> list[EnvironmentView]:
    """List environments by id: all, those behind an id, or those that are asked for."""
    row = environment.c
    statement = (
        select(
            row.id,
            row.code,
            row.name,
            row.config,
            row.description,
            row.create_time,
            row.update_time,
        )
        .where(row.id > after)
        .where(is_shown(GrantKind.ENVIRONMENT, seen_by))
        .order_by(row.id)
        .offset(offset)
        .limit(limit)
    )
    if name is not None:
        statement = statement.where(row.name == name)
    if environment_id is not None:
        statement = statement.where(row.id == environment_id)
    if code is not None:
        statement = statement.where(row.code == code)
    if search:
        statement = statement.where(row.name.contains(search, autoescape=True))
    rows = db.execute(statement).all()
    groups = _groups(db, [each.code for each in rows])
    return [
        EnvironmentView(
            id=each.id,
            code=each.code,
            name=each.name,
            config=each.config,
            description=each.description,
            worker_groups=tuple(groups.get(each.code, ())),
            create_time=each.create_time,
            update_time=each.update_time,
        )
        for each in rows
    ]


def environment_count(
    db: Connection, *, seen_by: Principal | None = None, search: str | None = None
) -> int:
    """Count all environments, or those whose names contain a text."""
    shown = is_shown(GrantKind.ENVIRONMENT, seen_by)
    statement = select(func.count()).select_from(environment).where(shown)
    if search:
        statement = statement.where(environment.c.name.contains(search, autoescape=True))
    return db.scalar(statement) or 0


def environment_names(db: Connection, *, seen_by: Principal | None = None) -> dict[int, str]:
    """Return the names of all environments, or only of visible ones, by their codes."""
    row = environment.c
    statement = select(row.code, row.name).where(is_shown(GrantKind.ENVIRONMENT, seen_by))
    return {each.code: each.name for each in db.execute(statement)}


def environment_codes(db: Connection) -> dict[str, int]:
    """Return the codes of all environments by their names."""
    return {name: code for code, name in environment_names(db).items()}


def _groups(db: Connection, codes: Collection[int]) -> dict[int, list[str]]:
    if not codes:
        return {}
    row = environment_worker_group_relation.c
    found: dict[int, list[str]] = {}
    for each in db.execute(
        select(row.environment_code, row.worker_group)
        .where(row.environment_code.in_(codes))
        .order_by(row.id)
    ):
        found.setdefault(each.environment_code, []).append(each.worker_group)
    return found


def lock_environments(db: Connection) -> None:
    """Serialize changes of environments, until the end of the transaction."""
    db.execute(text("SELECT pg_advisory_xact_lock(hashtext(:lock))"), {"lock": _LOCK})


def hold_environments(db: Connection) -> None:
    """Keep environments from being changed and deleted, until the end of the transaction."""
    db.execute(text("SELECT pg_advisory_xact_lock_shared(hashtext(:lock))"), {"lock": _LOCK})


def create_environment(
    db: Connection,
    *,
    name: str,
    code: int | None,
    config: str,
    description: str | None,
    worker_groups: Sequence[str],
    user_id: int,
    at: datetime,
) -> int:
    """Insert an environment, under the lock; return its id."""
    values = {} if code is None else {"code": code}
    made = db.execute(
        insert(environment)
        .values(
            name=name,
            config=config,
            description=description,
            operator=user_id,
            create_time=at,
            update_time=at,
            **values,
        )
        .returning(environment.c.id, environment.c.code)
    ).one()
    _set_groups(db, made.code, worker_groups, user_id=user_id, at=at)
    number: int = made.id
    return number


def update_environment(
    db: Connection,
    view: EnvironmentView,
    *,
    name: str,
    config: str,
    description: str | None,
    worker_groups: Sequence[str],
    user_id: int,
    at: datetime,
) -> bool:
    """Change an environment, under the lock; False if it is gone."""
    changed = db.execute(
        update(environment)
        .where(environment.c.id == view.id)
        .values(name=name, config=config, description=description, operator=user_id, update_time=at)
    )
    if changed.rowcount != 1:
        return False
    if tuple(worker_groups) != view.worker_groups:
        relation = environment_worker_group_relation
        db.execute(delete(relation).where(relation.c.environment_code == view.code))
        _set_groups(db, view.code, worker_groups, user_id=user_id, at=at)
    return True


def replace_config(
    db: Connection, environment_id: int, *, before: str, after: str, at: datetime
) -> bool:
    """Put a config into the place of another; False if somebody else was faster."""
    row = environment.c
    changed = db.execute(
        update(environment)
        .where(row.id == environment_id)
        .where(row.config == before)
        .values(config=after, update_time=at)
    )
    return changed.rowcount == 1


def delete_environment(db: Connection, environment_id: int) -> bool:
    """Delete an environment with its relations; False if it is gone already."""
    gone = db.execute(delete(environment).where(environment.c.id == environment_id))
    return gone.rowcount == 1


def _set_groups(
    db: Connection, code: int, groups: Sequence[str], *, user_id: int, at: datetime
) -> None:
    if groups:
        db.execute(
            insert(environment_worker_group_relation),
            [
                {
                    "environment_code": code,
                    "worker_group": each,
                    "operator": user_id,
                    "create_time": at,
                    "update_time": at,
                }
                for each in groups
            ],
        )


def commands_with(db: Connection, code: int) -> list[int]:
    """Return the waiting commands that begin a run with this environment."""
    rows = db.execute(
        select(command.c.id, command.c.command_param)
        .where(command.c.command_param.contains(f'"{ParamKey.ENVIRONMENT_CODE}"'))
        .order_by(command.c.id)
    )
    return [row.id for row in rows if _names(row.command_param, code)]


def live_instances_with(db: Connection, code: int) -> list[int]:
    """Return the live process instances that were begun with this environment."""
    row = process_instance.c
    rows = db.execute(
        select(row.id, row.command_param)
        .where(row.state.in_(LIVE_PROCESS_STATES))
        .where(row.command_param.contains(f'"{ParamKey.ENVIRONMENT_CODE}"'))
        .order_by(row.id)
    )
    return [each.id for each in rows if _names(each.command_param, code)]


def schedules_with(db: Connection, code: int) -> list[int]:
    """Return the schedules that name this environment."""
    row = schedule.c
    return list(db.scalars(select(row.id).where(row.environment_code == code).order_by(row.id)))


def moving_complements_with(db: Connection, code: int) -> list[int]:
    """Return the complements with this environment that have not ended."""
    row = complement.c
    return list(
        db.scalars(
            select(row.id)
            .where(row.environment_code == code)
            .where(row.state.in_([int(each) for each in ComplementState if not each.is_ended]))
            .order_by(row.id)
        )
    )


def _names(command_param: str | None, code: int) -> bool:
    try:
        document = json.loads(command_param or "{}")
    except (ValueError, RecursionError):
        return False
    found = document.get(ParamKey.ENVIRONMENT_CODE) if isinstance(document, dict) else None
    return str(found).strip() == str(code)
