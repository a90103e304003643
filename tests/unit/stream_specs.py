"""Builders of streams' specifications: a small one that works, and one with every key."""

from __future__ import annotations

import copy
from typing import Any

from common.model.streams.reading import read_spec
from common.model.streams.spec import SupervisorSpec

SMALL: dict[str, Any] = {
    "type": "kafka",
    "spec": {
        "dataSchema": {
            "dataSource": "flights",
            "timestampSpec": {"column": "at"},
            "dimensionsSpec": {"dimensions": ["origin", {"type": "long", "name": "number"}]},
            "metricsSpec": [{"type": "count", "name": "rows"}],
            "granularitySpec": {"segmentGranularity": "HOUR"},
        },
        "ioConfig": {
            "topic": "events",
            "consumerProperties": {"bootstrap.servers": "broker:9092"},
            "inputFormat": {"type": "json"},
        },
    },
}

SECRET = "hunter2-sasl"

FULL: dict[str, Any] = {
    "type": "kafka",
    "id": "flights",
    "suspended": False,
    "context": {"priority": 60},
    "spec": {
        "dataSchema": {
            "dataSource": "flights",
            "timestampSpec": {
                "column": "at",
                "format": "auto",
                "missingValue": "2013-01-01T00:00:00Z",
            },
            "dimensionsSpec": {
                "dimensions": ["origin", {"type": "long", "name": "number"}],
                "dimensionExclusions": ["secret"],
                "includeAllDimensions": True,
                "useSchemaDiscovery": False,
            },
            "metricsSpec": [
                {"type": "count", "name": "rows"},
                {"type": "doubleSum", "name": "delay", "fieldName": "dep_delay"},
                {"type": "longMax", "name": "worst", "fieldName": "dep_delay"},
                {
                    "type": "stringLast",
                    "name": "last",
                    "fieldName": "carrier",
                    "timeColumn": "seen",
                },
                {"type": "HLLSketchBuild", "name": "tails", "fieldName": "tail", "lgK": 14},
                {"type": "thetaSketch", "name": "dests", "fieldName": "dest", "size": 4096},
            ],
            "granularitySpec": {
                "type": "uniform",
                "segmentGranularity": "DAY",
                "queryGranularity": "MINUTE",
                "rollup": True,
            },
            "transformSpec": {
                "transforms": [{"type": "expression", "name": "late", "expression": "delay > 5"}],
                "filter": {
                    "type": "and",
                    "fields": [
                        {"type": "selector", "dimension": "origin", "value": "JFK"},
                        {"type": "not", "field": {"type": "in", "dimension": "c", "values": [1]}},
                        {
                            "type": "bound",
                            "dimension": "number",
                            "lower": "1",
                            "upper": 9,
                            "upperStrict": True,
                            "ordering": "numeric",
                        },
                    ],
                },
            },
        },
        "ioConfig": {
            "type": "kafka",
            "topic": "events",
            "consumerProperties": {
                "bootstrap.servers": "broker:9092",
                "sasl.password": SECRET,
                "sasl.username": {"type": "environment", "variable": "KEY_PASSWORD"},
            },
            "inputFormat": {
                "type": "kafka",
                "valueFormat": {"type": "json"},
                "keyFormat": {"type": "csv", "columns": ["key"]},
                "headerFormat": {"type": "string", "encoding": "UTF-8"},
                "headerColumnPrefix": "h.",
                "keyColumnName": "k",
                "timestampColumnName": "t",
                "topicColumnName": "topic",
            },
            "replicas": 2,
            "taskCount": 3,
            "taskDuration": "PT10M",
            "startDelay": "PT1S",
            "period": "PT20S",
            "useEarliestOffset": True,
            "completionTimeout": "PT5M",
            "lateMessageRejectionPeriod": "P1D",
            "earlyMessageRejectionPeriod": "PT1H",
            "pollTimeout": 50,
            "stopTaskCount": 1,
            "idleConfig": {"enabled": True, "inactiveAfterMillis": 60_000},
            "autoScalerConfig": {
                "enableTaskAutoScaler": True,
                "autoScalerStrategy": "lagBased",
                "taskCountMin": 1,
                "taskCountMax": 8,
                "taskCountStart": 2,
                "minTriggerScaleActionFrequencyMillis": 1_000,
                "lagCollectionIntervalMillis": 1_000,
                "lagCollectionRangeMillis": 10_000,
                "scaleActionStartDelayMillis": 1_000,
                "scaleActionPeriodMillis": 1_000,
                "scaleOutThreshold": 100,
                "triggerScaleOutFractionThreshold": 0.5,
                "scaleOutStep": 1,
                "scaleInThreshold": 10,
                "triggerScaleInFractionThreshold": 0.8,
                "scaleInStep": 1,
            },
            "alertConfig": {
                "lag": 1_000,
                "lagPeriod": "PT1M",
                "unhealthy": False,
                "taskFailures": 2,
            },
            "boundedStreamConfig": {
                "startSequenceNumbers": {"0": 0, "1": 5},
                "endSequenceNumbers": {"0": 10, "1": 15},
            },
        },
        "tuningConfig": {
            "type": "kafka",
            "shutdownTimeout": "PT60S",
            "offsetFetchPeriod": "PT10S",
            "repartitionTransitionDuration": "PT1M",
            "maxRowsPerSegment": 1_000,
            "maxTotalRows": 5_000,
            "intermediateHandoffPeriod": "PT30M",
            "resetOffsetAutomatically": True,
            "reportParseExceptions": False,
            "maxParseExceptions": 10,
            "maxSavedParseExceptions": 5,
            "logParseExceptions": True,
        },
    },
}


def changed(document: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    """Return a copy with another value at `a.b.0.c`; Ellipsis leaves the key out."""
    copied = copy.deepcopy(document)
    place: Any = copied
    *above, last = path.split(".")
    for part in above:
        place = place[int(part)] if isinstance(place, list) else place.setdefault(part, {})
    if value is ...:
        del place[last]
    else:
        place[int(last) if isinstance(place, list) else last] = value
    return copied


def a_spec(**io: Any) -> SupervisorSpec:
    """Return the small specification with other values of `ioConfig`."""
    document = copy.deepcopy(SMALL)
    tuning = io.pop("tuningConfig", None)
    document["suspended"] = io.pop("suspended", False)
    document["spec"]["ioConfig"].update(io)
    if tuning:
        document["spec"]["tuningConfig"] = tuning
    read = read_spec(document).spec
    assert isinstance(read, SupervisorSpec)
    return read
