"""Answers the questions of DEPENDENT attempts about runs and datasets, and records the evidence.

The master decides what an answer means; here attempts are only ended, by one conditional update
that is a report to each run. Used by the dependent loop of a master.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    DateTime,
    Engine,
    Integer,
    Text,
    and_,
    bindparam,
    case,
    exists,
    func,
    or_,
    select,
    true,
    update,
)

from common.model.cluster import Node
from common.model.instances import Ownership
from common.model.states import (
    FINISHED_TASK_STATES,
    LIVE_PROCESS_STATES,
    ProcessState,
    TaskState,
    TimeoutStrategy,
)
from common.model.upstream import (
    Absence,
    Answer,
    AnyQuestion,
    DatasetQuestion,
    Question,
    UpstreamRun,
    UpstreamTask,
)
from common.store.business_times import MOMENT, moment
from common.store.master.dataset_progress import progress_of
from common.store.master.ports import (
    PAGE,
    AnsweringRun,
    DependentDecision,
    DependentStore,
    WaitingDependent,
)
from common.store.master.submissions import DEPENDENT
from common.store.sharing import is_reached
from common.store.tables import process_definition, process_instance, project, task_instance
from common.store.transaction import (
    AnyRow,
    any_of,
    repeatable,
    single,
    storable,
    unnested,
)

_ASKED_AT_ONCE: Final = 5000
_DATASETS_AT_ONCE: Final = 100

_IS_UNDECIDED: Final = and_(
    task_instance.c.state == TaskState.RUNNING,
    task_instance.c.task_type == DEPENDENT,
    task_instance.c.flag == 1,
)
_ROWS: Final = (
    select(
        process_instance.c.id.label("run_id"),
        process_instance.c.host,
        process_instance.c.owner_epoch,
        process_instance.c.process_definition_id,
        MOMENT.label("moment"),
        process_instance.c.timezone_id,
        task_instance.c.id,
        task_instance.c.name,
        task_instance.c.task_json,
        task_instance.c.start_time,
        task_instance.c.evidence,
        process_definition.c.project_id,
    )
    .join_from(
        process_instance,
        task_instance,
        task_instance.c.process_instance_id == process_instance.c.id,
    )
    .outerjoin(
        process_definition, process_definition.c.id == process_instance.c.process_definition_id
    )
    .where(_IS_UNDECIDED)
    .order_by(task_instance.c.id)
)
_IS_OF_NODE: Final = and_(
    process_instance.c.host == bindparam("owner_host"),
    process_instance.c.owner_incarnation == bindparam("incarnation"),
    process_instance.c.state.in_(LIVE_PROCESS_STATES),
)
_UNDECIDED: Final = (
    select(task_instance.c.id, process_instance.c.owner_epoch)
    .join_from(
        process_instance,
        task_instance,
        task_instance.c.process_instance_id == process_instance.c.id,
    )
    .where(_IS_UNDECIDED)
    .where(_IS_OF_NODE)
)
_WAITING: Final = (
    _ROWS.where(_IS_OF_NODE)
    # Not by the bare id: all attempts that have ended would be looked at for the few that wait.
    .where(task_instance.c.id + 0 > bindparam("after"))
    .order_by(None)
    .order_by(task_instance.c.id + 0)
    .limit(bindparam("page"))
)

_FAILING: Final = (TimeoutStrategy.FAILED, TimeoutStrategy.WARNFAILED)
_OTHER: Final = task_instance.alias("other")
_WAITS: Final = and_(_OTHER.c.state == TaskState.RUNNING, _OTHER.c.task_type == DEPENDENT)
_TIMES_OUT: Final = and_(
    _OTHER.c.timeout_seconds.is_not(None),
    func.coalesce(_OTHER.c.timeout_strategy, int(TimeoutStrategy.WARN)).in_(_FAILING),
)
_SOMETHING_MOVES: Final = (
    exists()
    .where(_OTHER.c.process_instance_id == process_instance.c.id)
    .where(_OTHER.c.flag == 1)
    .where(
        or_(
            _OTHER.c.retry_at.is_not(None),
            # No attempt that is live is settled.
            and_(~_OTHER.c.settled, or_(~_WAITS, _TIMES_OUT)),
        )
    )
)
_HELD_UP: Final = (
    _ROWS.where(process_instance.c.id == any_of("ids"))
    .where(process_instance.c.state == ProcessState.RUNNING)
    .where(process_instance.c.wanted_state.is_(None))
    .where(process_instance.c.host.is_not(None))
    .where(
        ~and_(
            process_instance.c.timeout > 0,
            process_instance.c.timeout_flag == 0,
            process_instance.c.timeout_strategy.in_(_FAILING),
        )
    )
    .where(~_SOMETHING_MOVES)
)

_ASKED: Final = unnested(
    "asked",
    place=Integer,
    definition_id=Integer,
    definition_name=Text,
    task=Text,
    start=DateTime(timezone=True),
    end=DateTime(timezone=True),
    apart_from=Integer,
    asking_project=Integer,
    project_id=Integer,
    project_name=Text,
)
_NAMESAKE: Final = process_definition.alias("namesake")
_IS_OWN: Final = _NAMESAKE.c.project_id == _ASKED.c.asking_project
# The definition of the waiting run's project, else the only shared one (`common.model.reach`).
_OF_NAME: Final = (
    select(
        func.coalesce(
            func.min(_NAMESAKE.c.id).filter(_IS_OWN),
            case((func.count() == 1, func.min(_NAMESAKE.c.id))),
        )
    )
    .where(_NAMESAKE.c.name == _ASKED.c.definition_name)
    .where(
        or_(
            _ASKED.c.asking_project.is_(None),
            is_reached(_NAMESAKE.c.id, _NAMESAKE.c.project_id, _ASKED.c.asking_project),
        )
    )
    .where(
        or_(_ASKED.c.project_id.is_(None), _NAMESAKE.c.project_id == _ASKED.c.project_id),
    )
    .where(
        or_(
            _ASKED.c.project_name.is_(None),
            _NAMESAKE.c.project_id.in_(
                select(project.c.id)
                .where(project.c.name == _ASKED.c.project_name)
                .correlate(_ASKED)
            ),
        )
    )
    .correlate(_ASKED)
    .scalar_subquery()
)
_DEFINITION: Final = (
    select(process_definition.c.id)
    .where(process_definition.c.id == func.coalesce(_ASKED.c.definition_id, _OF_NAME))
    # The end of a share takes effect at the next query.
    .where(
        or_(
            _ASKED.c.asking_project.is_(None),
            is_reached(
                process_definition.c.id, process_definition.c.project_id, _ASKED.c.asking_project
            ),
        )
    )
    .lateral("definition")
)
_RUN: Final = (
    select(
        process_instance.c.id,
        process_instance.c.state,
        process_instance.c.schedule_time,
        MOMENT.label("moment"),
        process_instance.c.start_time,
        process_instance.c.end_time,
    )
    .where(process_instance.c.process_definition_id == _DEFINITION.c.id)
    .where(process_instance.c.id != _ASKED.c.apart_from)
    .where(process_instance.c.state.in_(tuple(ProcessState)))
    # A run that is being deleted may have lost attempts already.
    .where(process_instance.c.flag == 1)
    .where(moment(process_instance) >= _ASKED.c.start)
    .where(moment(process_instance) < _ASKED.c.end)
    # Not by the bare id: read backwards by that, all runs that the definition ever had would be
    # looked at where there is none for the time, as it is as long as somebody waits.
    .order_by((process_instance.c.id + 0).desc())
    .limit(1)
    .lateral("run")
)
_ASKING_RUN: Final = process_instance.alias("asking_run")
_EARLIER: Final = process_instance.alias("earlier")
_IS_FIRST_RUN: Final = and_(
    exists()
    .where(_ASKING_RUN.c.id == _ASKED.c.apart_from)
    .where(_ASKING_RUN.c.process_definition_id == _DEFINITION.c.id),
    ~exists()
    .where(_EARLIER.c.process_definition_id == _DEFINITION.c.id)
    .where(_EARLIER.c.id != _ASKED.c.apart_from),
)
_LOOK_UP: Final = (
    select(
        _ASKED.c.place,
        _ASKED.c.task,
        _DEFINITION.c.id.label("definition_id"),
        and_(_RUN.c.id.is_(None), _IS_FIRST_RUN).label("is_first_run"),
        _RUN.c.id.label("run_id"),
        _RUN.c.state,
        _RUN.c.schedule_time,
        _RUN.c.moment,
        _RUN.c.start_time,
        _RUN.c.end_time,
        task_instance.c.id.label("task_id"),
        task_instance.c.state.label("task_state"),
        task_instance.c.settled,
        task_instance.c.retry_at,
        task_instance.c.end_time.label("task_end_time"),
    )
    .select_from(_ASKED)
    .outerjoin(_DEFINITION, true())
    .outerjoin(_RUN, true())
    .outerjoin(
        task_instance,
        and_(
            task_instance.c.process_instance_id == _RUN.c.id,
            task_instance.c.name == _ASKED.c.task,
            task_instance.c.flag == 1,
        ),
    )
    .order_by(_ASKED.c.place)
)
_RUNS: Final = (
    select(
        process_instance.c.id,
        process_instance.c.process_definition_id,
        process_definition.c.name,
        MOMENT.label("moment"),
    )
    .outerjoin_from(
        process_instance,
        process_definition,
        process_definition.c.id == process_instance.c.process_definition_id,
    )
    .where(process_instance.c.id == any_of("ids"))
    .order_by(process_instance.c.id)
)
_DOCUMENTS: Final = select(process_instance.c.id, process_instance.c.process_instance_json).where(
    process_instance.c.id == any_of("ids")
)

_DECISION: Final = unnested(
    "decision",
    id=Integer,
    run_id=Integer,
    host=Text,
    epoch=BigInteger,
    evidence=Text,
    state=Integer,
    reason=Text,
    failure=Text,
)
_ENDS: Final = _DECISION.c.state.is_not(None)
# Locked in order of id, as all that lock several attempts do it.
_STILL_WAITING: Final = (
    select(task_instance.c.id)
    .where(task_instance.c.id == any_of("ids"))
    .where(_IS_UNDECIDED)
    .order_by(task_instance.c.id)
    .with_for_update(key_share=True)
    .cte("still_waiting")
)
_IS_OWNERS: Final = (
    exists()
    .where(process_instance.c.id == _DECISION.c.run_id)
    .where(process_instance.c.id == task_instance.c.process_instance_id)
    .where(process_instance.c.host == _DECISION.c.host)
    .where(process_instance.c.owner_epoch == _DECISION.c.epoch)
    .where(process_instance.c.state.in_(LIVE_PROCESS_STATES))
)
_DECIDE: Final = (
    update(task_instance)
    .where(task_instance.c.id == _DECISION.c.id)
    .where(task_instance.c.id == _STILL_WAITING.c.id)
    .where(_IS_UNDECIDED)
    .where(_IS_OWNERS)
    .values(
        evidence=_DECISION.c.evidence,
        state=func.coalesce(_DECISION.c.state, task_instance.c.state),
        end_time=case(
            (_ENDS, bindparam("now", type_=DateTime(timezone=True))),
            else_=task_instance.c.end_time,
        ),
        reason=case((_ENDS, _DECISION.c.reason), else_=task_instance.c.reason),
        failure_reason=case((_ENDS, _DECISION.c.failure), else_=task_instance.c.failure_reason),
    )
    .returning(task_instance.c.id)
)


class PostgresDependentStore(DependentStore):
    """`DependentStore` on PostgreSQL."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def undecided(self, node: Node) -> Mapping[int, int]:
        asked = {"owner_host": node.address, "incarnation": node.incarnation}
        rows = repeatable(self._engine, lambda db: db.execute(_UNDECIDED, asked).all())
        return {row.id: row.owner_epoch for row in rows}

    def waiting(
        self, node: Node, *, after: int = 0, limit: int = PAGE
    ) -> tuple[WaitingDependent, ...]:
        asked = {
            "owner_host": node.address,
            "incarnation": node.incarnation,
            "after": after,
            "page": limit,
        }
        rows = repeatable(self._engine, lambda db: db.execute(_WAITING, asked).all())
        return tuple(_waiting(row) for row in rows)

    def held_up(self, process_instance_ids: Collection[int]) -> tuple[WaitingDependent, ...]:
        asked = {"ids": sorted(process_instance_ids)}
        rows = repeatable(self._engine, lambda db: db.execute(_HELD_UP, asked).all())
        return tuple(_waiting(row) for row in rows)

    def runs(self, process_instance_ids: Collection[int]) -> tuple[AnsweringRun, ...]:
        asked = {"ids": sorted(process_instance_ids)}
        rows = repeatable(self._engine, lambda db: db.execute(_RUNS, asked).all())
        return tuple(
            AnsweringRun(
                process_instance_id=row.id,
                process_definition_id=row.process_definition_id,
                definition_name=row.name,
                moment=row.moment,
            )
            for row in rows
        )

    def look_up(self, questions: Sequence[AnyQuestion]) -> tuple[Answer, ...]:
        about_runs = [each for each in questions if isinstance(each, Question)]
        about_datasets = [each for each in questions if isinstance(each, DatasetQuestion)]
        answers: dict[AnyQuestion, Answer] = {}
        # A statement has to end in time, however many wait for however many days.
        for start in range(0, len(about_runs), _ASKED_AT_ONCE):
            part = about_runs[start : start + _ASKED_AT_ONCE]
            answers.update(zip(part, self._look_up(part), strict=True))
        for start in range(0, len(about_datasets), _DATASETS_AT_ONCE):
            some = about_datasets[start : start + _DATASETS_AT_ONCE]
            answers.update(zip(some, progress_of(self._engine, some), strict=True))
        return tuple(answers[each] for each in questions)

    def _look_up(self, questions: Sequence[Question]) -> list[Answer]:
        asked = _parameters(questions)
        rows = repeatable(self._engine, lambda db: db.execute(_LOOK_UP, asked).all())
        nodeless = sorted(
            {
                row.run_id
                for row in rows
                if row.run_id is not None and row.task is not None and row.task_id is None
            }
        )
        documents: dict[int, str] = {}
        if nodeless:
            found = repeatable(
                self._engine, lambda db: db.execute(_DOCUMENTS, {"ids": nodeless}).all()
            )
            documents = {row.id: row.process_instance_json for row in found}
        names = {run_id: _node_names(document) for run_id, document in documents.items()}
        return [_answer(row, names.get(row.run_id, frozenset())) for row in rows]

    def decide(self, decisions: Sequence[DependentDecision], *, now: datetime) -> frozenset[int]:
        if not decisions:
            return frozenset()
        with single(self._engine) as db:
            return frozenset(db.scalars(_DECIDE, _columns(decisions) | {"now": now}))


