"""Watches one run until it ends: a live tree on a terminal, a line for each change elsewhere.

It only looks: whatever happens to the watcher, the run goes on. Notifications of the database wake
it, and a slow look at the tables stands behind them, since tasks that begin to run are not called
out and any notification may be missed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta, tzinfo
from functools import partial
from typing import TYPE_CHECKING, Protocol

from common.clock import SystemClock
from common.dag import Dag
from common.errors import SchedulerError, ServiceUnreachableError
from common.model.control_types import CONTROL_TYPES
from common.model.states import ProcessState, TaskState
from common.store.listen import Channel, Notification, read_task_report
from operations.documents.applications import progress_of
from operations.documents.instances import name_of, task_duration
from operations.instances import RunSnapshot, dag_of, snapshot_of
from operations.session import Session
from operations.texts import duration
from operations.worker_logs import last_lines_anywhere
from orcaflow.cli.output import escaped, escaped_log, moment, shown, zone_name
from orcaflow.cli.screens.progress import bar, progress_words, where

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.text import Text

    from common.store.people.views import TaskInstanceView

LOG_TAIL_LINES = 20
_LOOK_EVERY = 0.5
_DRAW_EVERY = timedelta(milliseconds=200)
# A run of ten thousand tasks must not keep the database busy with being looked at.
_LOOK_SHARE = 20
_REPORT_PROGRESS_EVERY = timedelta(seconds=10)
_WAITING = "WAITING"
_FAILED = (TaskState.FAILURE, TaskState.KILL, TaskState.NEED_FAULT_TOLERANCE)


class WatchTimeoutError(SchedulerError):
    """The run did not end in time. It goes on; only the watching ends."""

    exit_code = 124


class Display(Protocol):
    """A place that shows a watched run."""

    def show(self, snapshot: RunSnapshot, *, now: datetime) -> None: ...

    def notify(self, text: str) -> None: ...


def watch(
    session: Session,
    process_instance_id: int,
    *,
    timeout: timedelta | None = None,
    to_stdout: bool = True,
) -> RunSnapshot:
    """Show the run until it has ended, and then the end of the log of each task that failed.

    `to_stdout` false leaves standard output to others. Raises `WatchTimeoutError` after `timeout`.
    """
    dag = dag_of(session, process_instance_id)
    stream = sys.stdout if to_stdout else sys.stderr
    with _display(stream.isatty(), dag, session.zone, to_stdout=to_stdout) as display:
        snapshot = _follow(session, process_instance_id, display, timeout)
    last = partial(last_lines_anywhere, session, lines=LOG_TAIL_LINES)
    for line in failures(snapshot, last_lines=last):
        stream.write(line + "\n")
    stream.write(_closing(snapshot) + "\n")
    stream.flush()
    return snapshot


def failures(
    snapshot: RunSnapshot, *, last_lines: Callable[[TaskInstanceView], list[str]]
) -> Iterator[str]:
    """The failures of a run for people: each failed task with the last lines of its log."""
    if snapshot.succeeded:
        return
    if snapshot.instance.state_reason:
        yield f"reason: {escaped(snapshot.instance.state_reason)}"
    for task in snapshot.tasks.values():
        if task.state != TaskState.FAILURE:
            continue
        code = "" if task.exit_code is None else f", exit code {task.exit_code}"
        word = f", {escaped(task.failure_reason)}" if task.failure_reason else ""
        yield ""
        yield (
            f"{escaped(task.name)} failed"
            f" (task instance {task.id}, attempt {task.attempt}{code}{word})"
        )
        if task.reason:
            yield f"  {escaped(task.reason)}"
        if place := where(task):
            yield f"  {place}"
        if task.task_type in CONTROL_TYPES:
            yield f"  the decision: orcaflow task log {task.id}"
            continue
        try:
            lines = last_lines(task)
        except SchedulerError as error:
            yield f"  {escaped(str(error))}"
            continue
        yield from (f"  | {escaped_log(line)}" for line in lines)
        yield f"  the whole log: orcaflow task log {task.id}"


def _closing(snapshot: RunSnapshot) -> str:
    instance = snapshot.instance
    span = duration(instance.duration(instance.start_time) or timedelta())
    state = name_of(ProcessState, instance.state)
    return f"{state}: process instance {instance.id} ({escaped(instance.name)}) after {span}"


def _follow(
    session: Session, process_instance_id: int, display: Display, timeout: timedelta | None
) -> RunSnapshot:
    clock = SystemClock()
    deadline = None if timeout is None else clock.monotonic() + timeout.total_seconds()
    look_at = 0.0
    snapshot: RunSnapshot | None = None
    lost = False
    channels = (Channel.TASK, Channel.PROCESS, Channel.WANTED)
    with session.news(channels, application_name="orcaflow-watch") as notifications:
        while True:
            before = clock.monotonic()
            if before >= look_at:
                try:
                    snapshot = snapshot_of(session, process_instance_id)
                    lost = False
                except ServiceUnreachableError as error:
                    if not lost:
                        display.notify(f"{error}; waiting for it")
                    lost = True
                took = clock.monotonic() - before
                look_at = before + max(_LOOK_EVERY, took * _LOOK_SHARE)
            if snapshot is not None:
                display.show(snapshot, now=clock.now())
                if snapshot.has_ended:
                    return snapshot
            if deadline is not None and clock.monotonic() >= deadline:
                raise WatchTimeoutError(
                    f"process instance {process_instance_id} has not ended within "
                    f"{timeout.total_seconds() if timeout else 0:g} s; it goes on: "
                    f"orcaflow instance watch {process_instance_id}"
                )
            rest = timedelta(seconds=max(0.0, look_at - clock.monotonic()))
            if deadline is not None:
                rest = min(rest, timedelta(seconds=max(0.0, deadline - clock.monotonic())))
            for news in notifications.wait(min(rest, _DRAW_EVERY)):
                if _concerns(news, process_instance_id):
                    look_at = 0.0


def _concerns(news: Notification, process_instance_id: int) -> bool:
    if news.is_reminder:
        return True
    try:
        if news.channel == Channel.TASK:
            return read_task_report(news.payload).process_instance_id == process_instance_id
        return int(news.payload) == process_instance_id
    except ValueError:
        return False


@contextmanager
def _display(
    on_terminal: bool, dag: Dag | None, zone: tzinfo | None, *, to_stdout: bool
) -> Iterator[Display]:
    if not on_terminal:
        stream = sys.stdout if to_stdout else sys.stderr

        def put(line: str) -> None:
            stream.write(line + "\n")
            stream.flush()

        yield Lines(put, zone)
        return
    # Only here: rich takes a while to import.
    from rich.console import Console
    from rich.live import Live

    console = Console(stderr=not to_stdout)
    with Live(console=console, auto_refresh=False, vertical_overflow="crop") as live:
        yield Tree(console, lambda drawn: live.update(drawn, refresh=True), dag, zone)


class Lines:
    """A line for each change, for logs and pipes."""

    def __init__(self, put: Callable[[str], None], zone: tzinfo | None) -> None:
        self._put = put
        self._zone = zone
        self._reported: dict[str, tuple[int, int, bool]] = {}
        self._places: dict[str, str] = {}
        self._progress: dict[str, tuple[datetime, str]] = {}
        self._state: int | None = None

    def show(self, snapshot: RunSnapshot, *, now: datetime) -> None:
        instance = snapshot.instance
        if self._state is None:
            zone = zone_name(now, self._zone)
            self._put(
                f"process instance {instance.id} ({escaped(instance.name)}), times in {zone}:"
            )
        for task in snapshot.tasks.values():
            is_promised = _is_promised(task, snapshot)
            known = (task.attempt, task.state, is_promised)
            if self._reported.get(task.name) == known:
                self._report_application(task, now)
                continue
            is_given_up = self._reported.get(task.name) == (task.attempt, task.state, True)
            self._reported[task.name] = known
            if is_given_up:
                again = "tried again once resumed" if _is_paused(snapshot) else "not tried again"
                self._put(f"{shown(now, self._zone)}  {escaped(task.name)}  {again}")
                continue
            span = task_duration(task, now=now) if task.end_time else None
            attempt = _attempt(task, self._zone, is_promised=is_promised)
            self._put(
                f"{shown(now, self._zone)}  {escaped(task.name)}"
                f"  {name_of(TaskState, task.state)}{attempt}"
                f"{'' if span is None else f'  {duration(span)}'}{_end_of_application(task)}"
            )
            self._report_application(task, now)
        self._state = instance.state

    def _report_application(self, task: TaskInstanceView, now: datetime) -> None:
        """Report a running attempt's application once, and its progress now and then."""
        if task.end_time is not None:
            return
        prefix = f"{shown(now, self._zone)}  {escaped(task.name)}"
        place = where(task)
        if place and self._places.get(task.name) != place:
            self._places[task.name] = place
            self._put(f"{prefix}  {place}")
        words = progress_words(task)
        last, said = self._progress.get(task.name, (None, ""))
        if words and words != said and (last is None or now - last >= _REPORT_PROGRESS_EVERY):
            self._progress[task.name] = (now, words)
            self._put(f"{prefix}  {words}")

    def notify(self, text: str) -> None:
        self._put(text)


