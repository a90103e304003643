"""Topologies as people submit, steer and see them.

A version's row never changes; the row of the topology names the newest. Every change of what is
wanted names the number of the orders that it replaces, so of two at once one is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from sqlalchemy import (
    ColumnElement,
    Connection,
    Integer,
    and_,
    case,
    cast,
    func,
    insert,
    select,
    true,
    update,
)
from sqlalchemy.dialects.postgresql import insert as pg_insert

from common.masking import shown_reason
from common.model.commands import CommandType
from common.model.rights import Principal
from common.model.states import LIVE_PROCESS_STATES, TaskState
from common.model.topologies import Code, Report, Wanted
from common.model.topology_graphs import TopologyGraph
from common.store.listen import ORDERS, hint_channel
from common.store.people.project_column import project_name
from common.store.people.rights import seen_projects
from common.store.tables import (
    command,
    process_instance,
    task_instance,
    topology,
    topology_version,
)
from common.store.transaction import AnyRow

_HOST: Final = (
    select(task_instance.c.host)
    .where(task_instance.c.id == topology.c.task_instance_id)
    .where(task_instance.c.state == int(TaskState.RUNNING))
    .scalar_subquery()
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopologyRun:
    """The run of a topology's definition that is live, else the newest."""

    id: int
    state: int
    reason: str | None
    start_time: datetime | None
    end_time: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TopologyAttempt:
    """The newest attempt of that run. `number` counts those of the run.

    `lost_at`: since when a master misses its worker.
    """

    id: int
    number: int
    state: int
    host: str | None
    reason: str | None
    submit_time: datetime | None
    start_time: datetime | None
    end_time: datetime | None
    lost_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TopologyView:
    """A topology as its row has it. `graph` is that of its newest version.

    `holder`: the attempt that was the last to run it, which `report` is of, or of one before.
    `starting`: a command waits that begins a run. `looked_at`: the database's time.
    """

    name: str
    project_id: int
    process_definition_id: int
    version: int
    generation: int
    wanted: Wanted
    report: Report | None
    report_time: datetime | None
    holder: int | None
    graph: TopologyGraph
    create_time: datetime
    update_time: datetime
    looked_at: datetime
    starting: bool
    run: TopologyRun | None
    attempt: TopologyAttempt | None
    project_name: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TopologyVersion:
    """One version of a topology, without its code."""

    name: str
    version: int
    graph: TopologyGraph
    user_id: int | None
    create_time: datetime


_RUN: Final = (
    select(
        process_instance.c.id.label("run_id"),
        process_instance.c.state.label("run_state"),
        process_instance.c.state_reason.label("run_reason"),
        process_instance.c.start_time.label("run_start"),
        process_instance.c.end_time.label("run_end"),
    )
    .where(process_instance.c.process_definition_id == topology.c.process_definition_id)
    .order_by(
        case((process_instance.c.state.in_(LIVE_PROCESS_STATES), 0), else_=1),
        process_instance.c.id.desc(),
    )
    .limit(1)
    .correlate(topology)
    .lateral("run")
)
_ATTEMPT: Final = (
    select(
        task_instance.c.id.label("attempt_id"),
        task_instance.c.attempt.label("attempt_number"),
        task_instance.c.state.label("attempt_state"),
        task_instance.c.host.label("attempt_host"),
        task_instance.c.reason.label("attempt_reason"),
        task_instance.c.submit_time.label("attempt_submit"),
        task_instance.c.start_time.label("attempt_start"),
        task_instance.c.end_time.label("attempt_end"),
        task_instance.c.lost_at.label("attempt_lost"),
    )
    .where(task_instance.c.process_instance_id == _RUN.c.run_id)
    .order_by(task_instance.c.id.desc())
    .limit(1)
    .correlate(_RUN)
    .lateral("newest")
)
_STARTING: Final = (
    select(command.c.id)
    .where(command.c.process_definition_id == topology.c.process_definition_id)
    .where(command.c.command_type == int(CommandType.START_PROCESS))
    .correlate(topology)
    .exists()
)
_VIEW: Final = select(
    topology,
    topology_version.c.graph,
    project_name(topology.c.project_id),
    func.now().label("looked_at"),
    _STARTING.label("starting"),
    *_RUN.c,
    *_ATTEMPT.c,
).select_from(
    topology.join(
        topology_version,
        and_(
            topology_version.c.topology == topology.c.name,
            topology_version.c.version == topology.c.version,
        ),
    )
    .outerjoin(_RUN, true())
    .outerjoin(_ATTEMPT, true())
)


def topology_named(db: Connection, name: str, *, lock: bool = False) -> TopologyView | None:
    """Return a topology; with `lock`, nobody else steers it until the transaction ends."""
    if lock:
        # First alone: a join that has waited for its lock would show the former version.
        db.execute(select(topology.c.name).where(topology.c.name == name).with_for_update())
    row = db.execute(_VIEW.where(topology.c.name == name)).first()
    return None if row is None else _view(row)


def topologies(
    db: Connection, principal: Principal, *, after: str = "", limit: int | None = None
) -> list[TopologyView]:
    """Return the topologies that the principal sees, by name, behind one; killed ones too."""
    rows = db.execute(
        _VIEW.where(seen_projects(principal, topology.c.project_id))
        .where(topology.c.name > after)
        .order_by(topology.c.name)
        .limit(limit)
    )
    return [_view(row) for row in rows]


