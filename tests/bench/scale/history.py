"""Ten to a million finished task instances in the tables: the fan, the trigger and a list beside them.

The finished rows are made by SQL, ten tasks an instance, as a cluster of some months has them, and
analyzed as autovacuum would have done by then. All sizes are measured on one cluster, the smallest
first.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from tests.bench import cluster, definitions, fan, trigger
from tests.bench.figures import Figure, Target, percentile
from tests.bench.stage import Stage

SIZES = (10, 10_000, 1_000_000)
_TASKS_A_RUN = 10
_WITHIN = 1.1
_TRIGGERS = 30
_INSTANCES = """
    INSERT INTO t_ds_process_instance (name, process_definition_id, state, start_time, end_time,
        command_type, process_instance_json, executor_id, host, owner_incarnation, owner_epoch)
    SELECT 'ended-' || n, %(definition)s, CASE WHEN n %% 10 = 0 THEN 6 ELSE 7 END,
        now() - n * INTERVAL '1 minute', now() - n * INTERVAL '1 minute' + INTERVAL '20 seconds', 0,
        %(json)s, 1, '10.255.0.1:5678', 1, 1
    FROM generate_series(%(first)s, %(last)s) AS n
"""
_TASKS = """
    INSERT INTO t_ds_task_instance (name, task_type, process_definition_id, process_instance_id,
        task_json, state, settled, submit_time, start_time, end_time, host, worker_incarnation,
        execute_path, log_path, pid)
    SELECT 'task' || k, 'SHELL', p.process_definition_id, p.id, %(json)s, p.state, true,
        p.start_time, p.start_time, p.end_time, '10.255.0.2:1234', 3,
        '/var/orcaflow/tasks/1/' || p.id || '/' || k, '/var/orcaflow/logs/' || p.id || '/' || k, 4711
    FROM t_ds_process_instance p, generate_series(1, %(tasks)s) AS k
    WHERE p.process_definition_id = %(definition)s
        AND NOT EXISTS (SELECT FROM t_ds_task_instance t WHERE t.process_instance_id = p.id)
"""


@dataclass(slots=True)
class _Seen:
    """The samples of one size."""

    rates: list[float] = field(default_factory=list)
    latencies: dict[int, list[float]] = field(default_factory=lambda: {50: [], 95: []})
    lists: list[float] = field(default_factory=list)


def measure(stage: Stage, runs: int) -> list[Figure]:
    wide, single = fan.define(stage, "history-fan", fan.WIDTH), trigger.define(stage)
    ended = stage.database.define("ended", definitions.layered((1, 3, 3, 2, 1), "true", "true"))
    # The first of all runs meets daemons that have done nothing yet.
    fan.rate_of_run(stage, wide, fan.WIDTH)
    seen: dict[int, _Seen] = {}
    filled: list[float] = []
    there = 0
    for size in SIZES:
        began = time.monotonic()
        fill(stage, ended, there // _TASKS_A_RUN + 1, size // _TASKS_A_RUN)
        filled.append(time.monotonic() - began)
        there = size
        samples = seen[size] = _Seen()
        for _ in range(runs):
            samples.rates.append(fan.rate_of_run(stage, wide, fan.WIDTH))
            latencies = trigger.latencies_ms(stage, single, _TRIGGERS)
            for share, values in samples.latencies.items():
                values.append(percentile(latencies, share))
            samples.lists.append(_list_seconds(stage))
    return [
        *(figure for size, samples in seen.items() for figure in _figures(size, samples)),
        *_growth(seen[SIZES[0]], seen[SIZES[-1]]),
        Figure(name="history.fill", unit="s", values=(filled[-1],)),
    ]


def fill(stage: Stage, definition: int, first: int, last: int) -> None:
    """Make ended runs of ten tasks, begun as many minutes ago as their numbers say."""
    json = definitions.layered((1, 3, 3, 2, 1), "true", "true")
    values = {"definition": definition, "first": first, "last": last, "tasks": _TASKS_A_RUN}
    stage.database.execute(_INSTANCES, values | {"json": json})
    stage.database.execute(_TASKS, values | {"json": definitions.one_task("task", "true")})
    stage.database.execute("VACUUM (ANALYZE) t_ds_process_instance, t_ds_task_instance", {})


def _list_seconds(stage: Stage) -> float:
    command = [str(cluster.ROOT / ".venv" / "bin" / "orcaflow"), "instance", "list", "-o", "json"]
    began = time.monotonic()
    stage.cluster.execute(command)
    return time.monotonic() - began


def _figures(size: int, samples: _Seen) -> list[Figure]:
    name = f"history_{size}"
    return [
        Figure(name=f"{name}.fan_rate", unit="tasks/s", values=tuple(samples.rates)),
        *(
            Figure(name=f"{name}.trigger_p{share}", unit="ms", values=tuple(values))
            for share, values in samples.latencies.items()
        ),
        Figure(name=f"{name}.list", unit="s", values=tuple(samples.lists)),
    ]


def _growth(few: _Seen, many: _Seen) -> list[Figure]:
    """The proportions of the largest size to the smallest, of the medians."""
    pairs = {
        "fan_slower": (many.rates, few.rates),
        "trigger_slower": (few.latencies[50], many.latencies[50]),
        "list_slower": (few.lists, many.lists),
    }
    return [
        Figure(
            name=f"history.{name}",
            unit="x",
            values=(percentile(longer, 50) / percentile(shorter, 50),),
            target=Target(limit=_WITHIN),
        )
        for name, (shorter, longer) in pairs.items()
    ]
