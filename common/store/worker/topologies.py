"""Topologies as the worker that runs one sees it: its code, what people want, its reports.

All is fenced like the end of an attempt: by the worker's incarnation and the state RUNNING. An
attempt *holds* a topology from its first question on, and no other holds it before that one has
ended: so two runs of the same definition never write to one folder.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Connection, Engine, bindparam, func, select, update

from common.model.cluster import Node
from common.model.states import TaskState
from common.model.topologies import Report, Wanted
from common.store.tables import process_instance, task_instance, topology, topology_version
from common.store.transaction import repeatable, single, storable_document, transaction

_IS_OURS: Final = (
    (task_instance.c.state == int(TaskState.RUNNING))
    & (task_instance.c.host == bindparam("node_host"))
    & (task_instance.c.worker_incarnation == bindparam("node_incarnation"))
)
_RUNS_HERE: Final = (task_instance.c.id == bindparam("task_id")) & _IS_OURS
_IS_ITS_RUN: Final = (process_instance.c.id == task_instance.c.process_instance_id) & (
    process_instance.c.process_definition_id == topology.c.process_definition_id
)
_TAKEER: Final = task_instance.alias("holder")
_IS_FREE: Final = (
    topology.c.task_instance_id.is_(None)
    | (topology.c.task_instance_id == bindparam("task_id"))
    | ~(
        select(_TAKEER.c.id)
        .where(_TAKEER.c.id == topology.c.task_instance_id)
        .where(_TAKEER.c.state == int(TaskState.RUNNING))
        .correlate(topology)
        .exists()
    )
)
_TAKE: Final = (
    update(topology)
    .where(_IS_ITS_RUN)
    .where(_RUNS_HERE)
    .where(_IS_FREE)
    .values(task_instance_id=bindparam("task_id"))
    .returning(topology.c.name)
)
_OTHER_TAKEER: Final = select(topology.c.task_instance_id).where(_IS_ITS_RUN).where(_RUNS_HERE)
_WORK: Final = (
    select(
        topology.c.name,
        topology.c.version,
        topology.c.generation,
        topology.c.wanted,
        topology.c.report,
        topology_version.c.code,
    )
    .join_from(
        topology,
        topology_version,
        (topology_version.c.topology == topology.c.name)
        & (topology_version.c.version == topology.c.version),
    )
    .where(topology.c.name == bindparam("topology"))
)
_HELD: Final = (
    select(topology.c.task_instance_id, topology.c.name, topology.c.wanted)
    .where(topology.c.task_instance_id == task_instance.c.id)
    .where(task_instance.c.id.in_(bindparam("task_ids", expanding=True)))
    .where(_IS_OURS)
)
_REPORT: Final = (
    update(topology)
    .where(topology.c.task_instance_id == task_instance.c.id)
    .where(_RUNS_HERE)
    .values(report=bindparam("told"), report_time=func.now())
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopologyWork:
    """The work of an attempt. `code` and `report`, the last one, are documents as they stand."""

    name: str
    version: int
    generation: int
    code: Mapping[str, Any]
    wanted: Wanted
    report: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldByAnother:
    """The topology is held by another attempt that runs."""

    task_instance_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldTopology:
    """The topology that an attempt holds, and what people want of it."""

    name: str
    wanted: Wanted


class PostgresTopologies:
    """The topologies of the attempts of one worker."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def work(self, node: Node, task_instance_id: int) -> TopologyWork | HeldByAnother | None:
        """Have an attempt hold its topology, and return its work.

        None if it is no topology's attempt, or does not run here. To ask again is harmless, and
        gives the version that is the newest by then.
        """
        values = _named(node, task_instance_id)

        def held(db: Connection) -> TopologyWork | HeldByAnother | None:
            name = db.scalar(_TAKE, values)
            if name is None:
                other = db.scalar(_OTHER_TAKEER, values)
                return None if other is None else HeldByAnother(task_instance_id=other)
            row = db.execute(_WORK, {"topology": name}).one()
            return TopologyWork(
                name=row.name,
                version=row.version,
                generation=row.generation,
                code=row.code,
                wanted=Wanted.of(row.wanted),
                report=row.report,
            )

        return repeatable(self._engine, held, begin=transaction)

    def held(self, node: Node, task_instance_ids: Collection[int]) -> Mapping[int, HeldTopology]:
        """Return what people want of the topologies that these attempts hold.

        An attempt is left out if it holds none, or does not run here.
        """
        values = _of(node) | {"task_ids": list(task_instance_ids)}
        return repeatable(
            self._engine,
            lambda db: {
                row.task_instance_id: HeldTopology(name=row.name, wanted=Wanted.of(row.wanted))
                for row in db.execute(_HELD, values)
            },
        )

    def report(self, node: Node, task_instance_id: int, report: Report) -> bool:
        """Store a report; False if the attempt holds no topology, or does not run here."""
        values = _named(node, task_instance_id) | {"told": storable_document(report.document())}
        with single(self._engine) as db:
            return db.execute(_REPORT, values).rowcount == 1


def _named(node: Node, task_instance_id: int) -> dict[str, Any]:
    return _of(node) | {"task_id": task_instance_id}


def _of(node: Node) -> dict[str, Any]:
    return {"node_host": node.address, "node_incarnation": node.incarnation}
