"""A hundred and a thousand instances of a layered DAG of ten tasks, put in one transaction (W3).

The rate is that of all tasks, from the commit to the moment at which the last instance is reported
ended; `first_start` is the time from the commit to the first process. A thousand at once are to run
as fast as a hundred.
"""

from __future__ import annotations

from tests.bench import definitions
from tests.bench.figures import Figure, Target, against_floor, rate
from tests.bench.floor import bare
from tests.bench.moments import count
from tests.bench.stage import Stage

INSTANCES, MANY = 100, 1_000
LAYERS = (1, 3, 3, 2, 1)
_LIMIT = Target(limit=0.7, at_least=True)
_LEAST = Target(limit=200, at_least=True)
_LONGEST_SECONDS = 600.0
_MOST_RUNS_OF_MANY = 3


def measure(stage: Stage, runs: int) -> list[Figure]:
    definition = define(stage)
    figures: list[Figure] = []
    rates: dict[int, list[float]] = {}
    for instances, times in ((INSTANCES, runs), (MANY, min(runs, _MOST_RUNS_OF_MANY))):
        floors: list[float] = []
        first_starts: list[float] = []
        rates[instances] = []
        with bare(stage) as floor:
            for _ in range(times):
                floors.append(floor.rate([width * instances for width in LAYERS]))
                tasks_a_second, first_start = rate_of_run(stage, definition, instances)
                rates[instances].append(tasks_a_second)
                first_starts.append(first_start)
        name = "layered" if instances == INSTANCES else f"layered_{instances}"
        target = _LEAST if instances == INSTANCES else None
        figures += against_floor(
            f"{name}.rate", "tasks/s", rates[instances], floors, limit=_LIMIT, target=target
        )
        figures.append(
            Figure(
                name=f"{name}.first_start",
                unit="s",
                values=tuple(first_starts),
                target=Target(limit=0.3) if instances == INSTANCES else None,
            )
        )
    stage.database.check_success(definition)
    figures.append(
        Figure(
            name=f"layered_{MANY}.of_{INSTANCES}",
            unit=f"of the rate of {INSTANCES}",
            values=tuple(b / a for a, b in zip(rates[INSTANCES], rates[MANY], strict=False)),
            target=Target(limit=0.8, at_least=True),
        )
    )
    return figures


def define(stage: Stage) -> int:
    return stage.database.define(
        "layered", definitions.layered(LAYERS, first_script=stage.moments.probed(), script="true")
    )


def rate_of_run(stage: Stage, definition: int, instances: int) -> tuple[float, float]:
    """Run so many at once; tasks a second, and the seconds until the first process."""
    stage.moments.forget()
    committed = stage.database.start(definition, instances)
    ended = stage.database.await_ends(instances, within=_LONGEST_SECONDS)
    seen = stage.moments.until(
        lambda moments: count(moments, "begin") == instances, within=_LONGEST_SECONDS
    )
    first_start = min(moment.at for moment in seen) - committed
    return rate(instances * sum(LAYERS), ended - committed), first_start
