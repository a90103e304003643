"""The api-server: its start, its memory and its processor time at rest, and runs begun over HTTP."""

from __future__ import annotations

import time

from tests.bench import daemons, definitions
from tests.bench.figures import Figure, Target, percentile
from tests.bench.front.server import Client, serving
from tests.bench.stage import PATIENCE_SECONDS, Stage

_TARGETS = {
    "api.ready": Target(limit=2),
    "api.memory": Target(limit=110),
    "api.idle_cpu": Target(limit=0.5),
    "api.begun_p50": Target(limit=25),
}
_UNITS = {"api.ready": "s", "api.memory": "MiB", "api.idle_cpu": "% of a core"}
_SETTLE_SECONDS = 3.0
_RUNS_BEGUN = 30


def measure(stage: Stage, runs: int, *, window_seconds: float = 10.0) -> list[Figure]:
    definition = stage.database.define("asked-for", definitions.chain(1, "true"))
    samples: dict[str, list[float]] = {name: [] for name in _TARGETS}
    for _ in range(runs):
        with serving(stage) as server:
            with server.asked() as client:
                begun = [_begin_ms(client, definition) for _ in range(_RUNS_BEGUN)]
                stage.database.await_ends(_RUNS_BEGUN, within=PATIENCE_SECONDS)
            for name, value in {
                "api.ready": server.ready_seconds,
                "api.idle_cpu": _at_rest(server.process.pid, window_seconds),
                "api.memory": daemons.shared_mb(server.process.pid),
                "api.begun_p50": percentile(begun, 50),
            }.items():
                samples[name].append(value)
    return [
        Figure(name=name, unit=_UNITS.get(name, "ms"), values=tuple(values), target=_TARGETS[name])
        for name, values in samples.items()
    ]


def _begin_ms(client: Client, definition: int) -> float:
    began = time.monotonic()
    order = {"definition_id": definition}
    if client.ask("POST", "/instances", order, Prefer="wait=5")["instance"] is None:
        raise RuntimeError("no run was begun within five seconds")
    return (time.monotonic() - began) * 1000


def _at_rest(pid: int, window_seconds: float) -> float:
    """Measure the processor time of a server that nobody asks, in per cent."""
    time.sleep(_SETTLE_SECONDS)  # The measurement is an idle wait.
    used, began = daemons.cpu_seconds(pid), time.monotonic()
    time.sleep(window_seconds)  # The window over which processor time is counted.
    return 100 * (daemons.cpu_seconds(pid) - used) / (time.monotonic() - began)
