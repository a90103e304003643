"""Loops run in threads, rest, are woken, and stop the daemon when they die."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from common.errors import ConfigurationError, ServiceUnreachableError
from common.registry.protocol import AddressInUseError
from common.runtime import health
from common.runtime.health import HealthServer, Problem
from common.runtime.service import Service, StopRequestedError

LONG = timedelta(hours=1)
PATIENCE_SECONDS = 30


class HandMovedClock:
    def __init__(self) -> None:
        self.seconds = 0.0

    def now(self) -> datetime:
        return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=self.seconds)

    def monotonic(self) -> float:
        return self.seconds


class RecordingLoop:
    """Counts its passes, and lets a test wait for the end of one."""

    def __init__(self, name: str, rest: timedelta = LONG, then: Callable[[], None] = lambda: None):
        self.name = name
        self.passes = threading.Semaphore(0)
        self.seen = False
        self._rest = rest
        self._then = then

    def run_once(self) -> timedelta:
        self._then()
        self.passes.release()
        return self._rest

    def wait_for_pass(self) -> bool:
        return self.passes.acquire(timeout=PATIENCE_SECONDS)


@pytest.fixture
def service() -> Iterator[Service]:
    service = Service()
    yield service
    service.stop()


def raising(error: BaseException) -> Callable[[], None]:
    def fail() -> None:
        raise error

    return fail


def test_a_loop_goes_again_at_once_when_it_does_not_want_to_rest(service: Service) -> None:
    loop = RecordingLoop("busy", rest=timedelta())
    service.add(loop)
    service.start()
    assert all(loop.wait_for_pass() for _ in range(100))


def test_waking_cuts_a_rest_short(service: Service) -> None:
    loop = RecordingLoop("resting")
    thread = service.add(loop)
    service.start()
    assert loop.wait_for_pass()
    thread.wake()
    assert loop.wait_for_pass()


def test_a_wake_during_a_pass_is_followed_by_another_pass(service: Service) -> None:
    wakes = [True]
    loop = RecordingLoop("woken", then=lambda: thread.wake() if wakes.pop() else None)
    wakes.insert(0, False)
    thread = service.add(loop)
    service.start()
    assert loop.wait_for_pass()
    assert loop.wait_for_pass()


def test_parts_are_stopped_in_the_reverse_order_of_their_start() -> None:
    service, order = Service(), []
    service.on_stop("database", lambda: order.append("database"))
    first = service.add(RecordingLoop("first"))
    service.on_stop("session", lambda: order.append(f"session, first {first.join(timedelta())}"))
    second = service.add(RecordingLoop("second"))
    service.on_stop("port", lambda: order.append(f"port, second {second.join(timedelta())}"))
    service.start()
    assert service.stop()
    assert order == ["port, second False", "session, first False", "database"]
    assert first.join(timedelta())
    assert second.join(timedelta())


def test_a_part_that_can_not_be_closed_does_not_keep_the_others_open() -> None:
    service, order = Service(), []
    service.on_stop("database", lambda: order.append("database"))
    service.on_stop("session", raising(OSError("gone")))
    assert not service.stop()
    assert order == ["database"]


def test_stopping_ends_by_its_deadline_even_if_a_loop_hangs() -> None:
    let_go = threading.Event()
    loop = RecordingLoop("hanging", then=lambda: assert_set(let_go))
    service = Service(stop_within=timedelta(milliseconds=20))
    thread = service.add(loop)
    service.start()
    assert not service.stop()
    let_go.set()
    assert thread.join(timedelta(seconds=PATIENCE_SECONDS))


def assert_set(event: threading.Event) -> None:
    assert event.wait(PATIENCE_SECONDS)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_the_daemon_with_exit_code_0(number: signal.Signals) -> None:
    closed: list[str] = []
    service = Service()
    service.on_stop("database", lambda: closed.append("database"))
    service.add(RecordingLoop("signalling", then=lambda: os.kill(os.getpid(), number)))
    before = signal.getsignal(number)
    assert service.run() == 0
    assert closed == ["database"]
    assert signal.getsignal(number) is before


def test_a_signal_that_interrupts_no_wait_of_the_main_thread_is_obeyed_all_the_same() -> None:
    """As a wake that comes just before the wait begins, or that another thread gets."""
    waiting = Service._wait_for_the_end.__code__

    class TakesTheSignal:
        name = "takes the signal"

        def run_once(self) -> timedelta:
            main = sys._current_frames()[threading.main_thread().ident or 0]
            if main.f_code is not waiting:
                return timedelta(milliseconds=1)
            signal.pthread_kill(threading.get_ident(), signal.SIGTERM)
            return timedelta(hours=1)

    service = Service()
    service.add(TakesTheSignal())
    guard = threading.Timer(PATIENCE_SECONDS, service.fail, ("signal", "not noticed"))
    guard.start()
    assert service.run() == 0
    guard.cancel()


@pytest.mark.parametrize("error", [ValueError("broken"), SystemExit(0)])
def test_a_loop_that_dies_stops_the_daemon_with_exit_code_1(
    error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    service = Service()
    other = RecordingLoop("healthy")
    thread = service.add(other)
    service.add(RecordingLoop("doomed", then=raising(error)))
    assert service.run() == 1
    assert thread.join(timedelta())
    assert service.problems() == [Problem(part="doomed", why=f"died of {type(error).__name__}")]
    (logged,) = [record for record in caplog.records if record.getMessage() == "loop died"]
    assert logged.exc_info is not None
    assert logged.exc_info[1] is error


def test_any_part_may_fail_the_daemon() -> None:
    service = Service()
    loop = RecordingLoop("finding", then=lambda: service.fail("schema", "is too new"))
    service.add(loop)
    assert service.run() == 1
    assert service.problems() == [Problem(part="schema", why="is too new")]


def test_ready_means_that_every_loop_has_passed_and_none_is_stuck() -> None:
    clock, let_go = HandMovedClock(), threading.Event()
    entered = threading.Semaphore(0)

    def hang_in_the_second_pass() -> None:
        entered.release()
        if loop.seen:
            assert_set(let_go)
        loop.seen = True

    loop = RecordingLoop("command_loop", rest=timedelta(), then=hang_in_the_second_pass)
    service = Service(clock=clock, stuck_after=timedelta(seconds=30))
    service.add(loop)
    assert service.problems() == [Problem(part="daemon", why="starting")]
    service.start()
    assert loop.wait_for_pass()
    assert all(entered.acquire(timeout=PATIENCE_SECONDS) for _ in range(2))
    assert service.problems() == []
    clock.seconds = 29.0
    assert service.problems() == []
    clock.seconds = 31.0
    assert service.problems() == [Problem(part="command_loop", why="stuck for 31 s")]
    let_go.set()
    service.stop()
    assert service.problems() == [Problem(part="daemon", why="stopping")]


def test_a_loop_that_has_not_passed_yet_keeps_the_daemon_from_being_ready() -> None:
    let_go = threading.Event()
    service = Service()
    service.add(RecordingLoop("command_loop", then=lambda: assert_set(let_go)))
    service.start()
    problems = service.problems()
    let_go.set()
    service.stop()
    assert problems == [Problem(part="command_loop", why="has not completed a pass yet")]


def test_a_check_keeps_the_daemon_from_being_ready(service: Service) -> None:
    reasons: list[str | None] = ["suspended"]
    service.ready_if("zookeeper", lambda: reasons[0])
    service.start()
    assert service.problems() == [Problem(part="zookeeper", why="suspended")]
    reasons[0] = None
    assert service.problems() == []


def fetch(server: HealthServer, path: str, method: str = "GET") -> tuple[int, str]:
    request = urllib.request.Request(f"http://127.0.0.1:{server.port}{path}", method=method)
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE_SECONDS) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_health_and_metrics_are_served_over_http(service: Service) -> None:
    reasons: list[str | None] = ["suspended"]
    service.ready_if("zookeeper", lambda: reasons[0])
    service.start()
    server = HealthServer(service, host="127.0.0.1", port=0)
    server.start()
    service.on_stop("health", server.stop)
    status, body = fetch(server, "/readyz")
    document: dict[str, Any] = json.loads(body)
    assert (status, document["problems"]) == (503, [{"part": "zookeeper", "why": "suspended"}])
    reasons[0] = None
    assert fetch(server, "/readyz") == (200, '{"status": "ok"}\n')
    assert fetch(server, "/livez") == (200, '{"status": "ok"}\n')
    status, body = fetch(server, "/metrics")
    assert status == 200
    for name in ("ds_command_backlog", "ds_takeovers_total", "process_resident_memory_bytes"):
        assert f"\n{name} " in body
    assert fetch(server, "/etc/passwd")[0] == 404
    assert fetch(server, "/livez", method="DELETE")[0] == 405


@pytest.mark.parametrize("sent", [b"", b"GET /livez HTTP/1.1\r\nA: b\r\n"])
def test_x60_the_port_of_a_daemon_answers_while_600_connections_send_nothing(
    service: Service, sent: bytes
) -> None:
    service.start()
    server = HealthServer(service, host="127.0.0.1", port=0)
    server.start()
    service.on_stop("health", server.stop)
    with ExitStack() as stack:
        silent = [
            stack.enter_context(socket.create_connection(("127.0.0.1", server.port)))
            for _ in range(600)
        ]
        for each in silent:
            with suppress(ConnectionError):
                each.sendall(sent)
        assert fetch(server, "/livez")[0] == 200
        assert sum(each.name.startswith("Thread-") for each in threading.enumerate()) < 200


def test_x61_a_request_of_a_daemon_has_a_time_however_slowly_it_comes(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "_HTTP_PATIENCE_SECONDS", 0.2)
    service.start()
    server = HealthServer(service, host="127.0.0.1", port=0)
    server.start()
    service.on_stop("health", server.stop)
    with socket.create_connection(("127.0.0.1", server.port)) as slow:
        slow.settimeout(0.01)
        for _ in range(1000):  # The time limit allows about 20.
            try:
                slow.sendall(b"G")
                assert not slow.recv(100)
            except TimeoutError:
                continue
            except ConnectionError:
                pass
            break
        else:
            pytest.fail("the connection is still open")


def test_a_port_in_use_is_named_with_the_cure(service: Service) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        cure = rf"127\.0\.0\.1:{port} .*--port or master\.port"
        with pytest.raises(ConfigurationError, match=cure):
            HealthServer(service, host="127.0.0.1", port=port, setting="master.port")


def test_an_idle_daemon_hardly_uses_the_processor() -> None:
    # Eight loops that rest: their threads may not wake before their time, on any machine.
    code = """
