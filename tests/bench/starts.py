"""The time until something answers: a standalone cluster, the command line.

`first_start` is that of a home which doesn't exist yet, `start` that of one which was stopped; each
until the command has returned, which it does when the daemons are ready. Both have a cluster of
their own. The commands ask the cluster of the stage.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.bench import cluster
from tests.bench.figures import Figure, Target, percentile
from tests.bench.stage import Stage

_COMMANDS: dict[str, tuple[Sequence[str], float]] = {
    "help": (("--help",), 0.15),
    "instance_list": (("instance", "list"), 0.4),
}
_TIMES = 5


def measure(stage: Stage, runs: int) -> list[Figure]:
    first: list[float] = []
    again: list[float] = []
    for _ in range(runs):
        with tempfile.TemporaryDirectory(prefix="orcaflow-bench-") as folder:
            seconds = _of_cluster(cluster.environment_of(Path(folder), {}))
            first.append(seconds[0])
            again.append(seconds[1])
    python = [percentile([_seconds(_bare_python) for _ in range(_TIMES)], 50) for _ in range(runs)]
    return [
        Figure(name="starts.first_start", unit="s", values=tuple(first)),
        Figure(name="starts.start", unit="s", values=tuple(again), target=Target(limit=4)),
        *(
            Figure(
                name=f"starts.{name}",
                unit="s",
                values=tuple(_of_command(stage, arguments) for _ in range(runs)),
                target=Target(limit=limit),
            )
            for name, (arguments, limit) in _COMMANDS.items()
        ),
        Figure(name="floor.starts.python", unit="s", values=tuple(python)),
    ]


def _of_cluster(environment: dict[str, str]) -> tuple[float, float]:
    """The first start of a home and the next."""
    try:
        first = _seconds(lambda: _operate(environment, "start", "--free-ports"))
        _operate(environment, "stop")
        return first, _seconds(lambda: _operate(environment, "start"))
    finally:
        _operate(environment, "stop", "--now")


def _of_command(stage: Stage, arguments: Sequence[str]) -> float:
    command = [str(cluster.ROOT / ".venv" / "bin" / "orcaflow"), *arguments]
    return percentile([_seconds(lambda: stage.cluster.execute(command)) for _ in range(_TIMES)], 50)


def _bare_python() -> None:
    subprocess.run([sys.executable, "-c", ""], check=True)


def _operate(environment: dict[str, str], verb: str, *options: str) -> None:
    cluster.operate(environment, verb, "standalone-server", *options)


def _seconds(work: Callable[[], object]) -> float:
    began = time.monotonic()
    work()
    return time.monotonic() - began
