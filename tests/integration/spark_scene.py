"""Tests that play a scene on the parts of a Spark host, each in a process of its own.

Probes and tasks can only be forked off a process that was started with room for a marker. The parts are
in `spark_stage`, which only that process imports: they come with the modules of Spark.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from worker.spark.host.forking import room_for_marker
from worker.spark.host.preload import ENVIRONMENT

if TYPE_CHECKING:
    from tests.integration.spark_stage import Stage

_PLAY = "import sys; from tests.integration.spark_stage import play; play(*sys.argv[1:])"
PATIENCE_SECONDS = 250.0
scenes: dict[str, Callable[[Stage], None]] = {}


def scene(played: Callable[[Stage], None]) -> Callable[[Path], None]:
    """A test that plays this in a process of its own."""
    scenes[played.__name__] = played

    def test(tmp_path: Path) -> None:
        done = subprocess.run(
            [sys.executable, "-c", _PLAY, played.__module__, played.__name__, str(tmp_path)],
            env={**os.environ, **ENVIRONMENT, **room_for_marker()},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=2 * PATIENCE_SECONDS,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr

    test.__name__ = played.__name__
    test.__doc__ = played.__doc__
    return test
