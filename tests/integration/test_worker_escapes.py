"""Processes that try to outlive their attempt: none does after any end, unless its author asks."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from common.model.states import TaskState
from tests.integration.worker_host import (
    Host,
    SetClock,
    Signpost,
    a_daemon_that_dies,
    wait_until_gone,
)
from worker.processes.attempt_processes import scan
from worker.processes.marks import mark_of, mark_seen

_DAEMONIZE = """
import os, sys
for _ in range(2):
    if os.fork():
        os._exit(0)
    os.setsid()
os.chdir("/")
os.closerange(0, 256)
os.environb.clear()
with open(sys.argv[1], "w") as post:
    post.write(f"{os.getpid()}\\n")
os.execve("/bin/sleep", ["sleep", "600"], {})
"""

_HEADLESS = """
import ctypes, os, sys, threading, time

def go_on():
    with open(sys.argv[1], "w") as post:
        post.write(f"{os.getpid()}\\n")
    time.sleep(600)

if not os.fork():
    os.setsid()
    threading.Thread(target=go_on).start()
    ctypes.CDLL(None).pthread_exit(None)
"""

_WAIT = "echo $$ > $1; while :; do sleep 600; done"
_WAIT_DEAF = f"trap '' TERM INT HUP; {_WAIT}"
_STOP = "echo $$ > $1; kill -STOP $$"
_SLEEP = "echo $$ > $1; exec sleep 600"
_TWICE = '(setsid sh -c "$1" sh "$2" &) &'
_RENAMED = 'exec -a ") Z 1 1" sh -c "$1" sh "$2"'


def _line(template: str, *words: str) -> str:
    return template.format(*map(shlex.quote, words), post="{post}")


ESCAPES = {
    "in the background": _line("sh -c {} sh {post} &", _WAIT),
    "without a hangup": _line("nohup sh -c {} sh {post} >/dev/null 2>&1 &", _WAIT),
    "in a session": _line("setsid sh -c {} sh {post} &", _WAIT),
    "in a session, forked": _line("setsid -f sh -c {} sh {post}", _WAIT),
    "without an environment": _line("env -i sh -c {} sh {post} &", _WAIT),
    "in a session, without an environment": _line("env -i setsid sh -c {} sh {post} &", _WAIT),
    "and orphaned": _line("env -i setsid -f sh -c {} sh {post}", _WAIT),
    "and orphaned twice": _line("(env -i setsid sh -c {} sh {} {post} &)", _TWICE, _WAIT),
    "deaf to signals": _line("env -i setsid -f sh -c {} sh {post}", _WAIT_DEAF),
    "stopped": _line("env -i setsid -f sh -c {} sh {post}", _STOP),
    "under another name": _line("env -i setsid -f bash -c {} sh {} {post}", _RENAMED, _WAIT),
    "tidy": _line("setsid -f sh -c {} sh {post}", _SLEEP),
    "as a daemon": _line("{} -c {} {post}", sys.executable, _DAEMONIZE),
    "without its first thread": _line("env -i {} -c {} {post}", sys.executable, _HEADLESS),
}

_LOWER = 'ulimit -x "$3"; exec env -i setsid -f sh -c "$1" sh "$2"'
_NEXT = 'ulimit -x $(($(ulimit -x) - 1)); exec env -i setsid -f sh -c "$1" sh "$2"'
_BY_STEPS = f"ulimit -x $(($(ulimit -x) - 1)); exec setsid -f bash -c {shlex.quote(_LOWER)} bash"

DISGUISES = {
    "with no limit left": _line("bash -c {} bash {} {post} 0", _LOWER, _WAIT_DEAF),
    "with a low limit": _line("bash -c {} bash {} {post} 5", _LOWER, _SLEEP),
    "with the limit of nobody": _line("bash -c {} bash {} {post}", _NEXT, _WAIT),
    "with one limit after another": _line(
        'bash -c {} bash {} {post} 7; : "$1"', f'{_BY_STEPS} "$1" "$2" "$3"', _WAIT
    ),
    "with a low limit, as a daemon": _line(
        "bash -c {} bash {} {} {post}",
        'ulimit -x 9; exec "$1" -c "$2" "$3"',
        sys.executable,
        _DAEMONIZE,
    ),
}
"""Processes that lower the mark which they inherit: nothing but their parent tells of them."""


def escaping(name: str, post: Path) -> str:
    """A line that leaves a process behind, which tells its pid first."""
    return {**ESCAPES, **DISGUISES}[name].replace("{post}", str(post))


def escaped(name: str, post: Path) -> str:
    """Lines that go on once the process which they leave behind has told its pid."""
    up = post.with_name("up")
    return f"{escaping(name, up)}\nuntil [ -s {up} ]; do sleep 0.02; done; cat {up} > {post}"


@pytest.fixture
def signpost(tmp_path: Path) -> Iterator[Signpost]:
    signpost = Signpost(tmp_path / "signpost")
    yield signpost
    signpost.close()


@pytest.fixture
def grace() -> timedelta:
    """The time that processes get after a TERM; a test may override it."""
    return timedelta(milliseconds=50)


@pytest.fixture(params=[True, False], ids=["as a parent of orphans", "as any process"])
def host(tmp_path: Path, request: pytest.FixtureRequest, grace: timedelta) -> Iterator[Host]:
    host = Host(tmp_path, grace=grace, adopts_orphans=request.param)
    yield host
    host.supervisor.close()


def wait_for_escaped(signpost: Signpost) -> list[int]:
    return [int(signpost.wait()) for _ in ESCAPES]


def all_escapes(signpost: Signpost, gate: Path, last: str) -> str:
    lines = [escaping(name, signpost.path) for name in ESCAPES]
    return "\n".join(["set +m", *lines, f"read go < {gate}", last])


@pytest.fixture
def clock() -> SetClock:
    return SetClock()


@pytest.fixture
def parent(tmp_path: Path, grace: timedelta, clock: SetClock) -> Iterator[Host]:
    """A host that becomes the parent of orphans."""
    host = Host(tmp_path, grace=grace, adopts_orphans=True, clock=clock)
    yield host
    host.supervisor.close()


def test_nothing_outlives_a_success_however_it_moved_away(host: Host, signpost: Signpost) -> None:
    gate = Signpost(host.home / "gate")
    host.begin(host.task(1, all_escapes(signpost, gate.path, "exit 0")))
    pids = wait_for_escaped(signpost)
    gate.path.write_text("go\n")
    assert host.end_of(1).state is TaskState.SUCCESS
    for pid in pids:
        wait_until_gone(pid)
    assert "left behind" in host.log(1)
    gate.close()


def test_nothing_outlives_a_stop_however_it_moved_away(host: Host, signpost: Signpost) -> None:
    gate = Signpost(host.home / "gate")
    host.begin(host.task(1, all_escapes(signpost, gate.path, "exit 0")))
    pids = wait_for_escaped(signpost)
    host.supervisor.kill(1)
    assert host.end_of(1).state is TaskState.KILL
    for pid in pids:
        wait_until_gone(pid)
    gate.close()


@pytest.mark.parametrize("end", ["success", "failure", "stop", "timeout"])
def test_nothing_outlives_its_attempt_by_taking_its_mark_off(
    parent: Host, signpost: Signpost, clock: SetClock, end: str
) -> None:
    gate = Signpost(parent.home / "gate")
    lines = [escaping(name, signpost.path) for name in DISGUISES]
    script = "\n".join([*lines, f"read go < {gate.path}", f"exit {int(end == 'failure')}"])
    parent.begin(parent.task(1, script, timeout=timedelta(hours=1)))
    pids = [int(signpost.wait()) for _ in DISGUISES]
    if end == "stop":
        parent.supervisor.kill(1)
    elif end == "timeout":
        clock.ahead = timedelta(hours=2)
    else:
        gate.path.write_text("go\n")
    states = {"success": TaskState.SUCCESS, "stop": TaskState.KILL}
    assert parent.end_of(1).state is states.get(end, TaskState.FAILURE)
    assert [pid for pid in pids if Path(f"/proc/{pid}").exists()] == []
    gate.close()


def test_an_end_spares_what_a_running_attempt_has_moved_away(
    parent: Host, signpost: Signpost
) -> None:
    signs = {
        "its mark": escaping("as a daemon", signpost.path),
        "its environment": escaping("with a low limit", signpost.path).replace("env -i", "env"),
    }
    gate = Signpost(parent.home / "gate")
    parent.begin(parent.task(1, "\n".join([*signs.values(), f"read go < {gate.path}"])))
    pids = {int(signpost.wait()) for _ in signs}
    parent.begin(parent.task(2, escaped("with a low limit", parent.home / "post")))
    assert parent.end_of(2).state is TaskState.SUCCESS
    assert pids <= {each.pid for each in scan()}
    gate.path.write_text("go\n")
    assert parent.end_of(1).state is TaskState.SUCCESS
    assert [pid for pid in pids if Path(f"/proc/{pid}").exists()] == []
    gate.close()


def test_what_an_author_wants_alive_outlives_the_ends_of_others(
    parent: Host, signpost: Signpost
) -> None:
    names = ["tidy", "with a low limit"]
    lines = [escaped(name, parent.home / name.replace(" ", "-") / "post") for name in names]
    for name in names:
        (parent.home / name.replace(" ", "-")).mkdir()
    task = parent.task(1, "\n".join(lines), params={"keepChildren": True})
    assert parent.run(task).state is TaskState.SUCCESS
    kept = [int((parent.home / name.replace(" ", "-") / "post").read_text()) for name in names]
    assert parent.run(parent.task(2, escaped("as a daemon", signpost.path))).exit_code == 0
    assert set(kept) <= {each.pid for each in scan()}
    for pid in kept:
        os.kill(pid, signal.SIGKILL)
        wait_until_gone(pid)


_HOPS = """
import os, sys, time
number = 0
begun = time.monotonic()
while time.monotonic() < begun + 60:
    if os.fork():
        os._exit(0)
    os.setsid()
    os.environb.clear()
    number += 1
    if number == 5:
        open(sys.argv[1], "w").write("hops\\n")
    time.sleep(0.0005)
