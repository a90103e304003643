"""The conditions for a version of a topology to go on from a former one's checkpoints. Pure.

A query's checkpoint holds the places of its spouts and the states of its stateful bolts, by the
place of these in the plan. So another version may have other bolts without state, other groupings
between them, and other numbers of tasks; a query with the name of a former one must have its spouts
and its stateful bolts, in their order and with their keys.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from common.topology.components import StatefulBolt, streams_of
from common.topology.declaration import Topology
from common.topology.groupings import ByFields
from common.topology.plan import Query, queries_of


def heritage(topology: Topology) -> dict[str, Any]:
    """Return all that the checkpoints of a topology depend on, as JSON has it, by query."""
    parts = {part.id: part for part in topology.parts}
    found = {}
    for query in queries_of(topology):
        stateful = [
            {"bolt": name, "key": _key(topology, query, name)}
            for name in (*query.ahead, query.head)
            if isinstance(parts[name].component, StatefulBolt)
        ]
        found[query.name] = {"spouts": list(query.spouts), "stateful": stateful}
    return found


def obstacles(former: Mapping[str, Any], later: Mapping[str, Any]) -> Iterator[str]:
    """Yield why what is later can't go on from the checkpoints of what is former."""
    for name, was in former.items():
        now = later.get(name)
        if now is None:
            if was["stateful"]:
                bolts = ", ".join(each["bolt"] for each in was["stateful"])
                yield f"the states of {bolts} would be lost: there is no query {name!r} any more"
            continue
        if now["spouts"] != was["spouts"]:
            yield (
                f"query {name!r} reads {', '.join(now['spouts'])}, and its checkpoint has places of"
                f" {', '.join(was['spouts'])}"
            )
        before, after = _shown(was), _shown(now)
        if before != after:
            yield (
                f"query {name!r} has the states of {', '.join(after) or 'none'}, and its"
                f" checkpoint those of {', '.join(before) or 'none'}"
            )


def _key(topology: Topology, query: Query, bolt: str) -> list[str]:
    parts = {part.id: part for part in topology.parts}
    taken = query.edges_to(bolt)[0].taken
    assert isinstance(taken.grouping, ByFields)
    stream = streams_of(parts[taken.component].component)[taken.stream]
    types = dict(zip(stream.fields, stream.types, strict=True))
    return [types[field] for field in taken.grouping.fields]


def _shown(query: Mapping[str, Any]) -> list[str]:
    return [f"{each['bolt']} by {'+'.join(each['key'])}" for each in query["stateful"]]
