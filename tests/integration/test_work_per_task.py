"""A budget of the work that a task costs: counted, not timed, and kept exactly.

Three shapes of the benches, smaller: a chain (W1), in which nothing can be batched, a fan (W2), and
several runs at once of ten tasks in layers (W3).
The daemons are real and their loops are stepped by hand (`stepped_daemons`), so that the batches are
the same everywhere and so are the counts. A change that adds a statement fails here; so does one that
saves some, until `BUDGET` says so. Bytes depend on the digits of ids and times, and on the folder of
the test: they are kept within `BYTES_WITHIN`.

A new budget is printed by a test that fails.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterator, Mapping

import pytest

from common.embedded.addresses import ZookeeperAddress
from tests.bench import definitions
from tests.conftest import ZookeeperRoot
from tests.integration.stepped_daemons import SteppedDaemons, stepped_daemons

LENGTH = 10
WIDTH = 20
INSTANCES, LAYERS = 5, (1, 3, 3, 2, 1)
TASKS = {"chain": LENGTH, "fan": WIDTH + 2, "layered": INSTANCES * sum(LAYERS)}
_HOME_CHARACTERS = 150
"""Statements hold paths, whose length must not depend on the place of the test."""
BYTES_WITHIN = 0.05
"""The share by which bytes may differ from the budget."""

# The work of a whole shape: a chain of 10 tasks, a fan of 22, and 5 runs of 10.
SHAPES = ("chain", "fan", "layered")
BUDGET: Mapping[str, tuple[int, int, int]] = {
    "master: bytes_received": (10899, 13078, 13904),
    "master: bytes_sent": (22692, 26683, 54817),
    "master: notifications": (12, 24, 56),
    "master: round_trips": (15, 8, 10),
    "master: statements": (15, 8, 10),
    "master: transactions": (15, 8, 10),
    "master: zookeeper_bytes": (0, 2164, 5570),
    "master: zookeeper_reads": (0, 0, 0),
    "master: zookeeper_writes": (0, 1, 5),
    "worker: bytes_received": (19730, 25850, 56836),
    "worker: bytes_sent": (10630, 4651, 8775),
    "worker: notifications": (10, 2, 0),
    "worker: processes": (10, 22, 50),
    "worker: round_trips": (20, 6, 10),
    "worker: statements": (20, 6, 10),
    "worker: transactions": (20, 6, 10),
    "worker: zookeeper_bytes": (0, 1308, 3390),
    "worker: zookeeper_reads": (0, 1, 5),
    "worker: zookeeper_writes": (0, 1, 5),
}


@pytest.fixture(scope="module")
def daemons(
    url: str, zookeeper: ZookeeperAddress, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SteppedDaemons]:
    root = ZookeeperRoot(hosts=zookeeper.hosts, root=f"/test-{uuid.uuid4().hex[:16]}")
    folder = tmp_path_factory.mktemp("stepped")
    home = folder / "h".ljust(_HOME_CHARACTERS - len(str(folder)) - 1, "o")
    home.mkdir()
    with stepped_daemons(url, root, home) as made:
        # The first run of all meets folders that are not there and connections that are not open,
        # and is too wide for hints alone, which need no claims in ZooKeeper.
        _run(made, definitions.layered((1, 6), "exit 0", "exit 0"), 2)
        yield made


def test_tasks_cost_what_their_budget_says(daemons: SteppedDaemons) -> None:
    work = {
        "chain": _run(daemons, definitions.chain(LENGTH, "exit 0"), 1),
        "fan": _run(daemons, definitions.fan(WIDTH, "exit 0", "exit 0"), 1),
        "layered": _run(daemons, definitions.layered(LAYERS, "exit 0", "exit 0"), INSTANCES),
    }
    kinds = sorted(set(BUDGET).union(*work.values()))
    found = {kind: tuple(work[shape][kind] for shape in SHAPES) for kind in kinds}
    wrong = [
        f"{kind} of {shape}: {count} instead of {budget}, {_difference(count - budget, TASKS[shape])}"
        for kind, counts in found.items()
        for shape, count, budget in zip(SHAPES, counts, BUDGET.get(kind, (0, 0, 0)), strict=True)
        if abs(count - budget) > (budget * BYTES_WITHIN if "bytes" in kind else 0)
    ]
    table = [f'    "{kind}": {counts},' for kind, counts in found.items()]
    assert not wrong, "\n".join(
        ["the budget is not kept:", *wrong, "the new one would be:", *table]
    )


def _run(daemons: SteppedDaemons, text: str, times: int) -> Counter[str]:
    """Run a definition so many times at once; the work of it."""
    ((definition,),) = daemons.sql(
        "INSERT INTO t_ds_process_definition (name, release_state, process_definition_json)"
        " VALUES (gen_random_uuid(), 1, %s) RETURNING id",
        text,
    )
    before = daemons.counted()
    daemons.sql(
        "INSERT INTO t_ds_command (command_type, process_definition_id, command_param)"
        " SELECT 0, %s, '{}' FROM generate_series(1, %s)",
        definition,
        times,
    )
    daemons.work()
    ((succeeded,),) = daemons.sql(
        "SELECT count(*) FROM t_ds_process_instance WHERE process_definition_id = %s AND state = 7",
        definition,
    )
    assert succeeded == times
    work = daemons.counted()
    work.subtract(before)
    return work


def _difference(number: int, tasks: int) -> str:
    return f"{abs(number)} too {'many' if number > 0 else 'few'} ({number / tasks:+.2f} a task)"
