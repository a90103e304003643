"""Ten thousand commands in one transaction: none lost, taken in turn, at a rate, in little memory.

All are inserted with one time and in five priorities. The rate of acceptance is that from the
commit to the ledger's last line; a master takes no more than it has room for, so it can't be
greater than the rate at which runs end.
"""

from __future__ import annotations

import time

from operations.daemons import Kind
from tests.bench import daemons
from tests.bench.figures import Figure, Target, rate
from tests.bench.strains import grounds
from tests.system.cluster import PrivateCluster

COMMANDS = 10_000
_LONGEST_SECONDS = 900.0
_TAKEN = "SELECT count(*) FROM t_ds_command_ledger WHERE process_definition_id = {}"
# Commands that were taken after one of their priority that was put later.
_MISORDERED = """
    SELECT count(*) FROM (
        SELECT command_id, lag(command_id) OVER (
            PARTITION BY process_instance_priority ORDER BY id
        ) AS before
        FROM t_ds_process_instance WHERE process_definition_id = %s
    ) AS taken WHERE before > command_id
"""
# A command of a lower priority is taken after all of a higher one that are as old.
_OVERTAKEN = """
    SELECT count(*) FROM (
        SELECT process_instance_priority AS place,
            lag(process_instance_priority) OVER (ORDER BY id) AS before
        FROM t_ds_process_instance WHERE process_definition_id = %s
    ) AS taken WHERE before > place
"""
_LOST = """
    SELECT %s - count(*) FROM t_ds_command_ledger l
    JOIN t_ds_process_instance p ON p.id = l.process_instance_id AND p.command_id = l.command_id
    WHERE p.process_definition_id = %s AND p.state = 7
"""


def measure(runs: int) -> list[Figure]:
    accepted: list[float] = []
    ended: list[float] = []
    lost: list[float] = []
    misordered: list[float] = []
    peaks: dict[Kind, list[float]] = {kind: [] for kind in Kind}
    with grounds.cluster() as cluster:
        for turn in range(runs):
            definition = grounds.define_layered(cluster, f"burst {turn}", (1,), "exit 0")
            for pid in cluster.pids().values():
                daemons.forget_peak(pid)
            grounds.put(cluster, definition, COMMANDS)
            committed = time.monotonic()
            taken = grounds.await_count(
                cluster, _TAKEN.format(definition), COMMANDS, within=_LONGEST_SECONDS
            )
            accepted.append(rate(COMMANDS, taken - committed))
            over = grounds.await_count(
                cluster, grounds.ended(definition), COMMANDS, within=_LONGEST_SECONDS
            )
            ended.append(rate(COMMANDS, over - committed))
            lost.append(_count(cluster, _LOST, COMMANDS, definition))
            misordered.append(
                _count(cluster, _MISORDERED, definition) + _count(cluster, _OVERTAKEN, definition)
            )
            for (kind, _), pid in cluster.pids().items():
                peaks[kind].append(daemons.peak_mb(pid))
    none = Target(limit=0)
    return [
        Figure(
            name="burst.accepted",
            unit="commands/s",
            values=tuple(accepted),
            target=Target(limit=100, at_least=True),
        ),
        Figure(name="burst.ended", unit="runs/s", values=tuple(ended)),
        Figure(name="burst.lost", unit="commands", values=tuple(lost), target=none),
        Figure(name="burst.misordered", unit="commands", values=tuple(misordered), target=none),
        *(
            Figure(
                name=f"burst.{word}_peak",
                unit="MB",
                values=tuple(peaks[kind]),
                target=Target(limit=300),
            )
            for kind, word in ((Kind.MASTER, "master"), (Kind.WORKER, "worker"))
        ),
    ]


def _count(cluster: PrivateCluster, query: str, *values: object) -> float:
    ((found,),) = cluster.rows(query, *values)
    return float(found)
