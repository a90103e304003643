"""Attempts that outlive the daemon: their next supervisor adopts them, reports them or kills them."""

from __future__ import annotations

import os
import signal
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from common.model.failures import FailureReason
from common.model.states import TaskState
from tests.integration.worker_host import Host, Signpost, a_daemon_that_dies, wait_until_gone
from worker.processes.attempt_processes import Seen, scan


def test_a_running_task_is_adopted_and_its_result_is_known(
    tmp_path: Path, signpost: Signpost
) -> None:
    gate = Signpost(tmp_path / "gate")
    script = f"echo $$ > {signpost.path}; read go < {gate.path}; echo went on; exit 4"
    a_daemon_that_dies(tmp_path, f"host.begin(host.task(7, {script!r}))")
    pid = int(signpost.wait())
    host = Host(tmp_path)
    assert host.supervisor.leftovers() == (7,)
    host.supervisor.adopt({7})
    assert host.supervisor.running() == {7}
    assert host.ends == {}
    gate.path.write_text("go\n")
    end = host.end_of(7)
    assert (end.state, end.exit_code) == (TaskState.FAILURE, 4)
    assert host.log(7).endswith("went on\n[orcaflow] exit code 4\n")
    wait_until_gone(pid)
    gate.close()
    host.supervisor.close()


def test_the_token_of_an_adopted_attempt_is_masked_in_its_log(
    tmp_path: Path, signpost: Signpost
) -> None:
    token = "73b9" * 16
    gate = Signpost(tmp_path / "gate")
    script = f"echo up > {signpost.path}; read go < {gate.path}; printf '%s\\n' 73b9{token[4:]}"
    a_daemon_that_dies(tmp_path, f"host.begin(host.task(7, {script!r}))")
    signpost.wait()
    host = Host(tmp_path, asks_by=lambda task: {"TOKEN": token if task == 7 else ""})
    host.supervisor.adopt({7})
    gate.path.write_text("go\n")
    host.end_of(7)
    assert f"\n{'*' * 64}\n" in host.log(7)
    gate.close()
    host.supervisor.close()


def test_an_adopted_task_of_a_complement_goes_on_yielding(
    tmp_path: Path, signpost: Signpost
) -> None:
    script = f"echo up > {signpost.path}; sleep 600"
    body = f"for n in (7, 8): host.begin(host.task(n, {script!r}, complement=n == 7))"
    a_daemon_that_dies(tmp_path, body)
    for _ in range(2):
        signpost.wait()
    host = Host(tmp_path)
    host.supervisor.adopt({7, 8})
    assert (host.supervisor.running(), host.supervisor.yielding()) == ({7, 8}, {7})
    for task in (7, 8):
        host.supervisor.kill(task)
        assert host.end_of(task).state is TaskState.KILL
    assert host.supervisor.yielding() == frozenset()
    host.supervisor.close()


def test_an_adopted_task_can_be_killed_with_all_that_left_its_session(
    tmp_path: Path, signpost: Signpost
) -> None:
    script = f"setsid -f sh -c 'echo $$ > {signpost.path}; exec sleep 600'; sleep 600"
    a_daemon_that_dies(tmp_path, f"host.begin(host.task(7, {script!r}))")
    pid = int(signpost.wait())
    host = Host(tmp_path)
    host.supervisor.adopt({7})
    host.supervisor.kill(7)
    assert host.end_of(7).state is TaskState.KILL
    wait_until_gone(pid)
    host.supervisor.close()


def test_a_task_that_ended_while_the_daemon_was_away_is_told_by_its_record(
    tmp_path: Path, signpost: Signpost
) -> None:
    a_daemon_that_dies(
        tmp_path, f"host.begin(host.task(7, 'echo $PPID > {signpost.path}; exit 0'))"
    )
    wait_until_gone(int(signpost.wait()))
    host = Host(tmp_path)
    host.supervisor.adopt({7})
    assert (host.ends[7].state, host.ends[7].exit_code) == (TaskState.SUCCESS, 0)
    assert host.log(7).endswith("[orcaflow] exit code 0\n")
    host.supervisor.forget([host.ends[7]])
    host.supervisor.run_once()
    assert host.supervisor.leftovers() == ()
    host.supervisor.close()


def test_a_task_that_was_killed_and_ended_while_the_daemon_was_away_is_no_failure(
    tmp_path: Path,
) -> None:
    up = tmp_path / "up"
    script = f"echo $PPID > {up}.draft; mv {up}.draft {up}; exec sleep 600"
    a_daemon_that_dies(
        tmp_path,
        f"host.begin(host.task(7, {script!r})); host.until(Path({str(up)!r}).exists)\n"
        "host.supervisor.kill(7); host.until(lambda: 'a kill was asked for' in host.log(7))",
    )
    wait_until_gone(int(up.read_text()))
    host = Host(tmp_path)
    host.supervisor.adopt({7})
    assert (host.ends[7].state, host.ends[7].exit_code) == (TaskState.KILL, 143)
    host.supervisor.forget([host.ends[7]])
    host.supervisor.run_once()
    assert not list((tmp_path / "tasks" / "records").iterdir())
    host.supervisor.close()


_DIES_WHILE_IT_ENDS = """
from datetime import timedelta
from tests.integration.worker_host import SetClock
clock = SetClock()
host = Host(host.home, clock=clock)
params = {{"keepChildren": True}}
host.begin(host.task(7, {script!r}, timeout=timedelta(hours=1), params=params))
host.until(Path({up!r}).exists)
{ending}
"""
_ENDINGS = {
    "kill": "host.supervisor.kill(7); host.until(lambda: 'a kill was asked for' in host.log(7))",
    "time-out": "clock.ahead = timedelta(hours=2); host.until(lambda: 'timed out' in host.log(7))",
}


