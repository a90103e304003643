"""Streams of events: what is told of two pictures, mailboxes, limits, and the pace of the looker."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from api.live.changes import (
    OverviewPicture,
    RunPicture,
    compared,
    hinted,
    overview_compared,
    pictured,
    question,
    stale,
)
from api.live.log_texts import viewable
from api.live.looker import LOOK_EVERY, RIGHTS_EVERY, LiveLoop
from api.live.stream import EventStream
from api.live.streams import Mailbox, Stream, Streams
from api.live.texts import change_event, packed
from api.live.topics import Topics, read_topics
from api.problems import TooManyError
from common.clock import Clock
from common.errors import ServiceUnreachableError
from common.model.instances import TaskReport
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
from common.model.states import ProcessState, TaskState
from common.store.listen import Channel, Notification
from common.store.people.live import Watchable
from operations.errors import UsageError
from tests.bounds import step_until
from tests.builders import NOON

ADA = Principal(user_id=2, user_name="ada", token_id=1)
BOB = Principal(user_id=3, user_name="bob", token_id=2)


def a_run(state: ProcessState = ProcessState.RUNNING, **columns: Any) -> LiveRun:
    return LiveRun(
        **{
            "id": 7,
            "name": "flights-7",
            "project_id": 1,
            "state": int(state),
            "wanted_state": None,
            "run_times": 1,
            "start_time": NOON,
            "end_time": NOON if state.is_terminal else None,
            **columns,
        }
    )


def an_attempt(state: TaskState = TaskState.RUNNING, **columns: Any) -> LiveAttempt:
    return LiveAttempt(
        **{
            "id": 70,
            "process_instance_id": 7,
            "name": "a",
            "attempt": 1,
            "state": int(state),
            "start_time": NOON,
            "end_time": NOON if state.is_finished else None,
            "progress": None,
            "settled": state.is_finished,
            **columns,
        }
    )


def a_picture(*attempts: LiveAttempt, run: LiveRun | None = None) -> RunPicture:
    return pictured(run or a_run(), {each.id: each for each in attempts})


def a_report(**columns: Any) -> TaskReport:
    return TaskReport(
        **{
            "process_instance_id": 7,
            "task_instance_id": 70,
            "name": "a",
            "attempt": 1,
            "state": TaskState.SUCCESS,
            "end_time": NOON,
            **columns,
        }
    )


def test_the_difference_of_two_pictures_is_told_and_the_end_of_the_run_last() -> None:
    done, ended = an_attempt(TaskState.SUCCESS), a_run(ProcessState.SUCCESS)
    new = an_attempt(id=71, name="b")
    step = compared(a_picture(an_attempt()), ended, [new, done], complete=False)
    assert step.changes == (done, new, ended)
    assert not step.renewed
    # Whatever was missed in between is found by one look at all of it.
    assert step.picture.is_stale
    again = compared(step.picture, ended, [done, new], complete=True)
    assert (again.changes, again.renewed, again.picture.is_stale) == ((), False, False)


def test_nothing_is_told_of_what_no_watcher_sees() -> None:
    ended = an_attempt(TaskState.SUCCESS, settled=False)
    step = compared(a_picture(ended), a_run(), [replace(ended, settled=True)], complete=False)
    assert step.changes == ()


def test_a_retry_takes_the_place_of_the_attempt_before_it() -> None:
    first = an_attempt(TaskState.FAILURE)
    second = an_attempt(id=72, attempt=2)
    step = compared(a_picture(first), a_run(), [second], complete=False)
    assert (step.changes, list(step.picture.attempts)) == ((second,), [72])


def test_a_run_that_goes_on_after_its_end_is_told_by_a_snapshot_of_all_of_it() -> None:
    former = a_picture(an_attempt(TaskState.FAILURE), run=a_run(ProcessState.FAILURE))
    step = compared(former, a_run(run_times=2), [], complete=False)
    assert (step.changes, step.renewed) == ((), False)
    assert question([7], {7: step.picture}, behind=0).complete == (7,)
    read = compared(step.picture, a_run(run_times=2), [], complete=True)
    assert (read.renewed, dict(read.picture.attempts)) == (True, {})


def test_a_gap_is_closed_by_differences_or_by_a_snapshot_where_attempts_are_gone() -> None:
    former = stale(a_picture(an_attempt(), an_attempt(id=71, name="b")))
    done = an_attempt(TaskState.SUCCESS)
    assert compared(former, a_run(), [done], complete=True).renewed
    step = compared(former, a_run(), [done, an_attempt(id=71, name="b")], complete=True)
    assert (step.changes, step.renewed) == ((done,), False)


def test_only_what_may_have_changed_is_asked_for() -> None:
    live = an_attempt()
    unsettled = an_attempt(TaskState.SUCCESS, id=72, name="c", settled=False)
    moving = a_picture(live, an_attempt(TaskState.SUCCESS, id=71, name="b"), unsettled)
    assert question([7, 8], {7: moving}, behind=60) == RunsQuestion(
        moving=(7,), complete=(8,), attempts=(live, unsettled), behind=60
    )


def test_a_notified_end_is_told_once_and_a_false_one_is_corrected_by_the_rows() -> None:
    former = a_picture(an_attempt())
    step = hinted(former, a_report())
    assert step is not None
    assert [change.state for change in step.changes] == [TaskState.SUCCESS]
    again = hinted(step.picture, a_report())
    assert again is not None
    assert again.changes == ()
    assert [each.id for each in question([7], {7: step.picture}, behind=0).attempts] == [70]
    true = compared(step.picture, a_run(), [an_attempt(TaskState.SUCCESS)], complete=False)
    assert true.changes == ()
    false = compared(step.picture, a_run(), [an_attempt()], complete=False)
    assert false.changes == (an_attempt(),)
    for report in (
        a_report(attempt=2),
        a_report(task_instance_id=9),
        a_report(state=TaskState.RUNNING),
    ):
        assert hinted(former, report) is None


def test_what_has_ended_is_told_once_in_an_overview() -> None:
    def answer(run: LiveRun, complement: LiveComplement) -> OverviewAnswer:
        return OverviewAnswer(
            runs=(run,), complements=(complement,), newest_run=run.id, newest_alert=0
        )

    moving = LiveComplement(id=3, project_id=1, state=1, end_time=None)
    ended = LiveComplement(id=3, project_id=1, state=7, end_time=NOON)
    picture, told = overview_compared(OverviewPicture(), answer(a_run(), moving))
    assert told == (moving, a_run())
    picture, told = overview_compared(picture, answer(a_run(), moving))
    assert told == ()
    over = a_run(ProcessState.SUCCESS)
    picture, told = overview_compared(picture, answer(over, ended))
    assert (told, dict(picture.runs), dict(picture.complements)) == ((ended, over), {}, {})


def test_an_event_is_one_line_of_json_and_a_snapshot_takes_few_bytes_a_task() -> None:
    text = change_event(
        an_attempt(name="line\nend\r\n\u2028", progress='{"tasks": 4, "tasks_done": 1}')
    )
    kind, data, *rest = text.decode().split("\n")
    assert (kind, rest) == ("event: task", ["", ""])
    document = json.loads(data.removeprefix("data: "))
    assert (document["name"], document["progress"]["share"]) == ("line\nend\r\n\u2028", 0.25)
    assert document["state"] == {"code": 1, "name": "RUNNING"}
    many = [an_attempt(id=2_000_000_000 + 2 * n, name=str(n)) for n in range(1000)]
    assert packed(many)[:4] == [2_000_000_000, 1, 2, 1]
    assert len(json.dumps(packed(many))) <= 12 * len(many)


@pytest.mark.parametrize(
    "text", ["", "instance", "instance:", "instance:0", "instance:-1", "instance:1,", "instance:99999999999",
             "instance:2147483648", "instance:٣", "Overview", ",".join(f"instance:{n}" for n in range(1, 52))],
)  # fmt: skip
def test_a_topic_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        read_topics(text)
    assert caught.value.field == "topics"
    assert read_topics("overview,instance:2,instance:2") == Topics(
        runs=frozenset({2}), overview=True
    )


def test_a_reader_who_is_too_slow_gets_a_snapshot_in_the_place_of_a_backlog() -> None:
    box = Mailbox(most_bytes=10)
    box.post([b"before the first snapshot"])
    assert (box.take(), box.wants_snapshot) == (b"", True)
    box.post_snapshot(b"S")
    box.post([b"1", b"2"])
    assert (box.take(), box.wants_snapshot) == (b"S12", False)
    box.post([b"0123456789"])
    box.post([b"!"])
    box.post([b"more"])
    # Until it has taken what there was, no snapshot is made for it either.
    assert not box.wants_snapshot
    assert (box.take(), box.wants_snapshot) == (b"", True)
    box.post([b"lost"])
    box.post_snapshot(b"S")
    assert box.take() == b"S"
    box.end(b"E")
    box.post([b"late"])
    box.post_snapshot(b"late")
    assert (box.take(), box.ended) == (b"E", True)


def a_stream(principal: Principal = ADA, *runs: int, overview: bool = False) -> Stream:
    topics = Topics(runs=frozenset(runs or {7}), overview=overview)
    return Stream(principal=principal, topics=topics, projects=frozenset({1}))


def test_a_user_and_a_server_have_so_many_streams_and_no_more() -> None:
    streams = Streams(most=3, most_of_user=2)
    first = a_stream()
    for stream in (first, a_stream(), a_stream(BOB)):
        streams.open(stream)
    with pytest.raises(TooManyError, match="you have 2"):
        streams.open(a_stream())
    with pytest.raises(TooManyError, match="server has 3"):
        streams.open(a_stream(BOB))
    streams.close(first)
    streams.close(first)
    streams.open(a_stream(BOB))
    streams.end_all(b"E")
    late = a_stream()
    streams.open(late)
    assert (streams.all(), late.mailbox.take()) == ([], b"E")


class HandClock(Clock):
    """A clock that a listener's wait moves on."""

    def __init__(self) -> None:
        self.at = 1000.0

    def monotonic(self) -> float:
        return self.at