class Tree:
    """The DAG from its heads down, redrawn in place."""

    def __init__(
        self,
        console: Console,
        draw: Callable[[RenderableType], None],
        dag: Dag | None,
        zone: tzinfo | None,
    ) -> None:
        self._zone = zone
        self._console = console
        self._draw = draw
        self._dag = dag
        self._depth = {} if dag is None else _depths(dag)

    def show(self, snapshot: RunSnapshot, *, now: datetime) -> None:
        self._draw(self._drawn(snapshot, now))

    def notify(self, text: str) -> None:
        self._console.print(escaped(text), markup=False, highlight=False)

    def _drawn(self, snapshot: RunSnapshot, now: datetime) -> RenderableType:
        from rich.console import Group
        from rich.text import Text

        instance = snapshot.instance
        state = name_of(ProcessState, instance.state) or ""
        wanted = name_of(ProcessState, instance.wanted_state)
        span = instance.duration(now) or timedelta()
        head = Text.assemble(
            (f"{escaped(instance.name)} ", "bold"),
            (state, _style(state)),
            f"  {duration(span)}",
            f"  ({wanted} is wanted)" if wanted and not snapshot.has_ended else "",
        )
        room = max(3, self._console.height - 4)
        names = self._names(snapshot)
        chosen = _most_telling(names, snapshot, room)
        lines = [head]
        spare = room - len(chosen)
        width = min(
            48, max((2 * self._depth.get(name, 0) + len(name) for name in chosen), default=0)
        )
        for name in chosen:
            task = snapshot.tasks.get(name)
            label = f"  {'  ' * self._depth.get(name, 0) + escaped(name):<{width}}  "
            is_promised = task is not None and _is_promised(task, snapshot)
            lines.append(_line(label, task, now, self._zone, is_promised=is_promised))
            place = "" if task is None or task.end_time is not None else where(task)
            if place and spare > 0:
                spare -= 1
                indent = "  " * self._depth.get(name, 0)
                lines.append(Text(f"    {indent}{place}", style="dim"))
        left_out = len(names) - len(chosen)
        if left_out:
            lines.append(Text(f"  … and {left_out} more: {_counts(names, snapshot)}", style="dim"))
        for line in lines:
            line.no_wrap = True
            line.overflow = "ellipsis"
        return Group(*lines)

    def _names(self, snapshot: RunSnapshot) -> Sequence[str]:
        known = () if self._dag is None else self._dag.names
        others = [name for name in snapshot.tasks if name not in self._depth]
        return [*known, *others]


