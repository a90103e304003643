"""The socket of datasets: its loop."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from common.clock import SystemClock
from worker.datasets.server import DatasetServer


def test_the_first_pass_waits_for_no_request_so_that_its_daemon_is_ready_soon(
    tmp_path: Path,
) -> None:
    server = DatasetServer(
        tmp_path,
        key=b"k" * 32,
        answer=lambda _task, _account, _request: {},
        runs_here=lambda _task: True,
        clock=SystemClock(),
        for_tenants=False,
        patience=timedelta(days=1),
    )
    try:
        assert server.run_once() == timedelta()
    finally:
        server.close()
