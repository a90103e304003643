"""Watches one run until it ends: a live tree on a terminal, a line for each change elsewhere.

It only looks: whatever happens to the watcher, the run goes on. Notifications of the database wake
it, and a slow look at the tables stands behind them, since tasks that begin to run are not called
out and any notification may be missed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta, tzinfo
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from common.clock import SystemClock
from common.dag import Dag, select
from common.errors import InvalidDefinitionError, SchedulerError, ServiceUnreachableError
from common.model.command_param import CommandParam
from common.model.definitions import read_process_json
from common.model.states import ProcessState, TaskDependType, TaskState
from common.store.listen import Channel, Notification, Notifications, read_task_report
from common.store.people.runs import RunShape, run_shape
from common.store.people.views import task_instances
from common.task_types import known_task_types
from operations.documents.instances import name_of, task_duration
from operations.lookup import instance_with_id
from operations.session import Session
from operations.task_log import last_lines
from operations.texts import duration
from orcaflow.cli.output import escaped, escaped_log, shown
from orcaflow.cli.screens.progress import bar, progress_of, progress_words, where

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.text import Text

    from common.store.people.views import ProcessInstanceView, TaskInstanceView

LOG_TAIL_LINES = 20
_LOOK_EVERY = 0.5
_DRAW_EVERY = timedelta(milliseconds=200)
# A run of ten thousand tasks must not keep the database busy with being looked at.
_LOOK_SHARE = 20
_TELL_PROGRESS_EVERY = timedelta(seconds=10)
_WAITING = "WAITING"
_FAILED = (TaskState.FAILURE, TaskState.KILL, TaskState.NEED_FAULT_TOLERANCE)


class WatchTimeoutError(SchedulerError):
    """The run did not end in time. It goes on; only the watching ends."""

    exit_code = 124


@dataclass(frozen=True, slots=True, kw_only=True)
class Sight:
    """A run as it was when it was looked at. `tasks` holds the valid attempt of each node."""

    instance: ProcessInstanceView
    tasks: dict[str, TaskInstanceView]

    @property
    def has_ended(self) -> bool:
        return self.instance.state in _TERMINAL

    @property
    def succeeded(self) -> bool:
        return self.instance.state == ProcessState.SUCCESS


_TERMINAL = frozenset(int(state) for state in ProcessState if state.is_terminal)


class Display(Protocol):
    """Where a watched run is shown."""

    def show(self, sight: Sight, *, now: datetime) -> None: ...

    def tell(self, text: str) -> None: ...


def watch(
    session: Session,
    process_instance_id: int,
    *,
    timeout: timedelta | None = None,
    to_stdout: bool = True,
) -> Sight:
    """Show the run until it has ended, and then the end of the log of each task that failed.

    `to_stdout` false leaves standard output to others. Raises `WatchTimeoutError` after `timeout`.
    """
    with session.engine.connect() as db:
        instance_with_id(db, process_instance_id)
        shape = run_shape(db, process_instance_id)
    dag = _dag(shape)
    stream = sys.stdout if to_stdout else sys.stderr
    with _display(stream.isatty(), dag, session.zone, to_stdout=to_stdout) as display:
        sight = _follow(session, process_instance_id, display, timeout)
    for line in failures(session.config.home, sight):
        stream.write(line + "\n")
    stream.write(_closing(sight) + "\n")
    stream.flush()
    return sight


def look(session: Session, process_instance_id: int) -> Sight:
    """The run as it is now."""
    with session.engine.connect() as db:
        instance = instance_with_id(db, process_instance_id)
        tasks = task_instances(db, process_instance_id=process_instance_id, valid_only=True)
    return Sight(instance=instance, tasks={task.name: task for task in tasks})


def failures(home: Path, sight: Sight) -> Iterator[str]:
    """What went wrong, for people: each failed task with the end of its log."""
    if sight.succeeded:
        return
    if sight.instance.state_reason:
        yield f"reason: {escaped(sight.instance.state_reason)}"
    for task in sight.tasks.values():
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
        try:
            lines = last_lines(home, task.log_path, lines=LOG_TAIL_LINES)
        except SchedulerError as error:
            yield f"  {escaped(str(error))}"
            continue
        yield from (f"  | {escaped_log(line)}" for line in lines)
        yield f"  the whole log: orcaflow task log {task.id}"


def _closing(sight: Sight) -> str:
    instance = sight.instance
    span = duration((instance.end_time or instance.start_time) - instance.start_time)
    state = name_of(ProcessState, instance.state)
    return f"{state}: process instance {instance.id} ({escaped(instance.name)}) after {span}"


def _dag(shape: RunShape | None) -> Dag | None:
    """The nodes that the run has, in order; None if its JSON can't be read."""
    if shape is None:
        return None
    try:
        graph = read_process_json(shape.process_instance_json, task_types=known_task_types())
        names = CommandParam.of_instance(shape.command_param).start_node_names
        return select(graph.dag, names, TaskDependType(shape.task_depend_type))
    except (InvalidDefinitionError, ValueError):
        return None


