"""Reads `locks` of a task: the intervals of datasets that its attempts have to hold. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from common.model.intervals import LONGEST_TEXT, IntervalError, read_interval
from common.model.locks import (
    BATCH_PRIORITY,
    HIGHEST_PRIORITY,
    LOWEST_PRIORITY,
    LockRequest,
    LockType,
)

MAX_LOCKS: Final = 16

# A part of paths and of names of groups, in every system of files.
_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
_KEYS: Final = ("dataset", "interval", "type", "priority")


@dataclass(frozen=True, slots=True, kw_only=True)
class LockNeed:
    """A lock that a task asks for; `interval` is a text in which parameters may stand."""

    dataset: str
    interval: str
    type: LockType = LockType.EXCLUSIVE
    priority: int = BATCH_PRIORITY


def is_dataset_name(name: str) -> bool:
    """Return True if a dataset may have this name."""
    return _NAME.fullmatch(name) is not None


def read_lock(entry: object, place: str, mistakes: list[str]) -> LockNeed | None:
    """Read one of `locks`, and add its mistakes to those of the definition."""
    if not isinstance(entry, dict):
        mistakes.append(
            f'{place}: must be {{"dataset": "flights", "interval": "$[yyyy-MM-dd]/P1D"}}'
        )
        return None
    known = len(mistakes)
    unknown = sorted(str(key)[:40] for key in entry if key not in _KEYS)
    if unknown:
        mistakes.append(f"{place}: has no key {', '.join(unknown)}; it has {', '.join(_KEYS)}")
    dataset, interval = entry.get("dataset"), entry.get("interval")
    if not isinstance(dataset, str) or not is_dataset_name(dataset):
        mistakes.append(
            f"{place}.dataset: must be a name of letters, digits, _, - and ., 128 at most, and the"
            " first no - or ."
        )
    if not isinstance(interval, str) or not interval.strip():
        mistakes.append(f"{place}.interval: must be a text such as $[yyyy-MM-dd]/P1D")
    elif "$" not in interval:
        try:
            read_interval(interval)
        except IntervalError as error:
            mistakes.append(f"{place}.interval: {error}")
    elif len(interval) > LONGEST_TEXT:
        mistakes.append(f"{place}.interval: has more than {LONGEST_TEXT} characters")
    kind = entry.get("type") or LockType.EXCLUSIVE
    if kind not in LockType.__members__:
        mistakes.append(
            f"{place}.type: must be one of {', '.join(LockType)}, not {str(kind)[:40]!r}"
        )
    priority = entry.get("priority", BATCH_PRIORITY)
    if (
        not isinstance(priority, int)
        or isinstance(priority, bool)
        or not LOWEST_PRIORITY <= priority <= HIGHEST_PRIORITY
    ):
        mistakes.append(
            f"{place}.priority: must be a number from {LOWEST_PRIORITY} to {HIGHEST_PRIORITY}"
        )
    if len(mistakes) > known:
        return None
    return LockNeed(
        dataset=str(dataset), interval=str(interval), type=LockType(kind), priority=int(priority)
    )


def group_of_run(process_instance_id: int) -> str:
    """Return the group that the tasks of a run are."""
    return f"process_instance_{process_instance_id}"


def request_of(need: LockNeed, group_id: str) -> LockRequest:
    """Return the request for a need whose parameters have their values; `IntervalError`."""
    return LockRequest(
        dataset=need.dataset,
        group_id=group_id,
        interval=read_interval(need.interval),
        type=need.type,
        priority=need.priority,
    )