class Wire:
    """Notifications by hand: a wait without news passes its time at once."""

    def __init__(self, clock: HandClock) -> None:
        self.clock = clock
        self.news: list[Notification] = []
        self.closed = False

    def wait(self, timeout: timedelta) -> list[Notification]:
        news, self.news = self.news, []
        if not news:
            self.clock.at += max(0.001, timeout.total_seconds())
        return news

    def wake(self) -> None:
        pass

    def close(self) -> None:
        self.closed = True


class Rows:
    """Tables by hand, which count what they are asked."""

    def __init__(self) -> None:
        self.run = a_run()
        self.attempts: tuple[LiveAttempt, ...] = (an_attempt(),)
        self.allowed: dict[int, Watchable | None] = {}
        self.asked: list[str] = []
        self.away = False

    def runs(self, question: RunsQuestion) -> RunsAnswer:
        self._ask("runs")
        return RunsAnswer(runs=(self.run,), attempts=self.attempts, newest=99)

    def declared_good(self, runs: Sequence[int]) -> list[LiveAttempt]:
        self._ask("declared_good")
        return [each for each in self.attempts if each.state == TaskState.FORCED_SUCCESS]

    def overview(self, question: OverviewQuestion) -> OverviewAnswer:
        self._ask("overview")
        return OverviewAnswer(runs=(self.run,), complements=(), newest_run=7, newest_alert=0)

    def watchable(
        self, principal: Principal, runs: Sequence[int], *, with_projects: bool
    ) -> Watchable | None:
        self._ask("watchable")
        everything = Watchable(runs=frozenset({7}), projects=frozenset({1}))
        return self.allowed.get(principal.user_id, everything)

    def _ask(self, what: str) -> None:
        self.asked.append(what)
        if self.away:
            raise ServiceUnreachableError("PostgreSQL is away")


