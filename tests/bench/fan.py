"""The rate of two hundred parallel tasks, from the end of their root to the start of the join."""

from __future__ import annotations

from tests.bench import definitions
from tests.bench.figures import Figure, Target, rate
from tests.bench.moments import of
from tests.bench.stage import PATIENCE_SECONDS, Stage

WIDTH = 200


def measure(stage: Stage, runs: int) -> list[Figure]:
    definition = stage.database.define(
        "fan", definitions.fan(WIDTH, end_script=stage.moments.probed(), leaf_script="true")
    )
    rates: list[float] = []
    for _ in range(runs):
        stage.moments.forget()
        stage.database.start(definition)
        seen = stage.moments.until(
            lambda moments: "join" in of(moments, "begin"), within=PATIENCE_SECONDS
        )
        stage.database.await_ends(1, within=PATIENCE_SECONDS)
        rates.append(rate(WIDTH, of(seen, "begin")["join"] - of(seen, "end")["root"]))
    stage.database.check_success(definition)
    return [
        Figure(
            name="fan.rate",
            unit="tasks/s",
            values=tuple(rates),
            target=Target(limit=200, at_least=True),
        )
    ]
