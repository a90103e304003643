"""Attempts that a shim has started: like those with a wrapper, whoever of shim and daemon is killed."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from common.clock import SystemClock
from common.model.states import TaskState
from common.store.worker.ports import ClaimedTask
from tests.integration.worker_host import (
    Host,
    SetClock,
    Signpost,
    a_daemon_that_dies,
    wait_until_gone,
)
from worker.processes.limits import Limits
from worker.processes.live_attempts import LiveAttempts
from worker.processes.marks import can_mark, mark_of, mark_seen, shell_line
from worker.processes.orphans import Orphans
from worker.processes.shim import MOST_BYTES
from worker.processes.starting import Prepared

pytestmark = pytest.mark.skipif(not can_mark(), reason="orphans come to nobody here")


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    host = host_with_shim(tmp_path)
    yield host
    host.supervisor.kill_all()
    host.until(lambda: not host.supervisor.running())
    host.supervisor.close()


def host_with_shim(home: Path, **settings: object) -> Host:
    host = Host(home, by_shim=True, **settings)  # type: ignore[arg-type]
    host.await_shim()
    return host


def children(pid: int | None) -> set[int]:
    return set(map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()))


def record(host: Host, task_instance_id: int) -> str:
    return (host.home / "tasks" / "records" / str(task_instance_id)).read_text()


def test_a_script_is_the_shims_child_and_leads_its_session(host: Host) -> None:
    end = host.run(host.task(1, "read -r all < /proc/$$/stat; set -- $all; echo $$ $PPID $5 $6"))
    pid, parent, group, session = map(int, host.log(1).splitlines()[-2].split())
    assert (end.state, end.exit_code) == (TaskState.SUCCESS, 0)
    assert parent == host.shim.pid
    assert pid == group == session
    assert record(host, 1).splitlines()[1:] == [f"child {pid}", "exit 0"]


def test_it_has_what_it_would_have_below_a_wrapper(tmp_path: Path, host: Host) -> None:
    script = """
        env | sort; pwd; readlink /proc/$$/fd/0; ls /proc/self/fd; umask; cat /proc/$$/oom_score_adj
        grep -E 'Sig(Blk|Ign)' /proc/self/status; grep -v 'file locks' /proc/$$/limits
    """
    seen = []
    for each in (host, Host(tmp_path / "wrapper", adopts_orphans=True)):
        assert each.run(each.task(1, script)).exit_code == 0
        seen.append(each.log(1).replace(str(each.home), "HOME"))
    varying = re.compile(r"TRACEPARENT=.*|^\\[orcaflow\\].*", re.MULTILINE)
    by_shim, by_wrapper = (varying.sub("", text) for text in seen)
    assert by_shim == by_wrapper


def test_it_bears_its_mark_and_the_shim_its_own(host: Host, signpost: Signpost) -> None:
    host.begin(host.task(1, f"sh -c 'echo $PPID $$ > {signpost.path}; exec sleep 600'; true"))
    leader, child = map(int, signpost.wait().split())
    host.until(lambda: 1 in host.starts)
    own = mark_of(str(host.directory(1)))
    assert host.shim.pid is not None
    assert (mark_seen(leader), mark_seen(child)) == (own, own)
    assert mark_seen(host.shim.pid) not in (own, None)


@pytest.mark.parametrize(
    ("script", "code", "reason"),
    [
        ("exit 2", 2, "exit code 2"),  # With which a wrapper ends that can't fork.
        ("kill -9 $$", 137, "killed by signal 9 (out of memory?)"),
        ("kill -TERM 0", 143, "killed by signal 15"),
        ("no-such-program", 127, "exit code 127 (command not found)"),
    ],
)
def test_its_exit_code_is_told_and_noted(host: Host, script: str, code: int, reason: str) -> None:
    end = host.run(host.task(1, script))
    assert (end.state, end.exit_code, end.reason) == (TaskState.FAILURE, code, reason)
    assert record(host, 1).endswith(f"\nexit {code}\n")


def test_what_only_a_shell_can_set_up_gets_a_wrapper(tmp_path: Path) -> None:
    host = host_with_shim(tmp_path, limits=Limits(memory_mb=500))
    host.run(host.task(1, "echo $PPID; ulimit -d"))
    parent, limit = host.log(1).splitlines()[-3:-1]
    assert (int(parent) != host.shim.pid, limit) == (True, "512000")
    host.supervisor.close()
    host = host_with_shim(tmp_path)
    host.run(host.task(2, "echo $PPID; nice", complement=True))
    parent, niceness = host.log(2).splitlines()[-3:-1]
    assert int(parent) != host.shim.pid
    assert int(niceness) >= 10
    host.supervisor.close()


def test_what_is_too_long_for_a_message_gets_a_wrapper(host: Host) -> None:
    script = 'echo "${#long}"'
    local = [{"prop": "long", "direct": "IN", "type": "VARCHAR", "value": "x" * MOST_BYTES}]
    assert host.run(host.task(1, script, local=local)).exit_code == 0
    assert str(MOST_BYTES) in host.log(1).splitlines()
    assert "\npid " in record(host, 1)


def test_what_the_shim_cant_start_gets_a_wrapper_and_its_words(tmp_path: Path) -> None:
    def prepare(task: ClaimedTask) -> Prepared:
        folder = Path(task.execute_path)
        folder.mkdir(parents=True)
        return Prepared(
            argv=("/no/such/program",),
            environment={"PATH": os.defpath},
            directory=str(folder),
            header="",
            leads=True,
        )

    host = host_with_shim(tmp_path, prepare=prepare)
    end = host.run(host.task(1))
    assert (end.state, end.exit_code) == (TaskState.FAILURE, 127)
    assert "not found" in host.log(1)
    host.supervisor.close()


def test_many_at_once_all_end_right_and_are_reaped(host: Host) -> None:
    ids = range(1, 61)
    for each in ids:
        host.supervisor.start(host.task(each, f"sleep 0.0{each % 5}; exit {each}"))
    host.until(lambda: len(host.ends) == len(ids))
    assert {each: host.ends[each].exit_code for each in ids} == {each: each for each in ids}
    host.until(lambda: not children(host.shim.pid))


def test_a_kill_lets_it_clean_up_and_takes_what_it_has_started(
    host: Host, signpost: Signpost
) -> None:
    script = f"""
        trap 'echo cleaned; exit 5' TERM
        setsid -f sh -c 'trap "" TERM; echo $$ > {signpost.path}; while :; do sleep 600; done'
        while :; do sleep 600 & wait; done
    """
    host.begin(host.task(1, script))
    left = int(signpost.wait())
    host.supervisor.kill(1)
    end = host.end_of(1)
    assert (end.state, end.exit_code) == (TaskState.KILL, 5)
    assert "cleaned" in host.log(1)
    wait_until_gone(left)


def test_a_kill_that_comes_before_the_shims_answer_is_not_lost(host: Host) -> None:
    host.supervisor.start(host.task(1, "exec sleep 600"))
    host.supervisor.kill(1)
    assert host.end_of(1).state is TaskState.KILL


def test_without_its_shim_an_attempt_goes_on_and_its_end_is_known(
    host: Host, tmp_path: Path, signpost: Signpost
) -> None:
    gate = Signpost(tmp_path / "gate")
    killed = host.shim.pid
    assert killed is not None
    host.begin(host.task(1, f"echo up > {signpost.path}; read go < {gate.path}; exit 4"))
    host.begin(host.task(2, f"echo up > {signpost.path}; exec sleep 600"))
    for _ in range(2):
        signpost.wait()
    again = Signpost(tmp_path / "again")
    host.begin(host.task(3, f"read go < {again.path}; kill -9 $PPID; exit 3"))
    host.until(lambda: 3 in host.starts)
    again.path.write_text("go\n")
    host.end_of(3)
    assert (host.ends[3].state, host.ends[3].exit_code) == (TaskState.FAILURE, 3)
    wait_until_gone(killed)
    assert host.supervisor.running() == {1, 2}
    gate.path.write_text("go\n")
    assert host.end_of(1).exit_code == 4
    host.supervisor.kill(2)
    assert host.end_of(2).state is TaskState.KILL
    host.await_shim()
    assert host.shim.pid != killed
    host.run(host.task(4, "echo $PPID"))
    assert host.log(4).splitlines()[-2] == str(host.shim.pid)


def test_a_shim_that_is_stopped_is_given_up(tmp_path: Path, signpost: Signpost) -> None:
    clock = SetClock()
    host = host_with_shim(tmp_path, clock=clock)
    host.begin(host.task(1, f"echo up > {signpost.path}; exit 4"))
    signpost.wait()
    stopped = host.shim.pid
    assert stopped is not None
    host.begin(host.task(2, f"echo up > {signpost.path}; exec sleep 600"))
    signpost.wait()
    host.end_of(1)
    host.until(lambda: 2 in host.starts)
    os.kill(stopped, signal.SIGSTOP)

    def pass_time() -> bool:
        clock.ahead += timedelta(minutes=4)
        return host.shim.pid != stopped

    host.until(pass_time)
    host.supervisor.kill(2)
    assert host.end_of(2).state is TaskState.KILL
    host.supervisor.close()


@pytest.mark.parametrize(
    ("lost", "state", "reason"),
    [
        (0, TaskState.NEED_FAULT_TOLERANCE, "its shim was lost"),
        # As often as that, the task may be what kills it.
        (10, TaskState.FAILURE, "its parent was killed, so its result is unknown"),
    ],
)
def test_what_was_asked_of_a_shim_that_dies_runs_nowhere_and_is_tried_again(
    host: Host, lost: int, state: TaskState, reason: str
) -> None:
    shim = host.shim.pid
    assert shim is not None
    os.kill(shim, signal.SIGSTOP)
    lost_attempts = tuple(range(100, 100 + lost))
    host.begin(host.task(1, "exec sleep 600", lost_attempts=lost_attempts))
    assert host.supervisor.running() == {1}
    os.kill(shim, signal.SIGKILL)
    end = host.end_of(1)
    assert (end.state, end.exit_code) == (state, None)
    assert reason in (end.reason or "")


def test_orphans_of_what_is_about_to_be_told_of_are_not_taken_for_anothers(
    tmp_path: Path, signpost: Signpost
) -> None:
    orphans = Orphans(adopts=True)
    live = LiveAttempts(started=lambda *_: None, clock=SystemClock(), shim=None)
    one, other = str(tmp_path / "one"), str(tmp_path / "other")
    script = (
        f"{shell_line(mark_of(one))}setsid -f sh -c 'echo $$ > {signpost.path}; exec sleep 600'"
    )
    live.expect(1, one)
    subprocess.run(["sh", "-c", script], check=True)
    orphan = int(signpost.wait())
    assert not orphans.may_be_left(other, live)
    assert not orphans.kill(other, live)
    assert orphans.may_be_left(one, live)
    live.expect_no_more(1)
    assert orphans.may_be_left(other, live)
    orphans.kill(one, live)
    wait_until_gone(orphan)
    orphans.close()
    live.close()


# The daemon dies.

BEGUN = """
host = Host(host.home, by_shim=True)
host.await_shim()
Path({shim!r}).write_text(str(host.shim.pid))
host.begin(host.task(7, {script!r}))
host.until(lambda: "child " in (host.home / "tasks" / "records" / "7").read_text())
"""


def left_behind(home: Path, script: str) -> int:
    """Begin a task by a daemon that dies; the pid of its shim."""
    told = home / "shim"
    a_daemon_that_dies(home, BEGUN.format(shim=str(told), script=script))
    return int(told.read_text())


def test_a_shim_starts_nothing_for_a_daemon_that_is_gone(tmp_path: Path) -> None:
    up = tmp_path / "up"
    body = """
