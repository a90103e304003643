"""Limits on the memory and the processes of tasks.

Resource limits are the kernel's own. A cgroup with controllers is not to be had on every host: here
it is a folder, whose files get what the kernel would be told, and say what it would say.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from datetime import timedelta
from pathlib import Path

import pytest

from common.model.failures import FailureReason
from common.model.states import TaskState
from common.store.worker.ports import AttemptEnd
from tests.integration.worker_host import Host
from worker.processes.limits import GATE_LINES, Gate, Limits, divided_cgroup
from worker.processes.records import Record, Records
from worker.workspace import Account

EXIT_CODE = FailureReason.EXIT_CODE
MIB = 1024**2


def run(
    home: Path, limits: Limits, script: str, task_type: str = "SHELL"
) -> tuple[AttemptEnd, str]:
    """A task under limits: its end, and its log."""
    host = Host(home, limits=limits, adopts_orphans=True)
    end = host.run(host.task(1, script, task_type=task_type))
    log = host.log(1)
    host.supervisor.close()
    return end, log


def test_a_process_that_is_refused_memory_fails_for_that_reason(tmp_path: Path) -> None:
    script = "x = bytearray(400 * 1024**2)"
    end, log = run(tmp_path, Limits(memory_mb=200), script, "PYTHON")
    assert (end.state, end.reported_failure) == (TaskState.FAILURE, FailureReason.OUT_OF_MEMORY), (
        log
    )
    assert end.reason == (
        "exit code 1; its log speaks of memory, of which each of its processes may have 200 MB"
        " (worker.task_memory_limit_mb, or the task's memoryMax)"
    )


def test_a_task_within_its_limits_runs_as_without_any(tmp_path: Path) -> None:
    limits = Limits(memory_mb=200, processes=50, by_account=True)
    end, log = run(tmp_path, limits, "cat /proc/self/limits; exit 0")
    assert (end.state, end.reported_failure) == (TaskState.SUCCESS, None)
    found = {line[:26].strip(): line[26:].split()[:2] for line in log.splitlines()}
    assert found["Max data size"] == [str(200 * MIB)] * 2
    assert found["Max processes"] == ["50", "50"]
    assert found["Max address space"][1] == "unlimited"


@pytest.mark.parametrize(
    ("limit_mb", "memory_max", "expected"),
    [(0, 64, "67108864"), (32, "64", "33554432"), (0, -1, "unlimited")],
)
def test_a_task_may_have_a_lower_limit_of_its_own(
    tmp_path: Path, limit_mb: int, memory_max: object, expected: str
) -> None:
    host = Host(tmp_path, limits=Limits(memory_mb=limit_mb))
    node = {"memoryMax": memory_max, "params": {"rawScript": "grep data /proc/self/limits"}}
    assert host.run(host.task(1, task_json=json.dumps(node))).state is TaskState.SUCCESS
    assert f"Max data size             {expected} " in host.log(1)
    host.supervisor.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can run tasks as others")
def test_tasks_of_tenants_are_limited_by_a_root_that_may_not_limit_others() -> None:
    with tempfile.TemporaryDirectory() as directory:
        home = Path(directory)
        home.chmod(0o711)
        limits = Limits(memory_mb=200, processes=5, by_account=True)
        # An account that nothing else runs as, for the kernel counts all of its processes.
        uid = 50_000 + os.getpid() % 5_000
        tenant = Account(name="tenant", uid=uid, gid=uid, groups=(), home="/")
        host = Host(
            home,
            tenant_mode="tenant",
            account_of=lambda _: tenant,
            adopts_orphans=True,
            limits=limits,
        )
        script = "for i in 1 2 3 4 5 6 7 8 9; do sleep 600 & done; exit 0"
        end = host.run(host.task(1, script))
        assert end.state is TaskState.FAILURE, host.log(1)
        assert "fork" in host.log(1)
        assert "may have 5 processes and threads" in (end.reason or "")
        again = host.run(host.task(2, "cat /proc/self/limits"))
        assert again.state is TaskState.SUCCESS
        found = {line[:26].strip(): line[26:].split()[:2] for line in host.log(2).splitlines()}
        assert found["Max data size"] == [str(200 * MIB)] * 2
        assert found["Max processes"] == ["5", "5"]
        host.supervisor.close()


def test_processes_of_the_worker_s_own_account_are_not_counted(tmp_path: Path) -> None:
    end, log = run(tmp_path, Limits(processes=1), "true & true; wait; exit 3")
    assert (end.state, end.exit_code, end.reported_failure) == (TaskState.FAILURE, 3, EXIT_CODE), (
        log
    )


def test_another_failure_under_limits_keeps_its_reason(tmp_path: Path) -> None:
    end, _ = run(tmp_path, Limits(memory_mb=200), "exit 5")
    assert (end.reason, end.reported_failure) == ("exit code 5", EXIT_CODE)


def a_cgroup_after(tmp_path: Path, base: Path, script: str) -> AttemptEnd:
    limits = Limits(memory_mb=64, processes=10, base=base)
    end, _ = run(tmp_path, limits, f"cd {base / 'task-1'}; cat cgroup.procs; {script}")
    return end


def test_in_a_cgroup_an_attempt_that_the_kernel_killed_says_so(tmp_path: Path) -> None:
    base = tmp_path / "cgroup"
    base.mkdir()
    end = a_cgroup_after(tmp_path, base, "echo oom_kill 3 > memory.events; kill -9 $$ $PPID")
    assert (end.state, end.reported_failure) == (TaskState.FAILURE, FailureReason.OUT_OF_MEMORY)
    assert end.reason == (
        "killed: it took more than the 64 MB of memory that it may have"
        " (worker.task_memory_limit_mb, or the task's memoryMax)"
    )
    told = {each.name: each.read_text() for each in (base / "task-1").iterdir()}
    assert told.pop("memory.events") == "oom_kill 3\n"
    assert told.pop("cgroup.procs").isdecimal()
    assert told == {"memory.max": str(64 * MIB), "memory.oom.group": "1", "pids.max": "11"}


def test_in_a_cgroup_an_attempt_that_was_refused_processes_says_so(tmp_path: Path) -> None:
    base = tmp_path / "cgroup"
    base.mkdir()
    end = a_cgroup_after(tmp_path, base, "echo max 1 > pids.events; exit 2")
    assert end.state is TaskState.FAILURE
    assert (end.reason or "").startswith("exit code 2; it was refused more than the 11 processes")


@pytest.mark.parametrize("stop", [True, False], ids=["a stop", "a success"])
def test_nothing_outlives_an_attempt_in_its_cgroup(tmp_path: Path, stop: bool) -> None:
    own = tmp_path / "cgroup" / "task-1"
    own.parent.mkdir()
    limits = Limits(memory_mb=64, base=own.parent)
    host = Host(tmp_path, grace=timedelta(milliseconds=50), limits=limits, adopts_orphans=True)
    script = f"cd {own}; echo 0 > cgroup.kill; echo populated 1 > cgroup.events"
    host.begin(host.task(1, f"{script}; exec sleep {600 * stop}"))
    if stop:
        events = own / "cgroup.events"
        host.until(lambda: events.exists() and "1" in events.read_text())
        host.supervisor.kill(1)
    # Nothing but the kernel's word tells of a process that is left.
    host.until(lambda: (own / "cgroup.kill").exists() and "1" in (own / "cgroup.kill").read_text())
    assert host.ends == {}
    (own / "cgroup.events").write_text("populated 0\n")
    assert host.end_of(1).state is (TaskState.KILL if stop else TaskState.SUCCESS)
    host.supervisor.close()


def test_an_attempt_that_can_t_be_limited_does_not_run(tmp_path: Path) -> None:
    limits = Limits(memory_mb=64, base=tmp_path / "nowhere")
    end, log = run(tmp_path, limits, "echo ran")
    assert (end.state, end.exit_code) == (TaskState.FAILURE, None)
    assert "\nran\n" not in log
    assert str(tmp_path / "nowhere") in (end.reason or "")


def test_what_is_forked_elsewhere_has_resource_limits_where_others_have_cgroups() -> None:
    limits = Limits(memory_mb=64, base=Path("/cgroup"))
    assert limits.lowered(0).shell_lines() == ""
    forked = limits.lowered(32, is_forked=True)
    assert (forked.shell_lines(), forked.cgroup_of(1)) == ("ulimit -d 32768 || exit 1\n", None)


def test_the_cgroup_of_an_attempt_outlives_the_daemon(tmp_path: Path) -> None:
    records = Records(tmp_path)
    record = Record(
        task_instance_id=1,
        task_type="SHELL",
        execute_path="/a",
        log_path="/b",
        cgroup=Path("/c"),
        memory_mb=5,
    )
    os.close(records.begin(record))
    assert records.read(1) == record


class Proc:
    """A process's own `/proc` folder, and a cgroup that it says it is in."""

    def __init__(self, home: Path, own: str, controllers: str = "cpu memory pids") -> None:
        self.about, self.mount = home / "proc", home / "sys"
        self.about.mkdir()
        self.base = self.mount / own.strip("/")
        self.base.mkdir(parents=True)
        (self.base / "cgroup.controllers").write_text(controllers)
        (self.about / "cgroup").write_text(f"4:memory:/x\n0::/outer{own}\n")
        mounts = (
            f"30 20 0:1 / / rw - ext4 /dev/a rw\n31 30 0:2 /outer {self.mount} rw - cgroup2 c rw"
        )
        (self.about / "mountinfo").write_text(mounts + "\n")


