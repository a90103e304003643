"""The retry policy of a node: the failures that are retried, and those retried with more memory.

Pure. Reads the keys `retryOn`, `noRetryOn` and `memoryRetry` of a node. They set neither count nor
interval (`maxRetryTimes`, `retryInterval`), and are not asked about a lost worker, whose attempts
are replaced without being charged. Adds the words *reason* (why an attempt failed, see
`common.model.failures`), *memory factor* (by what an attempt's memory is multiplied; it stands in
the attempt's row) and *ceiling* (what the product never exceeds; the worker, which alone knows what
is multiplied, applies it). Used by the reader of definitions, the engine and the worker.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import TYPE_CHECKING, Any, Final

from common.model.failures import FailureReason
from common.model.memory_factor import MAX_MEMORY_FACTOR

if TYPE_CHECKING:
    from common.model.task_type import TaskTypeSpec

MIN_CEILING_MB: Final = 128
MAX_CEILING_MB: Final = 16 * 1024 * 1024

_SIZE: Final = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,6})?)\s*(?:([kmgt])b?)?", re.IGNORECASE)
_MEGABYTES: Final = {"k": 1 / 1024, "m": 1.0, "g": 1024.0, "t": 1024.0 * 1024}
_MEMORY_KEYS: Final = ("factor", "ceiling")


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryRetry:
    """After OUT_OF_MEMORY the next attempt gets `factor` times as much, up to `ceiling_mb`."""

    factor: float = 2.0
    ceiling_mb: int

    def megabytes(self, configured: int, memory_factor: float) -> int:
        """Return the megabytes that an attempt gets, given the configured ones.

        Never less than that: an author who configures more than the ceiling means it.
        """
        return max(configured, min(int(configured * memory_factor), self.ceiling_mb))


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """The reasons that are worth another attempt; by default every one of them."""

    retry_on: tuple[FailureReason, ...] = ()
    """These alone, if there are any."""
    no_retry_on: tuple[FailureReason, ...] = ()
    memory: MemoryRetry | None = None

    def retries(self, failure: FailureReason) -> bool:
        """Return whether a failure for this reason is retried, if any attempt is left."""
        return self.why_not(failure) is None

    def why_not(self, failure: FailureReason) -> str | None:
        """Return the key that forbids a retry after this failure; None if none does."""
        if failure is FailureReason.NOT_GRANTED:
            return "the project needs a grant first"
        if failure in self.no_retry_on:
            return f"noRetryOn names {failure}"
        if self.retry_on and failure not in self.retry_on:
            return f"retryOn does not name {failure}"
        return None

    def next_memory_factor(self, factor: float, failure: FailureReason | None) -> float:
        """Return the memory factor of the attempt that follows one with this factor.

        What was once raised stays raised: less memory has been shown to be too little.
        """
        if self.memory is None or failure is not FailureReason.OUT_OF_MEMORY:
            return factor
        return min(factor * self.memory.factor, MAX_MEMORY_FACTOR)


RETRIES_ALL: Final = RetryPolicy()


def read_retry_policy(
    task_type: str,
    entry: Mapping[str, Any],
    place: str,
    mistakes: list[str],
    *,
    task_types: Mapping[str, TaskTypeSpec],
) -> RetryPolicy:
    """Return a node's policy; add its mistakes to `mistakes`, each with its place and the cure.

    A type that is unknown is taken for one that is retried and has no memory to raise.
    """
    given = [
        key for key in ("retryOn", "noRetryOn", "memoryRetry") if entry.get(key) not in _ABSENT
    ]
    if not given:
        return RETRIES_ALL
    spec = task_types.get(task_type)
    if spec is not None and not spec.is_retried:
        mistakes.append(f"{place}, {given[0]}: a {task_type} is never tried again; take it out")
        return RETRIES_ALL
    retry_on = _reasons(entry.get("retryOn"), f"{place}, retryOn", mistakes)
    no_retry_on = _reasons(entry.get("noRetryOn"), f"{place}, noRetryOn", mistakes)
    mistakes += [
        f"{place}, noRetryOn: {reason.value} stands in retryOn too; take it out of one"
        for reason in retry_on
        if reason in no_retry_on
    ]
    policy = RetryPolicy(
        retry_on=retry_on,
        no_retry_on=no_retry_on,
        memory=_memory_retry(entry.get("memoryRetry"), f"{place}, memoryRetry", mistakes),
    )
    if policy.memory is None:
        return policy
    if spec is None or not spec.memory_retry:
        known = ", ".join(sorted(name for name in task_types if task_types[name].memory_retry))
        mistakes.append(
            f"{place}, memoryRetry: the memory of a {task_type} is not Orcaflow's to raise"
            f" (it is of {known}); take it out"
        )
    if not policy.retries(FailureReason.OUT_OF_MEMORY):
        key = "noRetryOn" if FailureReason.OUT_OF_MEMORY in no_retry_on else "retryOn"
        cure = "take it out of noRetryOn" if key == "noRetryOn" else "add it to retryOn"
        mistakes.append(
            f"{place}, memoryRetry: it follows {FailureReason.OUT_OF_MEMORY.value}, after which"
            f" {key} allows no other attempt; {cure}"
        )
    return policy


def memory_retry_of(node: Mapping[str, Any]) -> MemoryRetry | None:
    """Return the memory retry in a node's JSON, for the worker; None if there is none.

    Mistakes are reported when a definition is read; here one means that there is none.
    """
    return _memory_retry(node.get("memoryRetry"), "memoryRetry", [])


def reason_from(value: object) -> FailureReason | None:
    """Return the reason that a row or a report names; None if it names none that is known here."""
    try:
        return FailureReason(value) if isinstance(value, str) else None
    except ValueError:
        return None


def megabytes_in(value: object) -> int | None:
    """Return the megabytes in a size of Spark's ("8g", "1.5 GB"); a bare number is megabytes."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    found = _SIZE.fullmatch(str(value).strip())
    if found is None:
        return None
    return int(float(found[1]) * _MEGABYTES[(found[2] or "m").lower()])


