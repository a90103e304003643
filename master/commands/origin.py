"""Where a plan is made: what planners need besides the command and the tables. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from zoneinfo import ZoneInfo

from common.model.definitions import ProcessGraph


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """`zone` is the one in which dates of parameters are read and printed.

    `graph` reads a definition's JSON; it is handed in because a master keeps the graphs that it has
    read, and raises `InvalidDefinitionError`.
    """

    zone: ZoneInfo
    graph: Callable[[str], ProcessGraph]