def _follow(
    session: Session, process_instance_id: int, display: Display, timeout: timedelta | None
) -> Sight:
    clock = SystemClock()
    deadline = None if timeout is None else clock.monotonic() + timeout.total_seconds()
    look_at = 0.0
    sight: Sight | None = None
    lost = False
    channels = (Channel.TASK, Channel.PROCESS, Channel.WANTED)
    with Notifications(session.url, channels, application_name="orcaflow-watch") as notifications:
        while True:
            before = clock.monotonic()
            if before >= look_at:
                try:
                    sight = look(session, process_instance_id)
                    lost = False
                except ServiceUnreachableError as error:
                    if not lost:
                        display.tell(f"{error}; waiting for it")
                    lost = True
                took = clock.monotonic() - before
                look_at = before + max(_LOOK_EVERY, took * _LOOK_SHARE)
            if sight is not None:
                display.show(sight, now=clock.now())
                if sight.has_ended:
                    return sight
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
        yield Tree(console, lambda drawn: live.update(drawn, refresh=True), dag)


class Lines:
    """A line for each change, for logs and pipes."""

    def __init__(self, put: Callable[[str], None], zone: tzinfo | None) -> None:
        self._put = put
        self._zone = zone
        self._told: dict[str, tuple[int, int]] = {}
        self._told_of: dict[str, str] = {}
        self._progress: dict[str, tuple[datetime, str]] = {}
        self._state: int | None = None

    def show(self, sight: Sight, *, now: datetime) -> None:
        instance = sight.instance
        if self._state is None:
            self._put(f"process instance {instance.id} ({escaped(instance.name)}):")
        for task in sight.tasks.values():
            if self._told.get(task.name) == (task.attempt, task.state):
                self._tell_of_application(task, now)
                continue
            self._told[task.name] = (task.attempt, task.state)
            span = task_duration(task, now=now) if task.end_time else None
            self._put(
                f"{shown(now, self._zone)}  {escaped(task.name)}"
                f"  {name_of(TaskState, task.state)}{_attempt(task)}"
                f"{'' if span is None else f'  {duration(span)}'}{_end_of_application(task)}"
            )
            self._tell_of_application(task, now)
        self._state = instance.state

    def _tell_of_application(self, task: TaskInstanceView, now: datetime) -> None:
        """Where a running attempt's application is, once; and now and then how far it has come."""
        if task.end_time is not None:
            return
        prefix = f"{shown(now, self._zone)}  {escaped(task.name)}"
        place = where(task)
        if place and self._told_of.get(task.name) != place:
            self._told_of[task.name] = place
            self._put(f"{prefix}  {place}")
        words = progress_words(task)
        last, said = self._progress.get(task.name, (None, ""))
        if words and words != said and (last is None or now - last >= _TELL_PROGRESS_EVERY):
            self._progress[task.name] = (now, words)
            self._put(f"{prefix}  {words}")

    def tell(self, text: str) -> None:
        self._put(text)


