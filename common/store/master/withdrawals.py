"""Withdraws attempts that no worker has begun, and requests the end of the others.

Part of a save; the caller has locked the rows of the runs. A claim, a report or the end of a child
at the same moment wins: each row is locked, read, and then changed. Used by
`common.store.master.save`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from sqlalchemy import (
    Connection,
    DateTime,
    Integer,
    SmallInteger,
    Text,
    and_,
    case,
    func,
    or_,
    select,
    update,
)

from common.model.cluster import KillEntry
from common.model.decisions import AbandonTask, KillTask, PauseTask
from common.model.states import LIVE_TASK_STATES, UNSTARTED_TASK_STATES, TaskState
from common.model.worker_needs import UNASSIGNED
from common.store.master.attempts import (
    IS_NAMED,
    NAMED,
    USES_POOLS,
    AttemptName,
    Place,
    conflict,
    named,
    place_in_queue,
)
from common.store.master.submissions import DEPENDENT
from common.store.master.trees import SUB_PROCESS
from common.store.tables import task_instance
from common.store.transaction import AnyRow, StoreConflictError, unnested

WITHDRAWN: Final = "withdrawn before it started"
PAUSED: Final = "paused before it started"
GIVEN_UP: Final = "given up: it had not ended when the time for stopping was over"

# Locked in order of id, as a worker's reports are, so that the two can't wait for each other. The
# lock also decides between a withdrawal and a claim: who comes second sees what the first has done.
_LOCK: Final = (
    select(
        task_instance.c.id,
        task_instance.c.process_instance_id,
        task_instance.c.name,
        task_instance.c.attempt,
        task_instance.c.state,
        task_instance.c.task_type,
        task_instance.c.host,
        task_instance.c.task_instance_priority,
        task_instance.c.worker_group_id,
        USES_POOLS.label("uses_pools"),
    )
    .join_from(task_instance, NAMED, IS_NAMED)
    .order_by(task_instance.c.id)
    .with_for_update(key_share=True, of=task_instance)
)

_WITHDRAWN: Final = unnested(
    "withdrawn", id=Integer, state=SmallInteger, at=DateTime(timezone=True), reason=Text
)
_WITHDRAW: Final = (
    update(task_instance)
    .where(task_instance.c.id == _WITHDRAWN.c.id)
    .where(
        or_(
            task_instance.c.state.in_(UNSTARTED_TASK_STATES),
            and_(
                task_instance.c.state == TaskState.RUNNING, task_instance.c.task_type == DEPENDENT
            ),
        )
    )
    .values(
        state=_WITHDRAWN.c.state,
        wanted_state=_WITHDRAWN.c.state,
        # The worker that was chosen for it never had it.
        host=None,
        end_time=_WITHDRAWN.c.at,
        reason=_WITHDRAWN.c.reason,
    )
)

_ASKED: Final = unnested("asked", id=Integer, wanted=SmallInteger)
_ASK: Final = (
    update(task_instance)
    .where(task_instance.c.id == _ASKED.c.id)
    # A pause never takes back a kill.
    .values(
        wanted_state=func.greatest(
            _ASKED.c.wanted, func.coalesce(task_instance.c.wanted_state, _ASKED.c.wanted)
        )
    )
)

_GIVEN_UP: Final = unnested("given_up", id=Integer, at=DateTime(timezone=True))
_WAS_LIVE: Final = task_instance.c.state.in_(LIVE_TASK_STATES)


def _if_live(value: Any, column: Any) -> Any:
    return case((_WAS_LIVE, value), else_=column)


_GIVE_UP: Final = (
    update(task_instance)
    .where(task_instance.c.id == _GIVEN_UP.c.id)
    .values(
        state=_if_live(int(TaskState.KILL), task_instance.c.state),
        wanted_state=_if_live(int(TaskState.KILL), task_instance.c.wanted_state),
        end_time=_if_live(_GIVEN_UP.c.at, task_instance.c.end_time),
        reason=_if_live(GIVEN_UP, task_instance.c.reason),
        # Nobody has told that its processes are gone, if it has begun at all. One that no worker
        # has, as a SUB_PROCESS, has none.
        lost_at=case(
            (
                and_(
                    task_instance.c.state == TaskState.RUNNING,
                    task_instance.c.worker_incarnation.is_not(None),
                ),
                _GIVEN_UP.c.at,
            ),
            else_=task_instance.c.lost_at,
        ),
        settled=True,
    )
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """The end to give an attempt, and the time of that decision."""

    decision: KillTask | PauseTask | AbandonTask
    at: datetime


@dataclass(slots=True)
class Withdrawals:
    """The consequences of the attempts that a save ended or wants ended, for queues and loops."""

    kills: list[KillEntry] = field(default_factory=list)
    withdrawn: dict[int, Place] = field(default_factory=dict)
    intents: bool = False
    pools: bool = False


def end_attempts(
    db: Connection,
    endings: Mapping[AttemptName, Ending],
    runs: Mapping[int, AnyRow],
    results: Withdrawals,
) -> None:
    """Carry out the decisions on these attempts, each by the present state of its row."""
    rows = db.execute(_LOCK, named(endings)).all()
    by_name = {(row.process_instance_id, row.name, row.attempt): row for row in rows}
    for name in endings:
        if name not in by_name:
            raise conflict(name)
    withdrawn: list[tuple[int, TaskState, datetime, str]] = []
    asked: list[tuple[int, TaskState]] = []
    given_up: list[tuple[int, datetime]] = []
    for name, row in by_name.items():
        ending = endings[name]
        if isinstance(ending.decision, AbandonTask):
            given_up.append((row.id, ending.at))
            results.pools |= row.uses_pools
            _note_abandoned(row, runs, results)
            continue
        pausing = isinstance(ending.decision, PauseTask)
        state = TaskState.PAUSE if pausing else TaskState.KILL
        if _may_be_withdrawn(row):
            withdrawn.append((row.id, state, ending.at, PAUSED if pausing else WITHDRAWN))
            results.pools |= row.uses_pools
            _note_withdrawn(row, runs, results)
            continue
        # Also of one that has just ended: its report is read with the intent in mind.
        asked.append((row.id, state))
        if row.state == TaskState.RUNNING:
            if row.task_type == SUB_PROCESS:
                results.intents = True
            elif not pausing:
                results.kills.append(KillEntry(address=row.host, task_instance_id=row.id))
    _write(db, withdrawn, asked, given_up)


def _may_be_withdrawn(row: AnyRow) -> bool:
    return row.state in UNSTARTED_TASK_STATES or (
        row.state == TaskState.RUNNING and row.task_type == DEPENDENT
    )


def _note_withdrawn(row: AnyRow, runs: Mapping[int, AnyRow], results: Withdrawals) -> None:
    if row.state == TaskState.SUBMITTED and row.task_type != SUB_PROCESS and row.host != UNASSIGNED:
        results.withdrawn[row.id] = place_in_queue(
            runs[row.process_instance_id],
            task_priority=row.task_instance_priority,
            task_group_id=row.worker_group_id,
            worker=row.host,
        )


def _note_abandoned(row: AnyRow, runs: Mapping[int, AnyRow], results: Withdrawals) -> None:
    _note_withdrawn(row, runs, results)
    if row.state == TaskState.RUNNING and row.host is not None:
        results.kills.append(KillEntry(address=row.host, task_instance_id=row.id))


def _write(
    db: Connection,
    withdrawn: Sequence[tuple[int, TaskState, datetime, str]],
    asked: Sequence[tuple[int, TaskState]],
    given_up: Sequence[tuple[int, datetime]],
) -> None:
    changed = 0
    if withdrawn:
        changed += db.execute(
            _WITHDRAW,
            {
                "withdrawn_id": [task_id for task_id, _, _, _ in withdrawn],
                "withdrawn_state": [int(state) for _, state, _, _ in withdrawn],
                "withdrawn_at": [at for _, _, at, _ in withdrawn],
                "withdrawn_reason": [reason for _, _, _, reason in withdrawn],
            },
        ).rowcount
    if asked:
        changed += db.execute(
            _ASK,
            {
                "asked_id": [task_id for task_id, _ in asked],
                "asked_wanted": [int(state) for _, state in asked],
            },
        ).rowcount
    if given_up:
        changed += db.execute(
            _GIVE_UP,
            {
                "given_up_id": [task_id for task_id, _ in given_up],
                "given_up_at": [at for _, at in given_up],
            },
        ).rowcount
    expected = len(withdrawn) + len(asked) + len(given_up)
    if changed != expected:
        # The rows are locked, so this never happens; else the results above would be wrong.
        raise StoreConflictError(f"{expected} attempts were to be ended, {changed} rows changed")
