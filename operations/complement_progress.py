"""The progress of complements, looked at again and again until they have ended.

Read only: whatever happens to the watcher, the complements go on. Adds the word *sight*: one
complement as it was at one look.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Protocol

from common.model.complement_states import ComplementState, DateState, OnFailure
from common.store.connect import Connection, server_time
from common.store.people.complement_views import (
    ENDED_DATES,
    LIVE_DATES,
    RUN_DATES,
    ComplementDateView,
    ComplementView,
    dates_of_complement,
    run_dates,
)
from common.store.people.durations import recent_durations
from common.store.people.reasons import moment
from operations.complement_plans import typical_duration
from operations.session import Session, operation
from operations.stored_complements import complements_of

FEW_FAILURES = 5
"""A sight has no more failed dates than these."""
KEPT_DURATIONS = 20
# The time of a date's change is that of a master's clock, the time of a look the database's.
OVERLAP = timedelta(seconds=60)
_ENDED = frozenset(int(state) for state in ComplementState if state.is_ended)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sight:
    """One complement as it was at one look.

    `ended`: the dates that have ended since the look before; `typical`: the duration of one date.
    """

    view: ComplementView
    live: tuple[ComplementDateView, ...] = ()
    failed: tuple[ComplementDateView, ...] = ()
    ended: tuple[ComplementDateView, ...] = ()
    typical: timedelta | None = None

    @property
    def has_ended(self) -> bool:
        return self.view.state in _ENDED

    @property
    def succeeded(self) -> bool:
        return self.view.state == ComplementState.SUCCESS

    @property
    def done(self) -> int:
        """The number of dates that have ended."""
        return self.view.count(*ENDED_DATES)

    def without_ended(self) -> Sight:
        """The same once more, in which nothing has ended since."""
        return replace(self, ended=())


class Watcher(Protocol):
    """Looks at complements, and remembers which of their dates it has reported as ended."""

    def observe(self) -> list[Sight]:
        """The complements, as of one moment as far as that can be had."""
        ...


@operation
def watcher_of(
    session: Session, complement_ids: Sequence[int], *, briefly: bool = False
) -> Watcher:
    """Someone who looks at complements; `briefly` leaves out all but them and their live dates."""
    return ComplementWatcher(session, complement_ids, briefly=briefly)


class ComplementWatcher:
    """Looks at complements, and remembers which of their dates it has reported as ended.

    `briefly` leaves out all of a sight but the complement and its live dates.
    """

    def __init__(
        self, session: Session, complement_ids: Sequence[int], *, briefly: bool = False
    ) -> None:
        self._session = session
        self._ids = tuple(complement_ids)
        self._briefly = briefly
        self._dates: dict[int, _ReportedDates] = {}

    def observe(self) -> list[Sight]:
        """The complements, all as of one moment, so that counts and dates agree."""
        with moment(self._session.engine) as db:
            views = complements_of(db, self._ids)
            if self._briefly:
                return [
                    Sight(
                        view=view, live=tuple(dates_of_complement(db, view.id, states=LIVE_DATES))
                    )
                    for view in views
                ]
            if not self._dates:
                history = recent_durations(db, [view.process_definition_id for view in views])
                for view in views:
                    known = history.get(view.process_definition_id, ())
                    self._dates[view.id] = _ReportedDates(view.id, known)
            now = server_time(db)
            return [self._dates[view.id].sight(db, view, now=now) for view in views]


class _ReportedDates:
    """The dates of one complement that were reported as ended at looks before."""

    def __init__(self, complement_id: int, history: Sequence[timedelta]) -> None:
        self._complement_id = complement_id
        self._history = tuple(history)
        self._durations: list[timedelta] = []
        self._reported: set[tuple[int, str, int]] | None = None
        self._since: datetime | None = None

    def sight(self, db: Connection, view: ComplementView, *, now: datetime) -> Sight:
        if self._reported is None or self._since is None:
            # Dates that ended before the first look are counted, and not reported one by one.
            self._reported = set(run_dates(db, self._complement_id))
            new = []
        else:
            new = self._new(db, view, self._reported, self._since - OVERLAP)
            self._reported.update(map(_key, new))
        self._since = now
        for each in new:
            span = each.duration(now)
            if each.state == DateState.SUCCESS and each.end_time and span is not None:
                self._durations.append(span)
        del self._durations[:-KEPT_DURATIONS]
        known = self._durations or self._history
        return Sight(
            view=view,
            live=tuple(dates_of_complement(db, self._complement_id, states=LIVE_DATES)),
            failed=tuple(
                dates_of_complement(
                    db, self._complement_id, states=(DateState.FAILURE,), limit=FEW_FAILURES
                )
            )
            if view.count(DateState.FAILURE)
            else (),
            ended=tuple(new),
            typical=typical_duration(known),
        )

    def _new(
        self,
        db: Connection,
        view: ComplementView,
        reported: Collection[tuple[int, str, int]],
        since: datetime,
    ) -> list[ComplementDateView]:
        """The dates whose runs have ended, and that have not been reported yet."""
        found = dates_of_complement(db, self._complement_id, states=RUN_DATES, since=since)
        new = [each for each in found if _key(each) not in reported]
        if view.state in _ENDED and len(reported) + len(new) < view.count(*RUN_DATES):
            # The clocks of masters are further apart than the overlap.
            known = {*reported, *map(_key, new)}
            left = [key[0] for key in run_dates(db, self._complement_id) if key not in known]
            new += dates_of_complement(db, self._complement_id, ids=left)
        return new


def _key(date: ComplementDateView) -> tuple[int, str, int]:
    return (date.id, date.state, date.process_instance_id)


def time_left(sight: Sight, *, now: datetime) -> timedelta | None:
    """The rest of its duration if each date takes as long as others did; None if unknown."""
    view = sight.view
    if sight.typical is None or sight.has_ended:
        return None
    begun = [span for date in sight.live if (span := date.duration(now)) is not None]
    rest = sum((max(timedelta(), sight.typical - span) for span in begun), timedelta())
    unbegun = view.count(DateState.PENDING, *LIVE_DATES) - len(begun)
    lost = view.count(DateState.FAILURE) if view.on_failure == OnFailure.STOP else 0
    chains = max(1, view.parallelism - lost)
    rounds = -(-unbegun // chains)
    return rounds * sight.typical + rest / max(1, len(begun))


def is_over(sights: Sequence[Sight]) -> bool:
    """True once none of them moves any more without a request."""
    waits_for = {sight.view.id: sight for sight in sights}

    def moves(sight: Sight) -> bool:
        above = waits_for.get(sight.view.after_id)
        if sight.view.state == ComplementState.SUBMITTED and above is not None:
            # It goes on, or fails, as soon as the one that it waits for has ended for good.
            return above.view.state != ComplementState.PAUSE and (moves(above) or above.has_ended)
        return not sight.has_ended

    return not any(moves(sight) for sight in sights)


def blocker(sight: Sight) -> str | None:
    """The reason, for people, why a complement has not moved for a while; None if it moves."""
    view = sight.view
    if view.state == ComplementState.READY_STOP and sight.live:
        ids = [date.process_instance_id for date in sight.live if date.process_instance_id]
        if not ids:
            return None
        shown_ids = ", ".join(map(str, ids[:FEW_FAILURES]))
        return (
            f"complement {view.id} waits for runs that are being stopped: process instance"
            f" {shown_ids} (orcaflow instance why {ids[0]})"
        )
    moves = (ComplementState.RUNNING, ComplementState.READY_PAUSE, ComplementState.READY_STOP)
    if view.state not in moves or sight.live:
        return None
    if view.state == ComplementState.RUNNING and view.count(*RUN_DATES):
        return None
    return (
        f"complement {view.id} has not been moved on yet: is there a master? (orcaflow server list)"
    )
