"""Mixed work for a long time: what daemons hold, and what grows.

A *run* of this bench is a window of five minutes, with no pause between two. Five commands a second,
of which a fifth begin runs that fail after a retry, and one in twenty begins a run that is stopped.
Memory, open files and threads of each daemon are sampled every few seconds; `growth` is the slope of
its memory from the second window on. At the end, when everything has ended, the tables that hold no
history must be empty.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

import psutil

from operations.daemons import Kind
from operations.members import registry
from tests.bench.figures import Figure, Target, percentile
from tests.bench.strains import grounds
from tests.system.cluster import PrivateCluster, a_task

WINDOW_SECONDS = 300.0
A_SECOND = 5
_STOPPED, _FAILED = 20, 5
_SAMPLE_SECONDS = 10.0
_REST_SECONDS = 120.0
_WAITS = """
    SELECT extract(epoch FROM start_time - submit_time)::float8 FROM t_ds_task_instance
    WHERE submit_time BETWEEN to_timestamp(%s) AND to_timestamp(%s) AND start_time IS NOT NULL
"""
_STOP_LONG = """
    INSERT INTO t_ds_command (command_type, process_definition_id, command_param)
    SELECT 9, process_definition_id, json_build_object('ProcessInstanceId', id::text)::text
    FROM t_ds_process_instance p
    WHERE process_definition_id = %s AND state = 1 AND start_time < now() - interval '10 seconds'
    AND wanted_state IS NULL
"""
_LEFT = {
    "commands": "SELECT count(*) FROM t_ds_command",
    "slots of pools": "SELECT count(*) FROM t_ds_task_group_queue",
    "instances": "SELECT count(*) FROM t_ds_process_instance WHERE end_time IS NULL",
    "attempts": "SELECT count(*) FROM t_ds_task_instance WHERE state IN (0, 1, 14)",
}


@dataclass(slots=True)
class _Daemon:
    """The samples of one daemon."""

    at: list[float] = field(default_factory=list)
    memory_mb: list[float] = field(default_factory=list)
    files: list[float] = field(default_factory=list)
    threads: list[float] = field(default_factory=list)


def measure(runs: int) -> list[Figure]:
    seen: dict[str, _Daemon] = defaultdict(_Daemon)
    waits: list[float] = []
    with grounds.cluster(workers=2) as cluster:
        good, bad, long = _definitions(cluster)
        put = 0
        began = time.monotonic()
        for window in range(1, runs + 1):
            since = time.time()
            sampled_at = -_SAMPLE_SECONDS
            while (passed := time.monotonic() - began) < window * WINDOW_SECONDS:
                while put < passed * A_SECOND:
                    put += 1
                    cluster.put(
                        long if put % _STOPPED == 0 else bad if put % _FAILED == 0 else good
                    )
                if passed - sampled_at >= _SAMPLE_SECONDS:
                    sampled_at = passed
                    cluster.rows(_STOP_LONG, long)
                    _sample(cluster, seen, passed)
                # The load is so many commands a second.
                time.sleep(1 / A_SECOND)
            waits.append(
                percentile([row[0] for row in cluster.rows(_WAITS, since, time.time())], 95)
            )
        left = _left_at_rest(cluster, long)
        ((attempts,),) = cluster.rows("SELECT count(*) FROM t_ds_task_instance")
        ((wrong,),) = cluster.rows(
            "SELECT count(*) FROM t_ds_process_instance WHERE state <>"
            " CASE process_definition_id WHEN %s THEN 7 WHEN %s THEN 6 ELSE 5 END",
            good,
            bad,
        )
    return [
        Figure(name="soak.attempts", unit="", values=(attempts,)),
        Figure(name="soak.wrong", unit="runs", values=(wrong,), target=Target(limit=0)),
        Figure(name="soak.left", unit="rows and nodes", values=(left,), target=Target(limit=0)),
        Figure(name="soak.wait_p95", unit="ms", values=tuple(1000 * each for each in waits)),
        Figure(name="soak.slower", unit="times", values=(waits[-1] / waits[0],)),
        *(each for name, samples in sorted(seen.items()) for each in _figures(name, samples)),
    ]


def _definitions(cluster: PrivateCluster) -> tuple[int, int, int]:
    """Runs of four tasks, runs of which a task fails and is retried, and runs to be stopped."""
    good = [
        a_task("a", "sleep 0.05"),
        a_task("b", "exit 0", "a"),
        a_task("c", "sleep 0.1", "a"),
        a_task("d", "echo '${setValue(out=1)}'", "b", "c"),
    ]
    bad = [
        a_task("a", "exit 0"),
        a_task("b", "exit 3", "a", maxRetryTimes=1, retryInterval=0),
        a_task("c", "exit 0", "b"),
    ]
    long = [a_task("a", "exec sleep 600")]
    return (
        cluster.define("good", good),
        cluster.define("bad", bad),
        cluster.define("long", long),
    )


def _sample(cluster: PrivateCluster, seen: dict[str, _Daemon], at: float) -> None:
    counted: dict[Kind, int] = defaultdict(int)
    for (kind, _), pid in sorted(cluster.pids().items()):
        counted[kind] += 1
        samples = seen[f"{kind.split('-')[0]}{counted[kind]}"]
        process = psutil.Process(pid)
        samples.at.append(at)
        samples.memory_mb.append(process.memory_info().rss / 2**20)
        samples.files.append(process.num_fds())
        samples.threads.append(process.num_threads())


def _left_at_rest(cluster: PrivateCluster, long: int) -> float:
    """The rows and nodes that are left some time after the last command; those there should be none."""
    deadline = time.monotonic() + _REST_SECONDS
    while True:
        cluster.rows(_STOP_LONG, long)
        left = sum(cluster.rows(query)[0][0] for query in _LEFT.values())
        with registry(cluster.daemons.config) as opened:
            left += len(opened.task_queue.entries()) + len(opened.task_queue.claimed())
        if not left or time.monotonic() > deadline:
            return float(left)
        # That nothing is left notifies nobody; this is after all that is measured.
        time.sleep(grounds.LOOK_SECONDS)


def _figures(name: str, samples: _Daemon) -> list[Figure]:
    settled = [n for n, at in enumerate(samples.at) if at >= WINDOW_SECONDS] or [0]
    memory = [samples.memory_mb[n] for n in settled]
    times = [samples.at[n] for n in settled]
    return [
        Figure(name=f"soak.{name}_memory", unit="MB", values=(memory[0], memory[-1])),
        Figure(name=f"soak.{name}_growth", unit="MB/h", values=(3600 * slope(times, memory),)),
        *(
            Figure(
                name=f"soak.{name}_{what}",
                unit="more or less",
                values=(max(values) - min(values),),
                # Five more and five less.
                target=Target(limit=10),
            )
            for what, all_values in (("files", samples.files), ("threads", samples.threads))
            for values in ([all_values[n] for n in settled],)
        ),
    ]


def slope(at: Sequence[float], values: Sequence[float]) -> float:
    """The slope of the line of least squares, in units a second; 0 of a single sample."""
    middle, mean = sum(at) / len(at), sum(values) / len(values)
    spread = sum((each - middle) ** 2 for each in at)
    if not spread:
        return 0.0
    return sum((x - middle) * (y - mean) for x, y in zip(at, values, strict=True)) / spread