def test_a_task_whose_time_was_out_and_that_ended_while_the_daemon_was_away_has_timed_out(
    tmp_path: Path,
) -> None:
    up = tmp_path / "up"
    script = f"echo $PPID > {up}.draft; mv {up}.draft {up}; exec sleep 600"
    ending = _ENDINGS["time-out"]
    a_daemon_that_dies(
        tmp_path, _DIES_WHILE_IT_ENDS.format(script=script, up=str(up), ending=ending)
    )
    wait_until_gone(int(up.read_text()))
    host = Host(tmp_path)
    host.supervisor.adopt({7})
    end = host.ends[7]
    assert (end.state, end.exit_code, end.failure) == (
        TaskState.FAILURE,
        143,
        FailureReason.TIMED_OUT,
    )
    assert end.reason == "timed out after 60 minutes (timeout strategy FAILED)"
    host.supervisor.forget([end])
    host.supervisor.run_once()
    assert not list((tmp_path / "tasks" / "records").iterdir())
    host.supervisor.close()


@pytest.mark.parametrize(
    ("ending", "state"), [("kill", TaskState.KILL), ("time-out", TaskState.FAILURE)]
)
def test_what_is_left_of_a_task_that_was_told_to_end_is_killed_after_all(
    tmp_path: Path, ending: str, state: TaskState
) -> None:
    up = tmp_path / "up"
    # `keepChildren` is for those that are left by a task that ends by itself.
    script = (
        f"setsid -f sh -c 'echo $$ > {up}.child; exec sleep 600'"
        f"; until [ -s {up}.child ]; do sleep 0.02; done"
        f"; echo $PPID > {up}.draft; mv {up}.draft {up}; exec sleep 600"
    )
    ending = _ENDINGS[ending]
    a_daemon_that_dies(
        tmp_path, _DIES_WHILE_IT_ENDS.format(script=script, up=str(up), ending=ending)
    )
    wait_until_gone(int(up.read_text()))
    host = Host(tmp_path)
    host.supervisor.adopt({7})
    assert host.end_of(7).state is state
    wait_until_gone(int(up.with_suffix(".child").read_text()))
    host.supervisor.close()


def test_a_task_that_vanished_without_a_result_is_nobody_s_fault(
    tmp_path: Path, signpost: Signpost
) -> None:
    script = f'echo "$PPID $$" > {signpost.path}; sleep 600'
    a_daemon_that_dies(tmp_path, f"host.begin(host.task(7, {script!r}))")
    wrapper, task = map(int, signpost.wait().split())
    os.killpg(wrapper, signal.SIGKILL)
    wait_until_gone(wrapper)
    wait_until_gone(task)
    host = Host(tmp_path)
    host.supervisor.adopt({7})
    assert host.ends[7].state is TaskState.NEED_FAULT_TOLERANCE
    host.supervisor.close()


def test_what_is_not_adopted_is_killed_before_anything_else_happens(
    tmp_path: Path, signpost: Signpost
) -> None:
    script = f"trap '' TERM; echo $$ > {signpost.path}; while :; do sleep 600; done"
    a_daemon_that_dies(tmp_path, f"host.begin(host.task(7, {script!r}))")
    pid = int(signpost.wait())
    host = Host(tmp_path)
    host.supervisor.adopt(frozenset())
    wait_until_gone(pid)
    assert host.ends == {}
    assert host.supervisor.leftovers() == ()
    host.supervisor.close()


def test_a_record_whose_pid_means_somebody_else_by_now_harms_nobody(tmp_path: Path) -> None:
    host = Host(tmp_path)
    bystander = subprocess.Popen(["sleep", "600"], start_new_session=True)
    record = tmp_path / "tasks" / "records" / "7"
    record.write_text(
        f'{{"task_type": "SHELL", "execute_path": "/x", "log_path": "/x"}}\npid {bystander.pid}\n'
    )
    host.supervisor.adopt(frozenset())
    assert bystander.poll() is None
    bystander.kill()
    bystander.wait()
    host.supervisor.close()


@pytest.mark.parametrize("adopted", [{7}, frozenset()], ids=["adopted", "not adopted"])
def test_a_pid_that_is_reused_as_it_is_adopted_harms_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, adopted: set[int]
) -> None:
    host = Host(tmp_path)
    bystander = subprocess.Popen(["sleep", "600"], start_new_session=True)
    record = tmp_path / "tasks" / "records" / "7"
    record.write_text(
        f'{{"task_type": "SHELL", "execute_path": "/x", "log_path": "/x"}}\npid {bystander.pid}\n'
    )

    def seen_just_before(pid: int, execute_path: str) -> Seen:
        # The attempt's leader: it ends, and the bystander gets its pid, before the pid is pinned.
        (other,) = (each for each in scan() if each.pid == pid)
        return replace(other, started=other.started - 1, execute_path=execute_path)

    monkeypatch.setattr("worker.processes.attempt_processes.seen_with_marker", seen_just_before)
    host.supervisor.adopt(adopted)
    assert host.supervisor.running() == frozenset()
    assert {key: end.state for key, end in host.ends.items()} == dict.fromkeys(
        adopted, TaskState.NEED_FAULT_TOLERANCE
    )
    assert bystander.poll() is None
    bystander.kill()
    bystander.wait()
    host.supervisor.close()
