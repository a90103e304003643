"""The process that queries brokers for the master: its rights and its life cycle."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from common.clock import SystemClock
from common.least_rights import give_up_rights
from common.model.streams.consumer import ClientProperties
from master.loops.broker_process import BrokerProcess, read_answer
from master.loops.streams import StreamUnreachableError
from master.supervisors.view import StreamSnapshot
from tests.mock_kafka import Broker, a_broker

FOUND = StreamSnapshot(earliest={0: 0}, latest={0: 1})


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with a_broker() as made:
        made.create("events", 1)
        made.produce("events", 0, [b"x"])
        yield made


@pytest.fixture
def process() -> Iterator[BrokerProcess]:
    made = BrokerProcess(clock=SystemClock(), question_seconds=20)
    yield made
    made.close()


def at(servers: str, **more: str) -> ClientProperties:
    named = {name.replace("_", "."): value for name, value in more.items()}
    return ClientProperties(given={"bootstrap.servers": servers, **named})


def status(pid: int) -> dict[str, str]:
    lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def test_the_process_has_an_empty_environment_and_no_rights_x33(
    process: BrokerProcess, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ORCAFLOW_DATABASE__URL", "postgresql://u:hunter2@db/orcaflow")
    assert process.ask("events", at(broker.servers)) == FOUND
    pid = process.pid
    assert pid is not None
    about = Path(f"/proc/{pid}")
    if os.geteuid() == 0:
        assert (about / "environ").read_bytes() == b""
        assert (about / "cwd").readlink() == Path("/")
        assert sorted(each.name for each in (about / "fd").iterdir()) == ["0", "1", "2"]
        assert status(pid)["Uid"].split() == ["65534"] * 4
    assert b"hunter2" not in (about / "cmdline").read_bytes()
    assert status(pid)["NoNewPrivs"] == "1"
    assert int(status(pid)["CapPrm"], 16) == 0


def test_the_process_can_not_read_a_home_x33(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    secret = home / "postgres.password"
    secret.write_text("hunter2")
    # All accounts may read the files, so only Landlock can deny the access.
    for each in (secret, home, *tmp_path.parents):
        if each.stat().st_uid == os.geteuid() and each.is_relative_to("/tmp"):
            each.chmod(0o755)
    told, tells = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            done = give_up_rights(libraries=(Path(os.__file__).parent,), most_memory_bytes=2**32)
            opened = []
            for path in (secret, Path.home() / ".profile", Path("/proc/1/environ")):
                try:
                    path.read_bytes()
                    opened.append(str(path))
                except OSError:
                    pass
            os.write(tells, f"{done['landlock']} {opened}".encode())
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    landlock, _, opened_files = os.read(told, 10_000).decode().partition(" ")
    if landlock == "0":
        pytest.skip("this kernel has no Landlock")
    assert opened_files == "[]"


def test_what_is_not_allowed_is_refused_by_the_process_itself(process: BrokerProcess) -> None:
    with pytest.raises(StreamUnreachableError, match=r"plugin\.library\.paths is not allowed"):
        process.ask("events", at("b:1", plugin_library_paths="x"))


def test_a_process_that_is_killed_is_started_again(process: BrokerProcess, broker: Broker) -> None:
    assert process.ask("events", at(broker.servers)) == FOUND
    first = process.pid
    assert first is not None
    os.kill(first, signal.SIGKILL)
    assert process.ask("events", at(broker.servers)) == FOUND
    assert process.pid != first
    process.close()
    with pytest.raises(StreamUnreachableError, match="the master stops"):
        process.ask("events", at(broker.servers))


def test_a_question_that_hangs_is_ended_and_keeps_no_other_waiting(broker: Broker) -> None:
    process = BrokerProcess(clock=SystemClock(), question_seconds=1)
    try:
        with socket.create_server(("127.0.0.1", 0)) as silent:
            servers = f"127.0.0.1:{silent.getsockname()[1]}"
            with pytest.raises(StreamUnreachableError, match="ended without an answer"):
                process.ask("events", at(servers))
        pid = process.pid
        assert process.ask("events", at(broker.servers)) == FOUND
        assert process.pid == pid
    finally:
        process.close()


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"[]",
        b"7",
        b"[" * 100_000,
        b'{"earliest": {}}',
        b'{"earliest": {"0": -1}, "latest": {}}',
        b'{"earliest": {"0": 99999999999999999999}, "latest": {}}',
        b'{"earliest": {"x": 0}, "latest": {}}',
        b'{"earliest": 5, "latest": {}}',
    ],
)
def test_an_answer_that_makes_no_sense_is_none(answer: bytes) -> None:
    with pytest.raises(StreamUnreachableError, match="without an answer"):
        read_answer(answer)


def test_a_reason_is_short_and_one_line() -> None:
    with pytest.raises(StreamUnreachableError) as caught:
        read_answer(b'{"refused": "a\\nb' + b"c" * 10_000 + b'"}')
    assert str(caught.value).startswith("a b")
    assert len(str(caught.value)) == 2_000
