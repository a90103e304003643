"""Documents in the shapes in which Druid shows the specifications of Kafka supervisors."""

from __future__ import annotations

import copy
from typing import Any

SUBMITTED: dict[str, Any] = {
    "type": "kafka",
    "spec": {
        "dataSchema": {
            "dataSource": "clicks",
            "timestampSpec": {"column": "at", "format": "iso"},
            "dimensionsSpec": {
                "dimensions": ["page", {"type": "long", "name": "user_id"}],
            },
            "metricsSpec": [
                {"type": "count", "name": "count"},
                {"type": "doubleSum", "name": "spent", "fieldName": "price"},
                {"type": "HLLSketchBuild", "name": "users", "fieldName": "user_id"},
            ],
            "granularitySpec": {"segmentGranularity": "DAY", "queryGranularity": "MINUTE"},
        },
        "ioConfig": {
            "topic": "clicks-v1",
            "consumerProperties": {"bootstrap.servers": "kafka:9092"},
            "inputFormat": {"type": "json"},
            "useEarliestOffset": True,
            "taskDuration": "PT2H",
        },
    },
}
"""A specification as somebody writes it."""

_INDEX: dict[str, Any] = {
    "bitmap": {"type": "roaring"},
    "dimensionCompression": "lz4",
    "stringDictionaryEncoding": {"type": "utf8"},
    "metricCompression": "lz4",
    "longEncoding": "longs",
}


def as_shown(**top: Any) -> dict[str, Any]:
    """Return `SUBMITTED` as GET shows it in Druid 24 to 30: every default, every part twice."""
    schema = {
        "dataSource": "clicks",
        "timestampSpec": {"column": "at", "format": "iso", "missingValue": None},
        "dimensionsSpec": {
            "dimensions": [
                {
                    "type": "string",
                    "name": "page",
                    "multiValueHandling": "SORTED_ARRAY",
                    "createBitmapIndex": True,
                },
                {
                    "type": "long",
                    "name": "user_id",
                    "multiValueHandling": "SORTED_ARRAY",
                    "createBitmapIndex": False,
                },
            ],
            "dimensionExclusions": ["__time", "at", "count", "price", "spent", "users"],
            "includeAllDimensions": False,
            "useSchemaDiscovery": False,
        },
        "metricsSpec": [
            {"type": "count", "name": "count"},
            {"type": "doubleSum", "name": "spent", "fieldName": "price", "expression": None},
            {
                "type": "HLLSketchBuild",
                "name": "users",
                "fieldName": "user_id",
                "lgK": 12,
                "tgtHllType": "HLL_4",
                "stringEncoding": "utf16le",
                "shouldFinalize": True,
                "round": False,
            },
        ],
        "granularitySpec": {
            "type": "uniform",
            "segmentGranularity": "DAY",
            "queryGranularity": {
                "type": "duration",
                "duration": 60000,
                "origin": "1970-01-01T00:00:00.000Z",
            },
            "rollup": True,
            "intervals": [],
        },
        "transformSpec": {"filter": None, "transforms": []},
        "projections": None,
    }
    io = {
        "topic": "clicks-v1",
        "topicPattern": None,
        "inputFormat": {
            "type": "json",
            "flattenSpec": {"useFieldDiscovery": True, "fields": []},
            "featureSpec": {},
            "keepNullColumns": False,
            "assumeNewlineDelimited": False,
            "useJsonNodeReader": False,
        },
        "replicas": 1,
        "taskCount": 1,
        "taskDuration": "PT7200S",
        "consumerProperties": {"bootstrap.servers": "kafka:9092"},
        "autoScalerConfig": None,
        "pollTimeout": 100,
        "startDelay": "PT5S",
        "period": "PT30S",
        "useEarliestOffset": True,
        "completionTimeout": "PT1800S",
        "lateMessageRejectionPeriod": None,
        "earlyMessageRejectionPeriod": None,
        "lateMessageRejectionStartDateTime": None,
        "configOverrides": None,
        "idleConfig": None,
        "stopTaskCount": None,
        "stream": "clicks-v1",
        "useEarliestSequenceNumber": True,
    }
    tuning = {
        "type": "kafka",
        "appendableIndexSpec": {"type": "onheap", "preserveExistingMetrics": False},
        "maxRowsInMemory": 150000,
        "maxBytesInMemory": 0,
        "skipBytesInMemoryOverheadCheck": False,
        "maxRowsPerSegment": 5000000,
        "maxTotalRows": None,
        "intermediatePersistPeriod": "PT10M",
        "maxPendingPersists": 0,
        "indexSpec": _INDEX,
        "indexSpecForIntermediatePersists": _INDEX,
        "reportParseExceptions": False,
        "handoffConditionTimeout": 900000,
        "resetOffsetAutomatically": False,
        "segmentWriteOutMediumFactory": None,
        "workerThreads": None,
        "chatThreads": None,
        "chatRetries": 8,
        "httpTimeout": "PT10S",
        "shutdownTimeout": "PT80S",
        "offsetFetchPeriod": "PT30S",
        "intermediateHandoffPeriod": "P2147483647D",
        "logParseExceptions": False,
        "maxParseExceptions": 2147483647,
        "maxSavedParseExceptions": 0,
        "numPersistThreads": 1,
        "skipSequenceNumberAvailabilityCheck": False,
        "repartitionTransitionDuration": "PT120S",
    }
    parts: dict[str, Any] = {"dataSchema": schema, "ioConfig": io, "tuningConfig": tuning}
    shown = {
        "type": "kafka",
        "spec": copy.deepcopy(parts),
        **copy.deepcopy(parts),
        "context": None,
        "suspended": False,
    }
    return {**shown, **top}


