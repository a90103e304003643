"""The metrics of a daemon, served at `/metrics`: every series is declared here.

Names keep DolphinScheduler's prefix `ds_`, in base units. Labels are closed sets (states, task
types, names of loops), never ids, so that a daemon has hundreds of series and not millions.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterable
from functools import partial

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    Info,
    generate_latest,
)
from prometheus_client.gc_collector import GCCollector
from prometheus_client.process_collector import ProcessCollector

REGISTRY = CollectorRegistry()
"""Our own, so that a library's metrics come in only when they are wanted."""

ProcessCollector(registry=REGISTRY)
GCCollector(registry=REGISTRY)

command_backlog = Gauge("ds_command_backlog", "Commands that wait for a master.", registry=REGISTRY)
command_oldest_seconds = Gauge(
    "ds_command_oldest_seconds", "Age of the command that waits longest.", registry=REGISTRY
)
runs = Gauge("ds_runs", "Process instances that this master holds in memory.", registry=REGISTRY)
process_instances = Counter(
    "ds_process_instances_total",
    "Process instances that ended on this master, by the state in which they did.",
    labelnames=("state",),
    registry=REGISTRY,
)
takeovers = Counter(
    "ds_takeovers_total", "Process instances taken over from other masters.", registry=REGISTRY
)
fenced_writes = Counter(
    "ds_fenced_writes_total",
    "Writes that were refused because their owner had been replaced.",
    registry=REGISTRY,
)
dispatch_latency_seconds = Histogram(
    "ds_dispatch_latency_seconds",
    "From the submission of a task to the start of its process.",
    buckets=(0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 15, 60, 300),
    registry=REGISTRY,
)
task_attempts = Counter(
    "ds_task_attempts_total",
    "Attempts that ended, by the state and the type of the task.",
    labelnames=("state", "type"),
    registry=REGISTRY,
)
task_failures = Counter(
    "ds_task_failures_total",
    "Attempts that failed on this worker for a reason that is known.",
    labelnames=("reason",),
    registry=REGISTRY,
)
spark_attempts = Gauge(
    "ds_spark_attempts",
    "Running attempts on this worker that have said something of a Spark application.",
    registry=REGISTRY,
)
spark_tasks = Gauge(
    "ds_spark_tasks",
    "Spark's own tasks of the running attempts on this worker, as far as these are known.",
    labelnames=("state",),
    registry=REGISTRY,
)
schedule_fires = Counter(
    "ds_schedule_fires_total",
    "Fires of schedules that this master noted, by what became of them.",
    labelnames=("outcome",),
    registry=REGISTRY,
)
schedule_lag_seconds = Histogram(
    "ds_schedule_lag_seconds",
    "From the time of a fire to the command that was put for it.",
    buckets=(0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2, 5, 15, 60, 600, 3600),
    registry=REGISTRY,
)
_supervisors = Gauge(
    "ds_supervisors",
    "Supervisors of streams that this master looks after, by their state.",
    labelnames=("state",),
    registry=REGISTRY,
)
_stream_lag = Gauge(
    "ds_stream_lag_records",
    "Records that no task has read yet, of all supervisors that this master looks after.",
    registry=REGISTRY,
)
_stream_largest_lag = Gauge(
    "ds_stream_largest_lag_records",
    "The lag of the supervisor of this master that has the largest.",
    registry=REGISTRY,
)
supervisor_runs = Counter(
    "ds_supervisor_runs_total",
    "Runs of supervisors on this master, by their outcome.",
    labelnames=("outcome",),
    registry=REGISTRY,
)
stream_tasks = Counter(
    "ds_stream_tasks_total",
    "Tasks of this master's supervisors that ended; stopped ones were told to.",
    labelnames=("outcome",),
    registry=REGISTRY,
)
stream_hand_overs = Counter(
    "ds_stream_hand_overs_total",
    "Task groups that this master has told where to end.",
    registry=REGISTRY,
)
stream_checkpoints = Counter(
    "ds_stream_checkpoints_total",
    "Sequences that were closed while their task group reads on.",
    registry=REGISTRY,
)
stream_records = Counter(
    "ds_stream_records_total",
    "Records that stream tasks on this worker have read, by what became of them.",
    labelnames=("kind",),
    registry=REGISTRY,
)
publications = Counter(
    "ds_publications_total",
    "Publications into datasets that tasks on this worker asked for, by their outcome.",
    labelnames=("outcome",),
    registry=REGISTRY,
)
slots = Gauge(
    "ds_slots", "Places for tasks on this worker.", labelnames=("state",), registry=REGISTRY
)
db_transaction_seconds = Histogram(
    "ds_db_transaction_seconds",
    "Transactions on PostgreSQL, commit included.",
    buckets=(0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 5, 30),
    registry=REGISTRY,
)
loop_lag_seconds = Gauge(
    "ds_loop_lag_seconds",
    "How late the last pass of a loop began.",
    labelnames=("loop",),
    registry=REGISTRY,
)
loop_passes = Counter(
    "ds_loop_passes_total",
    "Passes of a loop that were completed.",
    labelnames=("loop",),
    registry=REGISTRY,
)
_zk_state = Gauge(
    "ds_zk_state",
    "Standing with ZooKeeper: 1 for the state it is in, else 0.",
    labelnames=("state",),
    registry=REGISTRY,
)
_build = Info("ds_build", "What is running.", registry=REGISTRY)


def watch_zookeeper(standing: Callable[[], str], *, states: Iterable[str]) -> None:
    """Have `ds_zk_state` say, when it is asked, in which of its states a daemon's session is."""
    for state in states:
        _zk_state.labels(state=state).set_function(partial(_is_in, state, standing))


def _is_in(state: str, standing: Callable[[], str]) -> float:
    return float(standing() == state)


def watch_supervisors(
    figures: Callable[[], Iterable[tuple[str, int]]], *, states: Iterable[str]
) -> None:
    """Have the gauges of streams say, when they are asked, the state and the lag of each."""
    for state in states:
        _supervisors.labels(state=state).set_function(partial(_number_in, state, figures))
    _stream_lag.set_function(lambda: float(sum(lag for _, lag in figures())))
    _stream_largest_lag.set_function(lambda: float(max((lag for _, lag in figures()), default=0)))


def _number_in(state: str, figures: Callable[[], Iterable[tuple[str, int]]]) -> float:
    return float(sum(each == state for each, _ in figures()))


def page() -> tuple[bytes, str]:
    """Return the page of all metrics, and its media type."""
    return generate_latest(REGISTRY), CONTENT_TYPE_LATEST


def tell_build(*, daemon: str, version: str) -> None:
    """Make `ds_build_info` say what is running."""
    _build.info({"daemon": daemon, "version": version, "python": platform.python_version()})