import signal
host = Host(host.home, by_shim=True)
host.await_shim()
Path({shim!r}).write_text(str(host.shim.pid))
os.kill(host.shim.pid, signal.SIGSTOP)
host.begin(host.task(7, {script!r}))
"""
    told = tmp_path / "shim"
    a_daemon_that_dies(tmp_path, body.format(shim=str(told), script=f"echo > {up}"))
    shim = int(told.read_text())
    os.kill(shim, signal.SIGCONT)
    wait_until_gone(shim)
    assert not up.exists()
    host = Host(tmp_path, adopts_orphans=True)
    host.supervisor.adopt({7})
    assert host.ends[7].state is TaskState.NEED_FAULT_TOLERANCE
    host.supervisor.close()


@pytest.mark.parametrize("is_killed_late", [False, True])
def test_a_running_attempt_is_adopted_and_its_exit_comes_from_the_shim(
    tmp_path: Path, signpost: Signpost, is_killed_late: bool
) -> None:
    gate = Signpost(tmp_path / "gate")
    shim = left_behind(
        tmp_path, f"echo $$ > {signpost.path}; read go < {gate.path}; echo went on; exit 4"
    )
    leader = int(signpost.wait())
    host = Host(tmp_path, adopts_orphans=True)
    host.supervisor.adopt({7})
    assert host.supervisor.running() == {7}
    # Its end is seen before the shim has noted it.
    os.kill(shim, signal.SIGSTOP)
    gate.path.write_text("go\n")
    wait_until_gone(leader)
    for _ in range(3):
        host.supervisor.run_once()
    assert host.ends == {}
    if is_killed_late:
        # It has ended by itself, and its pid is about to be anybody's.
        host.supervisor.kill(7)
        host.supervisor.run_once()
    os.kill(shim, signal.SIGCONT)
    end = host.end_of(7)
    assert (end.state, end.exit_code) == (TaskState.FAILURE, 4)
    assert host.log(7).endswith("went on\n[orcaflow] exit code 4\n")
    wait_until_gone(shim)
    host.supervisor.close()


def test_the_exit_of_one_that_ended_while_the_daemon_was_away_is_in_its_record(
    tmp_path: Path, signpost: Signpost, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Signpost(tmp_path / "gate")
    shim = left_behind(tmp_path, f"echo $$ > {signpost.path}; read go < {gate.path}; exit 0")
    leader = int(signpost.wait())
    os.kill(shim, signal.SIGSTOP)
    gate.path.write_text("go\n")
    wait_until_gone(leader)
    # The new daemon looks before the shim has noted what it knows.
    monkeypatch.setattr(
        "worker.processes.adoption.time.sleep", lambda _: os.kill(shim, signal.SIGCONT)
    )
    host = Host(tmp_path, adopts_orphans=True)
    host.supervisor.adopt({7})
    assert (host.ends[7].state, host.ends[7].exit_code) == (TaskState.SUCCESS, 0)
    wait_until_gone(shim)
    host.supervisor.close()


def test_a_daemon_that_dies_between_an_exit_and_its_report_has_it_in_the_record(
    tmp_path: Path,
) -> None:
    body = BEGUN.format(shim=str(tmp_path / "shim"), script="exit 6") + "host.end_of(7)\n"
    a_daemon_that_dies(tmp_path, body)
    host = Host(tmp_path, adopts_orphans=True)
    host.supervisor.adopt({7})
    assert (host.ends[7].state, host.ends[7].exit_code) == (TaskState.FAILURE, 6)
    host.supervisor.close()


def test_an_exit_that_nobody_has_seen_is_no_fault_of_the_task(
    tmp_path: Path, signpost: Signpost
) -> None:
    gate = Signpost(tmp_path / "gate")
    shim = left_behind(tmp_path, f"echo $$ > {signpost.path}; read go < {gate.path}; exit 0")
    leader = int(signpost.wait())
    host = Host(tmp_path, adopts_orphans=True)
    host.supervisor.adopt({7})
    os.kill(shim, signal.SIGKILL)
    wait_until_gone(shim)
    gate.path.write_text("go\n")
    wait_until_gone(leader)
    end = host.end_of(7)
    assert (end.state, end.exit_code) == (TaskState.NEED_FAULT_TOLERANCE, None)
    host.supervisor.close()


def test_a_stale_attempt_of_a_shim_is_killed_and_the_shim_ends(
    tmp_path: Path, signpost: Signpost
) -> None:
    script = f"trap '' TERM; echo $$ > {signpost.path}; while :; do sleep 600; done"
    shim = left_behind(tmp_path, script)
    leader = int(signpost.wait())
    host = Host(tmp_path, adopts_orphans=True)
    host.supervisor.adopt(frozenset())
    wait_until_gone(leader)
    wait_until_gone(shim)
    assert (host.ends, host.supervisor.leftovers()) == ({}, ())
    host.supervisor.close()
