"""Columns of an attempt's Spark application, and queries for the attempt that owns an application.

The columns `app_link`, `ui_link`, `history_link`, `progress` and `usage` are reported while an
attempt runs and once more when it ends; a missing fact leaves its column as it is. Adds the word
*promised* of a lost attempt: a substitute for it is to come, or runs. Used by
`common.store.worker.tasks`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from sqlalchemy import (
    CTE,
    ColumnElement,
    Connection,
    Integer,
    TableValuedAlias,
    Text,
    and_,
    case,
    exists,
    false,
    func,
    or_,
    select,
    true,
    update,
)

from common.model.spark import LIMIT_BYTES, Progress, SparkFacts, Usage, to_text
from common.model.states import (
    FINISHED_TASK_STATES,
    LIVE_PROCESS_STATES,
    ProcessState,
    TaskState,
)
from common.store.tables import process_instance, task_instance
from common.store.transaction import any_of, storable, unnested

FACTS_COLUMNS: Final = ("app_link", "ui_link", "history_link", "progress", "usage")
_NO_PROGRESS: Final = Progress()
_NO_USAGE: Final = Usage()


def facts_arrays(alias: str, facts: Sequence[SparkFacts | None]) -> dict[str, list[str | None]]:
    """Return the parameters of several attempts' columns, for an `unnested` of that name."""
    rows = [_columns(each) for each in facts]
    return {
        f"{alias}_{name}": [row[index] for row in rows] for index, name in enumerate(FACTS_COLUMNS)
    }


def facts_of(facts: SparkFacts | None) -> dict[str, str]:
    """Return the columns that the facts have values for."""
    reported = zip(FACTS_COLUMNS, _columns(facts), strict=True)
    return {name: text for name, text in reported if text is not None}


def facts_values(reported: TableValuedAlias) -> dict[str, ColumnElement[Any]]:
    """Return the column values of an UPDATE."""
    return {name: func.coalesce(reported.c[name], task_instance.c[name]) for name in FACTS_COLUMNS}


FACTS_TYPES: Final = dict.fromkeys(FACTS_COLUMNS, Text)
_REPORTED: Final = unnested("reported", id=Integer, **FACTS_TYPES)


def recording(held: CTE, is_held: ColumnElement[bool]) -> Any:
    """Build the UPDATE that records facts of running attempts; `held` are locked for it."""
    return (
        update(task_instance)
        .where(task_instance.c.id == _REPORTED.c.id)
        .where(task_instance.c.id == held.c.id)
        .where(is_held)
        .values(facts_values(_REPORTED))
    )


def _columns(facts: SparkFacts | None) -> tuple[str | None, ...]:
    if facts is None:
        return (None,) * len(FACTS_COLUMNS)
    return (
        _text(facts.app_link),
        _text(facts.ui_link),
        _text(facts.history_link),
        # Removes the cause of waiting when the application runs, before any progress is known.
        to_text(facts.progress) if facts.waited or facts.progress != _NO_PROGRESS else None,
        None if facts.usage == _NO_USAGE else to_text(facts.usage),
    )


def _text(words: str) -> str | None:
    return storable(words, LIMIT_BYTES) if words else None


_EARLIER: Final = task_instance.alias("earlier")
_EARLIER_ATTEMPTS: Final = (
    select(
        task_instance.c.id.label("later_id"),
        _EARLIER.c.id,
        # A promise that is given up, and one of an attempt that a recovery puts aside, is taken
        # back in the row.
        and_(
            _EARLIER.c.state == TaskState.NEED_FAULT_TOLERANCE, _EARLIER.c.retry_at.is_not(None)
        ).label("promised"),
    )
    .join_from(
        task_instance,
        _EARLIER,
        and_(
            _EARLIER.c.process_instance_id == task_instance.c.process_instance_id,
            _EARLIER.c.name == task_instance.c.name,
            _EARLIER.c.attempt < task_instance.c.attempt,
        ),
    )
    .where(task_instance.c.id == any_of("ids"))
    .order_by(task_instance.c.id, _EARLIER.c.attempt.desc())
)


@dataclass(slots=True)
class Earlier:
    """The attempts before one, newest first: those that it replaces, and the others."""

    lost: list[int] = field(default_factory=list)
    ended: list[int] = field(default_factory=list)


def earlier_attempts(db: Connection, ids: Sequence[int]) -> dict[int, Earlier]:
    """Read the attempts before each of these; an attempt with none before it is left out."""
    found: dict[int, Earlier] = {}
    for row in db.execute(_EARLIER_ATTEMPTS, {"ids": list(ids)}):
        earlier = found.setdefault(row.later_id, Earlier())
        if row.promised and not earlier.ended:
            earlier.lost.append(row.id)
        else:
            earlier.ended.append(row.id)
    return found


_LATER: Final = task_instance.alias("later")
_HAS_ENDED_OTHERWISE: Final = (
    exists()
    .where(_LATER.c.process_instance_id == task_instance.c.process_instance_id)
    .where(_LATER.c.name == task_instance.c.name)
    .where(_LATER.c.attempt > task_instance.c.attempt)
    .where(_LATER.c.state.in_(FINISHED_TASK_STATES))
    .where(
        or_(
            _LATER.c.state != TaskState.NEED_FAULT_TOLERANCE,
            and_(_LATER.c.settled, _LATER.c.retry_at.is_(None)),
        )
    )
)
_STATES_WITH_PROMISES: Final = (*LIVE_PROCESS_STATES, ProcessState.PAUSE)
OVER: Final = (
    select(
        task_instance.c.id,
        case(
            (task_instance.c.state.not_in(FINISHED_TASK_STATES), false()),
            (task_instance.c.state != TaskState.NEED_FAULT_TOLERANCE, true()),
            # A pause keeps what was promised, and lets what runs come to its end.
            (process_instance.c.state.not_in(_STATES_WITH_PROMISES), true()),
            (task_instance.c.retry_at.is_not(None), _HAS_ENDED_OTHERWISE),
            # Unless it is settled, its owner has yet to say what follows.
            else_=task_instance.c.settled,
        ).label("over"),
    )
    .join_from(
        task_instance,
        process_instance,
        process_instance.c.id == task_instance.c.process_instance_id,
    )
    .where(task_instance.c.id == any_of("ids"))
)