def _line(
    head: str,
    task: TaskInstanceView | None,
    now: datetime,
    zone: tzinfo | None,
    *,
    is_promised: bool,
) -> Text:
    from rich.text import Text

    state = _WAITING if task is None else (name_of(TaskState, task.state) or "")
    span = None if task is None else task_duration(task, now=now)
    return Text.assemble(
        head,
        (f"{_sign(state)} {state:<10}", _style(state)),
        f"{'' if span is None else duration(span):>8}",
        "" if task is None else _attempt(task, zone, is_promised=is_promised),
        *(() if task is None else _application(task)),
    )


def _depths(dag: Dag) -> dict[str, int]:
    """The length of the longest path to each node: its indentation."""
    depth: dict[str, int] = {}
    for name in dag.names:
        depth[name] = max((depth[above] + 1 for above in dag.upstream[name]), default=0)
    return depth


def _most_telling(names: Sequence[str], snapshot: RunSnapshot, room: int) -> list[str]:
    """All names if they fit; else first what failed or runs, then what ended last, in DAG order."""
    if len(names) <= room:
        return list(names)

    def rank(name: str) -> tuple[int, float]:
        task = snapshot.tasks.get(name)
        if task is None:
            return (3, 0.0)
        if task.state in _FAILED:
            return (0, 0.0)
        if task.end_time is None:
            return (1, 0.0)
        return (2, -task.end_time.timestamp())

    chosen = frozenset(sorted(names, key=rank)[:room])
    return [name for name in names if name in chosen]


