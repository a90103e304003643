"""Causes of waits in the shares of slots that one project may hold."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from common.model.cluster import Node
from common.model.commands import CommandType
from common.model.offers import Offer
from common.model.slot_share import NO_LIMIT, SharePercents
from common.why import Alive, CauseKind, Facts, PendingCommand, QueuePlace, why_command
from common.why.cluster import worker_causes
from tests.builders import NOON

MASTER = Node(address="m:1", incarnation=1)
WORKER = Node(address="w:1", incarnation=2)
PLACE = QueuePlace(ahead=0, project_id=1, project_name="sales")
COMMAND = PendingCommand(
    id=5,
    command_type=int(CommandType.START_PROCESS),
    process_definition_id=3,
    definition_name="nightly",
    release_state=1,
    start_time=NOON,
    ahead=3,
    project_id=1,
    project_name="sales",
)


def of_task(running: Mapping[int, int], percent: int = 80, *, is_reserved: bool = False) -> str:
    """Return the text about a queued task of project 1 on a worker with 8 slots."""
    offer = Offer(slots=8, version="1", groups=("etl",), group_ids=frozenset({4}))
    alive = Alive(
        masters=frozenset({MASTER}),
        workers=frozenset({WORKER}),
        offers={WORKER: replace(offer, is_reserved=is_reserved)},
        running_of={WORKER.address: running},
    )
    place = replace(PLACE, group_id=4) if is_reserved else PLACE
    (cause,) = worker_causes(place, alive, "etl", percent=percent)
    return cause.text


def test_a_task_waits_because_its_project_holds_its_share_of_the_worker() -> None:
    expected = "project 'sales' holds 6 of 8 slots of the worker w:1; the others stay free for"
    assert of_task({1: 6}) == f"{expected} other projects"


def test_a_worker_without_a_limit_for_the_project_is_named_as_one_that_may_take_the_task() -> None:
    for running in ({1: 5}, {2: 6}, {1: 4, 2: 4}):
        assert of_task(running).startswith("workers that may take it: w:1")
    assert of_task({1: 6}, NO_LIMIT).startswith("workers that may take it: w:1")
    # It may be the only project that uses the worker's groups.
    assert of_task({1: 6}, is_reserved=True).startswith("workers that may take it: w:1")


def of_capacity(capacity: int, surplus: int = 0, percent: int = 80) -> str:
    """Return the text about a task of project 1 that asks for slots of a worker with 8 slots."""
    alive = Alive(
        masters=frozenset({MASTER}),
        workers=frozenset({WORKER}),
        offers={WORKER: Offer(slots=8, version="1", groups=(), group_ids=frozenset())},
        running_of={WORKER.address: {1: 1, 2: 1}},
    )
    place = replace(PLACE, capacity=capacity, surplus={WORKER.address: surplus})
    (cause,) = worker_causes(place, alive, "etl", percent=percent)
    return cause.text


def test_a_task_waits_because_it_asks_for_more_slots_than_its_project_may_take() -> None:
    asks = "it asks for 7 slots (workerSelect.capacity); project 'sales' may take 4 more of the 8"
    largest = "and 6 while nothing else runs there"
    assert of_capacity(7) == f"{asks} slots of the worker w:1, {largest}"
    assert largest not in of_capacity(5)
    assert "project 'sales' may take 0 more of the 8" in of_capacity(2, surplus=5)
    assert of_capacity(4).startswith("workers that may take it: w:1")
    assert of_capacity(7, percent=NO_LIMIT).startswith("it asks for 7 slots")


def of_command(command: PendingCommand, held: Mapping[int, int]) -> list[CauseKind]:
    """Return the causes of a command's wait while its master has these runs, by project."""
    alive = Alive(
        masters=frozenset({MASTER}),
        workers=frozenset(),
        owned={MASTER.address: sum(held.values())},
        owned_of={MASTER.address: held},
    )
    facts = Facts(now=NOON, alive=alive, shares=SharePercents(master=80, worker=80))
    return [each.cause for top in why_command(facts, command) for _, each in top.flat()]


def test_a_command_waits_because_its_project_holds_its_share_of_the_masters() -> None:
    assert of_command(COMMAND, {1: 80}) == [CauseKind.COMMAND, CauseKind.PROJECT_SHARE]
    assert of_command(COMMAND, {1: 79}) == [CauseKind.COMMAND, CauseKind.QUEUED]
    assert of_command(COMMAND, {1: 80, 2: 20}) == [CauseKind.COMMAND, CauseKind.MASTERS_FULL]
    other = replace(COMMAND, project_id=2)
    assert of_command(other, {1: 80}) == [CauseKind.COMMAND, CauseKind.QUEUED]


def test_a_command_that_needs_no_room_does_not_wait_for_a_share() -> None:
    child = replace(COMMAND, parent_task_instance_id=3, ahead=0)
    stop = replace(COMMAND, command_type=int(CommandType.STOP), ahead=0)
    for command in (child, stop):
        assert of_command(command, {1: 80}) == [CauseKind.COMMAND]
