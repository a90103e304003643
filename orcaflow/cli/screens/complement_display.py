"""Shows watched complements: bars redrawn in place on a terminal, else a line per ended date."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime, timedelta, tzinfo
from typing import TYPE_CHECKING, Protocol

from common.clock import SystemClock
from common.model.complement_states import ComplementState, DateState
from common.store.people.complement_views import LIVE_DATES, ComplementDateView, ComplementView
from operations.complement_progress import Sight, time_left
from operations.documents.complements import date_text
from operations.documents.instances import name_of
from operations.texts import counted, duration
from orcaflow.cli.output import escaped, shown, zone_name

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.text import Text

_BAR = 30
_A_DAY = timedelta(days=1)


class Display(Protocol):
    """A place where watched complements are shown."""

    def show(self, sights: Sequence[Sight], *, now: datetime) -> None: ...

    def say(self, text: str) -> None: ...


def closing(sight: Sight) -> str:
    """The state in which it ended, and the commands that show more or go on."""
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


def how_to_watch(ids: Sequence[int]) -> str:
    """The command that watches these complements."""
    return f"orcaflow complement wait {' '.join(map(str, ids))}"


class Quiet:
    """Shows nothing but messages."""

    def __init__(self, put: Callable[[str], None]) -> None:
        self._put = put

    def show(self, sights: Sequence[Sight], *, now: datetime) -> None:
        pass

    def say(self, text: str) -> None:
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
                zones = "" if view.id in self._states else f"; {self._zones(view, now)}"
                self._put(f"{_title(view)}: {state}{after}: {counts(view)}{zones}")
            self._states[view.id] = view.state
            done = sight.done - len(sight.ended)
            for place, date in enumerate(sight.ended, start=done + 1):
                self._put(self._line(sight, date, place, now))

    def say(self, text: str) -> None:
        self._put(text)

    def _zones(self, view: ComplementView, now: datetime) -> str:
        """Name the zone of the times of the lines, and the zone of the dates if it differs."""
        zone = zone_name(now, self._zone)
        dates = "" if zone == view.timezone_id else f"dates in {view.timezone_id}, "
        return f"{dates}times in {zone}"

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
        span = date.duration(now)
        if span is not None and date.end_time is not None:
            parts.append(duration(span))
        if date.reason:
            parts.append(escaped(date.reason))
        if left:
            parts.append(f"({duration(left)} left)")
        return "  ".join(parts)


class Bars:
    """A bar for each complement, with live and failed dates below it, redrawn in place."""

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

    def say(self, text: str) -> None:
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
        failed = view.count(DateState.FAILURE)
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
    """The number of columns of each part; together never more than there are."""
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
    took = date.duration(now)
    span = "" if took is None else f"  {duration(took)}"
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