from datetime import timedelta
import os, resource, threading
from common.runtime.health import HealthServer
from common.runtime.service import Service

class Resting:
    def __init__(self, name): self.name = name
    def run_once(self): return timedelta(seconds=1)

service = Service()
for number in range(8):
    service.add(Resting(f"loop-{number}"))
server = HealthServer(service, host="127.0.0.1", port=0)
server.start()
before = resource.getrusage(resource.RUSAGE_SELF)
threading.Timer(1.5, service.request_stop).start()
service.run()
after = resource.getrusage(resource.RUSAGE_SELF)
server.stop()
print(after.ru_nvcsw - before.ru_nvcsw)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 150


def test_a_start_waits_for_a_server_that_is_away_and_tells_so() -> None:
    service = Service()
    told: list[list[Problem]] = []

    def reached() -> str:
        told.append(service.problems())
        if len(told) < 3:
            raise ServiceUnreachableError("ZooKeeper at z:1: no session")
        return "there"

    assert service.reach(reached) == "there"
    away = [Problem(part="servers", why="ZooKeeper at z:1: no session")]
    assert told[1:] == [away, away]
    assert service.problems() == [Problem(part="daemon", why="starting")]


def test_a_start_that_waits_can_be_stopped() -> None:
    service = Service()

    def stopped() -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        raise ServiceUnreachableError("PostgreSQL is away")

    with pytest.raises(StopRequestedError):
        service.reach(stopped)


def test_a_start_that_may_never_succeed_is_refused_at_once() -> None:
    def refused() -> None:
        raise AddressInUseError("w:1 is in use")

    with pytest.raises(AddressInUseError):
        Service().reach(refused)
