"""The parts of the console, as the navigation of every page names them in its language."""

from __future__ import annotations

from typing import Final

from api.console.table import Visit
from api.marking import marked
from operations.rights import may_author

_PARTS: Final = (
    ("", marked("Overview")),
    ("definitions", marked("Definitions")),
    ("runs", marked("Runs")),
    ("schedules", marked("Schedules")),
    ("complements", marked("Complements")),
    ("streams", marked("Streams")),
    ("topologies", marked("Topologies")),
    ("pools", marked("Pools")),
    ("cluster", marked("Cluster")),
    ("projects", marked("Projects")),
    ("tokens", marked("Tokens")),
)
_OF_AUTHORS: Final = (("datasources", marked("Data sources")),)
_OF_ADMINISTRATORS: Final = (
    ("alerts", marked("Alerts")),
    ("audit", marked("Audit")),
    ("users", marked("Users")),
    ("grants", marked("Grants")),
)
RARE_PARTS: Final = frozenset(
    ("projects", "tokens", "datasources", "alerts", "audit", "users", "grants")
)
"""The parts that few people open each day; the navigation folds them under one heading."""


def parts_for(visit: Visit) -> list[tuple[str, str]]:
    """Return the parts that somebody may open: their paths and names."""
    return [
        *_PARTS,
        *(_OF_AUTHORS if may_author(visit.session) else ()),
        *(_OF_ADMINISTRATORS if visit.administers else ()),
    ]
