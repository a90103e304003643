"""The loop that hears notifications and wakes the loops that they concern."""

from __future__ import annotations

from datetime import timedelta

import pytest

from common.model.states import ProcessState, TaskState
from common.store.listen import Channel, Notification
from common.store.worker.ports import AttemptEnd
from master.loops.notice_loop import NoticeLoop
from tests.builders import NOON
from tests.one_master import WORKER, OneMaster


class Notices:
    def __init__(self, *notifications: Notification) -> None:
        self.notifications = list(notifications)

    def wait(self, timeout: timedelta) -> list[Notification]:
        heard, self.notifications = self.notifications, []
        return heard

    def wake(self) -> None:
        """Nothing waits in a test."""


@pytest.mark.parametrize(
    ("channel", "payload", "woken"),
    [
        (Channel.COMMAND, "", ["command"]),
        (Channel.PROCESS, "", ["upstream"]),
        (Channel.HOLD, "", ["hold"]),
        (Channel.TASK, '[1,2,1,7,0,"a",false,null]', ["upstream"]),
        (Channel.TASK, "what?", ["upstream", "runs"]),
        (Channel.WANTED, "", ["runs"]),
        (Channel.DATASET, "flights", ["flights"]),
        ("?", "", ["command", "hold", "runs", "upstream"]),
    ],
)
def test_a_notification_wakes_whom_it_concerns(
    channel: str, payload: str, woken: list[str]
) -> None:
    master = OneMaster()
    heard: list[str] = []
    loop = NoticeLoop(
        Notices(Notification(channel=channel, payload=payload)),
        runs=master.runs,
        command_waiting=lambda: heard.append("command"),
        upstream_changed=lambda _run, _task: heard.append("upstream"),
        hold_changed=lambda: heard.append("hold"),
        dataset_changed=heard.append,
    )
    assert loop.run_once() == timedelta()
    heard += ["runs"] * master.wakes
    assert sorted(heard) == sorted(woken)


@pytest.mark.parametrize(
    ("channel", "payload", "told"),
    [
        (Channel.PROCESS, "12", (12, None)),
        (Channel.PROCESS, "twelve", (None, None)),
        (Channel.TASK, '[12,2,1,7,0,"a",false,null]', (12, "a")),
        (Channel.TASK, "[12]", (None, None)),
        ("", "", (None, None)),
    ],
)
def test_those_who_wait_are_told_what_has_ended(
    channel: str, payload: str, told: tuple[int | None, str | None]
) -> None:
    heard: list[tuple[int | None, str | None]] = []
    loop = NoticeLoop(
        Notices(Notification(channel=channel, payload=payload)),
        runs=OneMaster().runs,
        command_waiting=lambda: None,
        upstream_changed=lambda run, task: heard.append((run, task)),
    )
    loop.run_once()
    assert heard == [told]


def test_a_report_wakes_the_owner_of_its_run() -> None:
    master = OneMaster()
    run_id = master.begin("a")
    master.step()
    task_id = master.claim(run_id, "a")
    end = AttemptEnd(task_instance_id=task_id, state=TaskState.SUCCESS, end_time=NOON)
    master.tasks.report(WORKER, [end])
    loop = NoticeLoop(
        Notices(
            *(
                Notification(channel=channel, payload=payload)
                for channel, payload in master.database.drain_notifications()
                if channel == Channel.TASK
            )
        ),
        runs=master.runs,
        command_waiting=lambda: None,
    )
    wakes = master.wakes
    # The rows can't be read: only the notification itself can report the end.
    master.store.broken = ("reports",)
    loop.run_once()
    assert master.wakes == wakes + 1
    master.step()
    assert master.state(run_id) is ProcessState.SUCCESS
