"""Stops, pauses and reruns against success, retries, time-outs and failover, on real daemons.

Every race asks for something within a random 200 ms around what happens anyway. Whoever comes first,
the instance must end within grace + 10 s of the request, in the one state that its tasks agree with.
ORCAFLOW_TEST_RACES says how many; ORCAFLOW_TEST_RACE_SEED which.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta

import pytest

from operations.daemons import Kind
from tests.system.cluster import (
    PrivateCluster,
    a_task,
    in_time,
    private_cluster,
    task_processes,
    until,
)

pytestmark = pytest.mark.kills_daemons

PAUSE, STOP, FAILURE, SUCCESS = 3, 5, 6, 7
GRACE_SECONDS = 1
RACES = int(os.environ.get("ORCAFLOW_TEST_RACES", "500"))
SEED = int(os.environ.get("ORCAFLOW_TEST_RACE_SEED", "20261120"))
BATCH = 50
ASKED = {"stop": STOP, "pause": PAUSE}


@dataclass(frozen=True, slots=True)
class Race:
    """One request to an instance: its kind, its way, and its delay after the start."""

    instance: int
    definition: str
    ask: str
    by_row: bool
    times: int
    after: float


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrivateCluster]:
    with private_cluster(
        tmp_path_factory.mktemp("races"),
        WORKER__KILL_GRACE_SECONDS=str(GRACE_SECONDS),
        # The rest of the promise is for what comes after it.
        MASTER__STOP_DEADLINE_SECONDS=str(GRACE_SECONDS + 5),
        ZOOKEEPER__SESSION_TIMEOUT_SECONDS="4",
    ) as made:
        made.start(masters=2, workers=2, slots=12)
        yield made


@pytest.fixture(scope="module")
def definitions(cluster: PrivateCluster) -> dict[str, int]:
    """By what the request races against."""
    stubborn = "trap '' TERM\nsleep 30"
    child = cluster.define("child", [a_task("a", "sleep 0.05"), a_task("b", "sleep 0.1", "a")])
    sub = {"type": "SUB_PROCESS", "params": {"processDefinitionId": child}}
    overdue = '{"tasks": [{"name": "a", "type": "SHELL", "params": {"rawScript": "sleep 30"}}], "timeout": 1, "timeoutStrategy": "FAILED"}'
    return {
        "success": cluster.define(
            "success", [a_task("a", "sleep 0.08"), a_task("b", "sleep 0.08", "a")]
        ),
        "retry": cluster.define(
            "retry",
            [
                a_task(
                    "a",
                    "sleep 0.03; test $ORCAFLOW_ATTEMPT -ge 3",
                    maxRetryTimes=2,
                    retryInterval=0,
                ),
                a_task("b", "sleep 0.05", "a"),
            ],
        ),
        "failure": cluster.define(
            "failure", [a_task("a", "sleep 0.1; exit 3"), a_task("b", "sleep 0.2")]
        ),
        "kill": cluster.define("kill", [a_task("a", stubborn), a_task("b", "true", "a")]),
        "tree": cluster.define("tree", [a_task("s", "", **sub), a_task("t", "sleep 0.05", "s")]),
        "timeout": cluster.define("timeout", overdue),
    }


@pytest.mark.slow
@pytest.mark.timeout(60 + 2 * RACES)
def test_whoever_comes_first_each_race_ends_in_time_and_in_the_right_state(
    cluster: PrivateCluster, definitions: dict[str, int]
) -> None:
    choose = random.Random(SEED)
    done = 0
    while done < RACES:
        size = min(BATCH, RACES - done)
        instances = _begin(cluster, definitions, choose, size)
        races = [_draw(choose, instance, name) for instance, name in instances]
        _run(cluster, races, _victim(cluster, choose, done // BATCH))
        _judge(cluster, races)
        _go_on(cluster, races)
        done += size
    until(lambda: task_processes(cluster.home) == [])


def _begin(
    cluster: PrivateCluster, definitions: dict[str, int], choose: random.Random, size: int
) -> list[tuple[int, str]]:
    """So many instances, all of them begun, with what each races against."""
    ((before,),) = cluster.rows("SELECT coalesce(max(id), 0) FROM t_ds_process_instance")
    for _ in range(size):
        cluster.put(
            definitions[choose.choice(list(definitions))], failure_strategy=choose.choice((0, 1))
        )
    names = {number: name for name, number in definitions.items()}
    found: list[tuple[int, int]] = []

    def have_begun() -> bool:
        found[:] = cluster.rows(
            "SELECT id, process_definition_id FROM t_ds_process_instance"
            " WHERE id > %s AND is_sub_process = 0 ORDER BY id",
            before,
        )
        return len(found) == size

    until(have_begun)
    return [(instance, names[number]) for instance, number in found]


def _draw(choose: random.Random, instance: int, name: str) -> Race:
    # What would go on for ever must be stopped; a pause lets it.
    ask = "stop" if name == "kill" else choose.choice(("stop", "stop", "pause", "pause", "rerun"))
    if name == "timeout":
        ask = choose.choice(("stop", "time out", "both"))
    return Race(
        instance=instance,
        definition=name,
        ask=ask,
        by_row=choose.random() < 0.5,
        times=choose.choice((1, 1, 3)),
        after=choose.uniform(0, 0.2),
    )


def _victim(cluster: PrivateCluster, choose: random.Random, batch: int) -> tuple[Kind, int] | None:
    """The daemon that is killed amid a batch: none, a worker, a master, and so on."""
    kind = (None, Kind.WORKER, Kind.MASTER)[batch % 3]
    return None if kind is None else (kind, choose.choice(cluster.ports(kind)))


def _run(cluster: PrivateCluster, races: Sequence[Race], victim: tuple[Kind, int] | None) -> None:
    """Ask for everything, each at its moment; all ends in time."""
    killed: tuple[Kind, int] | None = None
    began = time.monotonic()
    for race in sorted(races, key=lambda race: race.after):
        # The moment is what is drawn; nothing that is asserted depends on it.
        time.sleep(max(0.0, race.after - (time.monotonic() - began)))
        if victim is not None and killed is None and race.after > 0.1:
            killed = victim
            cluster.kill(*killed)
        for _ in range(race.times):
            _ask(cluster, race)
    if killed is not None:
        cluster.start_again(*killed)
    ids = [race.instance for race in races]
    until(
        lambda: (
            cluster.rows(
                "SELECT count(*) FROM t_ds_process_instance WHERE id = ANY(%s) AND end_time IS NULL",
                ids,
            )
            == [(0,)]
        )
    )


def _ask(cluster: PrivateCluster, race: Race) -> None:
    if race.ask in ("time out", "both"):
        cluster.rows(
            "UPDATE t_ds_process_instance SET start_time = start_time - interval '1 hour',"
            " restart_time = restart_time - interval '1 hour'"
            " WHERE id = %s AND end_time IS NULL",
            race.instance,
        )
    if race.ask == "time out":
        return
    if race.ask == "rerun":
        # Refused until the instance has ended, and the second one by the unique key.
        cluster.rows(
            "INSERT INTO t_ds_command (command_type, process_definition_id, command_param)"
            " SELECT 7, process_definition_id, json_build_object('ProcessInstanceId', id)::text"
            " FROM t_ds_process_instance WHERE id = %s ON CONFLICT DO NOTHING",
            race.instance,
        )
        return
    code = ASKED.get(race.ask, STOP)
    if race.by_row:
        cluster.put(
            None,
            f'{{"ProcessInstanceId": {race.instance}}}',
            command_type=9 if code == STOP else 8,
        )
        return
    cluster.rows(
        "UPDATE t_ds_process_instance SET wanted_state = %s, wanted_at = now()"
        " WHERE id = %s AND end_time IS NULL AND wanted_state IS NULL",
        code,
        race.instance,
    )


def _judge(cluster: PrivateCluster, races: Sequence[Race]) -> None:
    for race in races:
        ((state, wanted, took, reason),) = cluster.rows(
            "SELECT state, wanted_state, end_time - wanted_at, state_reason"
            " FROM t_ds_process_instance WHERE id = %s",
            race.instance,
        )
        tasks = cluster.rows(
            "SELECT name, state FROM t_ds_task_instance"
            " WHERE process_instance_id = %s AND flag = 1 ORDER BY id",
            race.instance,
        )
        told = (race, state, reason, tasks)
        ends = [code for _, code in tasks]
        assert all(code in (3, 6, 7, 8, 9) for code in ends), told
        good = len(ends) == _nodes(race) and set(ends) == {7}
        timed_out = race.ask in ("time out", "both")
        right = {
            SUCCESS: good,
            STOP: not good and wanted == STOP,
            PAUSE: not good and wanted == PAUSE,
            FAILURE: not good and (FAILURE in ends or timed_out),
        }
        assert right[state], told
        if wanted == STOP:
            assert took < in_time(timedelta(seconds=GRACE_SECONDS + 10)), told


def _nodes(race: Race) -> int:
    return 1 if race.definition == "timeout" else 2


def _go_on(cluster: PrivateCluster, races: Sequence[Race]) -> None:
    """Resume what was paused, and wait until all instances have ended."""
    paused = [race for race in races if cluster.state_of(race.instance) == PAUSE]
    for race in paused:
        cluster.put(None, f'{{"ProcessInstanceId": {race.instance}}}', command_type=3)
    ids = [race.instance for race in paused]
    until(
        lambda: (
            cluster.rows(
                "SELECT count(*) FROM t_ds_process_instance WHERE id = ANY(%s) AND state NOT IN (6, 7)",
                ids,
            )
            == [(0,)]
        )
    )
    for race in paused:
        expected = FAILURE if race.definition == "failure" else SUCCESS
        assert cluster.state_of(race.instance) == expected, race