"""


@pytest.mark.parametrize("stop", [True, False], ids=["a stop", "a success"])
def test_nothing_outlives_its_attempt_by_forking_without_end(
    tmp_path: Path, signpost: Signpost, stop: bool
) -> None:
    host = Host(tmp_path, grace=timedelta(milliseconds=50), adopts_orphans=True)
    up = tmp_path / "up"
    hop = f"{shlex.quote(sys.executable)} -S -c {shlex.quote(_HOPS)} {up}"
    host.begin(
        host.task(1, f"{hop} & until [ -s {up} ]; do sleep 0.02; done; exec sleep {600 * stop}")
    )
    if stop:
        host.until(up.exists)
        host.supervisor.kill(1)
    assert host.end_of(1).state is (TaskState.KILL if stop else TaskState.SUCCESS)
    own = mark_of(str(host.directory(1)))
    # Whatever forks without end is, or has just been, a child of the parent of orphans.
    children = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split()
    assert own not in map(mark_seen, map(int, children))
    host.supervisor.close()


def test_nothing_outlives_a_wrapper_that_was_killed(host: Host, signpost: Signpost) -> None:
    host.begin(host.task(1, f"{escaped('as a daemon', signpost.path)}\nkill -9 $PPID $$"))
    assert host.end_of(1).state is TaskState.FAILURE
    wait_until_gone(int(signpost.wait()))


def test_nothing_outlives_an_adopted_attempt(tmp_path: Path, signpost: Signpost) -> None:
    gate = Signpost(tmp_path / "gate")
    script = all_escapes(signpost, gate.path, "exit 0")
    a_daemon_that_dies(tmp_path, f"host.begin(host.task(7, {script!r}))")
    pids = wait_for_escaped(signpost)
    host = Host(tmp_path, grace=timedelta(milliseconds=50))
    host.supervisor.adopt({7})
    gate.path.write_text("go\n")
    assert host.end_of(7).state is TaskState.SUCCESS
    for pid in pids:
        wait_until_gone(pid)
    assert "left behind" in host.log(7)
    gate.close()
    host.supervisor.close()


@pytest.mark.parametrize("exits", [True, False], ids=["with a result", "without a result"])
@pytest.mark.parametrize("adopted", [{7}, frozenset()], ids=["adopted", "not adopted"])
def test_nothing_outlives_an_attempt_that_ended_without_a_daemon(
    tmp_path: Path, signpost: Signpost, adopted: set[int], exits: bool
) -> None:
    leader = Signpost(tmp_path / "leader")
    end = "exit 0" if exits else "kill -9 $PPID"
    script = f"{escaped('as a daemon', signpost.path)}\necho $PPID > {leader.path}; {end}"
    a_daemon_that_dies(tmp_path, f"host.begin(host.task(7, {script!r}))")
    wait_until_gone(int(leader.wait()))
    host = Host(tmp_path, grace=timedelta(milliseconds=50))
    host.supervisor.adopt(adopted)
    for task in adopted:
        state = TaskState.SUCCESS if exits else TaskState.NEED_FAULT_TOLERANCE
        assert host.end_of(task).state is state
    wait_until_gone(int(signpost.wait()))
    leader.close()
    host.supervisor.close()


@pytest.mark.parametrize("grace", [timedelta(minutes=2)], ids=["in its own time"])
def test_what_ends_when_it_is_told_to_is_named_in_the_log(host: Host, signpost: Signpost) -> None:
    host.run(host.task(1, escaped("tidy", signpost.path)))
    pid = int(signpost.wait())
    assert f"[orcaflow] the task left processes behind, which are told to end: {pid} (" in host.log(
        1
    )
    assert "were killed" not in host.log(1)


@pytest.mark.parametrize("task_type", ["SHELL", "PYTHON"])
def test_an_author_may_have_processes_left_alive(
    host: Host, signpost: Signpost, task_type: str
) -> None:
    line = escaped("tidy", signpost.path)
    script = line if task_type == "SHELL" else f"import os; os.system({line!r})"
    task = host.task(1, f"{script}\n", task_type=task_type, params={"keepChildren": True})
    assert host.run(task).state is TaskState.SUCCESS
    pid = int(signpost.wait())
    assert pid in {each.pid for each in scan()}
    os.kill(pid, signal.SIGKILL)
    wait_until_gone(pid)


@pytest.mark.parametrize("adopted", [{7}, frozenset()], ids=["adopted", "not adopted"])
def test_a_restart_of_the_worker_spares_what_an_author_wants_alive(
    tmp_path: Path, signpost: Signpost, adopted: set[int]
) -> None:
    leader = Signpost(tmp_path / "leader")
    script = f"{escaped('tidy', signpost.path)}\necho $PPID > {leader.path}"
    body = f"host.begin(host.task(7, {script!r}, params={{'keepChildren': True}}))"
    a_daemon_that_dies(tmp_path, body)
    wait_until_gone(int(leader.wait()))
    pid = int(signpost.wait())
    host = Host(tmp_path)
    host.supervisor.adopt(adopted)
    for task in adopted:
        assert host.end_of(task).state is TaskState.SUCCESS
    assert pid in {each.pid for each in scan()}
    os.kill(pid, signal.SIGKILL)
    wait_until_gone(pid)
    leader.close()
    host.supervisor.close()


def test_a_stop_spares_nothing_that_an_author_would_have_left_alive(
    host: Host, signpost: Signpost
) -> None:
    script = f"{escaped('as a daemon', signpost.path)}\nsleep 600"
    host.begin(host.task(1, script, params={"keepChildren": True}))
    pid = int(signpost.wait())
    host.supervisor.kill(1)
    assert host.end_of(1).state is TaskState.KILL
    wait_until_gone(pid)


def test_orphans_that_have_ended_are_reaped(tmp_path: Path) -> None:
    body = """
