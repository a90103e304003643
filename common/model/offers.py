"""A worker's offer: the groups that it serves, its slots and its version, as JSON in its row.

Pure. The row is `t_ds_worker_server.res_info`, and anybody may have written it: `Offer.read` takes
nothing that `Offer.text` could not have made. Claims do not depend on it: a worker claims by what
it was started with, and the row tells people so.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Final

MAX_TEXT: Final = 65_536
"""A longer text is read as none."""

_MAX_GROUPS: Final = 1_000
_MAX_NAME: Final = 256
_MAX_VERSION: Final = 64
_MAX_SLOTS: Final = 1_000_000
_MAX_ID: Final = 2**63 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """The offer of one incarnation of a worker; without groups it serves the default one alone.

    `group_ids` are what it claims by; `groups` are the names it was started with, for people. A
    reserved worker takes only tasks of its groups.
    """

    slots: int
    version: str
    groups: tuple[str, ...] = ()
    group_ids: frozenset[int] = frozenset()
    is_reserved: bool = False

    def text(self) -> str:
        """The JSON of the row, shortened to what is read again."""
        return json.dumps(
            {
                "groups": [name[:_MAX_NAME] for name in self.groups[:_MAX_GROUPS]],
                "groupIds": sorted(self.group_ids)[:_MAX_GROUPS],
                "slots": min(self.slots, _MAX_SLOTS),
                "version": self.version[:_MAX_VERSION],
                "reserved": self.is_reserved,
            }
        )

    @classmethod
    def read(cls, text: str | None) -> Offer | None:
        """Read a row; None for anything that no worker writes."""
        if text is None or len(text) > MAX_TEXT:
            return None
        try:
            written = json.loads(text)
        except (ValueError, RecursionError):
            return None
        if not isinstance(written, dict):
            return None
        groups: Any = written.get("groups")
        ids: Any = written.get("groupIds")
        slots: Any = written.get("slots")
        version: Any = written.get("version")
        # A worker of a former version does not write it.
        reserved: Any = written.get("reserved", False)
        if not (_are_names(groups) and _are_ids(ids) and _is_number(slots, most=_MAX_SLOTS)):
            return None
        if not isinstance(version, str) or len(version) > _MAX_VERSION:
            return None
        if not isinstance(reserved, bool):
            return None
        return cls(
            slots=slots,
            version=version,
            groups=tuple(groups),
            group_ids=frozenset(ids),
            is_reserved=reserved,
        )


def offer_of(
    groups: str, group_ids: Collection[int], *, slots: int, version: str, is_reserved: bool
) -> Offer:
    """Build the offer of a worker from its settings and the ids of its groups."""
    return Offer(
        slots=slots,
        version=version,
        groups=names_of(groups),
        group_ids=frozenset(group_ids),
        is_reserved=is_reserved,
    )


def names_of(groups: str) -> tuple[str, ...]:
    """Return the groups of the setting `worker.groups`, by name or id, in its order."""
    return tuple(part.strip() for part in groups.split(",") if part.strip())


def _are_names(value: Any) -> bool:
    return _is_list(value) and all(
        isinstance(each, str) and 0 < len(each) <= _MAX_NAME for each in value
    )


def _are_ids(value: Any) -> bool:
    return _is_list(value) and all(_is_number(each, most=_MAX_ID) for each in value)


def _is_list(value: Any) -> bool:
    return isinstance(value, list) and len(value) <= _MAX_GROUPS


def _is_number(value: Any, *, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 < value <= most
