"""PYTHON tasks: whether forked or in an interpreter of their own, they are what `python -u` makes."""

from __future__ import annotations

import os
import re
import signal
import tempfile
import zipfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from common.model.failures import FailureReason
from common.model.states import TaskState
from tests.integration.python_scripts import SCRIPTS
from tests.integration.pythons import Pythons, by_hand
from tests.integration.spark_accounts import AS_ROOT, accounts, bare_python
from tests.integration.worker_host import Host, Signpost, a_daemon_that_dies, wait_until_gone
from worker.launcher import seen_by_tasks
from worker.launching.base import TaskSettings
from worker.processes.attempt_processes import scan, seen_with_marker
from worker.processes.limits import Limits
from worker.processes.marks import mark_of
from worker.workspace import Account

MIB = 1024**2


@pytest.fixture(scope="module", params=["fresh", "forked"])
def kind(request: pytest.FixtureRequest) -> str:
    assert isinstance(request.param, str)
    return request.param


@pytest.fixture(scope="module")
def pythons(kind: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pythons]:
    made = Pythons(tmp_path_factory.mktemp(kind), kind)
    made.warm()
    yield made
    made.host.supervisor.close()


def _without_addresses(lines: list[str]) -> list[str]:
    """Without what differs from run to run: addresses."""
    return [re.sub(r"0x[0-9a-f]+", "0x", line) for line in lines]


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_runs_as_by_hand(pythons: Pythons, name: str) -> None:
    end, printed = pythons.run(SCRIPTS[name])
    left, directory = pythons.left_by(end), pythons.host.directory(end.task_instance_id)
    [script] = directory.glob("py_*.command")
    code, expected = by_hand(script, directory=directory, environment=pythons.environment)
    assert "\n".join(_without_addresses(printed)) == "\n".join(_without_addresses(expected))
    assert end.exit_code == code
    assert pythons.left_by(end) == left


FILES: dict[str, dict[str, bytes]] = {
    "with a module that shadows": {
        "main.py": b"import textwrap, sys\nprint(textwrap.__file__, sys.argv)",
        "textwrap.py": b"",
    },
    "with a module that keeps a file": {
        "main.py": b"import other\nprint(other.__name__, other.use().name)",
        "other.py": b"file = open('kept', 'w')\nfile.write('a')\nfile.flush()\ndef use(): return file",
    },
    "with modules that end": {
        "main.py": b"import one, two\nprint('end')",
        "one.py": b"class A:\n    def __del__(self): print('one')\na = A()",
        "two.py": b"class A:\n    def __del__(self): print('two')\na = A()\na.itself = a",
    },
    "empty": {"main.py": b""},
    "with a mark of its encoding": {"main.py": b"\xef\xbb\xbfprint('a')"},
    "with a zero byte": {"main.py": b"print('a')\0"},
    "not in its encoding": {"main.py": b"print('\xff')"},
    "in no known encoding": {"main.py": b"# coding: none-such\nprint('a')"},
}


@pytest.mark.parametrize("name", FILES)
def test_a_file_runs_as_by_hand(pythons: Pythons, tmp_path: Path, name: str) -> None:
    real = tmp_path / "real"
    real.mkdir()
    for file, content in FILES[name].items():
        (real / file).write_bytes(content)
    script = tmp_path / "script"
    script.symlink_to("real/main.py")
    _check_file(pythons, script)


def test_an_archive_runs_as_by_hand(pythons: Pythons, tmp_path: Path) -> None:
    script = tmp_path / "archive.py"
    with zipfile.ZipFile(script, "w") as archive:
        archive.writestr("__main__.py", "import sys, other; print(sys.path[0], other.__file__)")
        archive.writestr("other.py", "")
    _check_file(pythons, script)


def _check_file(pythons: Pythons, script: Path) -> None:
    end, printed = pythons.run(None, params={"file": str(script), "mainArgs": "a 'b c'"})
    directory, left = pythons.host.directory(end.task_instance_id), pythons.left_by(end)
    expected = by_hand(script, "a", "b c", directory=directory, environment=pythons.environment)
    assert (end.exit_code, printed) == expected
    assert pythons.left_by(end) == left


def test_chance_is_not_the_same_in_two_tasks(pythons: Pythons) -> None:
    script = (
        "import os, random, tempfile, uuid\nprint(random.random(), tempfile.mktemp(), uuid.uuid4())"
    )
    assert pythons.run(script)[1] != pythons.run(script)[1]


