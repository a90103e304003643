"""The end of a private driver's JVM, as the Python process beside it sees it."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from py4j.clientserver import (
    ClientServer,
    ClientServerConnection,
    JavaParameters,
    PythonParameters,
)
from py4j.java_gateway import GatewayClient, GatewayConnection, GatewayParameters
from py4j.protocol import ERROR, Py4JNetworkError

from worker.spark.jvm.gateway import Started
from worker.spark.jvm.own_connections import check_connections


@pytest.fixture(autouse=True)
def _filters_of_the_root_logger() -> Iterator[None]:
    """Take back the filters that a test has added."""
    root = logging.getLogger()
    before = list(root.filters)
    yield
    root.filters[:] = before


def call_that_breaks_off() -> None:
    """Call a JVM that ends before it answers, as py4j's threads may at the end of a task."""
    with socket.create_server(("127.0.0.1", 0)) as door:

        def end_amid_the_call() -> None:
            link, _ = door.accept()
            # Closed with something unread, a connection is reset.
            link.recv(1, socket.MSG_PEEK)
            link.close()

        jvm = threading.Thread(target=end_amid_the_call)
        jvm.start()
        address, port = door.getsockname()
        parameters = GatewayParameters(address=address, port=port)
        assert GatewayClient(gateway_parameters=parameters).send_command("m\nd\no1\ne\n") == ERROR
        jvm.join()


@pytest.fixture
def _authentication() -> Iterator[None]:
    """Take back the check that a test has added."""
    kinds = (ClientServerConnection, GatewayConnection)
    before = [kind._authenticate_connection for kind in kinds]
    yield
    for kind, method in zip(kinds, before, strict=True):
        kind._authenticate_connection = method


def client_server(port: int) -> None:
    """Connect as sessions in a warm server do."""
    gateway = ClientServer(
        JavaParameters(port=port, auth_token="secret"), PythonParameters(port=0, eager_load=False)
    )
    try:
        gateway.jvm.System.nanoTime()
    finally:
        gateway.close()


def gateway_client(port: int) -> None:
    """Connect as drivers without a thread of Java for each of Python's do."""
    parameters = GatewayParameters(port=port, auth_token="secret")
    GatewayClient(gateway_parameters=parameters).send_command("m\nd\no1\ne\n")


@pytest.mark.skipif(os.geteuid() != 0, reason="listens as another account")
@pytest.mark.usefixtures("_authentication")
@pytest.mark.parametrize("connect", [client_server, gateway_client])
def test_x119_another_account_at_the_port_of_a_jvm_gets_no_secret(
    connect: Callable[[int], None],
) -> None:
    check_connections()
    check_connections()
    os.seteuid(65534)
    try:
        rogue = socket.create_server(("127.0.0.1", 0))
    finally:
        os.seteuid(0)
    with rogue:
        rogue.settimeout(20)
        with pytest.raises((ConnectionRefusedError, Py4JNetworkError)) as raised:
            connect(rogue.getsockname()[1])
        assert "belongs to account number 65534" in str(raised.getrepr(chain=True))
        with rogue.accept()[0] as accepted:
            accepted.setblocking(False)
            # Nothing was sent. The connection may be open as long as the error is kept.
            with contextlib.suppress(BlockingIOError):
                assert accepted.recv(100) == b""


def test_a_call_that_the_end_of_the_jvm_breaks_off_leaves_no_traceback_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR):
        call_that_breaks_off()
        assert caplog.messages == ["Exception while sending command."]
        caplog.clear()
        jvm = subprocess.Popen(["cat"], stdin=subprocess.PIPE)
        assert Started(jvm, tmp_path / "gateway").close() == 0
        call_that_breaks_off()
        logging.getLogger().error("the author's own")
        assert caplog.messages == ["the author's own"]