def _counts(names: Sequence[str], snapshot: RunSnapshot) -> str:
    counts: dict[str, int] = {}
    for name in names:
        task = snapshot.tasks.get(name)
        state = _WAITING if task is None else (name_of(TaskState, task.state) or "")
        counts[state] = counts.get(state, 0) + 1
    return ", ".join(f"{count} {state}" for state, count in counts.items())


def _application(task: TaskInstanceView) -> tuple[tuple[str, str], ...]:
    """The part of a line that shows a running application, or a failure."""
    progress = progress_of(task)
    if task.end_time is not None or progress is None:
        return ((_end_of_application(task), "dim"),)
    drawn, words = bar(progress), progress_words(task)
    return ((f"  {drawn}" if drawn else "", "cyan"), (f"  {words}" if words else "", "dim"))


def _end_of_application(task: TaskInstanceView) -> str:
    """The last progress of an attempt that is over; or the word for its failure."""
    if task.end_time is None:
        return ""
    if task.failure_reason:
        return f"  {escaped(task.failure_reason)}"
    words = progress_words(task)
    return f"  {words}" if words else ""


def _is_promised(task: TaskInstanceView, snapshot: RunSnapshot) -> bool:
    """True if the attempt is to be followed by another; a run that has ended promises nothing."""
    return task.retry_at is not None and task.end_time is not None and not snapshot.has_ended


def _is_paused(snapshot: RunSnapshot) -> bool:
    return snapshot.instance.state == ProcessState.PAUSE


def _attempt(task: TaskInstanceView, zone: tzinfo | None, *, is_promised: bool) -> str:
    if is_promised:
        return f"  attempt {task.attempt}, tried again at {moment(task.retry_at, zone)}"
    return f"  attempt {task.attempt}" if task.attempt > 1 else ""


_STYLES = {
    "SUCCESS": ("✔", "green"),
    "FAILURE": ("✘", "bold red"),
    "KILL": ("✘", "red"),
    "STOP": ("✘", "red"),
    "NEED_FAULT_TOLERANCE": ("↻", "yellow"),
    "RUNNING": ("▶", "cyan"),
    "SUBMITTED": ("…", "blue"),
}


def _sign(state: str) -> str:
    return _STYLES.get(state, ("·", ""))[0]


def _style(state: str) -> str:
    return _STYLES.get(state, ("", "dim"))[1]