def _columns(decisions: Sequence[DependentDecision]) -> dict[str, Any]:
    ids = [each.waiting.task_instance_id for each in decisions]
    owners = [each.waiting.ownership for each in decisions]
    return {
        "ids": ids,
        "decision_id": ids,
        "decision_run_id": [owner.process_instance_id for owner in owners],
        "decision_host": [owner.host for owner in owners],
        "decision_epoch": [owner.epoch for owner in owners],
        "decision_evidence": [storable(each.evidence, len(each.evidence)) for each in decisions],
        "decision_state": [None if each.state is None else int(each.state) for each in decisions],
        "decision_reason": [
            None if each.reason is None else storable(each.reason) for each in decisions
        ],
        "decision_failure": [
            None if each.failure is None else each.failure.value for each in decisions
        ],
    }


def _waiting(row: AnyRow) -> WaitingDependent:
    return WaitingDependent(
        ownership=Ownership(process_instance_id=row.run_id, host=row.host, epoch=row.owner_epoch),
        task_instance_id=row.id,
        name=row.name,
        task_json=row.task_json,
        process_definition_id=row.process_definition_id,
        moment=row.moment,
        start_time=row.start_time,
        evidence=row.evidence,
        timezone_id=row.timezone_id,
        project_id=row.project_id,
    )


