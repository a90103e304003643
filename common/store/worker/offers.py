"""Writes the offers of workers into `t_ds_worker_server`. Used by `common.store.worker.tasks`."""

from __future__ import annotations

from typing import Final

from sqlalchemy import BigInteger, Engine, bindparam, cast, delete, func, insert, or_

from common.model.cluster import Node
from common.model.offers import Offer
from common.store.tables import worker_server
from common.store.transaction import repeatable, storable

_AT_ADDRESS: Final = (worker_server.c.host == bindparam("at_host")) & (
    worker_server.c.port == bindparam("at_port")
)
# One statement, so that nobody sees a worker without an offer between the two changes. A row of a
# greater incarnation is the successor's.
_FORMER: Final = (
    delete(worker_server)
    .where(_AT_ADDRESS)
    .where(
        or_(
            worker_server.c.incarnation.is_(None),
            worker_server.c.incarnation <= bindparam("at_incarnation"),
        )
    )
    .returning(worker_server.c.id)
    .cte("former")
)
_RECORD: Final = (
    insert(worker_server)
    .values(
        host=bindparam("at_host"),
        port=bindparam("at_port"),
        res_info=bindparam("offer"),
        incarnation=cast(bindparam("at_incarnation"), BigInteger),
        create_time=func.now(),
        last_heartbeat_time=func.now(),
    )
    .add_cte(_FORMER)
)


def record_offer(engine: Engine, node: Node, offer: Offer) -> None:
    """Do what `TaskStore.record_offer` does."""
    host, _, port = node.address.rpartition(":")
    values = {
        "at_host": storable(host, 255),
        "at_port": int(port),
        "at_incarnation": node.incarnation,
        "offer": offer.text(),
    }
    repeatable(engine, lambda db: db.execute(_RECORD, values))