class Scene:
    """A looker with its streams, tables and clock."""

    def __init__(self) -> None:
        self.streams, self.rows, self.clock = Streams(), Rows(), HandClock()
        self.wires: list[Wire] = []
        self.loop = LiveLoop(self.streams, self.rows, self._listen, clock=self.clock)

    def _listen(self) -> Wire:
        self.wires.append(Wire(self.clock))
        return self.wires[-1]

    def opened(self, stream: Stream) -> Stream:
        self.streams.open(stream)
        self.step()
        return stream

    def step(self, *news: Notification) -> None:
        if news:
            self.wires[-1].news = list(news)
        self.loop.run_once()

    def until(self, seconds: float) -> None:
        end = self.clock.at + seconds
        while self.clock.at < end:
            self.step()


def told(stream: Stream) -> list[tuple[str, Any]]:
    """The events that wait in a stream's mailbox."""
    found = []
    for text in stream.mailbox.take().decode().split("\n\n")[:-1]:
        kind, data = text.split("\n")
        found.append((kind.removeprefix("event: "), json.loads(data.removeprefix("data: "))))
    return found


def kinds(stream: Stream) -> list[str]:
    return [kind for kind, _ in told(stream)]


def test_nobody_watches_and_nothing_is_asked_nor_listened_to() -> None:
    scene = Scene()
    assert scene.loop.run_once() > timedelta(minutes=1)
    assert (scene.rows.asked, scene.wires) == ([], [])
    stream = scene.opened(a_stream())
    scene.streams.close(stream)
    scene.rows.asked.clear()
    scene.step()
    assert (scene.rows.asked, scene.wires[-1].closed) == ([], True)


