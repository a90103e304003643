"""Names of the work of task groups: equal for the same work, and for nothing else.

Pure. *Work* is all that decides which rows a group publishes: the stream, the format, the schema,
the cut of segments, the starting offsets and the accepted times. Settings that only pace the
supervisor are not in it, so changing them leaves running tasks alone. Druid hashes `dataSchema` and
`tuningConfig` as written; here the values count, so that a default which is spelt out, or the order
of keys, makes no other work.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Final

from common.model.streams.spec import LATER, Offsets, SupervisorSpec

_DIGITS: Final = 15


def canonical_json(value: Any) -> str:
    """Return the one text of a JSON value: keys sorted, no spaces."""
    return json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False
    )


def work_of(spec: SupervisorSpec) -> str:
    """Return the part of a specification that decides what its tasks publish, as a digest."""
    parts = {
        "schema": plain(spec.schema),
        "topic": spec.io.topic,
        **({"pattern": True} if spec.io.has_pattern else {}),
        "format": plain(spec.io.input_format),
        "maxRowsPerSegment": spec.tuning.max_rows_per_segment,
        "maxTotalRows": spec.tuning.max_total_rows,
        "intermediateHandoffPeriod": plain(spec.tuning.intermediate_handoff_period),
        "maxParseExceptions": spec.tuning.max_parse_exceptions,
        "ends": plain(spec.io.bounds.ends) if spec.io.bounds else None,
    }
    return hashlib.sha256(canonical_json(parts).encode()).hexdigest()


def base_sequence_name(
    spec: SupervisorSpec,
    work: str,
    *,
    starts: Offsets,
    min_time: datetime | None,
    max_time: datetime | None,
) -> str:
    """Return `index_kafka_<dataset>_<15 hex digits>`; `work` is `work_of` the specification."""
    offsets = "+".join(f"{partition}({starts[partition]})" for partition in sorted(starts))
    text = "\n".join((work, offsets, plain(min_time) or "", plain(max_time) or ""))
    digest = hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()
    return f"index_kafka_{spec.schema.dataset}_{digest[:_DIGITS]}"


def standby_name(spec: SupervisorSpec, group_id: int) -> str:
    """Return `index_kafka_<dataset>_standby_<group>`, for tasks that have no work yet."""
    return f"index_kafka_{spec.schema.dataset}_standby_{group_id}"


def plain(value: Any) -> Any:
    """Return a value of a specification as JSON has it; each class names itself."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {
            each.name: plain(found)
            for each in dataclasses.fields(value)
            if (found := getattr(value, each.name)) != each.default or each.metadata != LATER
        }
        return {"": type(value).__name__, **fields}
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value // timedelta(microseconds=1)
    if isinstance(value, frozenset):
        return sorted(value)
    if isinstance(value, Mapping):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, tuple):
        return [plain(each) for each in value]
    return value