def _parameters(questions: Sequence[Question]) -> dict[str, list[Any]]:
    return {
        "asked_place": list(range(len(questions))),
        "asked_definition_id": [_possible(question.definition_id) for question in questions],
        "asked_definition_name": [
            None if question.definition_name is None else storable(question.definition_name)
            for question in questions
        ],
        "asked_task": [
            None if question.task is None else storable(question.task) for question in questions
        ],
        "asked_start": [question.start for question in questions],
        "asked_end": [question.end for question in questions],
        "asked_apart_from": [question.apart_from for question in questions],
        "asked_asking_project": [question.asking_project for question in questions],
        "asked_project_id": [
            _possible(each.project) if isinstance(each.project, int) else None for each in questions
        ],
        "asked_project_name": [
            storable(each.project) if isinstance(each.project, str) else None for each in questions
        ],
    }


def _possible(definition_id: int | None) -> int | None:
    """Replace a number that no row can have by 0, which no row has."""
    return definition_id if definition_id is None or 0 < definition_id < 2**31 else 0


def _answer(row: AnyRow, node_names: frozenset[str]) -> Answer:
    if row.definition_id is None:
        return Absence.NO_DEFINITION
    if row.run_id is None:
        return Absence.FIRST_RUN if row.is_first_run else None
    return UpstreamRun(
        id=row.run_id,
        state=ProcessState(row.state),
        schedule_time=row.schedule_time,
        moment=row.moment,
        start_time=row.start_time,
        end_time=row.end_time,
        task=None if row.task_id is None else _task(row),
        has_node=row.task is None or row.task_id is not None or row.task in node_names,
    )


def _task(row: AnyRow) -> UpstreamTask:
    state = TaskState(row.task_state)
    failed = state in FINISHED_TASK_STATES and not state.is_success
    may_be_retried = failed and not row.settled and row.state in LIVE_PROCESS_STATES
    return UpstreamTask(
        id=row.task_id,
        state=state,
        retry_pending=row.retry_at is not None or may_be_retried,
        end_time=row.task_end_time,
    )


def _node_names(document: str) -> frozenset[str]:
    """Return the node names in a run's own copy of its definition; none if it can't be read."""
    try:
        tasks = json.loads(document)["tasks"]
        return frozenset(str(task["name"]) for task in tasks)
    except (ValueError, RecursionError, KeyError, TypeError):
        return frozenset()