@pytest.mark.parametrize("inside", ["", "/daemon"])
def test_a_delegated_cgroup_is_divided_also_after_a_restart_inside_it(
    tmp_path: Path, inside: str
) -> None:
    proc = Proc(tmp_path, "/unit")
    (proc.about / "cgroup").write_text(f"0::/outer/unit{inside}\n")
    (proc.base / "task-7").mkdir()
    assert divided_cgroup(["pids", "memory"], about=proc.about) == proc.base
    assert (proc.base / "cgroup.subtree_control").read_text() == "+memory +pids"
    assert (proc.base / "daemon" / "cgroup.procs").read_text().isdecimal()
    assert not (proc.base / "task-7").exists()


def test_without_the_controllers_there_is_a_reason(tmp_path: Path) -> None:
    proc = Proc(tmp_path, "/unit", "cpu")
    found = divided_cgroup(["memory", "pids"], about=proc.about)
    assert found == f"{proc.base} has no controller memory, pids"


def test_a_cgroup_with_others_in_it_is_left_as_it_was(tmp_path: Path) -> None:
    proc = Proc(tmp_path, "/session")
    # The kernel refuses to write there then; as a folder it refuses everybody.
    (proc.base / "cgroup.subtree_control").mkdir()
    found = divided_cgroup(["memory"], about=proc.about)
    assert isinstance(found, str)
    assert (proc.base / "cgroup.procs").read_text().isdecimal()


def test_a_host_of_version_1_alone_has_none(tmp_path: Path) -> None:
    (tmp_path / "cgroup").write_text("4:memory:/x\n")
    assert divided_cgroup(["memory"], about=tmp_path) == "this host has no cgroup v2"


def test_a_wrapper_whose_daemon_died_before_it_was_limited_runs_nothing(tmp_path: Path) -> None:
    gate = Gate()
    script = f"{GATE_LINES}echo ran"
    wrapper = subprocess.Popen(
        ["/bin/sh", "-c", script], stdin=gate.reading, stdout=subprocess.PIPE, text=True
    )
    gate.close()
    assert (wrapper.communicate()[0], wrapper.returncode) == ("", 1)
