"""The free ports of a home: the same at each start, while they are free."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from operations.free_ports import FreePorts


def test_a_home_has_the_ports_again_that_it_had_first(tmp_path: Path) -> None:
    said: list[str] = []

    def ports() -> FreePorts:
        return FreePorts(tmp_path, notify=said.append)

    worker, api = ports().port_of("worker-server", []), ports().port_of("api-server", [])
    second = ports().port_of("worker-server", [worker])
    assert len({worker, api, second}) == 3
    assert [
        ports().port_of("worker-server", []),
        ports().port_of("worker-server", [worker]),
        ports().port_of("worker-server", [second]),
        ports().port_of("api-server", []),
    ] == [worker, second, worker, api]
    assert said == []


def test_a_port_that_another_program_has_is_replaced_and_reported(tmp_path: Path) -> None:
    said: list[str] = []
    ports = FreePorts(tmp_path, notify=said.append)
    first = ports.port_of("api-server", [])
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", first))
        taken.listen()
        other = ports.port_of("api-server", [])
    assert other != first
    (told,) = said
    assert (f"port {first}" in told, f"it gets {other}" in told) == (True, True)
    # From now on the home has the new one.
    assert ports.port_of("api-server", []) == other


@pytest.mark.parametrize("text", ["", "[]", '{"api-server": 7}', '{"api-server": ["x", 0, 99999]}'])
def test_a_file_of_ports_that_is_spoilt_is_written_anew(tmp_path: Path, text: str) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "free-ports.json").write_text(text)
    ports = FreePorts(tmp_path, notify=lambda _: None)
    assert ports.port_of("api-server", []) == ports.port_of("api-server", [])
