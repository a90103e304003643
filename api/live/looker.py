"""The loop that looks: what somebody watches is read every 150 ms, and nothing if nobody does.

Notifications of the database wake it earlier; the end of an attempt is told from the notification
itself. It alone keeps the pictures, and fills the mailboxes of `api.live.streams`.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Final, Protocol

from api.live import changes, texts
from api.live.changes import Change, OverviewPicture, RunPicture, Step
from api.live.streams import Stream, Streams
from common.clock import Clock
from common.errors import SchedulerError
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
from common.store.connect import is_transient
from common.store.listen import Channel, Notification, read_task_report
from common.store.people.live import Watchable

log = logging.getLogger(__name__)

CHANNELS: Final = (
    Channel.TASK, Channel.PROCESS, Channel.WANTED, Channel.COMMAND, Channel.COMPLEMENT
)  # fmt: skip

LOOK_EVERY: Final = 0.15
LEAST_GAP: Final = 0.05
"""Two looks are so far apart, however many notifications ask for one."""
ENDED_EVERY: Final = 2.0
OVERVIEW_EVERY: Final = 1.0
RIGHTS_EVERY: Final = 2.0
RETRY_AFTER: Final = 1.0
_COMMIT_SECONDS: Final = 2.0
"""A row may be committed so long after it got its id."""
_IDLE: Final = timedelta(hours=1)


class Tables(Protocol):
    """The questions of the looker (`operations.live.WatchedTables`)."""

    def runs(self, question: RunsQuestion) -> RunsAnswer:
        """Read watched runs."""

    def declared_good(self, runs: Sequence[int]) -> list[LiveAttempt]:
        """Read attempts of ended runs that were declared good."""

    def overview(self, question: OverviewQuestion) -> OverviewAnswer:
        """Read all that goes on."""

    def watchable(
        self, principal: Principal, runs: Sequence[int], *, with_projects: bool
    ) -> Watchable | None:
        """Read what a principal may still see."""


class Listener(Protocol):
    """Notifications of the database (`common.store.listen.Notifications`)."""

    def wait(self, timeout: timedelta) -> list[Notification]:
        """Return notifications; none after the time-out or a `wake`."""

    def wake(self) -> None:
        """Have the wait return at once."""

    def close(self) -> None:
        """End the connection."""


class LiveLoop:
    """Looks at what is watched, and tells the streams."""

    name: Final = "live"

    def __init__(
        self,
        streams: Streams,
        tables: Tables,
        listen: Callable[[], Listener],
        *,
        clock: Clock,
    ) -> None:
        self._streams = streams
        self._tables = tables
        self._listen = listen
        self._clock = clock
        self._lock = threading.Lock()
        self._listener: Listener | None = None
        self._pictures: dict[int, RunPicture] = {}
        self._overview: OverviewPicture | None = None
        self._newest: deque[tuple[float, int]] = deque()
        self._runs_due = self._ended_due = self._overview_due = self._rights_due = 0.0
        self._last_look = self._last_overview = 0.0

    def wake(self) -> None:
        """End the present wait for notifications."""
        with self._lock:
            if self._listener is not None:
                self._listener.wake()

    def close(self) -> None:
        """Stop listening."""
        with self._lock:
            listener, self._listener = self._listener, None
        if listener is not None:
            listener.close()

    def run_once(self) -> timedelta:
        """Wait for news or the next look, and tell the streams of what has changed."""
        streams = self._streams.all()
        if not streams:
            self.close()
            self._forget()
            return _IDLE
        self._watch(streams)
        self._hear(streams, self._news())
        try:
            self._look(self._streams.all())
        except Exception as error:
            if not (is_transient(error) or isinstance(error, SchedulerError)):
                log.exception("look at watched runs failed")
            self._pictures = {
                each: changes.stale(picture) for each, picture in self._pictures.items()
            }
            self._due_again(RETRY_AFTER)
        return timedelta()

    def _forget(self) -> None:
        self._pictures.clear()
        self._overview = None
        self._newest.clear()
        self._runs_due = self._ended_due = self._overview_due = self._rights_due = 0.0
        self._last_look = self._last_overview = 0.0

    def _watch(self, streams: Iterable[Stream]) -> None:
        """Drop what nobody watches any more; what is new is looked at at once."""
        watched = _watched(streams)
        self._pictures = {each: self._pictures[each] for each in watched if each in self._pictures}
        if len(self._pictures) < len(watched):
            self._runs_due = min(self._runs_due, self._last_look + LEAST_GAP)
        if not any(each.topics.overview for each in streams):
            self._overview = None
            self._overview_due = 0.0

    def _news(self) -> list[Notification]:
        with self._lock:
            if self._listener is None:
                self._listener = self._listen()
            listener = self._listener
        left = self._next() - self._clock.monotonic()
        return listener.wait(timedelta(seconds=max(0.0, left)))

    def _next(self) -> float:
        """The moment of the next question to the tables."""
        due = [self._rights_due]
        streams = self._streams.all()
        if _watched(streams):
            due += [self._runs_due, self._ended_due]
        if any(each.topics.overview for each in streams):
            due.append(self._overview_due)
        if any(self._can_have_snapshot(each) for each in streams):
            return 0.0
        return min(due)

    def _due_again(self, seconds: float) -> None:
        at = self._clock.monotonic() + seconds
        self._runs_due = self._ended_due = self._overview_due = self._rights_due = at

    def _hear(self, streams: Sequence[Stream], news: Iterable[Notification]) -> None:
        for each in news:
            if each.is_reminder:
                self._runs_due = self._overview_due = 0.0
                self._pictures = {
                    number: changes.stale(picture) for number, picture in self._pictures.items()
                }
            elif each.channel == Channel.TASK:
                self._hear_end(streams, each.payload)
            else:
                self._overview_due = min(self._overview_due, self._last_overview + LOOK_EVERY)
                # A command may let an ended run go on; of the others the payload names the run.
                if each.channel == Channel.COMMAND:
                    self._runs_due = min(self._runs_due, self._last_look + LOOK_EVERY)
                elif _number(each.payload) in self._pictures:
                    self._runs_due = min(self._runs_due, self._last_look + LEAST_GAP)

    def _hear_end(self, streams: Sequence[Stream], payload: str) -> None:
        try:
            report = read_task_report(payload)
        except ValueError:
            return
        former = self._pictures.get(report.process_instance_id)
        if former is None:
            return
        step = changes.hinted(former, report)
        if step is not None:
            self._pictures[report.process_instance_id] = step.picture
            self._publish(streams, {report.process_instance_id: step})

    def _look(self, streams: Sequence[Stream]) -> None:
        now = self._clock.monotonic()
        if now >= self._rights_due:
            self._check_rights(streams)
            self._rights_due = now + RIGHTS_EVERY
            streams = self._streams.all()
        watched = _watched(streams)
        if watched and now >= self._runs_due:
            self._look_at_runs(streams, watched, now)
        if watched and now >= self._ended_due:
            self._look_at_ended(streams, now)
        if any(each.topics.overview for each in streams) and now >= self._overview_due:
            self._look_at_all(streams, now)
        for stream in streams:
            if self._can_have_snapshot(stream):
                stream.mailbox.post_snapshot(self._snapshot(stream))

    def _look_at_runs(self, streams: Sequence[Stream], watched: set[int], now: float) -> None:
        question = changes.question(watched, self._pictures, behind=self._behind(now))
        answer = self._tables.runs(question)
        self._last_look = now
        self._newest.append((now, answer.newest))
        attempts: dict[int, list[LiveAttempt]] = {}
        for attempt in answer.attempts:
            attempts.setdefault(attempt.process_instance_id, []).append(attempt)
        steps = {
            run.id: changes.compared(
                self._pictures.get(run.id),
                run,
                attempts.get(run.id, ()),
                complete=run.id in question.complete,
            )
            for run in answer.runs
        }
        self._pictures = {each: step.picture for each, step in steps.items()}
        self._publish(streams, steps)
        pictures = self._pictures.values()
        if any(each.is_stale for each in pictures):
            self._runs_due = now + LEAST_GAP
        elif all(each.run.has_ended for each in pictures):
            self._runs_due = now + ENDED_EVERY
        else:
            self._runs_due = now + LOOK_EVERY

    def _behind(self, now: float) -> int:
        """The newest attempt of a while ago: what was committed since has a greater id."""
        while len(self._newest) > 1 and self._newest[1][0] <= now - _COMMIT_SECONDS:
            self._newest.popleft()
        return self._newest[0][1] if self._newest else 2**31 - 1

    def _look_at_ended(self, streams: Sequence[Stream], now: float) -> None:
        ended = [each for each, picture in self._pictures.items() if picture.run.has_ended]
        self._ended_due = now + ENDED_EVERY
        if not ended:
            return
        attempts: dict[int, list[LiveAttempt]] = {}
        for attempt in self._tables.declared_good(ended):
            attempts.setdefault(attempt.process_instance_id, []).append(attempt)
        steps = {
            number: changes.corrected(self._pictures[number], rows)
            for number, rows in attempts.items()
        }
        self._pictures |= {number: step.picture for number, step in steps.items()}
        self._publish(streams, steps)

    def _look_at_all(self, streams: Sequence[Stream], now: float) -> None:
        former = self._overview
        answer = self._tables.overview(changes.overview_question(former or OverviewPicture()))
        self._last_overview = now
        self._overview_due = now + OVERVIEW_EVERY
        self._overview, changed = changes.overview_compared(former or OverviewPicture(), answer)
        if former is None:
            return
        events = [(_project_of(each), texts.change_event(each)) for each in changed]
        alert = (
            [texts.event("alert", {"id": answer.newest_alert})]
            if answer.newest_alert > former.newest_alert
            else []
        )
        for stream in streams:
            if stream.topics.overview:
                stream.mailbox.post([text for where, text in events if where in stream.projects])
                # An alert names no project: it is for those who see what belongs to none.
                stream.mailbox.post(alert if None in stream.projects else [])

    def _check_rights(self, streams: Sequence[Stream]) -> None:
        """End the streams of those who may not see their topics any more."""
        groups: dict[tuple[object, ...], list[Stream]] = {}
        for stream in streams:
            groups.setdefault(_identity(stream.principal), []).append(stream)
        for group in groups.values():
            found = self._tables.watchable(
                group[0].principal,
                sorted(_watched(group)),
                with_projects=any(each.topics.overview for each in group),
            )
            for stream in group:
                if found is None:
                    self._end(stream, "unauthenticated")
                elif not stream.topics.runs <= found.runs:
                    self._end(stream, "not-found")
                elif stream.topics.overview and stream.projects != found.projects:
                    stream.projects = found.projects
                    if self._overview is not None and self._can_have_snapshot(stream, wanted=True):
                        stream.mailbox.post_snapshot(self._snapshot(stream))

    def _end(self, stream: Stream, reason: str) -> None:
        stream.mailbox.end(texts.event("end", {"reason": reason}))
        self._streams.close(stream)

    def _publish(self, streams: Sequence[Stream], steps: dict[int, Step]) -> None:
        written = {number: _written(step.changes) for number, step in steps.items()}
        for stream in streams:
            about = [each for each in stream.topics.runs if each in steps]
            if any(steps[each].renewed for each in about):
                if self._can_have_snapshot(stream, wanted=True):
                    stream.mailbox.post_snapshot(self._snapshot(stream))
            else:
                stream.mailbox.post([text for each in sorted(about) for text in written[each]])

    def _can_have_snapshot(self, stream: Stream, *, wanted: bool = False) -> bool:
        """True if the stream wants a snapshot, and all that it is about is known."""
        return (
            (wanted or stream.mailbox.wants_snapshot)
            and not stream.mailbox.ended
            and all(each in self._pictures for each in stream.topics.runs)
            and (self._overview is not None or not stream.topics.overview)
        )

    def _snapshot(self, stream: Stream) -> bytes:
        return texts.snapshot_event(
            [self._pictures[each] for each in sorted(stream.topics.runs)],
            self._overview if stream.topics.overview else None,
            stream.projects,
        )


def _written(changed: Iterable[Change]) -> list[bytes]:
    return [texts.change_event(each) for each in changed]


def _watched(streams: Iterable[Stream]) -> set[int]:
    return {run for each in streams for run in each.topics.runs}


def _identity(principal: Principal) -> tuple[object, ...]:
    return (
        *(principal.user_id, principal.token_id, principal.session_hash),
        *(principal.scope, principal.projects),
    )


def _project_of(change: Change) -> int | None:
    return change.project_id if isinstance(change, LiveRun | LiveComplement) else None


def _number(payload: str) -> int | None:
    with suppress(ValueError):
        return int(payload[:12])
    return None