def make_topology(
    db: Connection, name: str, *, project_id: int, process_definition_id: int, wanted: Wanted
) -> bool:
    """Make the row of a new topology, without a version yet; False if there is one."""
    made = db.execute(
        pg_insert(topology)
        .values(
            name=name,
            project_id=project_id,
            process_definition_id=process_definition_id,
            wanted=wanted.document(),
        )
        .on_conflict_do_nothing(index_elements=["name"])
    )
    return made.rowcount == 1


def add_version(
    db: Connection,
    name: str,
    *,
    version: int,
    code: Code,
    graph: TopologyGraph,
    user_id: int,
) -> bool:
    """Insert a version behind the newest, and make it that; False if there is another by now."""
    changed = db.execute(
        update(topology)
        .where(topology.c.name == name)
        .where(topology.c.version == version - 1)
        .values(version=version, update_time=func.now())
    )
    if changed.rowcount != 1:
        return False
    db.execute(
        insert(topology_version).values(
            topology=name,
            version=version,
            code=code.document(),
            graph=graph.document(),
            user_id=user_id,
        )
    )
    return True


def want(db: Connection, name: str, wanted: Wanted, *, before: int) -> bool:
    """Replace the orders of this number; False if they are not the present ones any more.

    The worker that runs the topology is notified.
    """
    changed = db.execute(
        update(topology)
        .where(topology.c.name == name)
        .where(_is_number(before))
        .values(wanted=wanted.document(), update_time=func.now())
        .returning(_HOST.label("host"))
    ).one_or_none()
    if changed is not None and changed.host:
        db.execute(select(func.pg_notify(hint_channel(changed.host), ORDERS)))
    return changed is not None


def change_definition(db: Connection, name: str, *, before: int, definition_id: int) -> bool:
    """Name the definition of runs to come; False if it was another one than this before."""
    changed = db.execute(
        update(topology)
        .where(topology.c.name == name)
        .where(topology.c.process_definition_id == before)
        .values(process_definition_id=definition_id, update_time=func.now())
    )
    return changed.rowcount == 1


def begin_anew(db: Connection, name: str, wanted: Wanted, *, before: int, generation: int) -> bool:
    """Begin the next generation of a topology that was killed; False if it is not as named.

    `generation` is the one that ends: its report is forgotten, and no attempt holds the new one.
    """
    changed = db.execute(
        update(topology)
        .where(topology.c.name == name)
        .where(topology.c.generation == generation)
        .where(_is_number(before))
        .values(
            generation=generation + 1,
            wanted=wanted.document(),
            report=None,
            report_time=None,
            task_instance_id=None,
            update_time=func.now(),
        )
    )
    return changed.rowcount == 1


def versions(db: Connection, name: str) -> list[TopologyVersion]:
    """Return the versions of a topology, the newest first."""
    rows = db.execute(
        select(
            topology_version.c.topology,
            topology_version.c.version,
            topology_version.c.graph,
            topology_version.c.user_id,
            topology_version.c.create_time,
        )
        .where(topology_version.c.topology == name)
        .order_by(topology_version.c.version.desc())
    )
    return [
        TopologyVersion(
            name=row.topology,
            version=row.version,
            graph=TopologyGraph.of(row.graph),
            user_id=row.user_id,
            create_time=row.create_time,
        )
        for row in rows
    ]


def code_of(db: Connection, name: str, version: int) -> Code | None:
    """Return the code of a version."""
    found = db.scalar(
        select(topology_version.c.code)
        .where(topology_version.c.topology == name)
        .where(topology_version.c.version == version)
    )
    return None if found is None else Code.of(found)


def _is_number(number: int) -> ColumnElement[bool]:
    """Build the condition that the present orders have this number."""
    return cast(topology.c.wanted["number"].astext, Integer) == number


def _view(row: AnyRow) -> TopologyView:
    return TopologyView(
        name=row.name,
        project_id=row.project_id,
        project_name=row.project_name,
        process_definition_id=row.process_definition_id,
        version=row.version,
        generation=row.generation,
        wanted=Wanted.of(row.wanted),
        report=_report(row.report),
        report_time=row.report_time,
        holder=row.task_instance_id,
        graph=TopologyGraph.of(row.graph),
        create_time=row.create_time,
        update_time=row.update_time,
        looked_at=row.looked_at,
        starting=row.starting,
        run=None
        if row.run_id is None
        else TopologyRun(
            id=row.run_id,
            state=row.run_state,
            reason=shown_reason(row.run_reason),
            start_time=row.run_start,
            end_time=row.run_end,
        ),
        attempt=None
        if row.attempt_id is None
        else TopologyAttempt(
            id=row.attempt_id,
            number=row.attempt_number,
            state=row.attempt_state,
            host=row.attempt_host,
            reason=shown_reason(row.attempt_reason),
            submit_time=row.attempt_submit,
            start_time=row.attempt_start,
            end_time=row.attempt_end,
            lost_at=row.attempt_lost,
        ),
    )


def _report(document: Mapping[str, Any] | None) -> Report | None:
    """Read a report; that of a worker of another version may be none that is known here."""
    try:
        return None if document is None else Report.of(document)
    except ValueError:
        return None
