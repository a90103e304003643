"""Two gigabytes of output at full speed: the worker's memory, and the latency of its other tasks.

The loud task writes the same lines again and again until the latencies are measured, so it keeps a
processor busy, and the log is cut all the time. Beside it a task that writes as much to /dev/null
shows the share of that processor in the latencies.
"""

from __future__ import annotations

import time
from pathlib import Path

from tests.bench import definitions, trigger
from tests.bench.daemons import forget_peak, peak_mb, resident_mb
from tests.bench.figures import Figure, Target, percentile
from tests.bench.stage import PATIENCE_SECONDS, Stage, standing

_BYTES = 2_000_000_000
_TIMES = 50
_MOST_MB = 30
_MOST_TIMES = 1.5
_LOOK_SECONDS = 0.1


def measure(runs: int) -> list[Figure]:
    growth: list[float] = []
    beside: dict[str, list[float]] = {"alone": [], "quiet": [], "loud": []}
    with standing() as stage:
        live = trigger.define(stage)
        # The first of all runs meets daemons that have done nothing yet.
        trigger.latencies_ms(stage, live, _TIMES)
        for run in range(runs):
            beside["alone"].append(_p95(stage, live))
            for name, target in (("quiet", ">/dev/null"), ("loud", "")):
                sign = stage.cluster.home / f"{name}-{run}"
                writer = stage.database.define(
                    sign.name, definitions.chain(1, _script(sign, target))
                )
                pid = stage.cluster.worker_pid
                before = resident_mb(pid)
                forget_peak(pid)
                stage.database.start(writer)
                _await(sign.with_suffix(".begun"))
                beside[name].append(_p95(stage, live))
                _await(sign.with_suffix(".written"))
                sign.touch()
                stage.database.await_ends(1, within=PATIENCE_SECONDS)
                if name == "loud":
                    growth.append(peak_mb(pid) - before)
    return [
        Figure(name="loud.memory", unit="MB", values=tuple(growth), target=Target(limit=_MOST_MB)),
        Figure(
            name="loud.ratio_p95",
            unit="times",
            values=tuple(_ratios(beside["loud"], beside["quiet"])),
            target=Target(limit=_MOST_TIMES),
        ),
        *(
            Figure(name=f"loud.{name}_p95", unit="ms", values=tuple(values))
            for name, values in beside.items()
        ),
    ]


def _script(sign: Path, target: str) -> str:
    return (
        f"touch {sign}.begun; while :; do"
        f" yes 'a line of output that is neither short nor long' | head -c {_BYTES} {target};"
        f" touch {sign}.written; [ -e {sign} ] && break; done"
    )


def _ratios(above: list[float], below: list[float]) -> list[float]:
    return [high / low for high, low in zip(above, below, strict=True)]


def _p95(stage: Stage, live: int) -> float:
    return percentile(trigger.latencies_ms(stage, live, _TIMES), 95)


def _await(path: Path) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not path.exists():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{path.name} was not made")
        # A task says so by a file, which notifies nobody.
        time.sleep(_LOOK_SECONDS)