def test_the_leader_leads_a_session_and_carries_the_marker(
    pythons: Pythons, tmp_path: Path
) -> None:
    signpost, go_on = Signpost(tmp_path / "up"), Signpost(tmp_path / "go")
    script = (
        "import os\n"
        f"print(os.getpid(), file=open({str(signpost.path)!r}, 'w'))\n"
        f"open({str(go_on.path)!r}).readline()"
    )
    number = pythons.begin(script)
    pid = int(signpost.wait())
    pythons.host.until(lambda: number in pythons.host.starts)
    leader, directory = pythons.host.starts[number][0], str(pythons.host.directory(number))
    assert os.getsid(pid) == os.getpgid(pid) == leader != pid
    assert all(seen_with_marker(each, directory) for each in (leader, pid))
    of_attempt = [each for each in scan() if each.mark == mark_of(directory)]
    assert {each.pid for each in of_attempt} == {leader, pid}
    for each in (leader, pid):
        assert Path(f"/proc/{each}/oom_score_adj").read_text() == "300\n"
    go_on.path.write_text("\n")
    assert pythons.host.end_of(number).state is TaskState.SUCCESS
    signpost.close()
    go_on.close()


@pytest.mark.parametrize(
    ("number", "code", "reason"),
    [
        (signal.SIGKILL, 137, "killed by signal 9 (out of memory?)"),
        (signal.SIGSEGV, 139, "killed by signal 11"),
        (signal.SIGTERM, 143, "killed by signal 15"),
    ],
)
def test_a_signal_is_an_exit_code(
    pythons: Pythons, number: signal.Signals, code: int, reason: str
) -> None:
    end, _ = pythons.run(f"import os\nos.kill(os.getpid(), {int(number)})")
    assert (end.state, end.exit_code, end.reason) == (TaskState.FAILURE, code, reason)
    end, _ = pythons.run(f"import os\nos.kill(os.getppid(), {int(signal.SIGKILL)})\nos.kill(0, 9)")
    assert (end.state, end.exit_code) == (TaskState.FAILURE, 137)


def test_a_kill_lets_a_task_end_by_itself(pythons: Pythons, tmp_path: Path) -> None:
    signpost = Signpost(tmp_path / "up")
    script = (
        "import signal\n"
        "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])\n"
        f"print('up', file=open({str(signpost.path)!r}, 'w'))\n"
        "signal.sigwait([signal.SIGTERM])\n"
        "print('told')"
    )
    number = pythons.begin(script)
    signpost.wait()
    pythons.host.supervisor.kill(number)
    end = pythons.host.end_of(number)
    assert (end.state, pythons.printed(number)) == (TaskState.KILL, ["told"])
    signpost.close()


def test_a_daemon_does_not_outlive_its_task(pythons: Pythons, tmp_path: Path) -> None:
    signpost = Signpost(tmp_path / "up")
    script = f"""
import os
if os.fork():
    os._exit(0 if os.wait() else 1)
os.setsid()
if os.fork():
    os._exit(0)
os.closerange(0, 256)
os.execve("/bin/sh", ["sh", "-c", "echo $$ > {signpost.path}; exec sleep 600"], {{}})
"""
    number = pythons.begin(script)
    pid = int(signpost.wait())
    end = pythons.host.end_of(number)
    wait_until_gone(pid)
    assert end.state is TaskState.SUCCESS
    assert f"{pid} (" in pythons.host.log(number)
    signpost.close()


def test_limits_and_niceness_hold(kind: str, tmp_path: Path) -> None:
    limits = Limits(memory_mb=200, processes=5_000, by_account=True)
    pythons = Pythons(tmp_path, kind, limits=limits)
    pythons.warm()
    script = (
        "import os\nprint(os.nice(0), open('/proc/self/limits').read())\nbytearray(400 * 1024**2)"
    )
    end, printed = pythons.run(script, complement=True)
    assert (end.state, end.reported_failure) == (TaskState.FAILURE, FailureReason.OUT_OF_MEMORY)
    assert int(printed[0].split()[0]) == os.nice(0) + 10
    found = {line[:26].strip(): line[26:].split()[:2] for line in printed}
    assert found["Max data size"] == [str(200 * MIB)] * 2
    assert found["Max processes"] == ["5000", "5000"]
    pythons.host.supervisor.close()


def test_a_cgroup_holds_what_a_task_begins_with(kind: str, tmp_path: Path) -> None:
    # A folder, whose files get what the kernel would be told.
    base = tmp_path / "cgroup"
    base.mkdir()
    pythons = Pythons(tmp_path, kind, limits=Limits(memory_mb=64, base=base))
    pythons.warm()
    # Warming runs an attempt before it.
    procs = base / f"task-{2 if kind == 'forked' else 1}" / "cgroup.procs"
    end, printed = pythons.run(f"import os\nprint(open('{procs}').read() == str(os.getsid(0)))")
    assert (end.state, printed) == (TaskState.SUCCESS, ["True"])
    pythons.host.supervisor.close()


_LEAVES = """
import select, sys
from tests.integration.pythons import Pythons
pythons = Pythons(host.home, {kind!r})
pythons.warm()
number = pythons.begin({script!r})
open({told!r}, "w").write(str(number))
open({up!r}).readline()
"""


