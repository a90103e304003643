"""A hundred tasks in a line: the gap between the end of a task and the start of its successor (W1)."""

from __future__ import annotations

from tests.bench import definitions
from tests.bench.figures import Figure, Target, against_floor, percentile
from tests.bench.floor import bare
from tests.bench.moments import chain_gaps_ms, count
from tests.bench.stage import PATIENCE_SECONDS, Stage

LENGTH = 100
_LIMIT = 1.5
_TARGETS = {50: Target(limit=12), 95: Target(limit=40)}


def measure(stage: Stage, runs: int) -> list[Figure]:
    definition = stage.database.define("chain", definitions.chain(LENGTH, stage.moments.probed()))
    measured: list[list[float]] = []
    floors: list[list[float]] = []
    with bare(stage) as floor:
        for _ in range(runs):
            floors.append(floor.chain(LENGTH, stage.moments.probed(name="{name}")))
            measured.append(gaps_of_run(stage, definition, LENGTH))
    stage.database.check_success(definition)
    return gap_figures("chain", measured, floors)


def gaps_of_run(stage: Stage, definition: int, length: int) -> list[float]:
    """Run a chain; its gaps in milliseconds."""
    stage.moments.forget()
    stage.database.start(definition)
    seen = stage.moments.until(
        lambda moments: count(moments, "end") == length, within=PATIENCE_SECONDS
    )
    stage.database.await_ends(1, within=PATIENCE_SECONDS)
    return chain_gaps_ms(seen, length)


def gap_figures(name: str, measured: list[list[float]], floors: list[list[float]]) -> list[Figure]:
    """The gaps of several runs at two percentiles, with their floors."""
    return [
        figure
        for share, target in _TARGETS.items()
        for figure in against_floor(
            f"{name}.gap_p{share}",
            "ms",
            [percentile(gaps, share) for gaps in measured],
            [percentile(gaps, share) for gaps in floors],
            limit=Target(limit=_LIMIT),
            target=target,
        )
    ]
