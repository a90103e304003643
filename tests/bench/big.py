"""A master with a thousand running instances and ten thousand attempts, all of them there at once.

The worker has few slots and its tasks don't end by themselves, so that the attempts stay submitted
until all instances are stopped by commands. `peak` is the most memory that the master ever had;
`growth` is how much more it holds after the second time than after the first, when everything has
ended both times.
"""

from __future__ import annotations

import time

from tests.bench import daemons, definitions
from tests.bench.figures import Figure, Target
from tests.bench.stage import Stage

INSTANCES = 1_000
WIDTH = 10
SETTINGS = {
    "master.exec_threads": 2_000,
    "worker.exec_threads": 4,
    # The most memory that may stay behind; kills have no grace period.
    "worker.kill_grace_seconds": 0,
}
_LOOK_SECONDS = 0.5
_LONGEST_SECONDS = 240.0
_SETTLE_SECONDS = 3.0
_ROUNDS = 2
_NOISE_MB = 10.0


def measure(stage: Stage, runs: int) -> list[Figure]:
    """Measure one master; `runs` is ignored, since a master peaks once."""
    pid = stage.cluster.master_pid
    definition = stage.database.define(
        "big", definitions.layered((WIDTH,), first_script="exec sleep 3600", script="")
    )
    submitted: list[float] = []
    stopped: list[float] = []
    ended_with: list[float] = []
    for turn in range(1, _ROUNDS + 1):
        committed = stage.database.start(definition, INSTANCES)
        _await_attempts(stage, definition, turn * INSTANCES * WIDTH)
        submitted.append(time.monotonic() - committed)
        asked = time.monotonic()
        stage.database.stop_all(definition)
        stopped.append(stage.database.await_ends(INSTANCES, within=_LONGEST_SECONDS) - asked)
        # The figure is the memory left after the work, so the work must be over.
        time.sleep(_SETTLE_SECONDS)
        ended_with.append(daemons.resident_mb(pid))
    return [
        Figure(
            name="big.master_peak",
            unit="MB",
            values=(daemons.peak_mb(pid),),
            target=Target(limit=400),
        ),
        Figure(
            name="big.master_growth",
            unit="MB",
            values=(ended_with[-1] - ended_with[0],),
            target=Target(limit=_NOISE_MB),
        ),
        Figure(name="big.memory_after", unit="MB", values=tuple(ended_with)),
        Figure(name="big.seconds_to_submit", unit="s", values=tuple(submitted)),
        Figure(name="big.seconds_to_stop", unit="s", values=tuple(stopped)),
    ]


def _await_attempts(stage: Stage, definition: int, number: int) -> None:
    deadline = time.monotonic() + _LONGEST_SECONDS
    while True:
        there = stage.database.count(
            "SELECT count(*) FROM t_ds_task_instance WHERE process_definition_id = %s",
            (definition,),
        )
        if there >= number:
            return
        if time.monotonic() > deadline:
            raise TimeoutError(f"{there} of {number} attempts in {_LONGEST_SECONDS:g} s")
        # Seldom, since each query loads the database under measurement.
        time.sleep(_LOOK_SECONDS)
