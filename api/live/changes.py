"""Decides what watchers are told, given the former and the present rows of what they watch.

Pure. A *picture* is what was read last, kept by the looker alone. All is level: whatever was missed
in between, the difference of two pictures is told. A run that is begun anew, or that has lost
attempts, is *renewed*: its watchers get a snapshot in the place of differences.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from common.model.complement_states import ComplementState
from common.model.instances import TaskReport
from common.model.live import (
    LiveAttempt,
    LiveComplement,
    LiveRun,
    OverviewAnswer,
    OverviewQuestion,
    RunsQuestion,
)
from common.model.states import FINISHED_TASK_CODES

Change: TypeAlias = LiveRun | LiveAttempt | LiveComplement


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPicture:
    """A watched run with the newest attempt of each node, by id; those `moving` may change.

    `is_stale` asks for all of its attempts at the next look; `is_new` has its watchers told all.
    """

    run: LiveRun
    attempts: Mapping[int, LiveAttempt]
    moving: tuple[LiveAttempt, ...]
    is_stale: bool = False
    is_new: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A picture with the changes since the one before; `renewed` asks for a snapshot instead."""

    picture: RunPicture
    changes: tuple[Change, ...] = ()
    renewed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class OverviewPicture:
    """The live runs and complements, by id, and the newest rows of all."""

    runs: Mapping[int, LiveRun] = field(default_factory=dict)
    complements: Mapping[int, LiveComplement] = field(default_factory=dict)
    newest_run: int = 0
    newest_alert: int = 0


def question(
    watched: Iterable[int], pictures: Mapping[int, RunPicture], *, behind: int
) -> RunsQuestion:
    """Ask for all of a run that is not known well, and else for what may have changed."""
    known = {each: pictures.get(each) for each in sorted(watched)}
    complete = [each for each, picture in known.items() if picture is None or picture.is_stale]
    moving = [each for each in known if each not in set(complete)]
    attempts = [attempt for each in moving for attempt in pictures[each].moving]
    return RunsQuestion(
        moving=tuple(moving), complete=tuple(complete), attempts=tuple(attempts), behind=behind
    )


def pictured(run: LiveRun, attempts: Mapping[int, LiveAttempt]) -> RunPicture:
    """Make the picture of a run."""
    moving = tuple(each for each in attempts.values() if each.may_change)
    return RunPicture(run=run, attempts=attempts, moving=moving)


def compared(
    former: RunPicture | None, run: LiveRun, attempts: Iterable[LiveAttempt], *, complete: bool
) -> Step:
    """Compare a run with its former picture; `complete` if the attempts are all that it has."""
    if former is None:
        made = {each.id: each for each in attempts}
        return Step(picture=pictured(run, made), renewed=True)
    rows = {each.id: each for each in attempts if complete or former.attempts.get(each.id) != each}
    if not complete and not rows and run == former.run:
        return Step(picture=former)
    picture = pictured(run, _newest(rows if complete else {**former.attempts, **rows}))
    changes = _differences(former, run, rows)
    if complete:
        names = {each.name for each in picture.attempts.values()}
        lost = any(each.name not in names for each in former.attempts.values())
        if former.is_new or lost:
            return Step(picture=picture, renewed=True)
        return Step(picture=picture, changes=changes)
    begun_anew = run.run_times != former.run.run_times or (
        former.run.has_ended and not run.has_ended
    )
    has_ended = run.has_ended and not former.run.has_ended
    return Step(
        picture=replace(picture, is_stale=begun_anew or has_ended, is_new=begun_anew),
        changes=() if begun_anew else changes,
    )


def stale(former: RunPicture) -> RunPicture:
    """Have all of the run read again, since something may have been missed."""
    return replace(former, is_stale=True)


def corrected(former: RunPicture, attempts: Iterable[LiveAttempt]) -> Step:
    """Compare single attempts of a run that has ended."""
    rows = {each.id: each for each in attempts}
    return Step(
        picture=pictured(former.run, _newest({**former.attempts, **rows})),
        changes=_differences(former, former.run, rows),
    )


def hinted(former: RunPicture, report: TaskReport) -> Step | None:
    """Take the end of an attempt from a notification; None if the rows have to be asked.

    A hint may be false: the attempt is read again, until its row says that it is settled.
    """
    known = former.attempts.get(report.task_instance_id)
    if known is None or known.attempt != report.attempt or report.state not in FINISHED_TASK_CODES:
        return None
    if known.state in FINISHED_TASK_CODES:
        return Step(picture=former)
    ended = replace(known, state=int(report.state), end_time=report.end_time, settled=False)
    picture = pictured(former.run, {**former.attempts, ended.id: ended})
    return Step(
        picture=replace(picture, is_stale=former.is_stale, is_new=former.is_new), changes=(ended,)
    )


def overview_question(former: OverviewPicture) -> OverviewQuestion:
    """Ask for what goes on, and for what went on before."""
    return OverviewQuestion(
        runs=tuple(former.runs),
        complements=tuple(former.complements),
        behind=former.newest_run or 2**31 - 1,
    )


def overview_compared(
    former: OverviewPicture, answer: OverviewAnswer
) -> tuple[OverviewPicture, tuple[Change, ...]]:
    """Compare what goes on with the former picture; what has ended is told once, then left out."""
    changes: list[Change] = [
        each for each in answer.complements if former.complements.get(each.id) != each
    ]
    changes += [each for each in answer.runs if former.runs.get(each.id) != each]
    return (
        OverviewPicture(
            runs={each.id: each for each in answer.runs if not each.has_ended},
            complements={each.id: each for each in answer.complements if _moves(each)},
            newest_run=max(former.newest_run, answer.newest_run),
            newest_alert=max(former.newest_alert, answer.newest_alert),
        ),
        tuple(changes),
    )


def _moves(complement: LiveComplement) -> bool:
    return not ComplementState(complement.state).is_ended


def _differences(
    former: RunPicture, run: LiveRun, rows: Mapping[int, LiveAttempt]
) -> tuple[Change, ...]:
    """The rows that look otherwise than before; the run itself comes last, as its end does."""
    changes: list[Change] = [
        row
        for number, row in sorted(rows.items())
        if _shown(former.attempts.get(number)) != _shown(row)
    ]
    if run != former.run:
        changes.append(run)
    return tuple(changes)


def _shown(attempt: LiveAttempt | None) -> LiveAttempt | None:
    """Leave out what no watcher sees."""
    return None if attempt is None else replace(attempt, settled=True)


def _newest(attempts: Mapping[int, LiveAttempt]) -> dict[int, LiveAttempt]:
    """Leave out attempts whose place another has taken."""
    newest: dict[str, LiveAttempt] = {}
    for each in attempts.values():
        known = newest.get(each.name)
        if known is None or known.attempt <= each.attempt:
            newest[each.name] = each
    return {each.id: each for each in newest.values()}
