"""Logs by way of the api-server: the end of a large one, and one that is written fast."""

from __future__ import annotations

import shlex
import sys
import time

from tests.bench import daemons, definitions
from tests.bench.figures import Figure, Target, percentile
from tests.bench.front.server import Server, serving, times_ms
from tests.bench.front.streams import Arrival, Streams
from tests.bench.stage import PATIENCE_SECONDS, Stage

_BYTES = 100_000_000
_ENDS = 30
_LINES_A_SECOND = 10_000
_TIMES_A_SECOND = 20
_WARM_SECONDS = 2.0
_LOOK_SECONDS = 0.05
_FLAT = Target(limit=10)
_LOUD = f"""
import sys, time
began, lines = time.monotonic(), {_LINES_A_SECOND // _TIMES_A_SECOND}
for n in range({{seconds}} * {_TIMES_A_SECOND}):
    time.sleep(max(0, began + n / {_TIMES_A_SECOND} - time.monotonic()))
    sys.stdout.write(f"{{{{time.time():.4f}}}} a line that is neither short nor long, nor news\\n" * lines)
    sys.stdout.flush()
"""


def measure(stage: Stage, runs: int, *, follow_seconds: int = 60) -> list[Figure]:
    samples: dict[str, list[float]] = {
        name: []
        for name in ("log_end_p95", "log_end_memory", "log_follow_memory", "log_follow_lag_p95")
    }
    with serving(stage) as server:
        for run in range(runs):
            ends, grown = _ends(stage, server, f"large-{run}")
            lags, followed = _follow(stage, server, f"loud-{run}", follow_seconds)
            samples["log_end_p95"].append(percentile(ends, 95))
            samples["log_end_memory"].append(grown)
            samples["log_follow_memory"].append(followed)
            samples["log_follow_lag_p95"].append(percentile(lags, 95))
    targets = {
        "log_end_p95": Target(limit=200),
        "log_end_memory": _FLAT,
        "log_follow_memory": _FLAT,
    }
    return [
        Figure(
            name=f"api.{name}",
            unit="MB" if name.endswith("memory") else "ms",
            values=tuple(values),
            target=targets.get(name),
        )
        for name, values in samples.items()
    ]


def large_log(stage: Stage, name: str) -> int:
    """Have a task write a log of 100 MB; the id of its attempt, which has ended."""
    line = "a line of output that is neither short nor long, nor of any use besides this"
    large = stage.database.define(name, definitions.chain(1, f"yes {line!r} | head -c {_BYTES}"))
    stage.database.run(large, within=PATIENCE_SECONDS)
    return _attempt_of(stage, large)


def loud_log(stage: Stage, name: str, seconds: int) -> int:
    """Begin a task that writes 10,000 lines a second for so long; the id of its attempt."""
    script = f"{sys.executable} -c {shlex.quote(_LOUD.format(seconds=seconds))}"
    loud = stage.database.define(name, definitions.chain(1, script))
    stage.database.start(loud)
    return _attempt_of(stage, loud)


def _ends(stage: Stage, server: Server, name: str) -> tuple[list[float], float]:
    """The times of the last thousand lines of a large log, and the growth of the server."""
    path = f"/api/v1/tasks/{large_log(stage, name)}/log?lines=1000"
    with server.asked() as client:
        client.fetch(path)
        pid = server.process.pid
        before = daemons.resident_mb(pid)
        daemons.forget_peak(pid)
        return times_ms(client, [path] * _ENDS), daemons.peak_mb(pid) - before


def _follow(stage: Stage, server: Server, name: str, seconds: int) -> tuple[list[float], float]:
    """The lag of what a reader sees, in milliseconds, and the growth of the server from then on."""
    path = f"/api/v1/tasks/{loud_log(stage, name, seconds)}/log/stream"
    pid = server.process.pid
    with Streams(server.port, [(path, server.token)]) as streams:
        streams.until(lambda seen: any(each.kind == "log" for each in seen), within=30)
        time.sleep(_WARM_SECONDS)  # Whatever grows for the first reader has grown.
        before = daemons.resident_mb(pid)
        daemons.forget_peak(pid)
        stage.database.await_ends(1, within=PATIENCE_SECONDS + seconds)
        seen = streams.until(lambda seen: seen[-1].kind == "end", within=PATIENCE_SECONDS)
        grown = daemons.peak_mb(pid) - before
    told = [each for each in seen if each.kind == "log"]
    lines = sum(each.document["text"].count("\n") for each in told)
    if lines < seconds * _LINES_A_SECOND:
        raise RuntimeError(f"only {lines} lines of {seconds * _LINES_A_SECOND} have arrived")
    return [lag for each in told if (lag := _lag_ms(each)) is not None], grown


def _lag_ms(told: Arrival) -> float | None:
    """The age of the last whole line of an event when it arrived."""
    lines = told.document["text"].split("\n")
    whole = [each for each in lines[1:-1] if each.endswith("news")]
    return (told.at - float(whole[-1].split(" ", 1)[0])) * 1000 if whole else None


def _attempt_of(stage: Stage, definition: int) -> int:
    """The newest attempt of a definition, once it has begun."""
    query = (
        "SELECT coalesce(max(id), 0) FROM t_ds_task_instance"
        " WHERE process_definition_id = %s AND start_time IS NOT NULL"
    )
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not (found := stage.database.count(query, (definition,))):
        if time.monotonic() > deadline:
            raise TimeoutError("the task did not begin")
        time.sleep(_LOOK_SECONDS)
    return found
