"""Reads `workerSelect` of a task, which asks for a worker to be chosen for it. Pure.

Without it, whichever worker comes first claims a task. An attempt that asks stands in the tables as
`UNASSIGNED` until a master has chosen.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

UNASSIGNED: Final = "-"
"""The host of a submitted attempt for which no worker is chosen yet; no worker's address."""
MAX_CAPACITY: Final = 1_000_000
MAX_NEED_TEXT: Final = 255
_KEYS: Final = ("dataset", "availabilityGroup", "capacity")


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerNeed:
    """The parts of a task by which its worker is chosen.

    `dataset` is compared with affinities and categories. Tasks of one project and one
    `availability_group` are not put on the same worker. `capacity`: the slots that the task counts
    for in the choices of this project.
    """

    dataset: str = ""
    availability_group: str | None = None
    capacity: int = 1


def read_worker_need(entry: object, place: str, mistakes: list[str]) -> WorkerNeed | None:
    """Read a task's `workerSelect`, and add its mistakes to those of the definition."""
    if entry is None or entry is False:
        return None
    if entry is True:
        return WorkerNeed()
    if not isinstance(entry, dict):
        mistakes.append(f'{place}: must be true, or {{"dataset": "flights", "capacity": 1}}')
        return None
    known = len(mistakes)
    unknown = sorted(str(key)[:40] for key in entry if key not in _KEYS)
    if unknown:
        mistakes.append(f"{place}: has no key {', '.join(unknown)}; it has {', '.join(_KEYS)}")
    texts = {key: entry.get(key, "") for key in _KEYS[:2]}
    for key, text in texts.items():
        if not isinstance(text, str) or len(text) > MAX_NEED_TEXT or "\0" in text:
            mistakes.append(f"{place}.{key}: must be a text of {MAX_NEED_TEXT} characters at most")
    capacity = entry.get("capacity", 1)
    is_number = isinstance(capacity, int) and not isinstance(capacity, bool)
    if not is_number or not 0 < capacity <= MAX_CAPACITY:
        mistakes.append(f"{place}.capacity: must be a number of slots, 1 or more")
    if len(mistakes) > known:
        return None
    return WorkerNeed(
        dataset=texts["dataset"],
        availability_group=texts["availabilityGroup"] or None,
        capacity=capacity,
    )
