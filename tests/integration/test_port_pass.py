"""A task run that holds the port of a daemon is ended when the daemon starts; nothing else is."""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from common.config import Config, DatabaseConfig
from common.model.states import TaskState
from common.port_freeing import Freed, free_of_tasks, make_room
from common.port_holders import holder
from common.ports import free_port, is_port_free
from operations.freed_ports import made_room
from tests.house.tree import ROOT
from tests.integration.recorded_attempts import a_home
from tests.integration.worker_host import PATIENCE_SECONDS, Host, Signpost
from worker.processes.attempt_processes import MARKER
from worker.processes.marks import mark_of

SERVER = "the api-server"
ATTEMPT_7 = Freed(task_ids=(7,))
_LISTENER = """
import os, socket, sys
account, port, told = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
address = sys.argv[4] if len(sys.argv) > 4 else "127.0.0.1"
told = open(told, "w")
if account != os.geteuid():
    os.setgroups([])
    os.setresuid(account, account, account)
kept = socket.create_server((address, port))
with told:
    told.write("listens\\n")
sys.stdin.read()
"""
_HIDDEN: Mapping[str, str] = {
    "sent": """
kept.listen()
pair = socket.socketpair()
socket.send_fds(pair[0], [b"x"], [kept.fileno()])
kept.close()
""",
    "sent to a listener": """
kept.listen()
server = socket.socket(socket.AF_UNIX)
server.bind("")
server.listen()
client = socket.socket(socket.AF_UNIX)
client.connect(server.getsockname())
socket.send_fds(client, [b"x"], [kept.fileno()])
client.close()
kept.close()
""",
    "of a thread": """
kept.listen()
ready, end = threading.Event(), threading.Event()
def hold():
    ctypes.CDLL(None).unshare(0x400)
    ready.set()
    end.wait()
threading.Thread(target=hold, daemon=True).start()
ready.wait()
kept.close()
""",
    "in a ring": """
kept.listen()
libc = ctypes.CDLL(None)
ring = libc.syscall(425, 1, ctypes.create_string_buffer(120))
files = (ctypes.c_int * 1)(kept.fileno())
assert ring >= 0 and libc.syscall(427, ring, 2, files, 1) == 0
kept.close()
""",
    "mapped": """
kept.listen()
map_and_close()
""",
    "bound and mapped": "map_and_close()",
    "in a call": """
kept.listen()
block(kept.accept)
os.close(kept.fileno())
""",
    "bound": "",
    "connected": """
server = socket.create_server(("127.0.0.1", 0))
kept.connect(server.getsockname())
""",
}
_IN_POLL = """
kept.listen()
poll = select.poll()
poll.register(kept, select.POLLIN)
block(poll.poll)
kept.close()
"""
_HOLDER = """
import ctypes, os, platform, resource, select, socket, sys, threading
port, report, way, account, mark = sys.argv[1:]
libc = ctypes.CDLL(None)
report = open(report, "w")
if int(mark):
    resource.setrlimit(10, (int(mark), int(mark)))
if int(account) != os.geteuid():
    os.setgroups([])
    os.setresuid(int(account), int(account), int(account))
    libc.prctl(4, 1)
kept = socket.socket()
kept.bind(("127.0.0.1", int(port)))

def block(call):
    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    lock = "202" if platform.machine() == "x86_64" else "98"
    calls = lambda: open(f"/proc/self/task/{thread.native_id}/syscall").read().split()[0]
    while calls() in ("running", lock):
        os.sched_yield()

def map_and_close():
    libc.mmap.restype = ctypes.c_void_p
    size, protection, shared = ctypes.c_size_t(4096), 1, 1
    place = libc.mmap(None, size, protection, shared, kept.fileno(), ctypes.c_long(0))
    assert place != ctypes.c_void_p(-1).value
    kept.close()

exec(way)
with report:
    report.write("listens\\n")
sys.stdin.read()
"""
_TENANT = 61_234
only_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another account")


@pytest.fixture
def signpost(tmp_path: Path) -> Iterator[Signpost]:
    made = Signpost(tmp_path / "signpost")
    yield made
    made.close()


@contextmanager
def a_listener(
    port: int,
    signpost: Signpost,
    *,
    execute_path: Path,
    account: int | None = None,
    address: str = "127.0.0.1",
) -> Iterator[subprocess.Popen[bytes]]:
    """Listen at a port with the marker of the attempt that has this directory."""
    uid = str(os.geteuid() if account is None else account)
    process = subprocess.Popen(
        [sys.executable, "-c", _LISTENER, uid, str(port), str(signpost.path), address],
        stdin=subprocess.PIPE,
        env={**os.environ, MARKER: str(execute_path)},
    )
    try:
        assert signpost.wait() == "listens"
        yield process
    finally:
        assert process.stdin is not None
        process.stdin.close()
        process.wait()


