"""Fork servers: of whatever dies or lies, no task comes to harm, and nothing runs twice."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from common.model.states import TaskState
from tests.integration.pythons import Pythons
from tests.integration.worker_host import (
    PATIENCE_SECONDS,
    SetClock,
    Signpost,
    a_daemon_that_dies,
    wait_until_gone,
)
from worker.launcher import seen_by_tasks
from worker.launching.base import TaskSettings
from worker.processes import fork_servers
from worker.processes.fork_servers import ForkServers
from worker.processes.limits import Limits
from worker.processes.marks import HELPER, mark_seen


@pytest.fixture
def forking(tmp_path: Path) -> Iterator[Pythons]:
    pythons = Pythons(tmp_path / "home", "forked")
    yield pythons
    pythons.host.supervisor.close()


def _server(pythons: Pythons) -> fork_servers._Server:
    [server] = pythons.host.fork_servers._servers.values()
    return server


def test_the_first_task_waits_for_no_fork_server(forking: Pythons) -> None:
    end = forking.host.run(forking.task("print(1)"))
    assert (end.state, forking.forked) == (TaskState.SUCCESS, [])
    forking.warm()
    assert forking.run("print(2)")[1] == ["2"]


def test_a_task_goes_on_when_its_fork_server_is_killed(forking: Pythons, tmp_path: Path) -> None:
    up, go_on = Signpost(tmp_path / "up"), Signpost(tmp_path / "go")
    forking.warm()
    number = forking.begin(
        f"print('up', file=open({str(up.path)!r}, 'w'))\n"
        f"open({str(go_on.path)!r}).readline()\nraise SystemExit(4)"
    )
    up.wait()
    server = _server(forking).process
    server.kill()
    wait_until_gone(server.pid) if server.wait() else None
    # The next one finds it gone, and the one after that a new one.
    forking.kind = "fresh"
    assert forking.run("print(1)")[1] == ["1"]
    forking.kind = "forked"
    forking.warm()
    assert _server(forking).process.pid != server.pid
    assert forking.run("print(2)")[1] == ["2"]
    go_on.path.write_text("\n")
    assert forking.host.end_of(number).exit_code == 4
    up.close()
    go_on.close()


def test_a_fork_server_that_stands_still_keeps_nobody_waiting_and_nothing_runs_twice(
    tmp_path: Path,
) -> None:
    clock = SetClock()
    pythons = Pythons(tmp_path, "forked", clock=clock)
    pythons.warm()
    server = _server(pythons)
    os.kill(server.process.pid, signal.SIGSTOP)
    os.waitid(os.P_PID, server.process.pid, os.WSTOPPED | os.WNOWAIT)
    pythons.host.fork_servers._patience = 0.05
    pythons.kind = "fresh"
    script = f"print('ran', file=open({str(tmp_path / 'ran')!r}, 'a'))"
    assert pythons.run(script)[0].state is TaskState.SUCCESS
    assert pythons.host.fork_servers._servers == {}
    pythons.host.fork_servers._patience = PATIENCE_SECONDS
    assert pythons.run(script)[0].state is TaskState.SUCCESS
    assert pythons.host.fork_servers._servers == {}, "it is given a rest"
    clock.ahead = timedelta(seconds=fork_servers.AGAIN_SECONDS)
    pythons.kind = "forked"
    pythons.warm()
    assert pythons.run(script)[0].state is TaskState.SUCCESS
    assert (tmp_path / "ran").read_text() == "ran\n" * 3
    pythons.host.supervisor.close()


def test_a_leader_and_its_task_are_forked_ahead(forking: Pythons) -> None:
    leader, runner = forking.ahead()
    assert {mark_seen(leader), mark_seen(runner)} == {HELPER}
    _, printed = forking.run("import os\nprint(os.getppid(), os.getpid(), os.getsid(0))")
    assert printed == [f"{leader} {runner} {leader}"]


@pytest.mark.parametrize("of", ["leader", "runner"])
def test_one_that_was_forked_ahead_and_killed_costs_no_task(forking: Pythons, of: str) -> None:
    leader, runner = forking.ahead()
    killed = leader if of == "leader" else runner
    os.kill(killed, signal.SIGKILL)
    if of == "leader":
        os.waitid(os.P_PID, leader, os.WEXITED | os.WNOWAIT)
    else:
        # Its leader can take nothing over, so a new interpreter is started.
        wait_until_gone(killed)
        forking.kind = "fresh"
    assert forking.run("print(2)")[1] == ["2"]
    forking.kind = "forked"
    assert forking.run("print(3)")[1] == ["3"]
    forking.host.until(lambda: str(leader) not in _children())


def test_a_signal_that_came_before_a_task_is_not_for_it(forking: Pythons) -> None:
    leader, runner = forking.ahead()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        os.kill(runner, number)
        os.kill(leader, number)
    assert forking.run("import os\nprint(os.getpid())")[1] == [str(runner)]


def test_a_task_with_a_limit_on_processes_is_forked_below_it(tmp_path: Path) -> None:
    pythons = Pythons(tmp_path, "forked", limits=Limits(processes=5_000, by_account=True))
    leader, runner = pythons.ahead()
    _, printed = pythons.run("import os\nprint(os.getppid(), os.getpid())")
    assert printed != [f"{leader} {runner}"]
    assert printed[0].startswith(f"{leader} ")
    wait_until_gone(runner)
    pythons.host.supervisor.close()


def test_what_is_forked_ahead_ends_with_its_daemon_and_when_nobody_asks(tmp_path: Path) -> None:
    clock = SetClock()
    pythons = Pythons(tmp_path, "forked", clock=clock)
    leader, runner = pythons.ahead()
    clock.ahead = timedelta(seconds=fork_servers.IDLE_SECONDS)
    pythons.host.until(lambda: str(leader) not in _children())
    wait_until_gone(runner)
    leader, runner = pythons.ahead()
    pythons.host.supervisor.close()
    wait_until_gone(runner)
    os.waitpid(leader, 0)


_TAKES = """
import os, socket, sys, array
link = socket.socket(fileno=int(sys.argv[1]))
link.send(b"+")
_, rights, _, _ = link.recvmsg(1, 100)
gate = socket.socket(fileno=int.from_bytes(rights[0][2], sys.byteorder))
"""
BAD_SERVERS = {
    "that ends at once": "raise SystemExit",
    "that fails": "1 / 0",
    "that dies when it is asked": f"{_TAKES}os.kill(os.getpid(), 9)",
    "that answers itself": f"{_TAKES}gate.send(b'+')\nlink.recv(1)",
    "whose child is its own": (
        f"{_TAKES}if os.fork() == 0:\n    gate.send(b'+')\n    gate.recv(1)\nlink.recv(1)"
    ),
    "that is out of date": f"{_TAKES}gate.send(b's')\nlink.recv(1)",
    "that can't": f"{_TAKES}gate.send(b'-')\nwhile rights := link.recvmsg(1, 100)[1]:\n"
    "    socket.socket(fileno=int.from_bytes(rights[0][2], sys.byteorder)).send(b'-')",
}


@pytest.mark.parametrize("name", BAD_SERVERS)
def test_a_fork_server_of_no_use_costs_no_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    program = tmp_path / "program.py"
    program.write_text(BAD_SERVERS[name])
    monkeypatch.setattr(fork_servers, "_PROGRAM", str(program))
    pythons = Pythons(tmp_path / "home", "forked")
    pythons.host.run(pythons.task("pass"))
    servers = pythons.host.fork_servers
    # One that ends before the task does is given up by then.
    assert servers._servers or servers._not_before
    pythons.hear_from_servers()
    pythons.kind = "fresh"
    for number in (1, 2):
        assert pythons.run(f"print({number})")[1] == [str(number)]
    is_kept = name == "that can't"
    assert bool(pythons.host.fork_servers._servers) == is_kept
    pythons.host.supervisor.close()


def test_a_leader_that_was_forked_for_nobody_is_reaped(
    forking: Pythons, monkeypatch: pytest.MonkeyPatch
) -> None:
    forking.warm()
    before = _children()

    def refuse(*_: object) -> None:
        raise fork_servers._UselessServerError("refused by the test")

    with monkeypatch.context() as patched:
        patched.setattr(fork_servers, "_check", refuse)
        forking.kind = "fresh"
        assert forking.run("print(1)")[1] == ["1"]

    def none_is_left() -> bool:
        forking.host.fork_servers.tend(())
        return _children() <= before

    forking.host.until(none_is_left)


def _children() -> set[str]:
    return set(Path(f"/proc/self/task/{os.getpid()}/children").read_text().split())


def test_a_fork_server_ends_with_its_daemon_and_when_nobody_asks(tmp_path: Path) -> None:
    clock = SetClock()
    pythons = Pythons(tmp_path, "forked", clock=clock)
    pythons.warm()
    server = _server(pythons).process
    clock.ahead = timedelta(seconds=fork_servers.IDLE_SECONDS)
    pythons.host.until(lambda: server.returncode is not None)
    pythons.warm()
    server = _server(pythons).process
    pythons.host.supervisor.close()
    assert server.returncode is not None


def test_a_fork_server_ends_when_its_daemon_dies(tmp_path: Path) -> None:
    home, told = tmp_path / "home", tmp_path / "told"
    home.mkdir()
    a_daemon_that_dies(
        home,
        f"""
