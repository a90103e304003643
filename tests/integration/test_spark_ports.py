"""A Spark server at whose ports a program of another account listens first."""

from __future__ import annotations

import json
import logging
import socket
import sys
from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from tests.integration.spark_scene import scene
from tests.outsiders import AS_ROOT, Outsider, an_outsider
from worker.spark.host.connect_server import Door
from worker.spark.host.pool import Limits

if TYPE_CHECKING:
    from tests.integration.spark_stage import Stage
    from worker.spark.host.loop import Host
    from worker.spark.jvm.java_command import Command

pytestmark = AS_ROOT


@scene
def test_x100_an_outsider_at_a_port_of_a_starting_server_gets_no_token(stage: Stage) -> None:
    with ExitStack() as ends:
        found: list[Outsider] = []
        stage.before_start = lambda port, _: found.append(ends.enter_context(an_outsider(port)))
        server = stage.start()
        stage.until(lambda: stage.died)
        ((died, _),) = stage.died
        assert found[0].received() == ""
        assert died.lost_port
        assert died.how == f"its port {server.process.port} was taken by a program of nobody"
        # Its pages are where its own process listens.
        stage.before_start = lambda _, page: found.append(ends.enter_context(an_outsider(page)))
        page = int(stage.server().place().ui_link.rpartition(":")[2])
        assert page > found[1].port
        assert found[1].received() == ""


@scene
def test_x100_a_server_that_lost_its_port_is_started_again_with_another(stage: Stage) -> None:
    from tests.integration.spark_stage import mute, ports_in

    with ExitStack() as ends:
        started: list[int] = []
        outsiders: list[Outsider] = []
        lost = {0, 1, 3, 4, 5, 6, 7}

        def command(
            conf: Mapping[str, str], directory: Path, environment: Mapping[str, str]
        ) -> Command:
            port = ports_in(conf)[0]
            if len(started) in lost:
                outsiders.append(ends.enter_context(an_outsider(port)))
            started.append(port)
            return mute(conf, directory, environment)

        warnings = _warnings()
        host = _host(stage.directory, command, ends)
        while len(started) < 3:
            host.run_once()
        (server,) = host._servers._servers.values()
        while server.process.door() is not Door.OWN:
            host.run_once()
        assert len(set(started)) == 3
        assert not any(each.startswith("no server") for each in warnings)
        # All further starts lose their ports too.
        host._server_is_ready(server)
        server.process.stop(now=True)
        host._servers.stop(server.key, "the test")
        while not any(each.startswith("no server") for each in warnings):
            host.run_once()
        assert len(started) == 8
        assert "taken by a program of nobody" in warnings[-1]
        assert [each.received() for each in outsiders] == [""] * 7


def _host(
    directory: Path,
    command: Callable[[Mapping[str, str], Path, Mapping[str, str]], Command],
    ends: ExitStack,
) -> Host:
    """Return a host that keeps one server ready."""
    from tests.integration.spark_stage import a_plan
    from worker.spark.host.loop import Host
    from worker.spark.host.proxy_protocol import Link

    limits = Limits(
        revision="1", max_sessions=1, max_servers=1, idle_timeout=600, max_age=600, kept=True
    )
    profiles = {"default": {"plan": asdict(a_plan()), "limits": asdict(limits)}}
    host = Host(directory, python=sys.executable, command=command)
    own, daemon = socket.socketpair()
    ends.enter_context(daemon)
    ends.enter_context(closing(own))
    host._follow(Link(own), json.dumps({"profiles": profiles}))

    def end() -> None:
        host._is_ending = True
        host.run()

    ends.callback(end)
    return host


def _warnings() -> list[str]:
    """Return a list that the warnings of the host will be added to."""
    found: list[str] = []

    class Noting(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            found.append(f"{record.getMessage()}: {getattr(record, 'why', '')}")

    logging.getLogger("orcaflow").addHandler(Noting(logging.WARNING))
    return found
