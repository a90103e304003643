"""A hundred tasks in a line: the gap between the end of a task and the start of its successor."""

from __future__ import annotations

from tests.bench import definitions
from tests.bench.figures import Figure, Target, gaps, percentile
from tests.bench.moments import Moment, count, of
from tests.bench.stage import PATIENCE_SECONDS, Stage

LENGTH = 100


def measure(stage: Stage, runs: int) -> list[Figure]:
    definition = stage.database.define("chain", definitions.chain(LENGTH, stage.moments.probed()))
    measured: list[list[float]] = []
    for _ in range(runs):
        stage.moments.forget()
        stage.database.start(definition)
        seen = stage.moments.until(
            lambda moments: count(moments, "end") == LENGTH, within=PATIENCE_SECONDS
        )
        stage.database.await_ends(1, within=PATIENCE_SECONDS)
        measured.append(gaps_ms(seen))
    stage.database.check_success(definition)
    return figures("chain", measured, Target(limit=12), Target(limit=40))


def gaps_ms(moments: list[Moment]) -> list[float]:
    """The gaps of one run of a chain whose tasks are `t0`, `t1`, …."""
    begins, ends = of(moments, "begin"), of(moments, "end")
    names = [f"t{n}" for n in range(LENGTH)]
    found = gaps([ends[name] for name in names], [begins[name] for name in names])
    return [gap * 1000 for gap in found]


def figures(
    name: str, measured: list[list[float]], p50: Target | None, p95: Target | None
) -> list[Figure]:
    """The two figures of the gaps of several runs."""
    return [
        Figure(
            name=f"{name}.gap_p{share}",
            unit="ms",
            values=tuple(percentile(gaps_of_run, share) for gaps_of_run in measured),
            target=target,
        )
        for share, target in ((50, p50), (95, p95))
    ]
