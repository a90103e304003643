"""Reads a STREAM task that reads a range of a topic by itself: its specification and its bounds.

Pure. `spec` is a supervisor's, of which the parts for supervisors alone mean nothing here. `from`
and `to` are offsets by partition, a time, `earliest` or `latest`; what `to` names is not read.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from common.errors import InvalidSpecError
from common.model.intervals import IntervalError, read_instant
from common.model.streams.partitions import name_several_topics
from common.model.streams.reading import ReadSpec, Rules, read_spec
from common.model.streams.spec import Offsets, SupervisorSpec
from common.model.streams.tasks import TASK_TYPE, offsets_of
from common.model.task_type import ValueFaultError

EARLIEST: Final = "earliest"
LATEST: Final = "latest"
SPEC: Final = "spec"
"""The key of `params` that makes a task one without a supervisor."""
_OF_SUPERVISORS: Final[Mapping[str, tuple[str, ...]]] = {
    "ioConfig": (
        *("replicas", "taskCount", "taskDuration", "startDelay", "period", "useEarliestOffset"),
        *("completionTimeout", "stopTaskCount", "idleConfig", "autoScalerConfig", "alertConfig"),
        "boundedStreamConfig",
    ),
    "tuningConfig": (
        *("shutdownTimeout", "offsetFetchPeriod", "repartitionTransitionDuration"),
        "resetOffsetAutomatically",
    ),
}
"""Keys that a supervisor reads and a range does not."""
_FORMS: Final = 'must be offsets by partition ({"0": 100}), a time, earliest or latest'


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """An end of a range: one of offsets, a time, or `word`."""

    offsets: Offsets | None = None
    time: datetime | None = None
    word: str = ""


def read_bound(value: Any) -> Bound:
    """Read `from` or `to`; `ValueFaultError` for what is neither."""
    if isinstance(value, Mapping):
        try:
            offsets = offsets_of(value)
        except (TypeError, ValueError, AttributeError):
            raise ValueFaultError(_FORMS) from None
        if not offsets or name_several_topics(offsets):
            raise ValueFaultError(_FORMS)
        return Bound(offsets=offsets)
    if not isinstance(value, str):
        raise ValueFaultError(_FORMS)
    if value.lower() in (EARLIEST, LATEST):
        return Bound(word=value.lower())
    try:
        return Bound(time=read_instant(value))
    except (IntervalError, OverflowError):
        raise ValueFaultError(_FORMS) from None


def mistake_between(start: Bound, end: Bound) -> str:
    """Return what is wrong between the bounds of a range, "" if nothing is."""
    if start.offsets is not None and end.offsets is not None:
        if start.offsets.keys() != end.offsets.keys():
            return "must name the partitions of params.from"
        for partition, offset in sorted(end.offsets.items()):
            if offset < start.offsets[partition]:
                return f"partition {partition} would end before its start"
    if start.time is not None and end.time is not None and end.time < start.time:
        return "must not be before params.from"
    return ""


def read_range_spec(value: Any, *, rules: Rules | None = None) -> SupervisorSpec:
    """Read the specification; `ValueFaultError` with every mistake, and never with a secret."""
    if not isinstance(value, Mapping):
        raise ValueFaultError("must be an object, as a supervisor's specification is")
    spec = _read(value, rules).spec
    if not isinstance(spec, SupervisorSpec):
        raise ValueFaultError("must be a specification of type kafka")
    if spec.io.connection:
        raise ValueFaultError("takes no connection, which only supervisors have; remove it")
    if spec.io.has_pattern:
        raise ValueFaultError(
            "contains a topicPattern that can match several topics; a range is of one topic: write"
            " topic"
        )
    return spec


def keys_without_effect(value: Mapping[str, Any], *, rules: Rules | None = None) -> tuple[str, ...]:
    """Return the places of keys without effect in the specification of a range."""
    parts = value["spec"] if isinstance(value.get("spec"), Mapping) else value
    prefix = "spec." if parts is not value else ""
    of_supervisors = (
        f"{prefix}{part}.{key}"
        for part, keys in _OF_SUPERVISORS.items()
        if isinstance(parts.get(part), Mapping)
        for key in keys
        if parts[part].get(key) is not None
    )
    suspended = ("suspended",) if value.get("suspended") is not None else ()
    return (*_read(value, rules).ignored, *of_supervisors, *suspended)


def _read(value: Mapping[str, Any], rules: Rules | None) -> ReadSpec:
    try:
        return read_spec(value, rules=rules)
    except InvalidSpecError as error:
        raise ValueFaultError("can't be read: " + "; ".join(error.mistakes)) from None


def is_supervised(task_type: str, task_json: str) -> bool:
    """Return True for a task of a supervisor, which alone knows where to read on after it."""
    if task_type != TASK_TYPE:
        return False
    try:
        params = json.loads(task_json).get("params")
    except (ValueError, AttributeError, RecursionError):
        return True
    return not (isinstance(params, Mapping) and params.get(SPEC))