class Tree:
    """The DAG from its heads down, redrawn in place."""

    def __init__(
        self, console: Console, draw: Callable[[RenderableType], None], dag: Dag | None
    ) -> None:
        self._console = console
        self._draw = draw
        self._dag = dag
        self._depth = {} if dag is None else _depths(dag)

    def show(self, sight: Sight, *, now: datetime) -> None:
        self._draw(self._drawn(sight, now))

    def tell(self, text: str) -> None:
        self._console.print(escaped(text), markup=False, highlight=False)

    def _drawn(self, sight: Sight, now: datetime) -> RenderableType:
        from rich.console import Group
        from rich.text import Text

        instance = sight.instance
        state = name_of(ProcessState, instance.state) or ""
        wanted = name_of(ProcessState, instance.wanted_state)
        span = (instance.end_time or now) - instance.start_time
        head = Text.assemble(
            (f"{escaped(instance.name)} ", "bold"),
            (state, _style(state)),
            f"  {duration(span)}",
            f"  ({wanted} is wanted)" if wanted and not sight.has_ended else "",
        )
        room = max(3, self._console.height - 4)
        names = self._names(sight)
        chosen = _most_telling(names, sight, room)
        lines = [head]
        spare = room - len(chosen)
        width = min(
            48, max((2 * self._depth.get(name, 0) + len(name) for name in chosen), default=0)
        )
        for name in chosen:
            task = sight.tasks.get(name)
            lines.append(self._line(name, task, width, now))
            place = "" if task is None or task.end_time is not None else where(task)
            if place and spare > 0:
                spare -= 1
                label = "  " * self._depth.get(name, 0)
                lines.append(Text(f"    {label}{place}", style="dim"))
        left_out = len(names) - len(chosen)
        if left_out:
            lines.append(Text(f"  … and {left_out} more: {_counts(names, sight)}", style="dim"))
        for line in lines:
            line.no_wrap = True
            line.overflow = "ellipsis"
        return Group(*lines)

    def _names(self, sight: Sight) -> Sequence[str]:
        known = () if self._dag is None else self._dag.names
        others = [name for name in sight.tasks if name not in self._depth]
        return [*known, *others]

    def _line(self, name: str, task: TaskInstanceView | None, width: int, now: datetime) -> Text:
        from rich.text import Text

        label = "  " * self._depth.get(name, 0) + escaped(name)
        state = _WAITING if task is None else (name_of(TaskState, task.state) or "")
        span = None if task is None else task_duration(task, now=now)
        return Text.assemble(
            f"  {label:<{width}}  ",
            (f"{_sign(state)} {state:<10}", _style(state)),
            f"{'' if span is None else duration(span):>8}",
            "" if task is None else _attempt(task),
            *(() if task is None else _application(task)),
        )


def _depths(dag: Dag) -> dict[str, int]:
    """How many nodes stand above each at the most: its indentation."""
    depth: dict[str, int] = {}
    for name in dag.names:
        depth[name] = max((depth[above] + 1 for above in dag.upstream[name]), default=0)
    return depth


def _most_telling(names: Sequence[str], sight: Sight, room: int) -> list[str]:
    """All names if they fit; else first what failed or runs, then what ended last, in DAG order."""
    if len(names) <= room:
        return list(names)

    def rank(name: str) -> tuple[int, float]:
        task = sight.tasks.get(name)
        if task is None:
            return (3, 0.0)
        if task.state in _FAILED:
            return (0, 0.0)
        if task.end_time is None:
            return (1, 0.0)
        return (2, -task.end_time.timestamp())

    chosen = frozenset(sorted(names, key=rank)[:room])
    return [name for name in names if name in chosen]


def _counts(names: Sequence[str], sight: Sight) -> str:
    counts: dict[str, int] = {}
    for name in names:
        task = sight.tasks.get(name)
        state = _WAITING if task is None else (name_of(TaskState, task.state) or "")
        counts[state] = counts.get(state, 0) + 1
    return ", ".join(f"{count} {state}" for state, count in counts.items())


def _application(task: TaskInstanceView) -> tuple[tuple[str, str], ...]:
    """What a terminal shows of a running application, or of a failure."""
    progress = progress_of(task)
    if task.end_time is not None or progress is None:
        return ((_end_of_application(task), "dim"),)
    drawn, words = bar(progress), progress_words(task)
    return ((f"  {drawn}" if drawn else "", "cyan"), (f"  {words}" if words else "", "dim"))


def _end_of_application(task: TaskInstanceView) -> str:
    """How far an application came whose attempt is over; or why the attempt failed, in a word."""
    if task.end_time is None:
        return ""
    if task.failure_reason:
        return f"  {escaped(task.failure_reason)}"
    words = progress_words(task)
    return f"  {words}" if words else ""


def _attempt(task: TaskInstanceView) -> str:
    if task.retry_at is not None and task.end_time is not None:
        return f"  attempt {task.attempt}, tried again at {shown(task.retry_at)}"
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
