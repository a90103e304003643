"""The end of a private driver's JVM, as the Python process beside it sees it."""

from __future__ import annotations

import logging
import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from py4j.java_gateway import GatewayClient, GatewayParameters
from py4j.protocol import ERROR

from worker.spark.jvm.gateway import Started


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
