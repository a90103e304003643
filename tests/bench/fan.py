"""The rate of many parallel tasks, from the end of their root to the start of the join (W2)."""

from __future__ import annotations

from tests.bench import definitions
from tests.bench.figures import Figure, Target, against_floor, rate
from tests.bench.floor import bare
from tests.bench.moments import of
from tests.bench.stage import PATIENCE_SECONDS, Stage

WIDTH = 200
WIDE = 2_000
_LIMIT = Target(limit=0.75, at_least=True)
_LEAST = Target(limit=200, at_least=True)


def measure(stage: Stage, runs: int) -> list[Figure]:
    figures: list[Figure] = []
    for name, width in (("fan", WIDTH), (f"fan_{WIDE}", WIDE)):
        definition = define(stage, name, width)
        rates: list[float] = []
        floors: list[float] = []
        with bare(stage) as floor:
            for _ in range(runs):
                floors.append(floor.rate([width]))
                rates.append(rate_of_run(stage, definition, width))
        stage.database.check_success(definition)
        figures += against_floor(
            f"{name}.rate", "tasks/s", rates, floors, limit=_LIMIT, target=_LEAST
        )
    return figures


def define(stage: Stage, name: str, width: int) -> int:
    return stage.database.define(
        name, definitions.fan(width, end_script=stage.moments.probed(), leaf_script="true")
    )


def rate_of_run(stage: Stage, definition: int, width: int) -> float:
    """Run a fan; its leaves a second."""
    stage.moments.forget()
    stage.database.start(definition)
    seen = stage.moments.until(
        lambda moments: "join" in of(moments, "begin"), within=PATIENCE_SECONDS
    )
    stage.database.await_ends(1, within=PATIENCE_SECONDS)
    return rate(width, of(seen, "begin")["join"] - of(seen, "end")["root"])
