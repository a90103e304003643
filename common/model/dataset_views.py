"""Reads `params.datasets` of a SPARK_SQL task: datasets as views of its session. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from common.model.intervals import IntervalError, read_interval
from common.model.lock_needs import is_dataset_name
from common.model.task_type import ValueFaultError

_KEYS: Final = ("dataset", "interval", "view", "time")
_COLUMN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")


def read_views(value: object) -> list[dict[str, str]]:
    """Return the entries with the names of their views; `ValueFaultError` with every mistake."""
    if not isinstance(value, list):
        raise ValueFaultError('must be a list of objects like {"dataset": "flights"}')
    mistakes: list[str] = []
    entries = [_read(entry, f"[{index}]", mistakes) for index, entry in enumerate(value)]
    names = [entry["view"].lower() for entry in entries if entry]
    twice = [name for name in dict.fromkeys(names) if names.count(name) > 1]
    mistakes.extend(f"two entries make the view {name}: give one another view" for name in twice)
    if mistakes:
        raise ValueFaultError("can't be read: " + "; ".join(mistakes))
    return entries


def _read(entry: object, place: str, mistakes: list[str]) -> dict[str, str]:
    if not isinstance(entry, Mapping):
        mistakes.append(f"{place} must be an object with the key dataset")
        return {}
    found: list[str] = []
    unknown = sorted(str(key)[:40] for key in entry if key not in _KEYS)
    if unknown:
        found.append(f"{place} has no key {', '.join(unknown)}; it has {', '.join(_KEYS)}")
    given: dict[str, Any] = {key: entry[key] for key in _KEYS if entry.get(key) not in (None, "")}
    name = given.get("dataset")
    if not isinstance(name, str) or not is_dataset_name(name):
        found.append(f"{place}.dataset must be the name of a dataset")
    interval = given.get("interval")
    if interval is not None and not isinstance(interval, str):
        found.append(f"{place}.interval must be a text such as $[yyyy-MM-dd]/P1D")
    elif interval is not None and "$" not in interval:
        try:
            read_interval(interval)
        except IntervalError as error:
            found.append(f"{place}.interval: {error}")
    for key in ("view", "time"):
        text = given.get(key)
        if text is not None and (not isinstance(text, str) or not _COLUMN.fullmatch(text)):
            found.append(f"{place}.{key} must be a name of letters, digits and _")
    mistakes.extend(found)
    if found:
        return {}
    return {"view": re.sub(r"\W", "_", str(name)), **given}
