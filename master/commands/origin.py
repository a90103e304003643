"""The origin of plans: the inputs of planners besides the command and the tables. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from zoneinfo import ZoneInfo

from common.model.date_rules import DateRule
from common.model.definitions import ProcessGraph


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """`zone` is the one in which a run that has none of its own reads the dates of parameters.

    `graph` reads a definition's JSON; it is handed in because a master keeps the graphs that it has
    read, and raises `InvalidDefinitionError`.
    """

    zone: ZoneInfo
    graph: Callable[[str], ProcessGraph]
    date_rule: DateRule = DateRule.SCHEDULE_TIME
    """The meaning of the dates of complements whose definitions name none (contract §9.2)."""
    sub_process_depth: int = 100
    """The levels of sub-processes that a process instance may have below it."""
