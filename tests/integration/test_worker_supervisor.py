"""The supervisor with real processes: attempts begin, end, are killed, and leave nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from common.model.states import TaskState
from common.process_identity import is_alive
from common.store.worker.ports import ClaimedTask
from tests.integration.worker_host import Host, SetClock, Signpost, wait_until_gone
from worker.launching.base import TaskSettings
from worker.processes.ending import KILLED_LATE
from worker.processes.starting import Prepared

ROOT = Path(__file__).resolve().parents[2]
AT_ONCE = timedelta()


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    host = Host(tmp_path)
    yield host
    host.supervisor.kill_all()
    host.until(lambda: not host.supervisor.running())
    host.supervisor.close()


def test_a_task_that_ends_well_succeeds_and_its_log_ends_with_the_exit_code(host: Host) -> None:
    end = host.run(host.task(1, "echo out; echo err >&2"))
    assert (end.state, end.exit_code, end.reason) == (TaskState.SUCCESS, 0, None)
    lines = host.log(1).splitlines()
    assert "'task 1'" in lines[0] or "task 1" in lines[0]
    assert lines[-3:] == ["out", "err", "[orcaflow] exit code 0"]


def test_a_log_whose_task_ends_without_a_newline_still_ends_with_the_exit_line(host: Host) -> None:
    host.run(host.task(1, "printf no-newline; exit 3"))
    assert host.log(1).endswith("no-newline\n[orcaflow] exit code 3\n")


def test_an_exit_code_other_than_zero_is_a_failure(host: Host) -> None:
    end = host.run(host.task(1, "exit 3"))
    assert (end.state, end.exit_code) == (TaskState.FAILURE, 3)
    assert end.reason == "exit code 3"


def test_t23b_a_task_killed_from_outside_fails_and_is_not_reported_as_killed(host: Host) -> None:
    end = host.run(host.task(1, "kill -9 $$"))
    assert (end.state, end.exit_code) == (TaskState.FAILURE, 137)
    assert end.reason == "killed by signal 9 (out of memory?)"


def test_a_wrapper_killed_from_outside_takes_the_task_with_it(
    host: Host, signpost: Signpost
) -> None:
    host.begin(host.task(1, f'echo "$PPID $$" > {signpost.path}; exec sleep 600'))
    wrapper, task = map(int, signpost.wait().split())
    os.kill(wrapper, signal.SIGKILL)
    assert host.end_of(1).state is TaskState.FAILURE
    wait_until_gone(task)


def test_t17_a_kill_lets_the_task_clean_up(host: Host, signpost: Signpost) -> None:
    script = f"""
        trap 'echo cleaned; kill %1; exit 5' TERM
        sleep 600 &
        echo up > {signpost.path}
        wait
    """
    host.begin(host.task(1, script))
    signpost.wait()
    host.supervisor.kill(1)
    end = host.end_of(1)
    assert (end.state, end.exit_code) == (TaskState.KILL, 5)
    assert "cleaned" in host.log(1)
    assert KILLED_LATE not in host.log(1)


def test_t17_a_task_that_ignores_term_is_killed_when_its_grace_is_over(
    tmp_path: Path, signpost: Signpost
) -> None:
    host = Host(tmp_path, grace=timedelta(milliseconds=50))
    host.begin(
        host.task(1, f"trap '' TERM; echo $$ > {signpost.path}; while :; do sleep 600; done")
    )
    pid = int(signpost.wait())
    host.supervisor.kill(1)
    host.supervisor.kill(1)
    assert host.end_of(1).state is TaskState.KILL
    assert host.log(1).count(KILLED_LATE) == 1
    wait_until_gone(pid)
    host.supervisor.close()


def test_processes_that_left_the_group_and_the_session_are_killed_too(
    tmp_path: Path, signpost: Signpost
) -> None:
    host = Host(tmp_path, grace=timedelta(milliseconds=50))
    script = f"""
        setsid sh -c 'trap "" TERM; echo $$ > {signpost.path}; while :; do sleep 600; done' &
        setsid -f sh -c 'trap "" TERM; echo $$ > {signpost.path}; while :; do sleep 600; done'
        env -i setsid true
        trap "" TERM
        while :; do sleep 600; done
    """
    host.begin(host.task(1, script))
    pids = [int(signpost.wait()), int(signpost.wait())]
    host.supervisor.kill(1)
    assert host.end_of(1).state is TaskState.KILL
    for pid in pids:
        wait_until_gone(pid)
    host.supervisor.close()


def test_t61_names_and_numbers_in_names_of_processes_are_nobody_s_pid(
    host: Host, signpost: Signpost
) -> None:
    host.begin(host.task(1, f"echo $PPID > {signpost.path}; exec sleep 600"))
    leader = int(signpost.wait())
    # To a careless reader of /proc, the bystander belongs to the task's session.
    name = f") S 1 1 {leader}"
    script = "open('/proc/self/comm', 'w').write(input()); print(flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as bystander:
        assert bystander.stdin is not None
        assert bystander.stdout is not None
        print(name, file=bystander.stdin, flush=True)
        bystander.stdout.readline()
        assert name in Path(f"/proc/{bystander.pid}/stat").read_text()
        named = f"exec -a 'python3({bystander.pid})' sleep 600"
        host.begin(host.task(2, f'exec bash -c "{named}"'))
        for task in (1, 2):
            host.supervisor.kill(task)
            assert host.end_of(task).state is TaskState.KILL
        assert bystander.poll() is None
        bystander.kill()


def test_a_task_of_another_cluster_on_the_host_is_left_alone(tmp_path: Path) -> None:
    ours = Host(tmp_path / "ours")
    theirs = Host(tmp_path / "theirs")
    # Both have a task 1: ids start again in every cluster.
    theirs.begin(theirs.task(1, "sleep 600"))
    ours.begin(ours.task(1, "sleep 600 & exit 0"))
    ours.end_of(1)
    ours.begin(ours.task(2, "sleep 600"))
    ours.supervisor.kill(2)
    assert ours.end_of(2).state is TaskState.KILL
    assert theirs.supervisor.running() == {1}
    theirs.supervisor.kill(1)
    assert theirs.end_of(1).state is TaskState.KILL
    ours.supervisor.close()
    theirs.supervisor.close()


def test_what_a_task_left_in_the_background_does_not_outlive_it(
    host: Host, signpost: Signpost
) -> None:
    end = host.run(host.task(1, f"sleep 600 & echo $! > {signpost.path}"))
    assert end.state is TaskState.SUCCESS
    wait_until_gone(int(signpost.wait()))


def test_what_is_left_in_the_background_may_end_by_itself_before_it_is_killed(
    host: Host, tmp_path: Path
) -> None:
    tidy = f"trap 'echo tidied > {tmp_path}/tidied; exit' TERM; echo > up; while :; do sleep 0.01; done"
    end = host.run(host.task(1, f"mkfifo up; ({tidy}) & read x < up"))
    assert end.state is TaskState.SUCCESS
    assert (tmp_path / "tidied").exists()


def test_what_is_left_in_the_background_and_ignores_term_is_killed(
    tmp_path: Path, signpost: Signpost
) -> None:
    host = Host(tmp_path, grace=timedelta(milliseconds=50))
    stubborn = f"sh -c 'trap \"\" TERM; echo $$ > {signpost.path}; while :; do sleep 600; done'"
    end = host.run(
        host.task(1, f"mkfifo up; {stubborn.replace('echo', 'echo > up; echo', 1)} & read x < up")
    )
    assert end.state is TaskState.SUCCESS
    assert "left behind were killed" in host.log(1)
    wait_until_gone(int(signpost.wait()))
    host.supervisor.close()


def test_a_task_of_a_complement_computes_behind_all_others(host: Host) -> None:
    own = os.getpriority(os.PRIO_PROCESS, 0)
    for task, complement in ((1, True), (2, False)):
        assert host.run(host.task(task, "nice", complement=complement)).exit_code == 0
    niceness = [int(host.log(task).splitlines()[-2]) for task in (1, 2)]
    assert niceness == [min(own + 10, 19), own]


def test_a_task_of_a_complement_is_killed_like_any_other(host: Host, signpost: Signpost) -> None:
    host.begin(host.task(1, f"echo $$ > {signpost.path}; sleep 600", complement=True))
    pid = int(signpost.wait())
    host.supervisor.kill(1)
    assert host.end_of(1).state is TaskState.KILL
    wait_until_gone(pid)


def test_many_starts_of_a_complement_keep_no_other_task_waiting(tmp_path: Path) -> None:
    started: list[int] = []

    def prepare(task: ClaimedTask) -> Prepared:
        started.append(task.id)
        return host.launcher.prepare(task)

    host = Host(tmp_path, prepare=prepare)
    for task in (1, 2, 3):
        host.supervisor.start(host.task(task, "true", complement=True))
    for task in (4, 5):
        host.supervisor.start(host.task(task, "true"))
    host.supervisor.kill(3)
    host.until(lambda: len(host.ends) == 5)
    assert started == [4, 5, 1, 2]
    assert (host.ends[2].state, host.ends[3].state) == (TaskState.SUCCESS, TaskState.KILL)
    host.supervisor.close()


def test_the_loss_of_the_session_ends_starts_of_a_complement_too(tmp_path: Path) -> None:
    host = Host(tmp_path)
    for task in (1, 2, 3):
        host.supervisor.start(host.task(task, "sleep 600", complement=True))
    host.supervisor.run_once()
    assert host.supervisor.yielding() == {1, 2, 3}
    host.supervisor.kill_all()
    host.until(lambda: not host.supervisor.running())
    assert {end.state for end in host.ends.values()} == {TaskState.NEED_FAULT_TOLERANCE}
    host.supervisor.close()


def test_t18_a_kill_that_overtakes_the_start_is_remembered(host: Host, tmp_path: Path) -> None:
    host.supervisor.kill(1)
    end = host.run(host.task(1, f"touch {tmp_path}/ran"))
    assert end.state is TaskState.KILL
    assert not (tmp_path / "ran").exists()


def test_a_kill_of_an_unknown_or_ended_attempt_is_harmless(host: Host) -> None:
    host.run(host.task(1, "true"))
    host.supervisor.kill(1)
    host.supervisor.kill(99)
    assert host.run(host.task(2, "true")).state is TaskState.SUCCESS


def test_a_lost_session_ends_everything_at_once_and_blames_no_task(
    host: Host, signpost: Signpost
) -> None:
    host.begin(host.task(1, f"trap '' TERM; echo up > {signpost.path}; sleep 600"))
    signpost.wait()
    host.supervisor.start(host.task(2, "true"))
    host.supervisor.kill_all()
    host.until(lambda: not host.supervisor.running())
    assert {end.state for end in host.ends.values()} == {TaskState.NEED_FAULT_TOLERANCE}
    assert len(host.ends) == 2


@pytest.mark.parametrize("forks", [True, False])
def test_it_rests_when_everything_is_done(tmp_path: Path, forks: bool) -> None:
    clock = SetClock()
    host = Host(tmp_path, clock=clock, forks=forks)
    for number, task_type in enumerate(("SHELL", "PYTHON"), 1):
        host.run(host.task(number, "exit", task_type=task_type))
        clock.ahead += timedelta(seconds=1)
        host.supervisor.wake()
        host.supervisor.run_once()
        assert host.supervisor._rest() > 0
    host.supervisor.close()


def test_running_tells_an_attempt_from_its_start_until_its_end(host: Host) -> None:
    host.supervisor.start(host.task(1, "true"))
    assert host.supervisor.running() == {1}
    host.end_of(1)
    assert host.supervisor.running() == frozenset()


def test_a_task_that_lives_a_while_is_told_with_its_leader(host: Host, signpost: Signpost) -> None:
    host.begin(host.task(1, f"echo $PPID > {signpost.path}; sleep 600"))
    leader = int(signpost.wait())
    host.until(lambda: 1 in host.starts)
    pid, start_time = host.starts[1]
    assert pid == leader
    assert is_alive(pid, start_time)


@pytest.mark.parametrize(
    ("task_type", "params", "cause"),
    [
        ("SHELL", {"rawScript": "#!/no/such/shell\ntrue"}, "/no/such/shell"),
        ("PYTHON", {"file": "gone.py"}, "params.file: there is no file gone.py"),
        ("PYTHON", {}, "rawScript is empty"),
        (
            "SPARK",
            {
                "programType": "JAVA",
                "deployMode": "local",
                "mainClass": "A",
                "mainJar": {"res": "/no/a.jar"},
            },
            "a.jar",
        ),
        ("PYSPARK", {"file": "/no/such.py"}, "/no/such.py"),
        ("COBOL", {}, "COBOL"),
    ],
)
def test_what_is_missing_fails_the_attempt_with_its_name_in_row_and_log(
    host: Host, task_type: str, params: dict[str, object], cause: str
) -> None:
    end = host.run(host.task(1, task_type=task_type, params=params))
    assert (end.state, end.exit_code) == (TaskState.FAILURE, None)
    assert end.reason is not None
    assert cause in end.reason
    assert cause in host.log(1).splitlines()[-1]


def test_a_missing_interpreter_fails_the_attempt(tmp_path: Path) -> None:
    host = Host(tmp_path, settings=TaskSettings(python="/no/such/python"))
    end = host.run(host.task(1, "print(1)", task_type="PYTHON"))
    assert end.state is TaskState.FAILURE
    assert end.reason == "worker.python: there is no program /no/such/python on this worker"
    host.supervisor.close()


def test_t04_broken_json_fails_the_attempt_and_the_next_one_runs(host: Host) -> None:
    assert host.run(host.task(1, "true")).state is TaskState.SUCCESS
    end = host.run(host.task(2, task_json='{"params": "{"}'))
    assert end.state is TaskState.FAILURE
    assert end.reason is not None
    assert "JSON" in end.reason
    assert host.run(host.task(3, "true")).state is TaskState.SUCCESS


@pytest.mark.parametrize(
    "name", ["../../etc", "a'b\"c", "new\nline", "$(touch x)", "-rf", "x" * 200, "\x1b[2J", "ü日"]
)
def test_a_hostile_name_is_only_a_name(host: Host, name: str) -> None:
    end = host.run(host.task(1, 'printf %s "$ORCAFLOW_TASK_NAME" > name', name=name))
    assert end.state is TaskState.SUCCESS
    assert (host.directory(1) / "name").read_text() == name
    assert "\x1b" not in host.log(1)
    assert len(host.log(1).splitlines()) == 3


def test_a_nul_in_a_name_fails_the_attempt_and_not_the_worker(host: Host) -> None:
    end = host.run(host.task(1, "true", name="a\0b"))
    assert end.state is TaskState.FAILURE
    assert host.run(host.task(2, "true")).state is TaskState.SUCCESS


def test_a_full_log_volume_blames_no_task_and_says_so(host: Host) -> None:
    end = host.run(host.task(1, "true", log_path="/dev/full"))
    assert end.state is TaskState.NEED_FAULT_TOLERANCE
    assert end.reason is not None
    assert "disk is full" in end.reason
    assert host.run(host.task(2, "true")).state is TaskState.SUCCESS


def test_a_log_that_is_a_link_is_not_followed(host: Host, tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("precious")
    link = tmp_path / "link.log"
    link.symlink_to(precious)
    assert host.run(host.task(1, "true", log_path=str(link))).state is TaskState.FAILURE
    assert precious.read_text() == "precious"


def test_a_log_that_grows_too_large_keeps_its_beginning_and_its_end(tmp_path: Path) -> None:
    host = Host(tmp_path, log_limit_bytes=100_000)
    script = "echo first; i=0; while [ $i -lt 40000 ]; do echo line $i; i=$((i+1)); done; echo last"
    assert host.run(host.task(1, script)).state is TaskState.SUCCESS
    log = host.log(1)
    assert len(log.encode()) < 110_000
    assert "\nfirst\n" in log
    assert log.endswith("last\n[orcaflow] exit code 0\n")
    assert log.count("bytes were cut") == 1
    host.supervisor.close()


def test_a_task_sees_no_secret_of_the_daemon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ORCAFLOW_DATABASE__URL", "postgresql://u:hunter2@h/d")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hunter2")
    host = Host(tmp_path)
    host.run(host.task(1, "env; ls /proc/self/fd | wc -l"))
    assert "hunter2" not in host.log(1)
    assert "ORCAFLOW_EXECUTE_PATH=" in host.log(1)
    host.supervisor.close()


@pytest.mark.parametrize(
    ("policy", "after_success", "after_failure"),
    [("never", True, True), ("on_success", False, True), ("always", False, False)],
)
def test_t47_the_directory_goes_by_policy_once_the_end_stands_in_the_tables(
    tmp_path: Path, policy: str, after_success: bool, after_failure: bool
) -> None:
    host = Host(tmp_path, policy=policy)  # type: ignore[arg-type]  # One of the three by the list.
    ends = [host.run(host.task(1, "true")), host.run(host.task(2, "false"))]
    assert host.directory(1).exists()
    host.supervisor.forget(ends)
    host.supervisor.run_once()
    assert host.directory(1).exists() is after_success
    assert host.directory(2).exists() is after_failure
    assert host.supervisor.leftovers() == ()
    # What is left are empty files for records to come.
    assert not any(path.stat().st_size for path in (tmp_path / "tasks" / "records").iterdir())
    host.supervisor.close()


def test_t83_a_directory_that_can_t_be_cleaned_fails_the_attempt(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    host.directory(1).mkdir(parents=True)
    (host.directory(1) / "stale.sh").write_text("echo stale")

    def refused(folder: int) -> None:
        raise PermissionError(1, "Operation not permitted", str(folder))

    # Root is refused nothing, so the effect of a tenant's file is made by hand.
    monkeypatch.setattr("worker.workspace._remove_files", refused)
    end = host.run(host.task(1, "echo ran"))
    assert end.state is TaskState.FAILURE
    assert "not permitted" in (end.reason or "")
    assert "\nran\n" not in host.log(1)


def test_t83_what_stood_in_the_directory_before_is_gone(host: Host) -> None:
    host.directory(1).mkdir(parents=True)
    (host.directory(1) / "stale.sh").write_text("echo stale")
    host.run(host.task(1, "ls"))
    assert "stale" not in host.log(1)


# Accounts.

AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root can run tasks as others")


@AS_ROOT
def test_a_tenant_s_task_runs_as_the_tenant_in_a_directory_of_its_own() -> None:
    with tempfile.TemporaryDirectory() as directory:
        home = Path(directory)
        home.chmod(0o711)
        host = Host(home, tenant_mode="tenant")
        end = host.run(host.task(1, "id -un; echo seen >> /dev/stderr; ls", tenant_code="nobody"))
        assert end.state is TaskState.SUCCESS, host.log(1)
        assert "\nnobody\nseen\n" in host.log(1)
        assert host.directory(1).stat().st_mode & 0o777 == 0o700
        host.supervisor.close()


@AS_ROOT
@pytest.mark.parametrize(
    "code", [None, "root", "daemon", "no-such-user", "-u root", "$(id)", "a b"]
)
def test_a_tenant_that_can_t_be_had_fails_the_attempt_and_nothing_runs(
    tmp_path: Path, code: str | None
) -> None:
    host = Host(tmp_path, tenant_mode="tenant")
    end = host.run(host.task(1, f"touch {tmp_path}/ran", tenant_code=code))
    assert end.state is TaskState.FAILURE
    assert end.reason is not None
    assert "tenant" in end.reason
    assert not (tmp_path / "ran").exists()
    host.supervisor.close()