@contextmanager
def a_holder(
    way: str,
    port: int,
    signpost: Signpost,
    *,
    execute_path: Path | None,
    account: int | None = None,
    mark: int = 0,
) -> Iterator[subprocess.Popen[bytes]]:
    """Bind a socket to a port and keep it in this way."""
    uid = str(os.geteuid() if account is None else account)
    process = subprocess.Popen(
        [sys.executable, "-c", _HOLDER, str(port), str(signpost.path), way, uid, str(mark)],
        stdin=subprocess.PIPE,
        env={} if execute_path is None else {**os.environ, MARKER: str(execute_path)},
    )
    with process:
        assert signpost.wait() == "listens"
        assert not is_port_free(port)
        yield process


def test_x80_a_task_run_that_holds_the_port_of_a_daemon_is_ended_at_its_start(
    tmp_path: Path, signpost: Signpost
) -> None:
    home, records = a_home(tmp_path)
    port = free_port()
    with a_listener(port, signpost, execute_path=tmp_path / "attempt") as process:
        assert free_of_tasks(port, home=home, server=SERVER) == ATTEMPT_7
        assert process.wait() == -signal.SIGKILL
    assert is_port_free(port)
    assert records.ended_for(7) == f"held the port {port} of {SERVER}"


def test_x87_a_daemon_that_no_script_starts_ends_the_task_run_at_its_port(
    tmp_path: Path, signpost: Signpost
) -> None:
    home, _ = a_home(tmp_path)
    port = free_port()
    with a_listener(port, signpost, execute_path=tmp_path / "attempt") as process:
        master = subprocess.Popen(
            [sys.executable, "-m", "master.server", "--home", str(home), "--port", str(port)],
            cwd=ROOT,
            env={**os.environ, "ORCAFLOW_DATABASE__URL": "postgresql://nobody@127.0.0.1:1/none"},
            stderr=subprocess.DEVNULL,
        )
        try:
            assert process.wait(timeout=PATIENCE_SECONDS) == -signal.SIGKILL
        finally:
            master.kill()
            master.wait()


def test_x87_a_task_run_at_the_port_of_the_gateway_is_ended_and_noted(
    tmp_path: Path, signpost: Signpost
) -> None:
    home, records = a_home(tmp_path)
    port = free_port()
    config = Config(home=home, database=DatabaseConfig(url="postgresql://nobody@127.0.0.1:1/none"))
    with a_listener(port, signpost, execute_path=tmp_path / "attempt") as process:
        done = made_room(config, "127.0.0.1", port, server="the gateway")
        assert done == f"ended to free the port {port} of the gateway: task run 7"
        assert process.wait() == -signal.SIGKILL
    assert records.ended_for(7) == f"held the port {port} of the gateway"
    assert made_room(config, "127.0.0.1", port, server="the gateway") is None


def test_x87_a_task_run_that_listens_at_another_address_than_the_loopback_is_ended(
    tmp_path: Path, signpost: Signpost
) -> None:
    home, _ = a_home(tmp_path)
    port = free_port()
    # All of 127.0.0.0/8 are addresses of the computer. A daemon at 0.0.0.0 needs each of them.
    where = a_listener(port, signpost, execute_path=tmp_path / "attempt", address="127.0.0.2")
    with where as process:
        assert is_port_free(port)
        assert make_room("127.0.0.1", port, home=home, server=SERVER) is None
        assert process.poll() is None
        assert make_room("0.0.0.0", port, home=home, server=SERVER) == ATTEMPT_7
        assert process.wait() == -signal.SIGKILL


@pytest.mark.parametrize("way", _HIDDEN)
def test_x90_a_task_run_that_hides_its_socket_is_ended(
    tmp_path: Path, signpost: Signpost, way: str
) -> None:
    if way == "in a ring" and not _has_rings():
        pytest.skip("the kernel has io_uring switched off")
    home, records = a_home(tmp_path)
    port = free_port()
    attempt = tmp_path / "attempt"
    with a_holder(_HIDDEN[way], port, signpost, execute_path=attempt) as process:
        assert free_of_tasks(port, home=home, server=SERVER) == ATTEMPT_7
        assert process.wait() == -signal.SIGKILL
    assert is_port_free(port)
    assert records.ended_for(7) == f"held the port {port} of {SERVER}"


