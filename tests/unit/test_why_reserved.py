"""Reserved workers among the reasons that a task waits."""

from __future__ import annotations

from common.model.cluster import Node
from common.model.offers import Offer
from common.why.attempts import queued_cause
from common.why.causes import Cause, CauseKind
from common.why.cluster import worker_causes
from common.why.facts import Alive, Attempt, Facts, QueuePlace
from tests.builders import NOON

RESERVED = Offer(slots=8, version="1", groups=("etl",), group_ids=frozenset({4}), is_reserved=True)
SHARED = Offer(slots=8, version="1", groups=("etl",), group_ids=frozenset({4}))


def alive_with(**offers: Offer) -> Alive:
    """Return living workers, with an offer for each host."""
    told = {Node(address=f"{host}:1", incarnation=7): offer for host, offer in offers.items()}
    return Alive(masters=frozenset(), workers=frozenset(told), offers=told)


def causes(group_id: int, **offers: Offer) -> list[Cause]:
    """Return the causes for a queued task, with an offer for each worker's host."""
    place = QueuePlace(ahead=0, group_id=group_id)
    return list(worker_causes(place, alive_with(**offers), "etl"))


def test_a_task_without_a_group_waits_while_all_workers_are_reserved() -> None:
    (cause,) = causes(-1, u=RESERVED, v=RESERVED)
    assert cause.cause is CauseKind.ALL_RESERVED
    assert cause.text == "no worker takes tasks without a group: all are reserved"


def test_no_free_slot_takes_a_task_while_all_workers_are_reserved() -> None:
    attempt = Attempt(id=10, name="a", task_type="SHELL", attempt=1, state=0)
    for offer, following in ((RESERVED, None), (SHARED, "the first free slot takes it")):
        facts = Facts(now=NOON, alive=alive_with(u=offer), runs={})
        assert queued_cause(facts, attempt).next == following


def test_a_reserved_worker_is_no_candidate_for_a_task_without_a_group() -> None:
    (cause,) = causes(-1, u=RESERVED, v=SHARED)
    assert cause.cause is CauseKind.RUNNING
    assert "v:1" in cause.text
    assert "u:1" not in cause.text


def test_a_reserved_worker_is_a_candidate_for_tasks_of_its_groups() -> None:
    (cause,) = causes(4, u=RESERVED)
    assert cause.cause is CauseKind.RUNNING
