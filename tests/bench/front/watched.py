"""Twenty readers of events: the delay of what they are told, and the speed of a cluster beside them.

An attempt's start and end are compared with the times in its row. The worker takes these before it
writes the row, so the delay contains the commit too.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any

from tests.bench import chain, definitions, fan, layered, trigger
from tests.bench.figures import Figure, Target, percentile
from tests.bench.front.server import Server, serving, tokens_of_people
from tests.bench.front.streams import Arrival, Streams, snapshots
from tests.bench.stage import PATIENCE_SECONDS, Stage
from tests.granting import GRANT_ALL

READERS = 20
_PEOPLE = 4
_LAYERS = (1, *(5,) * 8)
_TASKS = sum(_LAYERS)
_FINAL = frozenset({"SUCCESS", "FAILURE"})
_SLOWER = Target(limit=0.97, at_least=True)
_LOOK_SECONDS = 0.05
_SETTLE_SECONDS = 2.0


def events(stage: Stage, runs: int) -> list[Figure]:
    """Measure the delay of events at all readers."""
    delays: dict[str, list[float]] = {"p50": [], "p95": []}
    with serving(stage) as server:
        people = tokens_of_people(stage, _PEOPLE)
        for run in range(runs):
            taken = _delays_ms(stage, server, people, f"watched-{run}")
            delays["p50"].append(percentile(taken, 50))
            delays["p95"].append(percentile(taken, 95))
    return [
        Figure(name="api.event_p50", unit="ms", values=tuple(delays["p50"])),
        Figure(
            name="api.event_p95",
            unit="ms",
            values=tuple(delays["p95"]),
            target=Target(limit=200),
        ),
    ]


def beside(stage: Stage, runs: int, *, part: int = 1) -> list[Figure]:
    """Measure W1 to W4 with a server whose readers watch live runs, against without, in turns.

    `part`: shapes of so many times fewer tasks.
    """
    shapes = _shapes(stage, part)
    live = _live_runs(stage, READERS)
    for measure in shapes.values():
        measure()  # The first of all meets daemons that have done nothing yet.
    ratios: dict[str, list[float]] = {name: [] for name in shapes}
    for run in range(runs):
        found: dict[bool, dict[str, float]] = {}
        for watched in (False, True) if run % 2 else (True, False):
            with _watching(stage, live if watched else []):
                time.sleep(_SETTLE_SECONDS)  # What has just started does not disturb.
                found[watched] = {name: measure() for name, measure in shapes.items()}
        for name in shapes:
            ratios[name].append(found[True][name] / found[False][name])
    return [
        Figure(name=f"api.beside_{name}", unit="x", values=tuple(values), target=_SLOWER)
        for name, values in ratios.items()
    ]


def _shapes(stage: Stage, part: int) -> dict[str, Callable[[], float]]:
    """The speed of each: what is a time is turned into its inverse."""
    length, width = chain.LENGTH // part, fan.WIDTH // part
    in_line = stage.database.define(
        "beside-chain", definitions.chain(length, stage.moments.probed())
    )
    wide = fan.define(stage, "beside-fan", width)
    layers, single = layered.define(stage), trigger.define(stage)

    def gaps() -> float:
        return 1 / percentile(chain.gaps_of_run(stage, in_line, length), 50)

    def latency() -> float:
        return 1 / percentile(trigger.latencies_ms(stage, single, trigger.TIMES // part), 50)

    return {
        "chain": gaps,
        "fan": lambda: fan.rate_of_run(stage, wide, width),
        "layered": lambda: layered.rate_of_run(stage, layers, layered.INSTANCES // part)[0],
        "trigger": latency,
    }


def _live_runs(stage: Stage, number: int) -> list[int]:
    """Begin runs that go on: one has the only slot of a pool, the others wait for it."""
    pool = stage.database.count(
        "INSERT INTO t_ds_task_group (name, group_size) VALUES ('watched', 1) RETURNING id", ()
    )
    stage.database.execute(GRANT_ALL, {})
    waiting = stage.database.define("live", definitions.pooled(1, "exec sleep 7200", pool))
    stage.database.start(waiting, number)
    _await(
        lambda: (
            stage.database.count(
                "SELECT count(*) FROM t_ds_task_instance WHERE process_definition_id = %s",
                (waiting,),
            )
            == number
        )
    )
    last = stage.database.count("SELECT max(id) FROM t_ds_process_instance", ())
    return list(range(last - number + 1, last + 1))


@contextmanager
def _watching(stage: Stage, live: Sequence[int]) -> Iterator[None]:
    """Have each of these runs watched; without any there is no server."""
    if not live:
        yield
        return
    with serving(stage) as server:
        people = tokens_of_people(stage, _PEOPLE)
        asked = [(_path(run), people[n % _PEOPLE]) for n, run in enumerate(live)]
        with Streams(server.port, asked) as streams:
            streams.until(lambda seen: snapshots(seen) == len(live), within=PATIENCE_SECONDS)
            yield


def _delays_ms(stage: Stage, server: Server, people: Sequence[str], name: str) -> list[float]:
    gate = stage.cluster.home / name
    definition = stage.database.define(
        name,
        definitions.layered(_LAYERS, f"until [ -e {gate} ]; do sleep 0.05; done", "sleep 0.2"),
    )
    stage.database.start(definition)
    run = _run_of(stage, definition)
    asked = [(_path(run), people[n % _PEOPLE]) for n in range(READERS)]
    with Streams(server.port, asked) as streams:
        streams.until(lambda seen: snapshots(seen) == READERS, within=PATIENCE_SECONDS)
        gate.touch()
        stage.database.await_ends(1, within=PATIENCE_SECONDS)
        seen = streams.until(_all_ended, within=PATIENCE_SECONDS)
    stage.database.check_success(definition)
    opened = gate.stat().st_mtime
    return list(delays_of(seen, since=opened))


def delays_of(seen: Sequence[Arrival], *, since: float) -> list[float]:
    """The milliseconds from a start or an end to the first event that tells of it."""
    first: dict[tuple[int, int, str], float] = {}
    for each in seen:
        if each.kind != "task":
            continue
        moment = "end" if each.document["state"]["name"] in _FINAL else "start"
        if each.document[moment] is None:
            continue  # It is submitted, which its row has no event for.
        at = datetime.fromisoformat(each.document[moment]).timestamp()
        if at >= since:
            key = each.stream, each.document["id"], moment
            first.setdefault(key, (each.at - at) * 1000)
    return list(first.values())


def _all_ended(seen: Sequence[Arrival]) -> bool:
    ended = {
        (each.stream, each.document["id"])
        for each in seen
        if each.kind == "task" and each.document["state"]["name"] in _FINAL
    }
    return len(ended) == READERS * _TASKS


def _run_of(stage: Stage, definition: int) -> int:
    query = (
        "SELECT coalesce(max(id), 0) FROM t_ds_process_instance WHERE process_definition_id = %s"
    )
    _await(lambda: stage.database.count(query, (definition,)) > 0)
    return stage.database.count(query, (definition,))


def _path(run: int) -> str:
    return f"/api/v1/events?topics=instance:{run}"


def _await(is_there: Callable[[], Any]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not is_there():
        if time.monotonic() > deadline:
            raise TimeoutError("the runs were not begun")
        time.sleep(_LOOK_SECONDS)
