"""Claims, reports and re-adopts attempts for the worker that runs them, and records their facts.

A claim expects an attempt that is SUBMITTED and records its holder: the worker's address and
incarnation together, since the address alone would let a restarted worker write as its former
self. Later writes are fenced by the holder; `adopt` and `take_over` alone replace it, at the same
address. No
claim is fenced against the death of its worker: the trust window (`common.registry.trust`) keeps a
worker that may have been declared dead from claiming and starting, and failover takes what it
holds. Used by the claim loop, the supervisor and the reporter of a worker.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from sqlalchemy import (
    ColumnElement,
    DateTime,
    Double,
    Engine,
    Integer,
    SmallInteger,
    TableValuedAlias,
    Text,
    and_,
    bindparam,
    func,
    select,
    update,
)
from sqlalchemy.exc import DBAPIError

from common.model.cluster import Node
from common.model.command_param import CommandParam
from common.model.failures import FailureReason
from common.model.offers import Offer
from common.model.spark import SparkFacts
from common.model.states import (
    TaskState,
    TimeoutStrategy,
)
from common.model.workers import WorkerMode, mode_of
from common.store.alerts import alert_of_timed_out_attempts
from common.store.fixed_statement import FixedStatement
from common.store.origins import origin_of
from common.store.project_slots import projects_of_attempts, several_projects
from common.store.tables import (
    task_instance,
)
from common.store.transaction import (
    AnyRow,
    any_of,
    possible_ids,
    refusal,
    repeatable,
    single,
    storable,
    transaction,
    unnested,
)
from common.store.worker.claims import ClaimStatements, named_in
from common.store.worker.given_up import hand_back
from common.store.worker.granted import (
    datasources,
    environments,
    lacked,
    lenders,
)
from common.store.worker.kept_files import existing_runs, succeeded_attempts
from common.store.worker.log_tails import keep_tails, log_places
from common.store.worker.lost_attempts import found_gone, lost_attempts
from common.store.worker.offers import record_offer
from common.store.worker.ports import (
    AttemptEnd,
    AttemptFolders,
    ClaimedTask,
    DataSource,
    Environment,
    Kept,
    LogTail,
    ReportRefusedError,
    TaskStore,
    Wanted,
)
from common.store.worker.quality import FORMER, keep_quality
from common.store.worker.task_facts import (
    FACTS_TYPES,
    OVER,
    Earlier,
    earlier_attempts,
    facts_arrays,
    facts_of,
    facts_values,
    recording,
)
from common.store.worker_modes import present_modes

_IS_HOLDER: Final = and_(
    task_instance.c.host == bindparam("worker_host"),
    task_instance.c.worker_incarnation == bindparam("incarnation"),
)
_IS_HELD: Final = and_(task_instance.c.state == TaskState.RUNNING, _IS_HOLDER)
# The same of rows that are named by their ids.
_NAMED_IS_HELD: Final = and_(named_in(TaskState.RUNNING), _IS_HOLDER)

_STARTED: Final = unnested("started", id=Integer, pid=Integer, start_time=Double)
_NOTE_PROCESSES: Final = (
    update(task_instance)
    .where(task_instance.c.id == _STARTED.c.id)
    .where(_IS_HELD)
    .values(pid=_STARTED.c.pid, pid_start_time=_STARTED.c.start_time)
)

_END_TYPES: Final[dict[str, Any]] = {
    "id": Integer,
    "state": SmallInteger,
    "end_time": DateTime(timezone=True),
    "exit_code": Integer,
    "pid": Integer,
    "reason": Text,
    "var_pool": Text,
}
_ENDED: Final = unnested("ended", **_END_TYPES)
_ENDED_AND_SAID: Final = unnested("ended", **_END_TYPES, failure=Text, **FACTS_TYPES)
# Locked in order of id first: the owner locks the attempts that it wants killed in that order too,
# and neither must wait for the other in a ring.
_HELD: Final = (
    select(task_instance.c.id)
    .where(task_instance.c.id == any_of("ids"))
    .where(_NAMED_IS_HELD)
    .order_by(task_instance.c.id)
    .with_for_update(key_share=True)
    .cte("held")
)


def _reporting(ended: TableValuedAlias, more: Mapping[str, ColumnElement[Any]]) -> FixedStatement:
    return FixedStatement(
        update(task_instance)
        .where(task_instance.c.id == ended.c.id)
        .where(task_instance.c.id == _HELD.c.id)
        .where(_NAMED_IS_HELD)
        .values(
            state=ended.c.state,
            end_time=ended.c.end_time,
            exit_code=ended.c.exit_code,
            pid=func.coalesce(ended.c.pid, task_instance.c.pid),
            reason=ended.c.reason,
            var_pool=ended.c.var_pool,
            lost_at=None,
            **more,
        )
        .returning(task_instance.c.id),
        prepared=True,
    )


_REPORT: Final = _reporting(_ENDED, {})
# Most ends say no more than the former; each column costs every report a little.
_REPORT_AND_SAY: Final = _reporting(
    _ENDED_AND_SAID,
    {"failure_reason": _ENDED_AND_SAID.c.failure, **facts_values(_ENDED_AND_SAID)},
)
_RECORD_FACTS: Final = recording(_HELD, _NAMED_IS_HELD)

_RUNNING: Final = (
    select(task_instance.c.id, task_instance.c.wanted_state)
    .where(_IS_HELD)
    .order_by(task_instance.c.id)
)

_OF_FORMER: Final = and_(
    task_instance.c.state == TaskState.RUNNING,
    task_instance.c.host == bindparam("worker_host"),
    task_instance.c.worker_incarnation != bindparam("incarnation"),
)
# Locked in order of id, as all that lock several attempts do it.
_FORMER: Final = (
    select(task_instance.c.id)
    .where(_OF_FORMER)
    .order_by(task_instance.c.id)
    .with_for_update(key_share=True)
    .cte("former")
)
_ADOPT: Final = (
    update(task_instance)
    .where(task_instance.c.id == any_of("ids"))
    .where(_OF_FORMER)
    .values(worker_incarnation=bindparam("incarnation"), lost_at=None)
    .returning(task_instance.c.id)
)
_TAKE_OVER: Final = (
    update(task_instance)
    .where(task_instance.c.id == _FORMER.c.id)
    .where(_OF_FORMER)
    .values(worker_incarnation=bindparam("incarnation"), lost_at=None)
    .returning(task_instance.c.id)
)
_KEPT: Final = (
    select(
        task_instance.c.id,
        task_instance.c.wanted_state,
        task_instance.c.lost_at.is_not(None).label("lost"),
    )
    .where(task_instance.c.id == any_of("ids"))
    .where(task_instance.c.state == TaskState.RUNNING)
    .where(task_instance.c.host == bindparam("worker_host"))
)


class PostgresTaskStore(TaskStore):
    """`TaskStore` on PostgreSQL."""

    def __init__(self, engine: Engine, *, checks_creators: bool = True) -> None:
        """`checks_creators`: claims also check the tenants that runs have from their creators.

        These count only where tasks run as the accounts of tenants.
        """
        self._engine = engine
        self._claims = ClaimStatements(checks_creators=checks_creators)

    def claim(
        self,
        node: Node,
        task_instance_ids: Collection[int],
        *,
        folders: AttemptFolders,
        now: datetime,
        hinted: bool = False,
        is_reserved: bool = False,
    ) -> tuple[ClaimedTask, ...]:
        ids = possible_ids(task_instance_ids)
        if not ids:
            return ()
        values = {
            "ids": ids,
            "now": now,
            "work": folders.work,
            "logs": folders.logs,
            "queued": not hinted,
            "takes_any": not is_reserved,
            **_holder(node),
        }
        with single(self._engine) as db:
            rows = {row.id: row for row in self._claims.rows(db, values)}
            later = [row.id for row in rows.values() if row.attempt > 1]
            # Of ended attempts, so that it need not be one statement with the claim, which each
            # first attempt would pay for.
            earlier = earlier_attempts(db, later) if later else {}
        return tuple(
            _claimed(rows[task_id], now, earlier.get(task_id)) for task_id in ids if task_id in rows
        )

    def started(self, node: Node, pids: dict[int, tuple[int, float]]) -> None:
        if not pids:
            return
        # In order of id, as all that write several attempts do it.
        ordered = sorted(pids.items())
        rows = {
            "started_id": [task_id for task_id, _ in ordered],
            "started_pid": [pid for _, (pid, _) in ordered],
            "started_start_time": [start_time for _, (_, start_time) in ordered],
        }
        with transaction(self._engine) as db:
            db.execute(_NOTE_PROCESSES, rows | _holder(node))

    def report(self, node: Node, ends: Sequence[AttemptEnd]) -> frozenset[int]:
        if not ends:
            return frozenset()
        rows: dict[str, Any] = {
            "ids": [end.task_instance_id for end in ends],
            "ended_id": [end.task_instance_id for end in ends],
            "ended_state": [int(end.state) for end in ends],
            "ended_end_time": [end.end_time for end in ends],
            "ended_exit_code": [end.exit_code for end in ends],
            "ended_pid": [end.pid for end in ends],
            "ended_reason": [None if end.reason is None else storable(end.reason) for end in ends],
            "ended_var_pool": [
                None if end.var_pool is None else storable(end.var_pool, len(end.var_pool))
                for end in ends
            ],
        }
        statement = _REPORT
        if any(end.facts is not None or end.reported_failure is not None for end in ends):
            statement = _REPORT_AND_SAY
            rows["ended_failure"] = [end.reported_failure for end in ends]
            rows |= facts_arrays("ended", [end.facts for end in ends])
        quality = {end.task_instance_id: end.quality for end in ends if end.quality}
        timed_out = frozenset(
            end.task_instance_id for end in ends if end.reported_failure is FailureReason.TIMED_OUT
        )
        try:
            if not quality and not timed_out:
                with single(self._engine) as db:
                    return frozenset(row.id for row in statement.rows(db, rows | _holder(node)))
            with transaction(self._engine) as db:
                accepted = frozenset(statement.execute(db, rows | _holder(node)).scalars())
                found = {task_id: quality[task_id] for task_id in accepted & quality.keys()}
                if found:
                    keep_quality(db, found)
                if accepted & timed_out:
                    alert_of_timed_out_attempts(db, accepted & timed_out)
            return accepted
        except (DBAPIError, ValueError, OverflowError) as error:
            # In PostgreSQL's own words: the driver's quote the values, which are the task's.
            raise ReportRefusedError(f"PostgreSQL refused the report: {refusal(error)}") from None

    def former_quality(
        self, task_instance_ids: Collection[int]
    ) -> dict[int, dict[str, tuple[float, ...]]]:
        ids = possible_ids(task_instance_ids)
        if not ids:
            return {}
        found: dict[int, dict[str, tuple[float, ...]]] = {}
        for row in repeatable(self._engine, lambda db: db.execute(FORMER, {"ids": ids}).all()):
            rules = found.setdefault(row.task_id, {})
            rules[row.rule] = (*rules.get(row.rule, ()), row.value)
        return found

    def datasources(self, wanted: Collection[Wanted]) -> dict[Wanted, DataSource]:
        return datasources(self._engine, wanted)

    def environments(self, wanted: Collection[Wanted]) -> dict[Wanted, Environment]:
        return environments(self._engine, wanted)

    def lenders(self, wanted: Collection[Wanted]) -> frozenset[Wanted]:
        return lenders(self._engine, wanted)

    def projects(self, task_instance_ids: Collection[int]) -> dict[int, int]:
        return projects_of_attempts(self._engine, task_instance_ids)

    def several_projects(self, group_ids: Collection[int] | None = None) -> bool:
        return several_projects(self._engine, group_ids)

    def running(self, node: Node) -> dict[int, bool]:
        rows = repeatable(self._engine, lambda db: db.execute(_RUNNING, _holder(node)).all())
        return {row.id: row.wanted_state == TaskState.KILL for row in rows}

    def adopt(self, node: Node, task_instance_ids: Collection[int]) -> frozenset[int]:
        ids = possible_ids(task_instance_ids)
        if not ids:
            return frozenset()
        rows = {"ids": ids} | _holder(node)
        with transaction(self._engine) as db:
            return frozenset(db.scalars(_ADOPT, rows))

    def take_over(self, node: Node) -> frozenset[int]:
        with transaction(self._engine) as db:
            return frozenset(db.scalars(_TAKE_OVER, _holder(node)))

    def hand_back(self, nodes: Collection[Node], claims: Mapping[int, datetime]) -> frozenset[int]:
        return hand_back(self._engine, nodes, claims)

    def kept(self, address: str, task_instance_ids: Collection[int]) -> dict[int, Kept]:
        ids = possible_ids(task_instance_ids)
        if not ids:
            return {}
        given = {"ids": ids, "worker_host": address}
        rows = repeatable(self._engine, lambda db: db.execute(_KEPT, given).all())
        return {
            row.id: Kept(kill_wanted=row.wanted_state == TaskState.KILL, lost=row.lost)
            for row in rows
        }

    def lost(self, host: str) -> dict[int, str]:
        return lost_attempts(self._engine, host)

    def found_gone(self, host: str, task_instance_ids: Collection[int]) -> None:
        found_gone(self._engine, host, task_instance_ids)

    def record_facts(self, node: Node, facts: Mapping[int, SparkFacts]) -> None:
        ids = [task_id for task_id in possible_ids(facts) if facts_of(facts[task_id])]
        if not ids:
            return
        rows: dict[str, Any] = {
            "ids": ids,
            "reported_id": ids,
            **facts_arrays("reported", [facts[task_id] for task_id in ids]),
        }
        with single(self._engine) as db:
            db.execute(_RECORD_FACTS, rows | _holder(node))

    def over(self, task_instance_ids: Collection[int]) -> dict[int, bool | None]:
        answers: dict[int, bool | None] = dict.fromkeys(task_instance_ids)
        ids = possible_ids(answers)
        if ids:
            rows = repeatable(self._engine, lambda db: db.execute(OVER, {"ids": ids}).all())
            answers.update({row.id: row.over for row in rows})
        return answers

    def existing(self, process_instance_ids: Collection[int]) -> frozenset[int]:
        return existing_runs(self._engine, process_instance_ids)

    def log_places(self, task_instance_ids: Collection[int]) -> dict[int, int]:
        return log_places(self._engine, task_instance_ids)

    def keep_tails(self, tails: Sequence[LogTail]) -> int:
        return keep_tails(self._engine, tails)

    def mode(self, address: str) -> WorkerMode:
        return mode_of(address, present_modes(self._engine))

    def record_offer(self, node: Node, offer: Offer) -> None:
        record_offer(self._engine, node, offer)

    def succeeded(self, task_instance_ids: Collection[int]) -> frozenset[int]:
        return succeeded_attempts(self._engine, task_instance_ids)


def _holder(node: Node) -> dict[str, Any]:
    return {"worker_host": node.address, "incarnation": node.incarnation}


def _claimed(row: AnyRow, now: datetime, earlier: Earlier | None) -> ClaimedTask:
    param = CommandParam.as_stored(row.command_param)
    return ClaimedTask(
        id=row.id,
        process_instance_id=row.process_instance_id,
        process_definition_id=row.process_definition_id,
        process_name=row.process_name,
        name=row.name,
        attempt=row.attempt,
        task_type=row.task_type,
        task_json=row.task_json,
        global_params=row.global_params,
        moment=row.moment,
        complement=row.complement,
        tenant_code=row.tenant_code,
        queue=row.queue,
        executor_id=row.executor_id,
        execute_path=row.execute_path,
        log_path=row.log_path,
        start_time=now,
        submit_time=row.submit_time,
        input_pool=row.input_pool,
        start_params=param.start_params,
        timeout=_timeout(row),
        timezone_id=row.timezone_id,
        memory_factor=row.memory_factor,
        lost_attempts=() if earlier is None else tuple(earlier.lost),
        ended_attempts=() if earlier is None else tuple(earlier.ended),
        environment_code=param.stored_environment_code,
        project_id=row.project_id or 0,
        lacks=lacked(row.lacked_tenant, row.lacked_group),
        names_tenant=row.names_tenant,
        origin=origin_of(row.origin),
    )


def _timeout(row: AnyRow) -> timedelta | None:
    """Return the time after which the attempt fails; None if a time-out only warns."""
    if row.timeout_seconds is None or row.timeout_strategy is None:
        return None
    if not TimeoutStrategy(row.timeout_strategy).fails:
        return None
    return timedelta(seconds=row.timeout_seconds)
