"""Requests of people to a supervisor, which wait in `t_ds_supervisor_command` for its keeper.

Pure. Suspension, resumption and termination are versions of the specification instead.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from common.model.streams.spec import Offsets
from common.model.streams.tasks import offsets_of


class RequestKind(StrEnum):
    """The kinds of requests; `kind` of a row."""

    RESET = "RESET"
    RESET_OFFSETS = "RESET_OFFSETS"
    HAND_OVER = "HAND_OVER"


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request. `offsets`: of a reset, None for all partitions; `groups`: to hand over.

    `seen`: what was stored when a reset was asked for; what has been published since stays.
    """

    id: int
    kind: RequestKind
    offsets: Offsets | None = None
    stream: str | None = None
    groups: frozenset[int] = frozenset()
    seen: Offsets = field(default_factory=dict)

    @classmethod
    def of(cls, request_id: int, kind: str, body: Mapping[str, Any]) -> Request:
        """Read a row; anything wrong in it is a `ValueError`."""
        try:
            offsets = body.get("offsets")
            return cls(
                id=request_id,
                kind=RequestKind(kind),
                offsets=None if offsets is None else offsets_of(offsets),
                stream=body.get("stream"),
                groups=frozenset(int(each) for each in body.get("groups") or ()),
                seen=offsets_of(body.get("seen") or {}),
            )
        except (TypeError, AttributeError) as error:
            raise ValueError(f"request {request_id} can't be read: {error}") from error
