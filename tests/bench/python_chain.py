"""Forty PYTHON tasks in a line, each of which computes a little: the gap to the next script's start.

A gap reaches from the last line of a script to the first line of the next, so it holds the end of
one interpreter and the start of another. The floor is the bare loop with the same interpreter.
"""

from __future__ import annotations

import sys

from tests.bench import definitions
from tests.bench.chain import gaps_of_run
from tests.bench.figures import Figure, Target, against_floor, percentile
from tests.bench.floor import bare
from tests.bench.stage import Stage

LENGTH = 40
_LIMIT_MS = 12
_BODY = """
def fibo(n):
    return n if n < 2 else fibo(n - 1) + fibo(n - 2)
print(fibo(10))
"""


def measure(stage: Stage, runs: int) -> list[Figure]:
    script = _probed(stage, "__import__('os').environ['ORCAFLOW_TASK_NAME']")
    definition = stage.database.define(
        "python-chain", definitions.typed_chain(LENGTH, script, "PYTHON")
    )
    measured: list[list[float]] = []
    floors: list[list[float]] = []
    with bare(stage) as floor:
        for _ in range(runs):
            floors.append(floor.chain(LENGTH, _probed(stage, "'{name}'"), (sys.executable, "-c")))
            measured.append(gaps_of_run(stage, definition, LENGTH))
    stage.database.check_success(definition)
    return [
        figure
        for share, target in ((50, Target(limit=_LIMIT_MS)), (95, None))
        for figure in against_floor(
            f"python.gap_p{share}",
            "ms",
            [percentile(gaps, share) for gaps in measured],
            [percentile(gaps, share) for gaps in floors],
            target=target,
        )
    ]


def _probed(stage: Stage, name: str) -> str:
    begin, end = (stage.moments.python_line(what, name) for what in ("begin", "end"))
    return f"{begin}{_BODY}{end}"
