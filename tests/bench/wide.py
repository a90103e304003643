"""One process instance of five thousand tasks: fifty layers of a hundred, each after all above it.

It is imported as a user does it, run to its end with tasks that do nothing, and begun once more and
stopped half-way. `stop` is the time from the command to the end of the instance.
"""

from __future__ import annotations

import time

from tests.bench import daemons, definitions
from tests.bench.figures import Figure, Target, rate
from tests.bench.stage import Stage

LAYERS, WIDTH = 50, 100
# A cluster of its own, so that its master's memory is that of this run.
SETTINGS = {"worker.exec_threads": 100}
_TASKS = LAYERS * WIDTH
_LONGEST_SECONDS = 240.0
# The grace that a worker gives, and ten seconds.
_STOP_SECONDS = 15.0
_LOOK_SECONDS = 0.2


def measure(stage: Stage, runs: int) -> list[Figure]:
    """Measure one run; `runs` is ignored, since one run has five thousand samples."""
    text = definitions.layered((WIDTH,) * LAYERS, "exit 0", "exit 0")
    definition = stage.database.define("wide", text)
    committed = stage.database.start(definition, 1)
    seconds = stage.database.await_ends(1, within=_LONGEST_SECONDS) - committed
    stage.database.start(definition, 1)
    _await_half(stage, definition)
    asked = time.monotonic()
    stage.database.stop_all(definition)
    stopped = stage.database.await_ends(1, within=_LONGEST_SECONDS) - asked
    return [
        Figure(name="wide.seconds", unit="s", values=(seconds,), target=Target(limit=15)),
        Figure(name="wide.rate", unit="tasks/s", values=(rate(_TASKS, seconds),)),
        Figure(name="wide.stop", unit="s", values=(stopped,), target=Target(limit=_STOP_SECONDS)),
        Figure(
            name="wide.master_peak",
            unit="MB",
            values=(daemons.peak_mb(stage.cluster.master_pid),),
            target=Target(limit=600),
        ),
    ]


def _await_half(stage: Stage, definition: int) -> None:
    deadline = time.monotonic() + _LONGEST_SECONDS
    while (
        stage.database.count(
            "SELECT count(*) FROM t_ds_task_instance WHERE process_definition_id = %s",
            (definition,),
        )
        < _TASKS + _TASKS // 2
    ):
        if time.monotonic() > deadline:
            raise TimeoutError("the second run did not come half-way")
        # Seldom, since each query loads the database under measurement.
        time.sleep(_LOOK_SECONDS)
