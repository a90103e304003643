"""One command at a time: from the commit of its row to the start of its task's process."""

from __future__ import annotations

from tests.bench import definitions
from tests.bench.figures import Figure, Target, percentile
from tests.bench.moments import of
from tests.bench.stage import PATIENCE_SECONDS, Stage

TIMES = 50


def measure(stage: Stage, runs: int) -> list[Figure]:
    definition = stage.database.define("single", definitions.chain(1, stage.moments.probed()))
    medians: list[float] = []
    for _ in range(runs):
        latencies: list[float] = []
        for _ in range(TIMES):
            stage.moments.forget()
            committed = stage.database.start(definition)
            seen = stage.moments.until(bool, within=PATIENCE_SECONDS)
            stage.database.await_ends(1, within=PATIENCE_SECONDS)
            latencies.append((of(seen, "begin")["t0"] - committed) * 1000)
        medians.append(percentile(latencies, 50))
    stage.database.check_success(definition)
    return [
        Figure(
            name="trigger.latency_p50", unit="ms", values=tuple(medians), target=Target(limit=25)
        )
    ]
