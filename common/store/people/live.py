"""The rows that somebody watches, read again and again: one statement for all watched runs.

Nothing here writes, and nothing is read for whom nobody watches.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import (
    ARRAY,
    BigInteger,
    ColumnElement,
    CompoundSelect,
    Connection,
    Integer,
    Select,
    String,
    all_,
    and_,
    any_,
    bindparam,
    cast,
    false,
    func,
    literal,
    null,
    or_,
    select,
    union_all,
)

from common.model.complement_states import ComplementState
from common.model.live import (
    LiveAttempt,
    LiveComplement,
    LiveRun,
    OverviewAnswer,
    OverviewQuestion,
    RunsAnswer,
    RunsQuestion,
)
from common.model.rights import Principal
from common.model.states import LIVE_PROCESS_CODES, TaskState
from common.store.people.log_ins import is_good_session
from common.store.people.rights import seen_projects
from common.store.tables import (
    access_token,
    alert,
    complement,
    process_definition,
    process_instance,
    project,
    task_instance,
    user,
)

_RUN: Final = 0
_ATTEMPT: Final = 1
_NEWEST: Final = 2
_CODES: Final = 64
"""More than there are codes of states."""
_MOST_OF_OVERVIEW: Final = 500
_ENABLED: Final = 1
_MOVING: Final = tuple(int(state) for state in ComplementState if not state.is_ended)


@dataclass(frozen=True, slots=True, kw_only=True)
class Watchable:
    """The objects that a principal may watch now. `projects` has None for runs without one."""

    runs: frozenset[int]
    projects: frozenset[int | None]


def watched_runs(db: Connection, question: RunsQuestion) -> RunsAnswer:
    """Read the watched runs and the attempts in question, by one statement."""
    rows = db.execute(
        _WATCHED,
        {
            "runs": _written((*question.moving, *question.complete)),
            "moving": _written(question.moving),
            "complete": _written(question.complete),
            "attempts": _written(each.id for each in question.attempts),
            "known": _written(each.id * _CODES + each.state for each in question.attempts),
            "behind": question.behind,
        },
    ).all()
    attempts = {row.id: _attempt(row) for row in rows if row.kind == _ATTEMPT}
    return RunsAnswer(
        runs=tuple(_run(row) for row in rows if row.kind == _RUN),
        attempts=tuple(attempts[each] for each in sorted(attempts)),
        newest=next(row.id for row in rows if row.kind == _NEWEST),
    )


def declared_good(db: Connection, runs: Sequence[int]) -> list[LiveAttempt]:
    """Read the attempts in these ended runs that a person has declared to be good."""
    part = and_(
        task_instance.c.process_instance_id == _any(runs),
        task_instance.c.state == int(TaskState.FORCED_SUCCESS),
        task_instance.c.flag == 1,
    )
    return [_attempt(row) for row in db.execute(_attempts(part))]


def overview(db: Connection, question: OverviewQuestion) -> OverviewAnswer:
    """Read the live runs and complements of all projects, and those that were live before."""
    run = process_instance.c
    found = (
        select(
            run.id,
            process_definition.c.project_id.label("owner"),
            run.name,
            run.run_times.label("number"),
            run.state,
            run.wanted_state,
            run.start_time,
            run.end_time,
        )
        .outerjoin_from(process_instance, process_definition, _DEFINITION)
        .where(
            or_(
                run.state.in_(LIVE_PROCESS_CODES),
                run.id == _any(question.runs),
                run.id > question.behind,
            )
        )
        .order_by(run.id.desc())
        .limit(_MOST_OF_OVERVIEW)
    )
    moving = (
        select(
            complement.c.id,
            process_definition.c.project_id.label("owner"),
            complement.c.state,
            complement.c.end_time,
        )
        .outerjoin_from(
            complement,
            process_definition,
            process_definition.c.id == complement.c.process_definition_id,
        )
        .where(or_(complement.c.state.in_(_MOVING), complement.c.id == _any(question.complements)))
        .order_by(complement.c.id.desc())
        .limit(_MOST_OF_OVERVIEW)
    )
    newest = db.execute(
        select(
            select(func.coalesce(func.max(run.id), 0)).scalar_subquery().label("run"),
            select(func.coalesce(func.max(alert.c.id), 0)).scalar_subquery().label("alert"),
        )
    ).one()
    return OverviewAnswer(
        runs=tuple(_run(row) for row in reversed(db.execute(found).all())),
        complements=tuple(
            LiveComplement(id=row.id, project_id=row.owner, state=row.state, end_time=row.end_time)
            for row in reversed(db.execute(moving).all())
        ),
        newest_run=newest.run,
        newest_alert=newest.alert,
    )


def watchable(
    db: Connection, principal: Principal, runs: Sequence[int], *, with_projects: bool
) -> Watchable | None:
    """Read those of the runs, and the projects, that the principal may see.

    None if its token is gone or expired, or its user disabled.
    """
    if not _is_valid(db, principal):
        return None
    seen = (
        select(process_instance.c.id)
        .outerjoin_from(process_instance, process_definition, _DEFINITION)
        .where(process_instance.c.id == _any(runs))
        .where(seen_projects(principal, process_definition.c.project_id))
    )
    projects: frozenset[int | None] = frozenset()
    if with_projects:
        # A run whose definition is gone belongs to no project, which NULL stands for.
        nowhere = select(cast(null(), Integer).label("id")).subquery()
        found = db.scalars(
            select(project.c.id)
            .where(seen_projects(principal, project.c.id))
            .union_all(select(nowhere.c.id).where(seen_projects(principal, nowhere.c.id)))
        )
        projects = frozenset(found)
    return Watchable(runs=frozenset(db.scalars(seen)) if runs else frozenset(), projects=projects)


def _is_valid(db: Connection, principal: Principal) -> bool:
    if principal.owns_database:
        return True
    holder = select(user.c.id).where(user.c.id == principal.user_id).where(user.c.state == _ENABLED)
    if principal.token_id is not None:
        holder = holder.where(
            select(access_token.c.id)
            .where(access_token.c.id == principal.token_id)
            .where(access_token.c.user_id == principal.user_id)
            .where(access_token.c.expire_time > func.now())
            .exists()
        )
    if principal.session_hash is not None:
        holder = holder.where(is_good_session(principal.session_hash))
    return db.scalar(holder) is not None


def _any(ids: Sequence[int]) -> Any:
    return any_(cast(literal(_written(ids)), ARRAY(Integer)))


def _given(name: str, kind: type[Integer] = Integer) -> Any:
    """The numbers of a parameter that `_written` writes."""
    return cast(bindparam(name, type_=String), ARRAY(kind))


def _written(numbers: Iterable[int]) -> str:
    """Write thousands of numbers as one text: an element at a time takes longer than the rest."""
    return "{" + ",".join(map(str, numbers)) + "}"


def _attempts(part: ColumnElement[bool]) -> Select[Any]:
    attempt = task_instance.c
    return select(
        literal(_ATTEMPT).label("kind"),
        attempt.id,
        attempt.process_instance_id.label("owner"),
        attempt.name,
        attempt.attempt.label("number"),
        attempt.state,
        null().label("wanted_state"),
        attempt.start_time,
        attempt.end_time,
        attempt.progress,
        or_(attempt.settled, attempt.flag != 1).label("settled"),
    ).where(part)


def _attempt(row: Any) -> LiveAttempt:
    return LiveAttempt(
        id=row.id,
        process_instance_id=row.owner,
        name=row.name,
        attempt=row.number,
        state=row.state,
        start_time=row.start_time,
        end_time=row.end_time,
        progress=row.progress,
        settled=row.settled,
    )


def _run(row: Any) -> LiveRun:
    return LiveRun(
        id=row.id,
        name=row.name,
        project_id=row.owner,
        state=row.state,
        wanted_state=row.wanted_state,
        run_times=row.number,
        start_time=row.start_time,
        end_time=row.end_time,
    )


_DEFINITION: Final = process_definition.c.id == process_instance.c.process_definition_id


def _watched() -> CompoundSelect[Any]:
    """Build the statement of the looker, once: to build it takes longer than to carry it out."""
    attempt = task_instance.c
    runs = (
        select(
            literal(_RUN).label("kind"),
            process_instance.c.id.label("id"),
            process_definition.c.project_id.label("owner"),
            process_instance.c.name.label("name"),
            process_instance.c.run_times.label("number"),
            process_instance.c.state.label("state"),
            process_instance.c.wanted_state.label("wanted_state"),
            process_instance.c.start_time.label("start_time"),
            process_instance.c.end_time.label("end_time"),
            null().label("progress"),
            false().label("settled"),
        )
        .outerjoin_from(process_instance, process_definition, _DEFINITION)
        .where(process_instance.c.id == any_(_given("runs")))
    )
    # Each part goes by an index of its own; a row may come by several of them. Of a thousand
    # attempts that wait only those come that are otherwise than they were.
    of_moving = attempt.process_instance_id == any_(_given("moving"))
    code = cast(attempt.id, BigInteger) * _CODES + attempt.state
    parts = (
        and_(
            of_moving,
            ~attempt.settled,
            attempt.flag == 1,
            or_(attempt.progress.is_not(None), code != all_(_given("known", BigInteger))),
        ),
        and_(attempt.id > bindparam("behind", type_=Integer), of_moving),
        and_(
            attempt.id == any_(_given("attempts")),
            or_(attempt.settled, attempt.flag != 1),
        ),
        and_(attempt.process_instance_id == any_(_given("complete")), attempt.flag == 1),
    )
    newest = select(
        literal(_NEWEST), func.coalesce(func.max(attempt.id), 0), *(null() for _ in range(9))
    )
    return union_all(runs, *(_attempts(part) for part in parts), newest)


_WATCHED: Final = _watched()
