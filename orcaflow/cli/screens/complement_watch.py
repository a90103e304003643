"""Watches complements until they end: progress on a terminal, a line for each ended date elsewhere.

It only looks: whatever happens to the watcher, the complements go on. Notifications of the database
wake it, and a slow look at the tables stands behind them, since any notification may be missed.
Several are watched together where one waits for another.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta, tzinfo
from typing import TYPE_CHECKING, Protocol

from common.clock import SystemClock
from common.errors import NotFoundError, ServiceUnreachableError
from common.model.complements import ComplementState, DateState, OnFailure
from common.store.connect import Connection, server_time
from common.store.listen import Channel, Notifications
from common.store.people.complement_views import (
    ENDED_DATES,
    LIVE_DATES,
    RUN_DATES,
    ComplementDateView,
    ComplementView,
    complements_with_ids,
    dates_of_complement,
    run_dates,
)
from common.store.people.durations import recent_durations
from common.store.people.reasons import moment
from operations.complementing import typical_duration
from operations.documents.complements import date_text
from operations.documents.instances import name_of
from operations.session import Session
from operations.texts import counted, duration
from orcaflow.cli.output import escaped, shown
from orcaflow.cli.screens.watch import WatchTimeoutError

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.text import Text

_LOOK_EVERY = 0.5
_DRAW_EVERY = timedelta(milliseconds=200)
# A complement of very many dates must not keep the database busy with being looked at.
_LOOK_SHARE = 20
_SHOWN_FAILURES = 5
_KEPT_DURATIONS = 20
# When a date has changed is told by the masters' clocks, what is asked for by the database's.
_OVERLAP = timedelta(seconds=60)
_UNMOVED_AFTER = 10.0
_BAR = 30
_A_DAY = timedelta(days=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sight:
    """One complement as it was when it was looked at.

    `ended`: the dates that have ended since the look before; `typical`: how long one date takes.
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
        """How many dates have ended."""
        return self.view.count(*ENDED_DATES)


_ENDED = frozenset(int(state) for state in ComplementState if state.is_ended)


