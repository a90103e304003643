"""A task that connects to the Spark driver of another account is ended; nothing else is.

The driver is a program that listens and is a child of this process, which stands for a Spark host.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from common.clock import SystemClock
from tests.integration.foreign_clients import (
    AS_ACCOUNT,
    CLIENT,
    DEV,
    OPS,
    PROD,
    World,
    a_program,
)
from tests.integration.recorded_attempts import a_home
from worker.loops.port_guard_loop import PortGuardLoop
from worker.processes.marks import mark_of

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be other accounts")

_DRIVER = f"""{AS_ACCOUNT}
door = socket.create_server((way, int(port)), backlog=1)
print(door.getsockname()[1], flush=True)
sys.stdin.read()
"""
_HIDDEN: Mapping[str, str] = {
    "sent": """
pair = socket.socketpair()
socket.send_fds(pair[0], [b"x"], [kept.fileno()])
kept.close()
""",
    "in a call": """
thread = threading.Thread(target=kept.recv, args=(1,), daemon=True)
thread.start()
while open(f"/proc/self/task/{thread.native_id}/syscall").read().split()[0] in ("running", "202"):
    os.sched_yield()
os.close(kept.fileno())
""",
    "of a thread": """
ready = threading.Event()
def hold():
    ctypes.CDLL(None).unshare(0x400)
    ready.set()
    threading.Event().wait()
threading.Thread(target=hold, daemon=True).start()
ready.wait()
kept.close()
""",
}


HOST = World(hosts=frozenset({os.getpid()}))
OTHERS = World(hosts=frozenset({1}))
ALONE = World(hosts=HOST.hosts, accounts=(DEV,))


@contextmanager
def a_driver(account: int = PROD, *, address: str = "127.0.0.1") -> Iterator[int]:
    """Listen as an account, never accept a connection, and yield the port."""
    with a_program(_DRIVER, account, way=address) as (process, port):
        yield int(port)
        assert process.poll() is None


def guard(home: Path, world: World = HOST) -> None:
    PortGuardLoop(home, world, world, clock=SystemClock()).run_once()


@pytest.mark.parametrize("number", [1, 4], ids=["in the queue", "beyond the queue"])
def test_x114_a_task_that_is_connected_to_the_driver_of_another_account_is_ended(
    tmp_path: Path, number: int
) -> None:
    home, records = a_home(tmp_path, account=DEV)
    attempt = tmp_path / "attempt"
    with a_driver() as port, ExitStack() as stack:
        started = [
            stack.enter_context(a_program(CLIENT, DEV, port=port, attempt=attempt))
            for _ in range(number)
        ]
        assert [said for _, said in started] == ["connected"] * number
        guard(home)
        assert [each.wait() for each, _ in started] == [-signal.SIGKILL] * number
    reason = f"was connected to the port {port} of a Spark driver of account {PROD}"
    assert records.ended_for(7) == reason


@pytest.mark.parametrize("way", _HIDDEN)
def test_x114_a_task_that_hides_its_connection_is_ended(tmp_path: Path, way: str) -> None:
    home, records = a_home(tmp_path, account=DEV)
    attempt = tmp_path / "attempt"
    with (
        a_driver() as port,
        a_program(CLIENT, DEV, port=port, way=_HIDDEN[way], attempt=attempt) as (client, said),
    ):
        assert said == "connected"
        guard(home)
        assert client.wait() == -signal.SIGKILL
    assert f"the port {port} of a Spark driver of account {PROD}" in str(records.ended_for(7))


def test_x114_a_process_that_an_ended_task_has_left_is_ended(tmp_path: Path) -> None:
    home, records = a_home(tmp_path, account=DEV)
    mark = mark_of("/an/attempt/without/a/record")
    with a_driver() as port, a_program(CLIENT, DEV, port=port, mark=mark) as (client, said):
        assert said == "connected"
        guard(home)
        assert client.wait() == -signal.SIGKILL
    assert records.ended_for(7) is None


@contextmanager
def a_server_that_connects(port: int) -> Iterator[subprocess.Popen[str]]:
    """Run a program that the table of processes shows as Java, a child of the host."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        java = Path(shutil.copy(shutil.which("bash") or "/bin/bash", f"{folder}/java"))
        Path(folder).chmod(0o755)
        connect = f"exec 3<>/dev/tcp/127.0.0.1/{port}; echo connected; read -r"
        process = subprocess.Popen(
            [java, "-c", connect],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            user=DEV,
            group=DEV,
            extra_groups=[],
        )
        with process:
            assert process.stdout is not None
            assert process.stdout.readline() == "connected\n"
            yield process


@pytest.mark.parametrize(("world", "is_ended"), [(HOST, True), (OTHERS, False)])
def test_x122_a_spark_server_that_is_connected_to_one_of_another_account_is_ended(
    tmp_path: Path, world: World, is_ended: bool
) -> None:
    """Code of a task runs in the JVM of the server of its account."""
    home, records = a_home(tmp_path, account=DEV)
    with a_driver() as port, a_server_that_connects(port) as server:
        guard(home, world)
        if is_ended:
            assert server.wait(20) == -signal.SIGKILL
        else:
            assert server.poll() is None
            server.kill()
    assert records.ended_for(7) is None


@pytest.mark.parametrize(
    ("account", "address", "world", "attempt_of"),
    [
        pytest.param(PROD, "127.0.0.1", HOST, PROD, id="a task of the same account"),
        pytest.param(0, "127.0.0.1", HOST, DEV, id="root"),
        pytest.param(OPS, "127.0.0.1", HOST, None, id="a program of no task"),
        pytest.param(DEV, "0.0.0.0", HOST, DEV, id="a service for others"),
        pytest.param(DEV, "127.0.0.1", OTHERS, DEV, id="a port of no driver"),
        pytest.param(DEV, "127.0.0.1", ALONE, DEV, id="not looked for with one account"),
    ],
)
def test_x114_other_connections_stay(
    tmp_path: Path, account: int, address: str, world: World, attempt_of: int | None
) -> None:
    home, records = a_home(tmp_path, account=attempt_of or DEV)
    attempt = tmp_path / "attempt" if attempt_of is not None else None
    with (
        a_driver(address=address) as port,
        a_program(CLIENT, account, port=port, attempt=attempt) as (client, said),
    ):
        assert said == "connected"
        guard(home, world)
        assert client.poll() is None
    assert records.ended_for(7) is None
