"""Reserved workers among the reasons that a task waits."""

from __future__ import annotations

from common.model.cluster import Node
from common.model.offers import Offer
from common.why.causes import Cause, CauseKind
from common.why.cluster import worker_causes
from common.why.facts import Alive, QueuePlace

RESERVED = Offer(slots=8, version="1", groups=("etl",), group_ids=frozenset({4}), is_reserved=True)
SHARED = Offer(slots=8, version="1", groups=("etl",), group_ids=frozenset({4}))


def causes(group_id: int, **offers: Offer) -> list[Cause]:
    """Return the causes for a queued task, with workers by their hosts."""
    told = {Node(address=f"{host}:1", incarnation=7): offer for host, offer in offers.items()}
    alive = Alive(masters=frozenset(), workers=frozenset(told), offers=told)
    return list(worker_causes(QueuePlace(ahead=0, group_id=group_id), alive, "etl"))


def test_a_task_without_a_group_waits_while_all_workers_are_reserved() -> None:
    (cause,) = causes(-1, u=RESERVED, v=RESERVED)
    assert cause.cause is CauseKind.ALL_RESERVED
    assert cause.text == "no worker takes tasks without a group: all are reserved"


def test_a_reserved_worker_is_no_candidate_for_a_task_without_a_group() -> None:
    (cause,) = causes(-1, u=RESERVED, v=SHARED)
    assert cause.cause is CauseKind.RUNNING
    assert "v:1" in cause.text
    assert "u:1" not in cause.text


def test_a_reserved_worker_is_a_candidate_for_tasks_of_its_groups() -> None:
    (cause,) = causes(4, u=RESERVED)
    assert cause.cause is CauseKind.RUNNING