def test_all_watchers_of_all_runs_cost_one_question_every_150_ms() -> None:
    scene = Scene()
    for user in range(2, 22):
        scene.streams.open(a_stream(replace(ADA, user_id=user)))
    scene.step()
    scene.rows.asked.clear()
    scene.until(3)
    assert scene.rows.asked.count("runs") == pytest.approx(3 / LOOK_EVERY, abs=1)
    assert scene.rows.asked.count("overview") == 0
    assert all(kinds(each) == ["snapshot"] for each in scene.streams.all())


def test_notifications_of_others_do_not_make_it_ask_more() -> None:
    scene = Scene()
    scene.opened(a_stream())
    asked = len(scene.rows.asked)
    other = '[8,80,1,7,1364817600,"b",false,null]'
    for _ in range(20):
        scene.step(
            Notification(channel=Channel.TASK, payload=other),
            Notification(channel=Channel.PROCESS, payload="8"),
            Notification(channel=Channel.COMMAND, payload=""),
            Notification(channel=Channel.TASK, payload="{"),
            Notification(channel=Channel.PROCESS, payload="x" * 1000),
        )
    assert len(scene.rows.asked) == asked


def test_an_end_is_told_from_its_notification_before_any_row_is_read() -> None:
    scene = Scene()
    stream = scene.opened(a_stream())
    assert kinds(stream) == ["snapshot"]
    asked = len(scene.rows.asked)
    payload = f'[7,70,1,7,{NOON.timestamp():.0f},"a",false,null]'
    scene.step(Notification(channel=Channel.TASK, payload=payload))
    assert [(kind, event["state"]["code"]) for kind, event in told(stream)] == [("task", 7)]
    assert len(scene.rows.asked) == asked
    scene.rows.attempts = (an_attempt(TaskState.SUCCESS),)
    scene.rows.run = a_run(ProcessState.SUCCESS)
    scene.step(Notification(channel=Channel.PROCESS, payload="7"))
    scene.step()
    assert kinds(stream) == ["instance"]


def test_an_ended_run_is_looked_at_seldom_and_a_forced_success_in_it_is_seen() -> None:
    scene = Scene()
    scene.rows.run, scene.rows.attempts = (
        a_run(ProcessState.FAILURE),
        (an_attempt(TaskState.FAILURE),),
    )
    stream = scene.opened(a_stream())
    told(stream)
    scene.rows.asked.clear()
    scene.rows.attempts = (an_attempt(TaskState.FORCED_SUCCESS),)
    scene.until(6)
    assert scene.rows.asked.count("runs") <= 4
    assert [(kind, event["state"]["name"]) for kind, event in told(stream)] == [
        ("task", "FORCED_SUCCESS")
    ]


def test_a_lost_right_ends_the_stream_within_five_seconds_and_nobody_elses() -> None:
    scene = Scene()
    disabled, foreign, other = a_stream(), a_stream(BOB), a_stream(replace(ADA, user_id=4))
    for stream in (disabled, foreign, other):
        scene.opened(stream)
        told(stream)
    scene.rows.allowed = {2: None, 3: Watchable(runs=frozenset(), projects=frozenset())}
    before = scene.clock.at
    step_until(
        lambda: disabled.mailbox.ended and foreign.mailbox.ended,
        scene.step,
        awaited="both streams end",
    )
    assert scene.clock.at - before <= RIGHTS_EVERY + LOOK_EVERY < 5
    assert told(disabled) == [("end", {"reason": "unauthenticated"})]
    assert told(foreign) == [("end", {"reason": "not-found"})]
    assert scene.streams.all() == [other]


def test_a_project_that_is_lost_leaves_the_overview() -> None:
    scene = Scene()
    stream = scene.opened(a_stream(overview=True))
    (snapshot,) = told(stream)
    assert [each["id"] for each in snapshot[1]["overview"]["instances"]] == [7]
    scene.rows.allowed = {2: Watchable(runs=frozenset({7}), projects=frozenset({5}))}
    scene.until(RIGHTS_EVERY + LOOK_EVERY)
    (snapshot,) = told(stream)
    assert snapshot[1]["overview"]["instances"] == []
    scene.rows.run = a_run(ProcessState.SUCCESS)
    scene.until(2)
    # It watches the run itself too; of all other runs there it hears nothing.
    assert kinds(stream) == ["instance"]


