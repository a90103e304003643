"""Forged notifications, which any database role can send, change no run and stop no loop."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest

from common.model.states import ProcessState, TaskState
from common.store.listen import Channel, Notification, hint_channel, read_hint
from common.store.worker.ports import AttemptEnd
from master.loops.notice_loop import NoticeLoop
from master.loops.run_worker import RunWorkerConfig
from tests.one_master import WORKER, OneMaster
from worker.loops.hint_loop import HintLoop

OUTPUT = '[{"prop": "x", "direct": "OUT", "type": "VARCHAR", "value": "7"}]'
LARGE = 2**40
MALFORMED = (
    *("", "what?", "[]", "[1]", "null", "{}", "[" * 7000, "9" * 7000, "-1", "1e999", "\x1b"),
    json.dumps([1, 2, 1, 7, float("nan"), "a", False, None]),
    json.dumps(["1", [], {}, "7", None, None, "no", []]),
    json.dumps([1, 2, 1, 7, 10**300, "a", False, {}]),
    f'[{"9" * 6000},1,1,7,0,"a",false,null]',
)


class Forger:
    """A sender of payloads on the channels that a master listens to."""

    def __init__(self, master: OneMaster) -> None:
        self.waiting: list[Notification] = []
        self.ended: list[int | None] = []
        self.loop = NoticeLoop(
            self,
            runs=master.runs,
            command_waiting=lambda: None,
            upstream_changed=lambda run, _task: self.ended.append(run),
        )

    def wait(self, timeout: timedelta) -> list[Notification]:
        heard, self.waiting = self.waiting, []
        return heard

    def wake(self) -> None:
        """Do nothing: no thread waits in these tests."""

    def notify(self, *payloads: str, channel: str = Channel.TASK) -> None:
        self.waiting += [Notification(channel=channel, payload=each) for each in payloads]
        self.loop.run_once()


def forged(run: int, attempt_id: int, **changes: Any) -> str:
    """Return a payload like the trigger's for an ended attempt."""
    fields = {
        "run": run,
        "task": attempt_id,
        "attempt": 1,
        "state": TaskState.SUCCESS,
        "at": 0,
        "name": "a",
        "output": False,
        "failure": None,
        **changes,
    }
    return json.dumps(list(fields.values()))


def finish(master: OneMaster, task: int, **end: Any) -> None:
    """Report the end of an attempt as its worker, and drop the notification."""
    at = master.clock.now()
    master.tasks.report(
        WORKER, [AttemptEnd(task_instance_id=task, state=TaskState.SUCCESS, end_time=at, **end)]
    )
    master.database.drain_notifications()


@pytest.mark.parametrize("state", list(TaskState))
@pytest.mark.parametrize("output", [False, True])
def test_forged_ends_of_a_running_attempt_change_nothing_x70(
    master: OneMaster, state: TaskState, output: bool
) -> None:
    policy = {"maxRetryTimes": 3, "retryInterval": 0}
    run = master.begin("a >> b", of_task={"a": policy})
    master.step()
    task = master.claim(run, "a")
    forger = Forger(master)
    for _ in range(10):
        forger.notify(forged(run, task, state=state, output=output))
        master.step()
        master.step()
    assert master.state(run) is ProcessState.RUNNING
    assert [(each.name, each.state) for each in master.attempts(run)] == [("a", TaskState.RUNNING)]
    finish(master, task)
    master.later(timedelta(seconds=1))
    assert master.names(run) == ["a", "b"]


@pytest.mark.parametrize(
    "changes",
    [
        *({"attempt": each} for each in (0, -1, 2, 7, LARGE)),
        *({"name": each} for each in ("b", "nobody", "", "a" * 7000, "a\x00")),
        *({"task": each} for each in (0, -5, 99, LARGE)),
        *({"failure": each} for each in ("FETCH_FAILED", "nonsense", 5)),
        {"at": 10**11},
    ],
)
def test_forged_names_and_numbers_change_nothing_x70(
    master: OneMaster, changes: dict[str, Any]
) -> None:
    run, other = master.begin("a >> b"), master.begin("a")
    master.step()
    task, foreign = master.claim(run, "a"), master.claim(other, "a")
    forger = Forger(master)
    for state in (TaskState.SUCCESS, TaskState.FAILURE, TaskState.NEED_FAULT_TOLERANCE):
        for _ in range(4):
            forger.notify(forged(run, task, state=state, **changes))
            forger.notify(forged(run, foreign, state=state, output=True, **changes))
            master.step()
    assert {each.state for each in master.attempts(run)} == {TaskState.RUNNING}
    assert master.state(other) is ProcessState.RUNNING
    assert master.state(run) is ProcessState.RUNNING


def test_a_flood_of_forged_ends_does_not_keep_a_run_from_its_work_x70(master: OneMaster) -> None:
    run, other = master.begin("a b >> c"), master.begin("a")
    master.step()
    first, second = master.claim(run, "a"), master.claim(run, "b")
    forger = Forger(master)
    flood = [forged(run, second, name="b", state=each) for each in (TaskState.SUCCESS,) * 50]
    finish(master, first)
    finish(master, master.claim(other, "a"))
    for _ in range(6):
        forger.notify(*flood)
        master.later(timedelta(milliseconds=500))
    assert master.state(other) is ProcessState.SUCCESS
    assert [each.settled for each in master.attempts(run)] == [True, False]
    finish(master, second)
    for _ in range(4):
        forger.notify(*flood)
        master.later(timedelta(milliseconds=500))
    assert master.names(run) == ["a", "b", "c"]


def test_a_forged_success_hides_no_output_x70() -> None:
    master = OneMaster(config=RunWorkerConfig(check_interval=timedelta(hours=1)))
    run = master.begin("a >> b")
    master.step()
    task = master.claim(run, "a")
    forger = Forger(master)
    finish(master, task, var_pool=OUTPUT)
    forger.notify(forged(run, task))
    master.step()
    master.step()
    pool = json.loads(master.valid(run, "b").input_pool or "[]")
    assert [each["value"] for each in pool] == ["7"]


def test_malformed_payloads_stop_no_loop_x70(master: OneMaster) -> None:
    run = master.begin("a")
    master.step()
    task = master.claim(run, "a")
    forger = Forger(master)
    for channel in Channel:
        forger.notify(*MALFORMED, str(run), str(LARGE), channel=channel)
        master.step()
    forger.notify(*[forged(run, task)] * 3)
    assert all(each is None or each < 2**31 for each in forger.ended)
    assert master.state(run) is ProcessState.RUNNING
    finish(master, task)
    master.later(timedelta(seconds=1))
    master.later(timedelta(seconds=1))
    assert master.state(run) is ProcessState.SUCCESS


def test_malformed_hints_stop_no_loop_x70() -> None:
    class Source:
        def wait(self, timeout: timedelta) -> list[Notification]:
            channel = hint_channel("h:1")
            return [Notification(channel=channel, payload=each) for each in MALFORMED]

        def wake(self) -> None:
            """Do nothing: no thread waits in these tests."""

    hinted: list[object] = []
    HintLoop(Source(), hinted=hinted.extend).run_once()
    assert hinted == []
    assert read_hint(f"2_1_2_{'9' * 5000}_-1") == ()
