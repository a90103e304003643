"""The parts of the console, as the navigation of every page names them."""

from __future__ import annotations

from typing import Final

from api.console.table import Visit
from operations.rights import may_author

_PARTS: Final = (
    ("", "Overview"),
    ("definitions", "Definitions"),
    ("runs", "Runs"),
    ("schedules", "Schedules"),
    ("complements", "Complements"),
    ("streams", "Streams"),
    ("pools", "Pools"),
    ("cluster", "Cluster"),
    ("projects", "Projects"),
    ("tokens", "Tokens"),
)
_OF_AUTHORS: Final = (("datasources", "Data sources"),)
_OF_ADMINISTRATORS: Final = (("alerts", "Alerts"), ("audit", "Audit"), ("users", "Users"))


def parts_for(visit: Visit) -> list[tuple[str, str]]:
    """Return the parts that somebody may open: their paths and names."""
    return [
        *_PARTS,
        *(_OF_AUTHORS if may_author(visit.session) else ()),
        *(_OF_ADMINISTRATORS if visit.administers else ()),
    ]