from tests.integration.pythons import Pythons
pythons = Pythons(host.home, "forked")
pythons.warm()
[server] = pythons.host.fork_servers._servers.values()
open({str(told)!r}, "w").write(str(server.process.pid))
""",
    )
    wait_until_gone(int(told.read_text()))


def test_x86_a_fork_server_that_a_task_has_stopped_ends_with_its_daemon(tmp_path: Path) -> None:
    home, told = tmp_path / "home", tmp_path / "told"
    home.mkdir()
    a_daemon_that_dies(
        home,
        f"""
import os, signal
from tests.integration.pythons import Pythons
pythons = Pythons(host.home, "forked")
leader, runner = pythons.ahead()
[server] = pythons.host.fork_servers._servers.values()
pids = (server.process.pid, leader, runner)
for pid in pids:
    os.kill(pid, signal.SIGSTOP)
open({str(told)!r}, "w").write(" ".join(map(str, pids)))
""",
    )
    for pid in told.read_text().split():
        wait_until_gone(int(pid))


def test_x86_what_was_forked_ahead_and_stopped_ends_when_its_worker_stops(
    tmp_path: Path,
) -> None:
    pythons = Pythons(tmp_path, "forked")
    leader, runner = pythons.ahead()
    for pid in (_server(pythons).process.pid, leader, runner):
        os.kill(pid, signal.SIGSTOP)
    pythons.host.supervisor.close()
    os.waitpid(leader, 0)
    wait_until_gone(runner)


def test_an_interpreter_that_has_changed_has_a_new_fork_server(tmp_path: Path) -> None:
    packages = tmp_path / "python" / "lib" / "site-packages"
    python = tmp_path / "python" / "bin" / "python"
    subprocess.run(
        [sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "python")], check=True
    )
    [packages] = (tmp_path / "python").glob("lib/*/site-packages")
    settings = TaskSettings(environment=seen_by_tasks(os.environ), python=str(python))
    pythons = Pythons(tmp_path / "home", "forked", settings=settings)
    pythons.warm()
    assert pythons.run("import sys\nprint(sys.prefix)")[1] == [str(tmp_path / "python")]
    (packages / "own.pth").write_text("import sys; sys.made_by_a_package = True")
    pythons.kind = "fresh"
    script = "import sys\nprint(sys.made_by_a_package)"
    assert pythons.run(script)[1] == ["True"]
    pythons.kind = "forked"
    pythons.warm()
    assert pythons.run(script)[1] == ["True"]
    pythons.host.supervisor.close()


@pytest.mark.parametrize(
    "variable", ["PYTHONPATH", "PYTHONHASHSEED", "LC_ALL", "LD_PRELOAD", "TZ", "HOME"]
)
def test_variables_that_are_read_at_the_start_are_for_a_new_interpreter(
    tmp_path: Path, variable: str
) -> None:
    servers = ForkServers(environment={"PATH": "/bin"}, clock=SetClock())
    asked = fork_servers.ToFork(
        argv=(sys.executable, "-u", "/x"),
        environment={"PATH": "/bin", variable: ""},
        directory=str(tmp_path),
        account=None,
        niceness=0,
        mark=None,
        limits=(),
    )
    assert servers.fork(asked, record=0, output=0, known=()) is None
    assert servers._servers == {}
    servers.close()


def test_a_task_may_ask_for_a_new_interpreter(forking: Pythons) -> None:
    forking.warm()
    forking.kind = "fresh"
    assert forking.run("print(1)", params={"profile": "fresh"})[1] == ["1"]