_ABSENT: Final[tuple[object, ...]] = (None, "", [], {})


def _parsed(value: object) -> object:
    """The original's front end writes objects as text that holds JSON."""
    if not isinstance(value, str) or not value.strip():
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return value


def _reasons(value: object, place: str, mistakes: list[str]) -> tuple[FailureReason, ...]:
    value = _parsed(value)
    if value in _ABSENT:
        return ()
    known = ", ".join(FailureReason)
    if not isinstance(value, Sequence) or isinstance(value, str):
        mistakes.append(f"{place}: must be a list of reasons, not {value!r:.60} (known: {known})")
        return ()
    found: dict[FailureReason, None] = {}
    for index, each in enumerate(value):
        reason = reason_from(each)
        if reason is None:
            mistakes.append(f"{place}[{index}]: {each!r:.60} is unknown (known: {known})")
            continue
        found[reason] = None
    return tuple(found)


def _memory_retry(value: object, place: str, mistakes: list[str]) -> MemoryRetry | None:
    value = _parsed(value)
    if value in _ABSENT:
        return None
    if not isinstance(value, Mapping):
        mistakes.append(
            f'{place}: must be an object like {{"factor": 2, "ceiling": "8G"}}, not {value!r:.60}'
        )
        return None
    wrong = [key for key in value if key not in _MEMORY_KEYS]
    known = ", ".join(_MEMORY_KEYS)
    mistakes += [f"{place}.{key!s:.40}: unknown (known: {known})" for key in wrong]
    factor = _factor(value.get("factor"), f"{place}.factor", mistakes)
    ceiling = _ceiling(value.get("ceiling"), f"{place}.ceiling", mistakes)
    if wrong or factor is None or ceiling is None:
        return None
    return MemoryRetry(factor=factor, ceiling_mb=ceiling)


def _factor(value: object, place: str, mistakes: list[str]) -> float | None:
    if value is None or value == "":
        return 2.0
    try:
        factor = (
            float(value)
            if isinstance(value, str | int | float) and not isinstance(value, bool)
            else float("nan")
        )
    except (ValueError, OverflowError):
        factor = float("nan")
    if not isfinite(factor) or not 1 < factor <= 16:
        mistakes.append(f"{place}: must be a number above 1 and up to 16, not {value!r:.40}")
        return None
    return factor


def _ceiling(value: object, place: str, mistakes: list[str]) -> int | None:
    if value is None or value == "":
        mistakes.append(
            f'{place}: is missing; say up to which memory, as "8G" or in megabytes, it may go'
        )
        return None
    megabytes = megabytes_in(value)
    if megabytes is None or not MIN_CEILING_MB <= megabytes <= MAX_CEILING_MB:
        mistakes.append(
            f'{place}: must be a size like "8G", or megabytes, from {MIN_CEILING_MB} MB to 16 TB,'
            f" not {value!r:.40}"
        )
        return None
    return megabytes
