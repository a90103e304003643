"""The API beside a million finished attempts: lists, the overview, a load of reads, and a purge.

The rows are those of `tests.bench.scale.history`. A project of its own has twenty runs, older than
all others, and somebody who may see nothing else: the worst that a list can meet.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from itertools import chain

import psutil
import psycopg2

from common.embedded.addresses import SUPERUSER, postgres_address
from tests.bench import daemons, definitions
from tests.bench.figures import Figure, Target, percentile, rate
from tests.bench.front.load import Load, loaded
from tests.bench.front.server import (
    Server,
    orcaflow,
    serving,
    times_ms,
    token_of,
    tokens_of_people,
)
from tests.bench.scale.history import fill
from tests.bench.stage import Stage

ROWS = 1_000_000
_A_RUN = 10
_OLD_RUNS = 20
_DEFINITIONS = 50
_LISTS = 200
_OVERVIEWS = 40
_PEOPLE = 8
_RATE = 1_000
_WARM_SECONDS = 5.0
_PURGED = 0.05
_MOST_MS = 30
_FLAT = Target(limit=5)
_VIEWER = "sees-little"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Filled:
    """The contents of the tables, as far as it is asked for."""

    definition: int
    rare: int
    newest: int
    runs: int
    viewer: str
    people: tuple[str, ...]


def measure(
    stage: Stage, runs: int, *, rows: int = ROWS, load_seconds: float = 60.0
) -> list[Figure]:
    """Fill the tables; measure all of it."""
    filled = _fill(stage, rows)
    figures: dict[str, list[float]] = {}
    for _ in range(runs):
        with serving(stage) as server:
            for part in (
                _lists(server, filled),
                _overview(server),
                _load(stage, server, filled, load_seconds),
            ):
                for name, value in part.items():
                    figures.setdefault(name, []).append(value)
    figures["purge_longest"], figures["purge_rate"] = _purge(stage, runs, rows)
    return [
        Figure(
            name=f"api.{name}",
            unit=next((unit for end, unit in _UNITS.items() if name.endswith(end)), "ms"),
            values=tuple(values),
            target=_TARGETS.get(name, Target(limit=_MOST_MS) if name in _LIST_NAMES else None),
        )
        for name, values in figures.items()
    ]


_TARGETS = {
    "overview_p95": Target(limit=100),
    "load_errors": Target(limit=0),
    "load_p99": Target(limit=100),
    "load_memory": _FLAT,
    "purge_longest": Target(limit=50),
}
_UNITS = {"errors": "requests", "memory": "MB", "rate": "rows/s", "load_reached": "requests/s"}


def _lists_of(filled: _Filled) -> Mapping[str, tuple[str, str]]:
    """The lists by their names: path and token."""
    admin, viewer = filled.people[0], filled.viewer
    runs = "/api/v1/instances?limit=50"
    later = "/dolphinscheduler/projects/1"
    return {
        "runs": (runs, admin),
        "runs_of_definition": (f"{runs}&definition_id={filled.definition}", admin),
        "runs_of_rare": (f"{runs}&definition_id={filled.rare}", admin),
        "runs_of_rare_name": (f"{runs}&definition=rare", admin),
        "runs_failed": (f"{runs}&state=FAILURE", admin),
        "runs_running": (f"{runs}&state=RUNNING", admin),
        "runs_stopped": (f"{runs}&state=STOP", admin),
        "runs_of_viewer": (runs, viewer),
        "runs_failed_of_viewer": (f"{runs}&state=FAILURE", viewer),
        "definitions": ("/api/v1/definitions?limit=50", admin),
        "definitions_of_viewer": ("/api/v1/definitions?limit=50", viewer),
        "schedules": ("/api/v1/schedules?limit=50", admin),
        "complements": ("/api/v1/complements?limit=50", admin),
        "commands": ("/api/v1/commands", admin),
        "attempts": (f"/api/v1/instances/{filled.newest}/tasks", admin),
        "ds_runs": (f"{later}/process-instances?pageNo=1&pageSize=50", admin),
        "ds_tasks": (f"{later}/task-instances?pageNo=1&pageSize=50", admin),
        "ds_definitions": (f"{later}/process-definition?pageNo=1&pageSize=50", admin),
    }


_LIST_NAMES = frozenset(
    f"list_{name}_p95"
    for name in _lists_of(_Filled(definition=1, rare=1, newest=1, runs=1, viewer="", people=("",)))
)


def _fill(stage: Stage, rows: int) -> _Filled:
    ended = stage.database.define("ended", definitions.layered((1, 3, 3, 2, 1), "true", "true"))
    other = stage.database.count(
        "INSERT INTO t_ds_project (name, user_id) VALUES ('other', 1) RETURNING id", ()
    )
    rare = stage.database.define("rare", definitions.chain(_A_RUN, "true"))
    stage.database.execute(
        "UPDATE t_ds_process_definition SET project_id = %(project)s WHERE id = %(id)s",
        {"project": other, "id": rare},
    )
    for number in range(_DEFINITIONS):
        stage.database.define(f"definition-{number}", definitions.chain(3, "true"))
    runs = rows // _A_RUN
    fill(stage, rare, runs + 1, runs + _OLD_RUNS)
    fill(stage, ended, 1, runs)
    stage.database.execute("VACUUM (ANALYZE)", {})
    _write_out(stage)
    orcaflow(stage, "user", "create", _VIEWER)
    orcaflow(stage, "user", "grant", _VIEWER, "--project", "other", "--role", "viewer")
    return _Filled(
        definition=ended,
        rare=rare,
        newest=stage.database.count("SELECT max(id) FROM t_ds_process_instance", ()),
        runs=runs,
        viewer=token_of(stage, _VIEWER),
        people=tuple(tokens_of_people(stage, _PEOPLE)),
    )


def _write_out(stage: Stage) -> None:
    """Have PostgreSQL write the rows to the disk now, and not while they are read."""
    address = postgres_address(stage.cluster.home).seen_by(SUPERUSER)
    with closing(psycopg2.connect(address.dsn)) as connection, connection.cursor() as cursor:
        cursor.execute("CHECKPOINT")


def _lists(server: Server, filled: _Filled) -> dict[str, float]:
    found: dict[str, float] = {}
    for name, (path, token) in _lists_of(filled).items():
        with server.asked(token) as client:
            client.fetch(path)  # The first of a connection plans its statements.
            found[f"list_{name}_p95"] = percentile(times_ms(client, [path] * _LISTS), 95)
    return found


def _overview(server: Server) -> dict[str, float]:
    """From the request to the end of the first snapshot."""
    taken = []
    for _ in range(_OVERVIEWS):
        with server.asked() as client:
            began = time.monotonic()
            client.until("/api/v1/events?topics=overview", b"event: snapshot\n")
            taken.append((time.monotonic() - began) * 1000)
    return {"overview_p95": percentile(taken, 95)}


def _load(stage: Stage, server: Server, filled: _Filled, seconds: float) -> dict[str, float]:
    """A thousand requests a second of runs, their attempts, attempts, and lists."""
    pid, database = server.process.pid, stage.cluster.pids["postgres"]
    load = Load(
        port=server.port,
        tokens=filled.people,
        paths=_mix(filled),
        rate=_RATE,
        seconds=_WARM_SECONDS,
    )
    loaded(load)
    before = daemons.resident_mb(pid)
    daemons.forget_peak(pid)
    used, of_database = daemons.cpu_seconds(pid), _family_cpu_seconds(database)
    began = time.monotonic()
    seen = loaded(
        Load(port=load.port, tokens=load.tokens, paths=load.paths, rate=load.rate, seconds=seconds)
    )
    lasted = time.monotonic() - began
    count = len(seen.times_ms)
    for error in seen.errors[:3]:
        sys.stderr.write(f"{error}\n")
    return {
        "load_errors": len(seen.errors),
        "load_p50": percentile(seen.times_ms, 50),
        "load_p99": percentile(seen.times_ms, 99),
        "load_reached": rate(count, lasted),
        "load_memory": daemons.peak_mb(pid) - before,
        "load_server_each": 1000 * (daemons.cpu_seconds(pid) - used) / count,
        "load_database_each": 1000 * (_family_cpu_seconds(database) - of_database) / count,
        "load_client_each": 1000 * seen.processor_seconds / count,
    }


def _mix(filled: _Filled) -> list[str]:
    """Twelve requests of eight kinds for each of many runs, in turns."""
    base = "/api/v1"
    first = filled.newest - min(filled.runs, 1_000) + 1
    return list(
        chain.from_iterable(
            (
                f"{base}/instances/{run}",
                f"{base}/instances/{run}/tasks",
                f"{base}/instances?limit=20",
                f"{base}/instances/{run}",
                f"{base}/definitions?limit=20",
                f"{base}/instances/{run}/tasks",
                f"{base}/instances?limit=20&definition_id={filled.definition}",
                f"{base}/instances/{run}",
                f"{base}/instances?limit=20&state=FAILURE",
                f"{base}/schedules?limit=20",
                f"{base}/tasks/{run * _A_RUN - 5}",
                f"{base}/commands",
            )
            for run in range(first, filled.newest + 1, 10)
        )
    )


def _purge(stage: Stage, runs: int, rows: int) -> tuple[list[float], list[float]]:
    """Purge the oldest twentieth of the rows, and as much again; the longest transactions and rates.

    The ended runs are a minute apart.
    """
    longest: list[float] = []
    rates: list[float] = []
    for run in range(1, runs + 1):
        hours = round(rows / _A_RUN * (1 - run * _PURGED) / 60)
        began = time.monotonic()
        done = json.loads(orcaflow(stage, "purge", "--older-than", f"{hours}h", "--output", "json"))
        longest.append(1000 * done["longest_transaction"])
        rates.append(rate(sum(done["deleted"].values()), time.monotonic() - began))
    return longest, rates


def _family_cpu_seconds(pid: int) -> float:
    """The processor time of a server's processes that are there now."""
    process = psutil.Process(pid)
    return sum(
        daemons.cpu_seconds(each.pid) for each in (process, *process.children(recursive=True))
    )