@only_root
def test_x93_a_task_run_whose_account_hides_a_socket_in_a_call_is_ended(
    tmp_path: Path, signpost: Signpost
) -> None:
    home, records = a_home(tmp_path, account=_TENANT)
    port = free_port()
    attempt = tmp_path / "attempt"
    holding = a_holder(_IN_POLL, port, signpost, execute_path=attempt, account=_TENANT)
    with holding as process:
        assert free_of_tasks(port, home=home, server=SERVER) == ATTEMPT_7
        assert process.wait() == -signal.SIGKILL
    assert is_port_free(port)
    reason = f"its account hid a socket at the port {port} of {SERVER}"
    assert records.ended_for(7) == reason


@only_root
@pytest.mark.parametrize("way", ["kept.listen()", _IN_POLL], ids=["listens", "in poll"])
def test_x93_a_process_that_an_ended_task_run_has_left_is_ended(
    tmp_path: Path, signpost: Signpost, way: str
) -> None:
    home, records = a_home(tmp_path)
    port = free_port()
    mark = mark_of("/an/attempt/without/a/record")
    holding = a_holder(way, port, signpost, execute_path=None, account=_TENANT, mark=mark)
    with holding as process:
        freed = free_of_tasks(port, home=home, server=SERVER)
        assert freed == Freed(pids=(process.pid,))
        assert process.wait() == -signal.SIGKILL
    assert is_port_free(port)
    assert records.ended_for(7) is None


@only_root
@pytest.mark.parametrize(("account", "mark"), [(_TENANT, 0), (0, mark_of("/an/attempt"))])
def test_x93_a_program_of_no_task_and_one_of_root_are_not_ended(
    tmp_path: Path, signpost: Signpost, account: int, mark: int
) -> None:
    home, _ = a_home(tmp_path)
    port = free_port()
    holding = a_holder(_IN_POLL, port, signpost, execute_path=None, account=account, mark=mark)
    with holding as process:
        assert free_of_tasks(port, home=home, server=SERVER) is None
        assert process.poll() is None
        assert "that hides its socket: end the programs of " in holder(port)


def _has_rings() -> bool:
    ring = int(ctypes.CDLL(None).syscall(425, 1, ctypes.create_string_buffer(120)))
    if ring >= 0:
        os.close(ring)
    return ring >= 0


def test_x90_the_error_names_a_process_whose_socket_does_not_listen() -> None:
    port = free_port()
    with socket.socket() as kept:
        kept.bind(("127.0.0.1", port))
        assert f"(process {os.getpid()} of account " in holder(port)


def test_x80_a_program_that_is_no_task_run_of_the_cluster_keeps_its_port(
    tmp_path: Path, signpost: Signpost
) -> None:
    home, records = a_home(tmp_path)
    port = free_port()
    # The marker is that of an attempt of which no worker of this home has a record.
    with a_listener(port, signpost, execute_path=tmp_path / "other") as process:
        assert free_of_tasks(port, home=home, server=SERVER) is None
        assert process.poll() is None
    assert records.ended_for(7) is None


@only_root
def test_x80_a_process_of_another_account_with_a_copied_marker_is_not_ended(
    tmp_path: Path, signpost: Signpost
) -> None:
    home, records = a_home(tmp_path)
    tmp_path.chmod(0o755)
    os.chown(tmp_path / "attempt", 61_234, 61_234)
    port = free_port()
    copied = a_listener(port, signpost, execute_path=tmp_path / "attempt", account=61_235)
    with copied as process:
        assert free_of_tasks(port, home=home, server=SERVER) is None
        assert process.poll() is None
    assert records.ended_for(7) is None


def test_x80_the_attempt_of_such_a_task_run_fails_with_the_reason(
    tmp_path: Path, signpost: Signpost
) -> None:
    home, port = tmp_path / "home", free_port()
    host = Host(tmp_path / "worker")
    (home / "tasks" / "records").mkdir(parents=True)
    (home / "tasks" / "records" / "1234").symlink_to(tmp_path / "worker" / "tasks" / "records")
    program = tmp_path / "listener.py"
    program.write_text(_LISTENER, encoding="utf-8")
    script = f"sleep 600 | {sys.executable} {program} {os.geteuid()} {port} {signpost.path} & wait"
    try:
        host.begin(host.task(1, script))
        assert signpost.wait() == "listens"
        assert free_of_tasks(port, home=home, server=SERVER) == Freed(task_ids=(1,))
        end = host.end_of(1)
    finally:
        host.supervisor.kill_all()
        host.until(lambda: not host.supervisor.running())
        host.supervisor.close()
    assert (end.state, end.reason) == (TaskState.FAILURE, f"held the port {port} of {SERVER}")
