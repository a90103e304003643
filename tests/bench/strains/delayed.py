"""Two hundred runs of ten short tasks, with each statement of the daemons 50 ms late, and without.

All daemons reach PostgreSQL by a proxy that holds each message back (`slow_link`); the bench itself
looks past it. `share` is the rate of tasks with the delay in proportion to that without, in the same
cluster. `deaths` counts attempts that were given up with their worker and runs that changed their
owner, of which a delay may cause none.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from common.embedded.addresses import recorded_postgres
from tests.bench.figures import Figure, Target, rate
from tests.bench.strains import grounds
from tests.bench.strains.slow_link import slow_link
from tests.system.cluster import PrivateCluster, private_cluster

INSTANCES = 200
LAYERS = (1, 3, 3, 2, 1)
DELAY_SECONDS = 0.05
_TASKS = INSTANCES * sum(LAYERS)
_LONGEST_SECONDS = 900.0
_DEATHS = """
    SELECT count(*) FROM t_ds_process_instance p JOIN t_ds_task_instance t
        ON t.process_instance_id = p.id
    WHERE p.process_definition_id = %s AND (p.owner_epoch > 1 OR t.state = 8 OR t.attempt > 1)
"""
_SUCCEEDED = """
    SELECT count(*) FROM t_ds_process_instance p JOIN t_ds_task_instance t
        ON t.process_instance_id = p.id
    WHERE p.process_definition_id = %s AND p.state = 7 AND t.state = 7
"""


@dataclass(slots=True)
class _Seen:
    """The figures of several runs: with the delay, or without."""

    rates: list[float] = field(default_factory=list)
    messages: list[float] = field(default_factory=list)
    deaths: list[float] = field(default_factory=list)
    lost: list[float] = field(default_factory=list)


def measure(runs: int) -> list[Figure]:
    plain, late = _Seen(), _Seen()
    with grounds.home() as home, private_cluster(home / "server") as server:
        server.daemons.start_postgres()
        address = recorded_postgres(server.home)
        assert address is not None
        with slow_link(address.host, address.port) as link:
            url = address.url.replace(f":{address.port}/", f":{link.port}/")
            with private_cluster(home / "cluster", DATABASE__URL=url) as cluster:
                cluster.start(masters=2, workers=2)
                # The first of all runs meets daemons that have done nothing yet.
                _run(server, "warm up", _Seen())
                for turn in range(runs):
                    for seen, delay in ((plain, 0.0), (late, DELAY_SECONDS)):
                        link.delay, before = delay, link.messages
                        _run(server, f"{turn} of {delay} s", seen)
                        seen.messages.append((link.messages - before) / _TASKS)
                link.delay = 0.0
    none = Target(limit=0)
    return [
        Figure(name="delayed.without", unit="tasks/s", values=tuple(plain.rates)),
        Figure(name="delayed.with", unit="tasks/s", values=tuple(late.rates)),
        Figure(
            name="delayed.share",
            unit="of the rate without",
            values=tuple(a / b for a, b in zip(late.rates, plain.rates, strict=True)),
            target=Target(limit=0.6, at_least=True),
        ),
        Figure(name="delayed.messages", unit="a task", values=tuple(late.messages)),
        Figure(name="delayed.messages_without", unit="a task", values=tuple(plain.messages)),
        Figure(name="delayed.deaths", unit="", values=tuple(late.deaths), target=none),
        Figure(name="delayed.lost", unit="tasks", values=tuple(late.lost), target=none),
    ]


def _run(server: PrivateCluster, name: str, seen: _Seen) -> None:
    definition = grounds.define_layered(server, name, LAYERS, "exit 0")
    grounds.put(server, definition, INSTANCES)
    committed = time.monotonic()
    over = grounds.await_count(
        server, grounds.ended(definition), INSTANCES, within=_LONGEST_SECONDS
    )
    seen.rates.append(rate(_TASKS, over - committed))
    ((deaths,),) = server.rows(_DEATHS, definition)
    ((succeeded,),) = server.rows(_SUCCEEDED, definition)
    seen.deaths.append(deaths)
    seen.lost.append(_TASKS - succeeded)