def as_old_druid_shows() -> dict[str, Any]:
    """Return a specification as Druid before 0.17 shows it: parts at the top, and a parser."""
    return {
        "type": "kafka",
        "dataSchema": {
            "dataSource": "clicks",
            "parser": {
                "type": "string",
                "parseSpec": {
                    "format": "json",
                    "timestampSpec": {"column": "at", "format": "iso"},
                    "dimensionsSpec": {
                        "dimensions": ["page", {"type": "long", "name": "user_id"}],
                        "dimensionExclusions": [],
                        "spatialDimensions": [],
                    },
                },
            },
            "metricsSpec": [
                {"type": "count", "name": "count"},
                {"type": "doubleSum", "name": "spent", "fieldName": "price", "expression": None},
                {"type": "HLLSketchBuild", "name": "users", "fieldName": "user_id"},
            ],
            "granularitySpec": {
                "type": "uniform",
                "segmentGranularity": "DAY",
                "queryGranularity": "MINUTE",
                "rollup": True,
                "intervals": None,
            },
            "transformSpec": {"filter": None, "transforms": []},
        },
        "tuningConfig": {
            "type": "kafka",
            "maxRowsInMemory": 75000,
            "maxRowsPerSegment": 5000000,
            "intermediatePersistPeriod": "PT10M",
            "basePersistDirectory": "/tmp/1530551810169-0",
            "maxPendingPersists": 0,
            "indexSpec": {"bitmap": {"type": "concise"}, "longEncoding": "longs"},
            "buildV9Directly": True,
            "reportParseExceptions": False,
            "handoffConditionTimeout": 0,
            "resetOffsetAutomatically": False,
            "workerThreads": None,
            "chatThreads": None,
            "chatRetries": 8,
            "httpTimeout": "PT10S",
            "shutdownTimeout": "PT80S",
            "offsetFetchPeriod": "PT30S",
        },
        "ioConfig": {
            "topic": "clicks-v1",
            "replicas": 1,
            "taskCount": 1,
            "taskDuration": "PT7200S",
            "consumerProperties": {"bootstrap.servers": "kafka:9092"},
            "startDelay": "PT5S",
            "period": "PT30S",
            "useEarliestOffset": True,
            "completionTimeout": "PT1800S",
            "lateMessageRejectionPeriod": None,
            "earlyMessageRejectionPeriod": None,
            "skipOffsetGaps": False,
        },
        "context": None,
        "suspended": False,
    }
