"""One command at a time: from the commit of its row to the start of its task's process (W4)."""

from __future__ import annotations

from tests.bench import definitions
from tests.bench.figures import Figure, Target, against_floor, percentile
from tests.bench.floor import bare
from tests.bench.moments import Moment, of
from tests.bench.stage import PATIENCE_SECONDS, Stage

TIMES = 50
_LIMIT = Target(limit=2)
_TARGETS = {50: Target(limit=25), 95: None}


def measure(stage: Stage, runs: int) -> list[Figure]:
    definition = define(stage)
    measured: list[list[float]] = []
    floors: list[list[float]] = []
    with bare(stage) as floor:
        for _ in range(runs):
            floors.append(floor.triggers(TIMES))
            measured.append(latencies_ms(stage, definition, TIMES))
    stage.database.check_success(definition)
    return [
        figure
        for share, target in _TARGETS.items()
        for figure in against_floor(
            f"trigger.latency_p{share}",
            "ms",
            [percentile(each, share) for each in measured],
            [percentile(each, share) for each in floors],
            limit=_LIMIT,
            target=target,
        )
    ]


def define(stage: Stage) -> int:
    return stage.database.define("single", definitions.chain(1, stage.moments.probed()))


def latencies_ms(stage: Stage, definition: int, times: int) -> list[float]:
    """From the commit to the start, one run after the other; each has ended before the next."""
    latencies: list[float] = []
    for _ in range(times):
        stage.moments.forget()
        committed = stage.database.start(definition)
        # What was measured before may still report its last moments.
        seen = stage.moments.until(_has_begun, within=PATIENCE_SECONDS)
        stage.database.await_ends(1, within=PATIENCE_SECONDS)
        latencies.append((of(seen, "begin")["t0"] - committed) * 1000)
    return latencies


def _has_begun(seen: list[Moment]) -> bool:
    return "t0" in of(seen, "begin")
