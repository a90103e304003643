"""Reads the offers of living workers from `t_ds_worker_server`."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from sqlalchemy import Connection, func, select

from common.model.cluster import Node
from common.model.offers import MAX_TEXT, Offer
from common.store.tables import worker_server

_MOST_ROWS: Final = 10_000
_LARGEST_INCARNATION: Final = 2**63 - 1


def offers(db: Connection, workers: Collection[Node]) -> dict[Node, Offer]:
    """Return the offers of these incarnations; one that told none, or nonsense, is left out."""
    wanted = {each.incarnation for each in workers if 0 <= each.incarnation <= _LARGEST_INCARNATION}
    if not wanted:
        return {}
    rows = db.execute(
        select(
            worker_server.c.host,
            worker_server.c.port,
            worker_server.c.incarnation,
            worker_server.c.res_info,
        )
        .where(worker_server.c.incarnation.in_(wanted))
        .where(func.length(worker_server.c.res_info) <= MAX_TEXT)
        .order_by(worker_server.c.id.desc())
        .limit(_MOST_ROWS)
    )
    found: dict[Node, Offer] = {}
    for row in rows:
        node = Node(address=f"{row.host}:{row.port}", incarnation=row.incarnation)
        if node not in workers or node in found:
            continue
        offer = Offer.read(row.res_info)
        if offer is not None:
            found[node] = offer
    return found