def test_a_task_outlives_its_daemon_and_is_adopted(kind: str, tmp_path: Path) -> None:
    up, go_on = Signpost(tmp_path / "up"), Signpost(tmp_path / "go")
    script = (
        f"print('up', file=open({str(up.path)!r}, 'w'))\n"
        f"open({str(go_on.path)!r}).readline()\n"
        "import sys\nsys.exit(5)"
    )
    told, home = tmp_path / "told", tmp_path / "home"
    home.mkdir()
    body = _LEAVES.format(kind=kind, script=script, told=str(told), up=str(up.path))
    a_daemon_that_dies(home, body)
    number = int(told.read_text())
    again = Host(home)
    again.supervisor.adopt([number])
    again.until(lambda: number in again.starts)
    leader = again.starts[number][0]
    directory = str(again.directory(number))
    assert seen_with_marker(leader, directory)
    go_on.path.write_text("\n")
    end = again.end_of(number)
    assert (end.state, end.exit_code, end.pid) == (TaskState.FAILURE, 5, leader)
    assert [each for each in scan() if each.execute_path == directory] == []
    again.supervisor.close()
    up.close()
    go_on.close()


@AS_ROOT
def test_a_task_is_its_tenants(kind: str) -> None:
    # The folders of `tmp_path` are closed to other accounts.
    with tempfile.TemporaryDirectory(prefix="orcaflow-") as directory:
        home = Path(directory)
        home.chmod(0o711)
        alice, bob = accounts(home)
        known: dict[str | None, Account] = {"alice": alice, "bob": bob}
        pythons = Pythons(
            home,
            kind,
            tenant_mode="tenant",
            account_of=known.__getitem__,
            settings=TaskSettings(environment=seen_by_tasks(os.environ), python=bare_python(alice)),
        )
        script = (
            "import os\nprint(os.getresuid(), os.getresgid(), sorted(os.getgroups()), os.environ['HOME'])\n"
            "print(os.stat('/proc/self/environ').st_uid, open('/proc/self/status').read().split('CapEff:')[1].split()[0])\n"
            "open('made', 'w')"
        )
        for name, account in (("alice", alice), ("bob", bob)):
            pythons.warm(tenant_code=name)
            end, printed = pythons.run(script, tenant_code=name)
            assert end.state is TaskState.SUCCESS
            uids, gids = (account.uid,) * 3, (account.gid,) * 3
            groups = sorted({*account.groups, account.gid})
            assert printed == [
                f"{uids} {gids} {groups} {account.home}",
                f"{account.uid} 0000000000000000",
            ]
            made = pythons.host.directory(end.task_instance_id) / "made"
            assert made.stat().st_uid == account.uid
        _check_file_of_a_user(pythons, home)
        pythons.host.supervisor.close()


def _check_file_of_a_user(pythons: Pythons, home: Path) -> None:
    """Other accounts can read a command line, and must not find the user's folder there."""
    folder = f"3-{'ed39' * 8}"
    script = home / "resources" / "users" / folder / "lib" / "main.py"
    script.parent.mkdir(parents=True)
    script.write_text("import other, sys\nprint(other.FOUND, open('/proc/self/cmdline').read())")
    (script.parent / "other.py").write_text("FOUND = 'other'")
    (home / "resources" / "users").chmod(0o700)
    run = partial(pythons.run, None, tenant_code="alice", lenders=frozenset({3}))
    end, printed = run(params={"file": str(script)})
    assert end.state is TaskState.SUCCESS
    assert printed[0].startswith("other ")
    assert "3-ed39" not in printed[0]
    # The kernel follows a link before it goes up by `..`.
    deep = home / "scripts" / "deep"
    deep.mkdir(parents=True)
    (home / "way").symlink_to(deep)
    (home / "scripts" / "main.py").write_text("print('by a link')")
    for file in (
        home / "way" / ".." / "main.py",
        home / "way/../../resources/users" / folder / "lib/main.py",
    ):
        end, printed = run(params={"file": str(file)})
        assert end.state is TaskState.SUCCESS, printed
        assert "3-ed39" not in printed[0]


@AS_ROOT
def test_no_tenant_can_look_into_what_is_forked_ahead_for_its_tasks() -> None:
    with tempfile.TemporaryDirectory(prefix="orcaflow-") as directory:
        home = Path(directory)
        home.chmod(0o711)
        alice, _ = accounts(home)
        pythons = Pythons(
            home,
            "forked",
            tenant_mode="tenant",
            account_of={"alice": alice}.__getitem__,
            settings=TaskSettings(environment=seen_by_tasks(os.environ), python=bare_python(alice)),
        )
        for pid in pythons.ahead(tenant_code="alice"):
            assert f"Uid:\t{alice.uid}\t" in Path(f"/proc/{pid}/status").read_text()
            # A process that its own account may look into has files of that account.
            assert Path(f"/proc/{pid}/environ").stat().st_uid == 0
        pythons.host.supervisor.close()
