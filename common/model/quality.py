"""The results of a DATA_QUALITY task's rules: for log, report and `t_ds_quality_result`.

Pure. A task's process writes *results* into a file, which the task could have made into anything;
so nothing here is believed further than to be kept and shown, and it is bounded in number and size.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, Final

LIMIT_BYTES: Final = 1_000_000
MAX_RESULTS: Final = 500
NAME_CHARS: Final = 200
COMPARED: Final = "Compare"
"""The type of the rules that look at what former runs have measured."""
MAX_FORMER: Final = 30
"""The number of former runs that they may look at."""
_TEXT_CHARS: Final = 1_000
_LARGEST = 1 << 62


class QualityLevel(StrEnum):
    """The consequence of a broken rule."""

    WARN = "warn"
    """The task succeeds and says so."""
    BLOCK = "block"
    """The task fails, and so nothing downstream reads the data."""


class QualityState(StrEnum):
    """The outcome of a rule."""

    PASSED = "PASSED"
    WARNED = "WARNED"
    """Broken, and of level warn."""
    BROKEN = "BROKEN"
    """Broken, and of level block."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QualityResult:
    """One rule, once."""

    rule: str
    """Its name, which is unique in its task."""
    type: str
    target: str = ""
    """The columns that it is about; "" for the data as a whole."""
    level: QualityLevel
    state: QualityState
    value: float | None = None
    """The figure that was measured: a share of rows, a number, an age in seconds."""
    expected: str = ""
    rows: int | None = None
    """The number of rows that it looked at."""
    failed: int | None = None
    """The number of them that break the rule."""
    detail: str = ""


def to_json(source: str, results: Iterable[QualityResult]) -> str:
    """Return the document of a task's results."""
    return json.dumps({"source": source, "results": [asdict(each) for each in results]})


def results_from(document: bytes | str) -> tuple[QualityResult, ...]:
    """Return the results in a document that anybody may have written; what is wrong is left out."""
    try:
        found = json.loads(document) if len(document) <= LIMIT_BYTES else None
    except (ValueError, RecursionError):
        found = None
    listed = found.get("results") if isinstance(found, Mapping) else None
    entries = listed if isinstance(listed, list) else []
    results = (_result(each) for each in entries[:MAX_RESULTS])
    named = {each.rule: each for each in results if each is not None}
    return tuple(named.values())


def _result(entry: object) -> QualityResult | None:
    if not isinstance(entry, Mapping):
        return None
    try:
        level, state = QualityLevel(str(entry.get("level"))), QualityState(str(entry.get("state")))
    except ValueError:
        return None
    rule = _text(entry, "rule", NAME_CHARS)
    if not rule:
        return None
    return QualityResult(
        rule=rule,
        type=_text(entry, "type", 40),
        target=_text(entry, "target", NAME_CHARS),
        level=level,
        state=state,
        value=_number(entry.get("value")),
        expected=_text(entry, "expected", NAME_CHARS),
        rows=_count(entry.get("rows")),
        failed=_count(entry.get("failed")),
        detail=_text(entry, "detail", _TEXT_CHARS),
    )


def _text(entry: Mapping[str, Any], key: str, limit: int) -> str:
    value = entry.get(key)
    return value[:limit] if isinstance(value, str) and value.isprintable() else ""


def _number(value: object) -> float | None:
    if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= _LARGEST:
        return float(value) if math.isfinite(value) else None
    return None


def _count(value: object) -> int | None:
    is_count = isinstance(value, int) and not isinstance(value, bool)
    return min(max(0, value), _LARGEST) if is_count and isinstance(value, int) else None
