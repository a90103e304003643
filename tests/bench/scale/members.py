"""One to four masters and one to eight workers on one computer: the rate of a hundred runs of ten tasks.

More daemons on the same processors can't be faster, and must not be slower: they share the work by
the mutex and the queue. Each number has a cluster of its own.
"""

from __future__ import annotations

from contextlib import closing

from tests.bench import definitions, layered
from tests.bench.database import Database
from tests.bench.figures import Figure, Target, percentile, rate
from tests.bench.stage import PATIENCE_SECONDS
from tests.bench.strains import grounds

MASTERS = (1, 2, 4)
WORKERS = (1, 2, 4, 8)
_NOISE = 0.95
"""Medians of the same cluster differ by as much from one run to the next."""


def measure(runs: int) -> list[Figure]:
    alone = _rates(1, 1, runs)
    found = {("masters", 1): alone, ("workers", 1): alone}
    for number in MASTERS[1:]:
        found["masters", number] = _rates(number, 1, runs)
    for number in WORKERS[1:]:
        found["workers", number] = _rates(1, number, runs)
    return [
        *(
            Figure(name=f"members.{number}_{kind}", unit="tasks/s", values=tuple(values))
            for (kind, number), values in found.items()
        ),
        *(
            Figure(
                name=f"members.two_{kind}_of_one",
                unit="of the rate of 1",
                values=(percentile(found[kind, 2], 50) / percentile(alone, 50),),
                target=Target(limit=_NOISE, at_least=True),
            )
            for kind in ("masters", "workers")
        ),
    ]


def _rates(masters: int, workers: int, runs: int) -> list[float]:
    with (
        grounds.cluster(masters=masters, workers=workers) as cluster,
        closing(Database(cluster.dsn)) as database,
    ):
        definition = database.define("layered", definitions.layered(layered.LAYERS, "true", "true"))
        found: list[float] = []
        # The first of all meets daemons that have done nothing yet.
        for _ in range(runs + 1):
            committed = database.start(definition, layered.INSTANCES)
            ended = database.await_ends(layered.INSTANCES, within=PATIENCE_SECONDS)
            found.append(rate(layered.INSTANCES * sum(layered.LAYERS), ended - committed))
        database.check_success(definition)
        return found[1:]
