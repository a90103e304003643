"""The context that the tasks of a run share: the values that choose a branch. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from types import MappingProxyType
from zoneinfo import ZoneInfo

from common.model.origins import NOWHERE, Origin

_NONE: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class RunContext:
    """The run's parameters, from which those of its SWITCH tasks are computed.

    `global_params` is the instance's JSON list, `start_params` those of its command. `moment` is
    that from which all its dates are counted (`common.business_dates`), read in `zone`. `hands_up`
    is true for a sub process: its OUT parameters go to the task that began it. `complement` is true
    for a run that a complement began. `origin` and `definition_id` name its definition.
    """

    global_params: str | None = None
    start_params: Mapping[str, str] = field(default_factory=lambda: _NONE)
    moment: datetime = datetime(1970, 1, 1, tzinfo=UTC)
    zone: ZoneInfo = field(default_factory=lambda: ZoneInfo("UTC"))
    complement: bool = False
    hands_up: bool = False
    origin: Origin = NOWHERE
    definition_id: int = 0

    def at(self, moment: datetime) -> RunContext:
        """Return the same context at another moment."""
        return replace(self, moment=moment)
