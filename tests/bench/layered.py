"""A hundred instances of a layered DAG of ten tasks, submitted in one transaction.

The rate is that of all thousand tasks, from the commit to the moment at which the last instance is
reported ended; `first_start` is the time from the commit to the first process.
"""

from __future__ import annotations

from tests.bench import definitions
from tests.bench.figures import Figure, Target, rate
from tests.bench.moments import count
from tests.bench.stage import PATIENCE_SECONDS, Stage

INSTANCES = 100
LAYERS = (1, 3, 3, 2, 1)


def measure(stage: Stage, runs: int) -> list[Figure]:
    definition = stage.database.define(
        "layered",
        definitions.layered(LAYERS, first_script=stage.moments.probed(), script="true"),
    )
    rates: list[float] = []
    first_starts: list[float] = []
    for _ in range(runs):
        stage.moments.forget()
        committed = stage.database.start(definition, INSTANCES)
        ended = stage.database.await_ends(INSTANCES, within=PATIENCE_SECONDS)
        seen = stage.moments.until(
            lambda moments: count(moments, "begin") == INSTANCES, within=PATIENCE_SECONDS
        )
        rates.append(rate(INSTANCES * sum(LAYERS), ended - committed))
        first_starts.append(min(moment.at for moment in seen) - committed)
    stage.database.check_success(definition)
    return [
        Figure(
            name="layered.rate",
            unit="tasks/s",
            values=tuple(rates),
            target=Target(limit=200, at_least=True),
        ),
        Figure(
            name="layered.first_start",
            unit="s",
            values=tuple(first_starts),
            target=Target(limit=0.3),
        ),
    ]
