"""The cost of an idle cluster, after much work: processor time, and memory as PSS.

PSS counts a page that several processes share once, in parts: the sum over processes is the memory
that the cluster takes. The figure of the cluster holds every process below master, worker,
PostgreSQL and ZooKeeper.
"""

from __future__ import annotations

import time

from tests.bench import daemons
from tests.bench.figures import Figure, Target
from tests.bench.stage import Stage

SETTLE_SECONDS = 5.0
WINDOW_SECONDS = 20.0


def measure(stage: Stage, runs: int) -> list[Figure]:
    pids = {"master": stage.cluster.master_pid, "worker": stage.cluster.worker_pid}
    shares: dict[str, list[float]] = {name: [] for name in pids}
    memory: dict[str, list[float]] = {name: [] for name in pids}
    whole: list[float] = []
    # The measurement is an idle wait.
    time.sleep(SETTLE_SECONDS)
    for _ in range(runs):
        began = time.monotonic()
        before = {name: daemons.cpu_seconds(pid) for name, pid in pids.items()}
        # The window over which CPU time is counted.
        time.sleep(WINDOW_SECONDS)
        for name, pid in pids.items():
            used = daemons.cpu_seconds(pid) - before[name]
            shares[name].append(100 * used / (time.monotonic() - began))
            memory[name].append(daemons.resident_mb(pid))
        whole.append(sum(daemons.shared_mb(pid) for pid in stage.cluster.pids.values()))
    return [
        *(
            Figure(
                name=f"idle.{name}_cpu",
                unit="% of a core",
                values=tuple(shares[name]),
                target=Target(limit=1),
            )
            for name in pids
        ),
        Figure(
            name="idle.both_cpu",
            unit="% of a core",
            values=tuple(map(sum, zip(*shares.values(), strict=True))),
            target=Target(limit=0.8),
        ),
        *(
            Figure(
                name=f"idle.{name}_memory",
                unit="MB",
                values=tuple(memory[name]),
                target=Target(limit=120),
            )
            for name in pids
        ),
        Figure(name="idle.cluster_pss", unit="MiB", values=tuple(whole), target=Target(limit=300)),
    ]
