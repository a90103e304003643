"""Makes attempts claimable again that a worker has claimed and never started."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Final

from sqlalchemy import (
    BigInteger,
    DateTime,
    Engine,
    Integer,
    and_,
    any_,
    bindparam,
    case,
    cast,
    exists,
    select,
    update,
)
from sqlalchemy.dialects.postgresql import ARRAY

from common.model.cluster import Node
from common.model.states import TaskState
from common.store.tables import task_assignment, task_instance
from common.store.transaction import possible_ids, transaction, unnested

_GIVEN_UP: Final = unnested("given_up", id=Integer, claimed_at=DateTime(timezone=True))
_IS_GIVEN_UP: Final = and_(
    task_instance.c.state == TaskState.RUNNING,
    task_instance.c.host == bindparam("worker_host"),
    task_instance.c.worker_incarnation == any_(cast(bindparam("incarnations"), ARRAY(BigInteger))),
    task_instance.c.wanted_state.is_(None),
    task_instance.c.pid.is_(None),
)
# Locked in order of id, as all that lock several attempts do it.
_UNSTARTED: Final = (
    select(task_instance.c.id)
    .join_from(
        task_instance,
        _GIVEN_UP,
        and_(
            task_instance.c.id == _GIVEN_UP.c.id,
            # No two claims of an attempt by one worker have the same time.
            task_instance.c.start_time == _GIVEN_UP.c.claimed_at,
        ),
    )
    .where(_IS_GIVEN_UP)
    .order_by(task_instance.c.id)
    .with_for_update(of=task_instance, key_share=True)
    .cte("unstarted")
)
_HAND_BACK: Final = (
    update(task_instance)
    .where(task_instance.c.id == _UNSTARTED.c.id)
    .where(_IS_GIVEN_UP)
    .values(
        state=int(TaskState.SUBMITTED),
        # A worker that was chosen for the attempt stays chosen.
        host=case(
            (
                exists()
                .where(task_assignment.c.task_id == task_instance.c.id)
                .correlate(task_instance),
                task_instance.c.host,
            ),
            else_=None,
        ),
        worker_incarnation=None,
        start_time=task_instance.c.submit_time,
        execute_path=None,
        log_path=None,
        lost_at=None,
    )
    .returning(task_instance.c.id)
)


def hand_back(
    engine: Engine, nodes: Collection[Node], claims: Mapping[int, datetime]
) -> frozenset[int]:
    """RUNNING → SUBMITTED for claims of these nodes, all of one address; return the attempts."""
    ids = possible_ids(claims)
    if not ids:
        return frozenset()
    (address,) = {node.address for node in nodes}
    given = {
        "given_up_id": ids,
        "given_up_claimed_at": [claims[task_id] for task_id in ids],
        "worker_host": address,
        "incarnations": sorted(node.incarnation for node in nodes),
    }
    with transaction(engine) as db:
        return frozenset(db.scalars(_HAND_BACK, given))