from tests.integration.worker_host import Signpost
host = Host(host.home, adopts_orphans=True)
assert host.run(host.task(1, "(true &) & (sh -c 'exit 3' &) & wait")).exit_code == 0
gate = Signpost(host.home / "gate")
host.begin(host.task(2, f"(setsid true &); (setsid false &); read go < {gate.path}"))
own = os.getpid()
def children():
    return set(Path(f"/proc/{own}/task/{own}/children").read_text().split())
host.until(lambda: len(children()) <= 1)
gate.path.write_text("go\\n")
assert host.end_of(2).exit_code == 0
host.until(lambda: not children())
"""
    a_daemon_that_dies(tmp_path, body)


def test_a_task_of_a_task_s_own_cluster_bears_the_outer_mark(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from tests.integration.worker_host import Host;"
        " host = Host(Path(sys.argv[1])); host.begin(host.task(1, sys.argv[2])); sys.exit()"
    )
    up = tmp_path / "up"
    escape = escaping("as a daemon", up)
    inner = shlex.join([sys.executable, "-c", code, str(tmp_path / "inner"), escape])
    root = Path(__file__).resolve().parents[2]
    host = Host(tmp_path, grace=timedelta(milliseconds=50))
    # It has to be there before the outer task ends, or nothing would have escaped.
    script = f"cd {root} && {inner}; until [ -s {up} ]; do sleep 0.02; done"
    assert host.run(host.task(1, script)).state is TaskState.SUCCESS
    wait_until_gone(int(up.read_text()))
    host.supervisor.close()


def test_a_bystander_that_bears_no_mark_is_left_alone(host: Host, signpost: Signpost) -> None:
    with subprocess.Popen(["sleep", "600"]) as bystander:
        host.run(host.task(1, escaped("as a daemon", signpost.path)))
        wait_until_gone(int(signpost.wait()))
        assert bystander.poll() is None
        bystander.kill()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can run tasks as others")
@pytest.mark.parametrize("adopts_orphans", [True, False])
def test_nothing_of_a_tenant_s_outlives_its_attempt(adopts_orphans: bool) -> None:
    with tempfile.TemporaryDirectory() as directory:
        home = Path(directory)
        home.chmod(0o711)
        host = Host(home, tenant_mode="tenant", adopts_orphans=adopts_orphans)
        signpost = Signpost(home / "signpost")
        signpost.path.chmod(0o666)
        script = 'cd "$TMPDIR"; env -i setsid -f sh -c "echo \\$\\$ > up; exec sleep 600"'
        script += f"; until [ -s up ]; do sleep 0.02; done; cat up > {signpost.path}"
        end = host.run(host.task(1, script, tenant_code="nobody"))
        assert end.state is TaskState.SUCCESS, host.log(1)
        wait_until_gone(int(signpost.wait()))
        signpost.close()
        host.supervisor.close()