def time_left(sight: Sight, *, now: datetime) -> timedelta | None:
    """How long it will still take if each date takes as long as others did; None if unknown."""
    view = sight.view
    if sight.typical is None or sight.has_ended:
        return None
    begun = [now - date.start_time for date in sight.live if date.start_time is not None]
    rest = sum((max(timedelta(), sight.typical - span) for span in begun), timedelta())
    unbegun = view.count(DateState.PENDING, *LIVE_DATES) - len(begun)
    lost = view.count(DateState.FAILURE) if view.on_failure == OnFailure.STOP else 0
    chains = max(1, view.parallelism - lost)
    rounds = -(-unbegun // chains)
    return rounds * sight.typical + rest / max(1, len(begun))


def is_over(sights: Sequence[Sight]) -> bool:
    """Whether nothing of them moves before somebody asks for it."""
    waits_for = {sight.view.id: sight for sight in sights}

    def moves(sight: Sight) -> bool:
        above = waits_for.get(sight.view.after_id)
        if sight.view.state == ComplementState.SUBMITTED and above is not None:
            # It goes on, or fails, as soon as the one that it waits for has ended for good.
            return above.view.state != ComplementState.PAUSE and (moves(above) or above.has_ended)
        return not sight.has_ended

    return not any(moves(sight) for sight in sights)


class Display(Protocol):
    """Where watched complements are shown."""

    def show(self, sights: Sequence[Sight], *, now: datetime) -> None: ...

    def tell(self, text: str) -> None: ...


def watch(
    session: Session,
    complement_ids: Sequence[int],
    *,
    timeout: timedelta | None = None,
    to_stdout: bool = True,
    quietly: bool = False,
) -> list[Sight]:
    """Show them until they have ended. Raises `WatchTimeoutError` after `timeout`.

    `to_stdout` false leaves standard output to others; `quietly` shows nothing but trouble.
    """
    stream = sys.stdout if to_stdout else sys.stderr
    with _display(session, to_stdout=to_stdout, quietly=quietly) as display:
        sights = _follow(session, complement_ids, display, timeout, quietly=quietly)
    if not quietly:
        for sight in sights:
            stream.write(closing(sight) + "\n")
        stream.flush()
    return sights


def closing(sight: Sight) -> str:
    """How it ended, and how to see more."""
    view = sight.view
    span = duration((view.end_time or SystemClock().now()) - view.create_time)
    lines = [f"{name_of(ComplementState, view.state)}: {_title(view)} after {span}: {counts(view)}"]
    if view.state_reason and not sight.succeeded:
        lines.append(f"  reason: {escaped(view.state_reason)}")
    lines += [f"  ✘ {_failure(date, view)}" for date in sight.failed]
    more = view.count(DateState.FAILURE) - len(sight.failed)
    if sight.failed and more > 0:
        lines.append(f"  … and {more} more")
    lines.append(f"  all of its dates: orcaflow complement show {view.id}")
    if view.state == ComplementState.PAUSE:
        lines.append(f"  go on: orcaflow complement resume {view.id}")
    elif view.state == ComplementState.FAILURE and view.count(DateState.FAILURE):
        lines.append(f"  what failed, again: orcaflow complement retry {view.id}")
    return "\n".join(lines)


def counts(view: ComplementView) -> str:
    """Its dates by state: `31 dates, 28 success, 3 failure`."""
    states = (f"{view.dates[state]} {state}" for state in DateState if view.dates.get(state))
    return ", ".join([counted(view.count(), "date"), *states])


class _Watcher:
    """What is known of one complement from looks before: which of its dates have been told."""

    def __init__(self, complement_id: int, history: Sequence[timedelta]) -> None:
        self.complement_id = complement_id
        self._history = tuple(history)
        self._durations: list[timedelta] = []
        self._told: set[tuple[int, str, int]] | None = None
        self._since: datetime | None = None

    def look(self, db: Connection, view: ComplementView, *, now: datetime) -> Sight:
        if self._told is None or self._since is None:
            # What ended before is counted, and not told one by one.
            self._told = set(run_dates(db, self.complement_id))
            new = []
        else:
            new = self._new(db, view, self._told, self._since - _OVERLAP)
            self._told.update(map(_key, new))
        self._since = now
        for each in new:
            if each.state == DateState.SUCCESS and each.start_time and each.end_time:
                self._durations.append(each.end_time - each.start_time)
        del self._durations[:-_KEPT_DURATIONS]
        known = self._durations or self._history
        return Sight(
            view=view,
            live=tuple(dates_of_complement(db, self.complement_id, states=LIVE_DATES)),
            failed=tuple(
                dates_of_complement(
                    db, self.complement_id, states=(DateState.FAILURE,), limit=_SHOWN_FAILURES
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
        told: Collection[tuple[int, str, int]],
        since: datetime,
    ) -> list[ComplementDateView]:
        """The dates whose runs have ended, and that have not been told yet."""
        found = dates_of_complement(db, self.complement_id, states=RUN_DATES, since=since)
        new = [each for each in found if _key(each) not in told]
        if view.state in _ENDED and len(told) + len(new) < view.count(*RUN_DATES):
            # The clocks of masters are further apart than was thought of.
            known = {*told, *map(_key, new)}
            left = [key[0] for key in run_dates(db, self.complement_id) if key not in known]
            new += dates_of_complement(db, self.complement_id, ids=left)
        return new


def _key(date: ComplementDateView) -> tuple[int, str, int]:
    return (date.id, date.state, date.process_instance_id)


def _follow(
    session: Session,
    complement_ids: Sequence[int],
    display: Display,
    timeout: timedelta | None,
    *,
    quietly: bool,
) -> list[Sight]:
    clock = SystemClock()
    begun = clock.monotonic()
    deadline = None if timeout is None else begun + timeout.total_seconds()
    look_at = 0.0
    sights: list[Sight] = []
    lost = warned = False
    watchers: dict[int, _Watcher] = {}
    channels = (Channel.PROCESS, Channel.COMPLEMENT)
    with Notifications(session.url, channels, application_name="orcaflow-watch") as notifications:
        while True:
            before = clock.monotonic()
            if before >= look_at:
                try:
                    sights = _look(session, complement_ids, watchers, quietly=quietly)
                    lost = False
                except ServiceUnreachableError as error:
                    if not lost:
                        display.tell(f"{error}; waiting for it")
                    lost = True
                took = clock.monotonic() - before
                look_at = before + max(_LOOK_EVERY, took * _LOOK_SHARE)
                if sights and not lost:
                    display.show(sights, now=clock.now())
                    if is_over(sights):
                        return sights
                    if not warned and before - begun >= _UNMOVED_AFTER:
                        blockers = [text for each in sights if (text := blocker(each))]
                        for text in blockers:
                            display.tell(text)
                        warned = bool(blockers)
            elif sights:
                display.show(_settled(sights), now=clock.now())
            if deadline is not None and clock.monotonic() >= deadline:
                ids = " ".join(map(str, complement_ids))
                raise WatchTimeoutError(
                    f"complement {ids} has not ended within"
                    f" {timeout.total_seconds() if timeout else 0:g} s; it goes on:"
                    f" orcaflow complement wait {ids}"
                )
            rest = timedelta(seconds=max(0.0, look_at - clock.monotonic()))
            if deadline is not None:
                rest = min(rest, timedelta(seconds=max(0.0, deadline - clock.monotonic())))
            if notifications.wait(min(rest, _DRAW_EVERY)):
                # Some run has ended, or some complement was moved: it may be one of these. Many
                # that end together are one look.
                look_at = min(look_at, before + max(_DRAW_EVERY.total_seconds(), took * 2))


def _look(
    session: Session,
    complement_ids: Sequence[int],
    watchers: dict[int, _Watcher],
    *,
    quietly: bool,
) -> list[Sight]:
    # All at one moment, so that counts and dates agree.
    with moment(session.engine) as db:
        views = complements_with_ids(db, complement_ids)
        missing = sorted(set(complement_ids) - {view.id for view in views})
        if missing:
            raise NotFoundError(
                f"there is no complement {missing[0]}; see `orcaflow complement list`"
            )
        if quietly:
            return [
                Sight(view=view, live=tuple(dates_of_complement(db, view.id, states=LIVE_DATES)))
                for view in views
            ]
        if not watchers:
            history = recent_durations(db, [view.process_definition_id for view in views])
            for view in views:
                known = history.get(view.process_definition_id, ())
                watchers[view.id] = _Watcher(view.id, known)
        now = server_time(db)
        return [watchers[view.id].look(db, view, now=now) for view in views]


def _settled(sights: Sequence[Sight]) -> list[Sight]:
    """The same once more, in which nothing has ended since."""
    return [
        Sight(view=each.view, live=each.live, failed=each.failed, typical=each.typical)
        for each in sights
    ]


def blocker(sight: Sight) -> str | None:
    """What a person should know of a complement that has not moved for a while."""
    view = sight.view
    if view.state == ComplementState.READY_STOP and sight.live:
        ids = [date.process_instance_id for date in sight.live if date.process_instance_id]
        if not ids:
            return None
        shown_ids = ", ".join(map(str, ids[:_SHOWN_FAILURES]))
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


@contextmanager
def _display(session: Session, *, to_stdout: bool, quietly: bool) -> Iterator[Display]:
    stream = sys.stdout if to_stdout else sys.stderr

    def put(line: str) -> None:
        stream.write(line + "\n")
        stream.flush()

    if quietly:
        yield Quiet(put)
        return
    if not stream.isatty():
        yield Lines(put, session.zone)
        return
    # Only here: rich takes a while to import.
    from rich.console import Console
    from rich.live import Live

    console = Console(stderr=not to_stdout)
    with Live(console=console, auto_refresh=False, vertical_overflow="crop") as live:
        yield Bars(console, lambda drawn: live.update(drawn, refresh=True), session.zone)


class Quiet:
    """Nothing but what stands in the way."""

    def __init__(self, put: Callable[[str], None]) -> None:
        self._put = put

    def show(self, sights: Sequence[Sight], *, now: datetime) -> None:
        pass

    def tell(self, text: str) -> None:
        self._put(text)


class Lines:
    """A line for each date that has ended, for logs and pipes."""

    def __init__(self, put: Callable[[str], None], zone: tzinfo | None) -> None:
        self._put = put
        self._zone = zone
        self._states: dict[int, int] = {}

    def show(self, sights: Sequence[Sight], *, now: datetime) -> None:
        for sight in sights:
            view = sight.view
            if self._states.get(view.id) != view.state and not sight.has_ended:
                after = f" (after complement {view.after_id})" if _waits(view) else ""
                state = name_of(ComplementState, view.state)
                self._put(f"{_title(view)}: {state}{after}: {counts(view)}")
            self._states[view.id] = view.state
            done = sight.done - len(sight.ended)
            for place, date in enumerate(sight.ended, start=done + 1):
                self._put(self._line(sight, date, place, now))

    def tell(self, text: str) -> None:
        self._put(text)

    def _line(self, sight: Sight, date: ComplementDateView, place: int, now: datetime) -> str:
        view = sight.view
        left = time_left(sight, now=now)
        parts = [
            f"{shown(now, self._zone)}  {_name(view)} {place}/{view.count()}",
            date_text(date.schedule_time, view.timezone_id),
            date.state,
        ]
        if date.process_instance_id:
            parts.append(f"process instance {date.process_instance_id}")
        if date.start_time is not None and date.end_time is not None:
            parts.append(duration(date.end_time - date.start_time))
        if date.reason:
            parts.append(escaped(date.reason))
        if left:
            parts.append(f"({duration(left)} left)")
        return "  ".join(parts)


class Bars:
    """A bar for each complement, with what runs and what failed below it, redrawn in place."""

    def __init__(
        self,
        console: Console,
        draw: Callable[[RenderableType], None],
        zone: tzinfo | None = None,
    ) -> None:
        self._console = console
        self._draw = draw
        self._zone = zone

    def show(self, sights: Sequence[Sight], *, now: datetime) -> None:
        from rich.console import Group

        room = max(1, (self._console.height - 2) // max(1, len(sights)) - 2)
        lines = [line for sight in sights for line in self._lines(sight, room, now)]
        for line in lines:
            line.no_wrap = True
            line.overflow = "ellipsis"
        self._draw(Group(*lines))

    def tell(self, text: str) -> None:
        self._console.print(escaped(text), markup=False, highlight=False)

    def _lines(self, sight: Sight, room: int, now: datetime) -> list[Text]:
        from rich.text import Text

        view = sight.view
        state = name_of(ComplementState, view.state) or ""
        span = (view.end_time or now) - view.create_time
        head = Text.assemble(
            (_name(view), "bold"),
            f"  complement {view.id}  ",
            (state, _STYLES.get(state, "dim")),
            f"  {duration(span)}",
            f"  after complement {view.after_id}" if _waits(view) else "",
        )
        lines = [head, self._bar(sight, now)]
        failed = sight.failed[: max(1, room // 2)]
        live = sight.live[: max(1, room - len(failed))]
        lines += [
            Text.assemble("  ", ("▶", "cyan"), f" {_running(date, view, now)}") for date in live
        ]
        lines += [
            Text.assemble("  ", ("✘", "bold red"), f" {_failure(date, view)}") for date in failed
        ]
        return lines

    def _bar(self, sight: Sight, now: datetime) -> Text:
        from rich.text import Text

        view = sight.view
        total = view.count()
        failed = view.count(DateState.FAILURE, DateState.CANCELLED)
        good = view.count(DateState.SUCCESS, DateState.SKIPPED)
        width = min(_BAR, max(10, self._console.width - 50))
        widths = _shares(width, total, (good, failed, view.count(*LIVE_DATES)))
        left = time_left(sight, now=now)
        facts = [f"{sight.done}/{total}"]
        facts += [
            f"{number} {word}"
            for number, word in (
                (view.count(DateState.RUNNING), "running"),
                (view.count(DateState.SKIPPED), "skipped"),
                (view.count(DateState.FAILURE), "failed"),
            )
            if number
        ]
        if left is not None:
            facts.append(f"{duration(left)} left")
            if left < _A_DAY:
                facts[-1] += f", until {(now + left).astimezone(self._zone):%H:%M:%S}"
        return Text.assemble(
            "  ",
            ("━" * widths[0], "green"),
            ("━" * widths[1], "red"),
            ("━" * widths[2], "cyan"),
            ("─" * (width - sum(widths)), "dim"),
            f"  {', '.join(facts)}",
        )


def _shares(width: int, total: int, parts: Collection[int]) -> list[int]:
    """How many columns each part takes; they never take more than there are."""
    shares: list[int] = []
    passed = 0
    for part in parts:
        passed += part
        shares.append(width * passed // max(1, total) - sum(shares))
    return shares


def _waits(view: ComplementView) -> bool:
    return view.state == ComplementState.SUBMITTED and view.after_id != 0


def _name(view: ComplementView) -> str:
    return escaped(view.definition_name or f"definition {view.process_definition_id}")


def _title(view: ComplementView) -> str:
    return f"complement {view.id} of {_name(view)}"


def _running(date: ComplementDateView, view: ComplementView, now: datetime) -> str:
    text = date_text(date.schedule_time, view.timezone_id)
    if not date.process_instance_id:
        return f"{text}  waits for a master"
    span = "" if date.start_time is None else f"  {duration(now - date.start_time)}"
    return f"{text}  process instance {date.process_instance_id}{span}"


def _failure(date: ComplementDateView, view: ComplementView) -> str:
    instance = f"  process instance {date.process_instance_id}" if date.process_instance_id else ""
    reason = f"  {escaped(date.reason)}" if date.reason else ""
    return f"{date_text(date.schedule_time, view.timezone_id)}{instance}{reason}"


_STYLES: Mapping[str, str] = {
    "SUCCESS": "green",
    "FAILURE": "bold red",
    "STOP": "red",
    "READY_STOP": "red",
    "PAUSE": "yellow",
    "READY_PAUSE": "yellow",
    "RUNNING": "cyan",
}