def test_a_database_that_is_away_ends_nothing_and_what_was_missed_is_told() -> None:
    scene = Scene()
    stream = scene.opened(a_stream())
    told(stream)
    scene.rows.away = True
    scene.until(10)
    assert (kinds(stream), scene.streams.all()) == ([], [stream])
    scene.rows.away = False
    scene.rows.attempts = (an_attempt(TaskState.SUCCESS),)
    scene.until(3)
    assert kinds(stream) == ["task"]


def test_a_run_that_is_gone_is_not_asked_for_in_a_spin() -> None:
    scene = Scene()
    stream = scene.opened(a_stream())
    scene.rows.run = a_run(id=8)
    scene.rows.allowed = {2: Watchable(runs=frozenset(), projects=frozenset())}
    scene.rows.asked.clear()
    step_until(lambda: stream.mailbox.ended, scene.step, awaited="the stream ends")
    assert scene.rows.asked.count("runs") < 100


async def _served(stream: EventStream, steps: list[Any]) -> list[dict[str, Any]]:
    """Serve a stream; each step is called after one sent body, and may tell the reader to leave."""
    sent: list[dict[str, Any]] = []
    leaving = asyncio.Event()

    async def receive() -> dict[str, Any]:
        await leaving.wait()
        return {"type": "http.disconnect"}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)
        if message["type"] == "http.response.body" and steps:
            step = steps.pop(0)
            if step is None:
                leaving.set()
            else:
                step()

    await asyncio.wait_for(stream({"type": "http"}, receive, send), 30)  # type: ignore[arg-type]
    return sent


def test_an_answer_sends_what_waits_pings_while_nothing_does_and_ends_after_the_last() -> None:
    streams, stream = Streams(), a_stream()
    streams.open(stream)
    stream.mailbox.post_snapshot(b"S")
    box = stream.mailbox
    steps = [lambda: box.post([b"1", b"2"]), lambda: None, lambda: box.end(b"E")]
    sent = asyncio.run(_served(EventStream(streams, stream, ping_seconds=0.01), steps))
    assert sent[0]["status"] == 200
    bodies = [each["body"] for each in sent[1:]]
    assert bodies[:2] == [b"S", b"12"]
    assert bodies[-1] == b"E"
    assert set(bodies[2:-1]) == {b"event: ping\ndata: {}\n\n"}
    assert [each["more_body"] for each in sent[1:]] == [True] * (len(bodies) - 1) + [False]
    assert streams.all() == []


def test_a_reader_who_leaves_or_does_not_read_frees_the_place() -> None:
    streams, left, stuck = Streams(), a_stream(), a_stream()
    streams.open(left)
    left.mailbox.post_snapshot(b"S")
    asyncio.run(_served(EventStream(streams, left), [None]))
    assert streams.all() == []

    async def unread() -> None:
        async def receive() -> dict[str, Any]:
            await asyncio.Event().wait()
            raise AssertionError

        async def send(message: dict[str, Any]) -> None:
            if message["type"] == "http.response.body":
                await asyncio.Event().wait()

        answer = EventStream(streams, stuck, send_patience_seconds=0.01)
        await answer({"type": "http"}, receive, send)  # type: ignore[arg-type]

    streams.open(stuck)
    stuck.mailbox.post_snapshot(b"S")
    asyncio.run(unread())
    assert streams.all() == []


@pytest.mark.parametrize(
    ("body", "text", "taken"),
    [
        ("fünf\n".encode(), "fünf\n", 6),
        ("f\u00fc".encode()[:-1], "f", 1),
        ("\U0001f40b".encode()[:-1], "", 0),
        (b"\xff\xfe\n", "\ufffd\ufffd\n", 3),
        (b"\x1b[31mred\x1b[0m", "\x1b[31mred\x1b[0m", 12),
        (b"a\x1b[2Jb\x1b[1;1Hc", "abc", 13),
        (b"\x1b]8;;http://evil\x07link\x1b]8;;\x1b\\.", "link.", 29),
        (b"a\x1b]0;title", "a", 1),
        (b"a\x1b[3", "a", 1),
        (b"a\x1b", "a", 1),
        (b"50 %\r60 %\r\n", "50 %\n60 %\n", 11),
        (b"half\r", "half", 4),
        (b"\x00\x07\x08b\xc2\x9b1m", "b1m", 8),
        (b"\x1b(Ba\x1bcb", "ab", 7),
        (b"\x1b]" + b"x" * 2000, "]" + "x" * 2000, 2002),
    ],
)
def test_of_the_escapes_of_a_log_colours_are_left_and_nothing_is_torn(
    body: bytes, text: str, taken: int
) -> None:

    assert viewable(body, is_end=False) == (text, taken)
    assert viewable(body, is_end=True)[1] == len(body)
