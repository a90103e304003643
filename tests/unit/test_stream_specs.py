"""The specification of a stream: every mistake is named at once, and defaults are Druid's."""

from __future__ import annotations

import copy
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from common.errors import InvalidSpecError
from common.model.streams.fields import Fields, Findings
from common.model.streams.periods import PeriodError, read_duration, read_granularity
from common.model.streams.reading import MAX_TEXT, read_spec
from common.model.streams.schema import fault_of_dataset
from common.model.streams.sequences import base_sequence_name, canonical_json, work_of
from common.model.streams.spec import (
    AlertRule,
    Bound,
    Dimension,
    EnvironmentSecret,
    Every,
    In,
    KafkaFormat,
    Not,
    Selector,
    SupervisorSpec,
    TextFormat,
    Tombstone,
)
from tests.unit.stream_specs import FULL, SECRET, SMALL, a_spec, changed

SCHEMA, IO, TUNING = "spec.dataSchema", "spec.ioConfig", "spec.tuningConfig"
SCALER = f"{IO}.autoScalerConfig"
METRIC = f"{SCHEMA}.metricsSpec"
PARSE_SPEC = f"{SCHEMA}.parser.parseSpec"
FILTER = f"{SCHEMA}.transformSpec.filter"

WRONG: list[tuple[str, Any, str]] = [
    ("type", ..., "type: is missing"),
    ("type", "kinesis", "must be kafka or NoopSupervisorSpec, not 'kinesis'"),
    ("id", "other", "must be the name of dataSchema.dataSource"),
    ("suspended", "perhaps", "must be true or false"),
    ("context", [], "context: must be an object"),
    ("context.priority", 101, "from 0 to 100"),
    ("spec", 5, "spec: must be an object, not 5"),
    ("nonsense", 1, "nonsense: is not a known key"),
    (SCHEMA, ..., "spec.dataSchema: is missing"),
    (SCHEMA, "text", "must be an object, not 'text'"),
    (f"{SCHEMA}.dataSource", ..., "dataSource: is missing"),
    (f"{SCHEMA}.dataSource", "", "must not be empty"),
    (f"{SCHEMA}.dataSource", "a/b", "slash"),
    (f"{SCHEMA}.dataSource", ".hidden", "dot"),
    (f"{SCHEMA}.dataSource", 5, "must be a text, not 5"),
    (f"{SCHEMA}.timestampSpec", [], "must be an object, not a list"),
    (f"{SCHEMA}.timestampSpec.column", {}, "must be a text, not an object"),
    (f"{SCHEMA}.timestampSpec.format", "yyyy-'W'ww", "write xxxx in place of the year"),
    (f"{SCHEMA}.timestampSpec.missingValue", "yesterday", "must be a time such as"),
    (f"{SCHEMA}.dimensionsSpec", 1, "must be an object"),
    (f"{SCHEMA}.dimensionsSpec.dimensions", "origin", "must be a list"),
    (f"{SCHEMA}.dimensionsSpec.dimensions.0", 7, "dimensions[0]: must be an object, not 7"),
    (f"{SCHEMA}.dimensionsSpec.dimensions.1.type", "complex", "must be string or long"),
    (f"{SCHEMA}.dimensionsSpec.dimensions.1.name", ..., "dimensions[1].name: is missing"),
    (f"{SCHEMA}.dimensionsSpec.dimensions.1.name", "Origin", "named twice"),
    (f"{SCHEMA}.dimensionsSpec.dimensions.0", "__time", "named twice, or is the column of time"),
    (f"{SCHEMA}.dimensionsSpec.dimensionExclusions", [1], "must be a name"),
    (f"{SCHEMA}.dimensionsSpec.includeAllDimensions", 3, "true or false"),
    (f"{SCHEMA}.dimensionsSpec.useSchemaDiscovery", True, "typed discovery is not supported"),
    (METRIC, {}, "must be a list"),
    (f"{METRIC}.0", "count", "metricsSpec[0]: must be an object"),
    (f"{METRIC}.0.type", "median", "'median' is unknown; known are count"),
    (f"{METRIC}.0.type", ..., "metricsSpec[0].type: is missing"),
    (f"{METRIC}.0.name", ..., "metricsSpec[0].name: is missing"),
    (f"{METRIC}.0.name", "origin", "is a dimension or time"),
    (f"{METRIC}.1.fieldName", ..., "metricsSpec[1].fieldName: is missing"),
    (f"{METRIC}.1.expression", "a+b", "use transformSpec"),
    (f"{METRIC}.3.timeColumn", 1, "must be a text"),
    (f"{METRIC}.4.lgK", 3, "from 4 to 21"),
    (f"{METRIC}.4.tgtHllType", "HLL_5", "HLL_4 or HLL_6"),
    (f"{METRIC}.5.size", 1000, "power of two"),
    (f"{METRIC}.5.isInputThetaSketch", True, "give raw values"),
    (f"{SCHEMA}.granularitySpec", "HOUR", "must be an object"),
    (f"{SCHEMA}.granularitySpec.type", "arbitrary", "must be uniform"),
    (f"{SCHEMA}.granularitySpec.segmentGranularity", "EON", "is no granularity"),
    (f"{SCHEMA}.granularitySpec.segmentGranularity", "ALL", "must cut time into chunks"),
    (f"{SCHEMA}.granularitySpec.queryGranularity", "MONTH", "coarser than"),
    (
        f"{SCHEMA}.granularitySpec.queryGranularity",
        {"type": "period", "period": "PT1H", "timeZone": "Asia/Shanghai"},
        "in UTC",
    ),
    (f"{SCHEMA}.granularitySpec.rollup", "no", "true or false"),
    (f"{SCHEMA}.transformSpec", "x", "must be an object"),
    (f"{SCHEMA}.transformSpec.transforms.0.type", "script", "must be expression"),
    (f"{SCHEMA}.transformSpec.transforms.0.name", ..., "name: is missing"),
    (f"{SCHEMA}.transformSpec.transforms.0.expression", "", "expression: must not be empty"),
    (
        f"{SCHEMA}.transformSpec.transforms.0.expression",
        "median(delay)",
        "the function 'median' at 1 is unknown",
    ),
    (f"{FILTER}.type", "javascript", "'javascript' is unknown; known are and"),
    (f"{FILTER}.fields", [], "at least one filter"),
    (f"{FILTER}.fields.0.dimension", ..., "dimension: is missing"),
    (f"{FILTER}.fields.0.value", {}, "must be a text or a number"),
    (f"{FILTER}.fields.0.extractionFn", {}, "use a transform"),
    (f"{FILTER}.fields.1.field", ..., "field: is missing"),
    (f"{FILTER}.fields.1.field.values", [], "at least one value"),
    (f"{FILTER}.fields.2.lower", "one", "must be a number"),
    (f"{FILTER}.fields.2.ordering", "alphanumeric", "lexicographic or numeric"),
    (f"{FILTER}.fields.2.upperStrict", "x", "true or false"),
    (f"{FILTER}.fields.2", {"type": "equals", "column": "c"}, "matchValue: is missing"),
    (f"{FILTER}.fields.2", {"type": "range", "column": "c"}, "lower: is missing"),
    (f"{FILTER}.fields.2", {"type": "null"}, "column: is missing"),
    (
        f"{FILTER}.fields.2",
        {"type": "range", "column": "c", "matchValueType": "LONG", "lower": "x"},
        "lower: must be a number",
    ),
    (
        f"{FILTER}.fields.2",
        {"type": "equals", "column": "c", "matchValueType": "ARRAY<LONG>", "matchValue": "1"},
        "must be STRING or LONG",
    ),
    (IO, ..., "spec.ioConfig: is missing"),
    (f"{IO}.type", "kinesis", "must be kafka"),
    (f"{IO}.topic", ..., "topic: is missing"),
    (f"{IO}.topicPattern", "a.*", "topicPattern"),
    (f"{IO}.consumerProperties", ..., "must hold bootstrap.servers"),
    (f"{IO}.consumerProperties", "x", "must be an object"),
    (
        f"{IO}.consumerProperties",
        {"bootstrap.servers": " "},
        "bootstrap.servers: must name a broker",
    ),
    (f"{IO}.inputFormat", ..., "inputFormat: is missing"),
    (f"{IO}.inputFormat.type", "avro", "'avro' is unknown"),
    (f"{IO}.inputFormat.valueFormat", ..., "valueFormat: is missing"),
    (f"{IO}.inputFormat.valueFormat.type", "kafka", "can't be kafka again"),
    (f"{IO}.inputFormat.keyFormat.columns", ..., "columns: are needed"),
    (f"{IO}.inputFormat.keyFormat.columns", ["a", "a"], "name a column twice"),
    (f"{IO}.inputFormat.keyFormat.hasHeaderRow", True, "no header line"),
    (f"{IO}.inputFormat.headerFormat.encoding", "EBCDIC", "must be UTF-8"),
    (
        f"{IO}.inputFormat.valueFormat.flattenSpec",
        {"fields": [{"type": "path", "name": "a", "expr": "$..b"}]},
        "`..` finds fields at any depth",
    ),
    (f"{IO}.replicas", 0, "from 1 to 100"),
    (f"{IO}.taskCount", 0, "from 1 to 10000"),
    (f"{IO}.taskCount", 1.5, "must be a whole number"),
    (f"{IO}.taskDuration", "1h", "is no duration"),
    (f"{IO}.taskDuration", "P1M", "no fixed length"),
    (f"{IO}.taskDuration", "PT0S", "must be PT1S or longer"),
    (f"{IO}.taskDuration", 60, "must be a text such as PT1H"),
    (f"{IO}.startDelay", "soon", "is no duration"),
    (f"{IO}.period", "PT", "is no duration"),
    (f"{IO}.useEarliestOffset", "first", "true or false"),
    (f"{IO}.completionTimeout", "", "is no duration"),
    (f"{IO}.lateMessageRejectionPeriod", "-PT1H", "is no duration"),
    (f"{IO}.lateMessageRejectionStartDateTime", "2013-01-01", "stands beside"),
    (f"{IO}.earlyMessageRejectionPeriod", [], "must be a text such as PT1H"),
    (f"{IO}.pollTimeout", 0, "1 to"),
    (f"{IO}.stopTaskCount", 0, "must be 1 or more"),
    (f"{IO}.idleConfig.enabled", "x", "true or false"),
    (f"{IO}.idleConfig.inactiveAfterMillis", -1, "from 1 to"),
    (f"{IO}.idleConfig.inactiveAfter", 1, "did you mean inactiveAfterMillis?"),
    (f"{SCALER}.enableTaskAutoScaler", 2, "true or false"),
    (f"{SCALER}.autoScalerStrategy", "costBased", "must be lagBased"),
    (f"{SCALER}.taskCountMax", ..., "taskCountMax: is needed"),
    (f"{SCALER}.taskCountMax", 0, "from 1 to"),
    (f"{SCALER}.taskCountMin", 9, "must be taskCountMin (9) or more"),
    (f"{SCALER}.taskCountStart", 9, "from 1 to 8"),
    (f"{SCALER}.minTriggerScaleActionFrequencyMillis", "x", "whole number"),
    (f"{SCALER}.lagCollectionIntervalMillis", 0, "from 1 to"),
    (f"{SCALER}.lagCollectionRangeMillis", 0, "from 1 to"),
    (f"{SCALER}.scaleActionStartDelayMillis", -5, "from 0 to"),
    (f"{SCALER}.scaleActionPeriodMillis", 0, "from 1 to"),
    (f"{SCALER}.scaleOutThreshold", -1, "must be 0 or more"),
    (f"{SCALER}.triggerScaleOutFractionThreshold", 1.1, "from 0 to 1"),
    (f"{SCALER}.scaleOutStep", 0, "must be 1 or more"),
    (f"{SCALER}.scaleInThreshold", [], "whole number"),
    (f"{SCALER}.triggerScaleInFractionThreshold", "all", "from 0 to 1"),
    (f"{SCALER}.scaleInStep", 0, "must be 1 or more"),
    (f"{IO}.alertConfig", 5, "must be an object"),
    (f"{IO}.alertConfig.lag", 0, "must be 1 or more"),
    (f"{IO}.alertConfig.lag", ..., "alertConfig.lag: is missing; a period alone limits nothing"),
    (f"{IO}.alertConfig.lagPeriod", 60, "must be a text such as PT1H"),
    (f"{IO}.alertConfig.unhealthy", "x", "true or false"),
    (f"{IO}.alertConfig.taskFailures", -1, "must be 0 or more"),
    (f"{IO}.alertConfig.taskFailure", 1, "did you mean taskFailures?"),
    (f"{IO}.boundedStreamConfig.startSequenceNumbers", {}, "an offset for each partition"),
    (f"{IO}.boundedStreamConfig.startSequenceNumbers", {"a": 1}, "no partition and offset"),
    (f"{IO}.boundedStreamConfig.endSequenceNumbers", {"0": 1}, "must name the partitions"),
    (f"{IO}.boundedStreamConfig.endSequenceNumbers.1", 4, "end before its start"),
    (f"{IO}.taskCuont", 1, "did you mean taskCount?"),
    (TUNING, [], "must be an object, not a list"),
    (f"{TUNING}.type", "index", "must be kafka"),
    (f"{TUNING}.shutdownTimeout", "x", "is no duration"),
    (f"{TUNING}.offsetFetchPeriod", "x", "is no duration"),
    (f"{TUNING}.repartitionTransitionDuration", 1, "must be a text"),
    (f"{TUNING}.maxRowsPerSegment", 0, "1 or more"),
    (f"{TUNING}.maxTotalRows", 0, "1 or more"),
    (f"{TUNING}.intermediateHandoffPeriod", "PT0S", "PT1S or longer"),
    (f"{TUNING}.resetOffsetAutomatically", "x", "true or false"),
    (f"{TUNING}.reportParseExceptions", "x", "true or false"),
    (f"{TUNING}.maxParseExceptions", -1, "from 0 to"),
    (f"{TUNING}.maxSavedParseExceptions", 10**6, "from 0 to 100000"),
    (f"{TUNING}.logParseExceptions", "x", "true or false"),
]


def _mistakes(document: Any) -> tuple[str, ...]:
    with pytest.raises(InvalidSpecError) as caught:
        read_spec(document)
    return caught.value.mistakes


def _spec(document: Any) -> SupervisorSpec:
    read = read_spec(document).spec
    assert isinstance(read, SupervisorSpec)
    return read


@pytest.mark.parametrize(
    ("path", "value", "text"), WRONG, ids=[f"{path}-{text}" for path, _, text in WRONG]
)
def test_a_wrong_key_is_named_with_its_place(path: str, value: Any, text: str) -> None:
    found = _mistakes(changed(FULL, path, value))
    key = path.rpartition(".")[2]
    assert any(text in each for each in found), found
    assert len(found) <= 2, found
    assert any(key.isdecimal() or key in each for each in found), found


def test_all_mistakes_are_named_at_once() -> None:
    document = FULL
    for path, value in (
        (f"{SCHEMA}.dataSource", "a/b"),
        (f"{METRIC}.0.type", "median"),
        (f"{IO}.replicas", 0),
        (f"{IO}.taskDuration", "1h"),
        (f"{TUNING}.maxRowsPerSegment", "many"),
        ("nonsense", 1),
    ):
        document = changed(document, path, value)
    # Its id no longer is the dataset's name; six of them are ours.
    assert len(_mistakes(document)) == 7


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "5", "null", '{"a": NaN}', "[" * 100_000, " " * (MAX_TEXT + 1)]
)
def test_a_text_that_is_no_specification_is_refused(text: str) -> None:
    assert _mistakes(text)


def test_no_mistake_shows_a_secret() -> None:
    document = changed(FULL, f"{IO}.consumerProperties.keystore", {"type": SECRET, "x": [SECRET]})
    document = changed(document, f"{IO}.consumerProperties.more", [SECRET])
    found = " ".join(_mistakes(document))
    assert "keystore" in found
    assert SECRET not in found
    with pytest.raises(InvalidSpecError) as caught:
        read_spec(f'{{"password": "{SECRET}", ')
    assert SECRET not in str(caught.value)


def test_the_full_specification_reads_as_written() -> None:
    spec = _spec(FULL)
    assert (spec.id, spec.priority, spec.suspended) == ("flights", 60, False)
    io = spec.io
    assert (io.replicas, io.task_count, io.task_duration) == (2, 3, timedelta(minutes=10))
    assert io.use_earliest_offset
    assert io.consumer["sasl.username"] == EnvironmentSecret(variable="KEY_PASSWORD")
    assert isinstance(io.input_format, KafkaFormat)
    assert io.input_format.key == TextFormat(type="csv", columns=("key",), delimiter=",")
    assert io.idle.inactive_after == timedelta(minutes=1)
    assert io.scaling is not None
    assert (io.scaling.least, io.scaling.most, io.scaling.start) == (1, 8, 2)
    assert io.bounds is not None
    assert io.bounds.starts == {0: 0, 1: 5}
    assert io.late_period == timedelta(days=1)
    assert io.alerts == AlertRule(
        lag=1_000, lag_for=timedelta(minutes=1), unhealthy=False, task_failures=2
    )
    assert spec.schema.segment_granularity.name == "DAY"
    assert spec.schema.filter == Every(
        filters=(
            Selector(column="origin", value="JFK"),
            Not(filter=In(column="c", values=("1",))),
            Bound(
                column="number",
                lower="1",
                upper="9",
                lower_strict=False,
                upper_strict=True,
                numeric=True,
            ),
        )
    )
    assert [each.size for each in spec.schema.metrics] == [None] * 4 + [14, 4096]
    assert spec.tuning.max_total_rows == 5_000


def test_defaults_are_those_of_druid() -> None:
    spec = _spec(SMALL)
    io, tuning, schema = spec.io, spec.tuning, spec.schema
    assert (io.replicas, io.task_count, io.use_earliest_offset) == (1, 1, False)
    assert (io.task_duration, io.completion_timeout) == (timedelta(hours=1), timedelta(minutes=30))
    assert (io.start_delay, io.period) == (timedelta(seconds=5), timedelta(seconds=30))
    assert (io.late_period, io.early_period, io.late_start) == (None, None, None)
    assert not io.idle.enabled
    assert io.idle.inactive_after == timedelta(minutes=10)
    assert (io.scaling, io.bounds, io.stop_task_count) == (None, None, None)
    assert io.alerts == AlertRule(
        lag=None, lag_for=timedelta(minutes=10), unhealthy=True, task_failures=3
    )
    assert tuning.shutdown_timeout == timedelta(seconds=80)
    assert tuning.offset_fetch_period == timedelta(seconds=30)
    assert tuning.repartition_transition == timedelta(minutes=2)
    assert (tuning.max_rows_per_segment, tuning.max_total_rows) == (5_000_000, None)
    assert (tuning.max_parse_exceptions, tuning.max_saved_parse_exceptions) == (2**31 - 1, 0)
    assert not tuning.reset_offset_automatically
    assert (schema.query_granularity.name, schema.rollup) == ("NONE", True)


def test_a_scaled_supervisor_has_the_defaults_of_druid() -> None:
    config = {"enableTaskAutoScaler": True, "taskCountMin": 2, "taskCountMax": 4}
    spec = a_spec(autoScalerConfig=config)
    rule = spec.io.scaling
    assert rule is not None
    assert spec.io.task_count == 2
    assert (rule.out_threshold, rule.out_share, rule.out_step) == (6_000_000, 0.3, 2)
    assert (rule.in_threshold, rule.in_share, rule.in_step) == (1_000_000, 0.9, 1)
    assert (rule.cool_down, rule.start_delay) == (timedelta(minutes=10), timedelta(minutes=5))


def test_the_first_parse_exception_is_fatal_if_they_are_reported() -> None:
    assert a_spec(tuningConfig={"reportParseExceptions": True}).tuning.max_parse_exceptions == 0


def test_an_offset_fetch_period_is_five_seconds_or_more() -> None:
    spec = a_spec(tuningConfig={"offsetFetchPeriod": "PT1S"})
    assert spec.tuning.offset_fetch_period == timedelta(seconds=5)


def test_keys_without_effect_are_listed() -> None:
    document = changed(
        SMALL, TUNING, {"workerThreads": 4, "httpTimeout": "PT9S", "indexSpec": {"a": 1}}
    )
    document = changed(document, f"{SCHEMA}.granularitySpec.intervals", ["2013/2014"])
    document = changed(document, f"{SCHEMA}.dimensionsSpec.dimensionExclusions", ["x"])
    assert set(read_spec(document).ignored) == {
        "spec.tuningConfig.workerThreads",
        "spec.tuningConfig.httpTimeout",
        "spec.tuningConfig.indexSpec",
        "spec.dataSchema.granularitySpec.intervals",
        "spec.dataSchema.dimensionsSpec.dimensionExclusions",
    }
    assert read_spec(SMALL).ignored == ()


def test_a_consumer_property_that_tasks_set_themselves_is_listed() -> None:
    properties = {"bootstrap.servers": "b:9092", "group.id": "mine", "fetch.min.bytes": 5}
    read = read_spec(changed(SMALL, f"{IO}.consumerProperties", properties))
    assert read.ignored == ("spec.ioConfig.consumerProperties.group.id",)
    assert isinstance(read.spec, SupervisorSpec)
    assert read.spec.io.consumer == {"bootstrap.servers": "b:9092", "fetch.min.bytes": "5"}


def test_parts_may_stand_at_the_top() -> None:
    assert _spec({"type": "kafka", **SMALL["spec"]}) == _spec(SMALL)


def test_numbers_and_truth_values_may_be_texts() -> None:
    spec = a_spec(taskCount="4", useEarliestOffset="true", replicas=None)
    assert (spec.io.task_count, spec.io.use_earliest_offset, spec.io.replicas) == (4, True, 1)


def test_a_legacy_parser_reads_as_the_same_specification() -> None:
    document = copy.deepcopy(SMALL)
    schema = document["spec"]["dataSchema"]
    parse_spec = {
        "format": "json",
        "timestampSpec": schema.pop("timestampSpec"),
        "dimensionsSpec": schema.pop("dimensionsSpec"),
    }
    schema["parser"] = {"type": "string", "parseSpec": parse_spec}
    del document["spec"]["ioConfig"]["inputFormat"]
    assert _spec(document) == _spec(SMALL)


@pytest.mark.parametrize(
    ("path", "value", "text"),
    [
        (f"{IO}.inputFormat", {"type": "json"}, f"inputFormat: differs from {PARSE_SPEC};"),
        (
            f"{SCHEMA}.timestampSpec",
            {"column": "when"},
            f"{SCHEMA}.timestampSpec: differs from {PARSE_SPEC}.timestampSpec; keep one",
        ),
        (
            f"{SCHEMA}.dimensionsSpec",
            {"dimensions": ["at", "b"]},
            f"{SCHEMA}.dimensionsSpec: differs from {PARSE_SPEC}.dimensionsSpec; keep one",
        ),
        (f"{SCHEMA}.parser.type", "avro", "must be string"),
        (f"{SCHEMA}.parser.parseSpec", ..., "parseSpec: is missing"),
        (f"{SCHEMA}.parser.parseSpec.format", "avro", "must be json or csv or tsv or regex"),
        (f"{SCHEMA}.parser.parseSpec.columms", [], "did you mean columns?"),
    ],
)
def test_a_wrong_legacy_parser_is_named(path: str, value: Any, text: str) -> None:
    document = copy.deepcopy(SMALL)
    schema = document["spec"]["dataSchema"]
    del schema["timestampSpec"], schema["dimensionsSpec"]
    del document["spec"]["ioConfig"]["inputFormat"]
    parts = {"timestampSpec": {"column": "at"}, "dimensionsSpec": {"dimensions": ["b"]}}
    schema["parser"] = {"parseSpec": {"format": "csv", "columns": ["at"], **parts}}
    assert _spec(document).io.input_format == TextFormat(type="csv", columns=("at",), delimiter=",")
    assert any(text in each for each in _mistakes(changed(document, path, value)))


def test_no_dimensions_mean_all_but_the_excluded() -> None:
    read = _spec(changed(SMALL, f"{SCHEMA}.dimensionsSpec", {"dimensionExclusions": ["x"]}))
    assert read.schema.dimensions.discovers
    assert read.schema.dimensions.excluded == {"x"}
    declared = _spec(SMALL).schema.dimensions
    assert not declared.discovers
    assert declared.declared[0] == Dimension(name="origin")


def test_a_removed_supervisor_is_a_tombstone() -> None:
    document = {"type": "NoopSupervisorSpec", "id": None, "dataSources": ["flights"], "spec": None}
    assert read_spec(json.dumps(document)).spec == Tombstone(id="flights")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("PT1H", 3600), ("PT30S", 30), ("P1D", 86400), ("P2W", 1209600), ("PT0.5S", 0.5)],
)
def test_a_duration_is_a_fixed_length(text: str, seconds: float) -> None:
    assert read_duration(text) == timedelta(seconds=seconds)


@pytest.mark.parametrize("text", ["P", "PT", "1H", "P1Y", "P1M", "PT1H ", "P-1D", "PT9999999999H"])
def test_what_has_no_fixed_length_is_no_duration(text: str) -> None:
    with pytest.raises(PeriodError):
        read_duration(text)


def test_equal_chunks_are_equal_granularities() -> None:
    assert read_granularity({"type": "period", "period": "PT1H"}) == read_granularity("hour")
    assert read_granularity({"type": "duration", "duration": 3_600_000}) == read_granularity("HOUR")
    assert read_granularity({"type": "period", "period": "P3M"}) == read_granularity("QUARTER")
    assert read_granularity({"type": "none"}) == read_granularity("NONE")


@pytest.mark.parametrize(
    "value", ["", 5, {"type": "period"}, {"type": "duration", "duration": 0}, {"period": "PT0S"}]
)
def test_what_cuts_no_chunks_is_no_granularity(value: Any) -> None:
    with pytest.raises(PeriodError):
        read_granularity(value)


@pytest.mark.parametrize("name", [" ", ".", "a/b", "a\nb", "é" * 128])
def test_a_name_that_is_no_folder_is_no_dataset(name: str) -> None:
    assert fault_of_dataset(name)


def test_equal_json_has_one_text() -> None:
    assert canonical_json({"b": [1, {"d": 1, "c": "é"}], "a": None}) == (
        '{"a":null,"b":[1,{"c":"\\u00e9","d":1}]}'
    )


def _name(spec: SupervisorSpec, **of_group: Any) -> str:
    group = {"starts": {0: 5, 10: 7}, "min_time": None, "max_time": None} | of_group
    return base_sequence_name(spec, work_of(spec), **group)


@pytest.mark.parametrize(
    ("document", "name"),
    [
        (SMALL, "index_kafka_flights_11db426b0cbe875"),
        (FULL, "index_kafka_flights_d347010cf2f8bbe"),
    ],
)
def test_running_tasks_of_former_versions_keep_their_sequences(document: Any, name: str) -> None:
    # Names that earlier versions gave: another name would stop these tasks at an upgrade.
    assert _name(_spec(document)) == name


def test_a_sequence_name_is_the_dataset_with_fifteen_digits() -> None:
    prefix, _, digits = _name(_spec(SMALL)).rpartition("_")
    assert prefix == "index_kafka_flights"
    assert len(digits) == 15
    assert int(digits, 16) >= 0


def test_equal_work_has_an_equal_name() -> None:
    spelt_out = changed(SMALL, f"{SCHEMA}.granularitySpec.rollup", True)
    spelt_out = changed(spelt_out, TUNING, {"workerThreads": 4, "maxRowsPerSegment": "5000000"})
    paced = changed(spelt_out, f"{IO}.taskDuration", "PT5M")
    assert _name(_spec(paced)) == _name(_spec(SMALL))
    assert _name(_spec(SMALL), starts={10: 7, 0: 5}) == _name(_spec(SMALL))


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (f"{IO}.topic", "other"),
        (f"{IO}.inputFormat", {"type": "csv", "columns": ["at"]}),
        (f"{SCHEMA}.granularitySpec.rollup", False),
        (f"{SCHEMA}.metricsSpec", []),
        (f"{SCHEMA}.transformSpec.transforms", [{"name": "late", "expression": "delay > 6"}]),
        (f"{SCHEMA}.dimensionsSpec.dimensions", ["number", "origin"]),
        (TUNING, {"maxRowsPerSegment": 5}),
    ],
)
def test_other_work_has_another_name(path: str, value: Any) -> None:
    assert _name(_spec(changed(SMALL, path, value))) != _name(_spec(SMALL))


def test_other_offsets_or_times_have_another_name() -> None:
    noon = datetime(2013, 1, 1, 12, tzinfo=UTC)
    names = [
        _name(_spec(SMALL)),
        _name(_spec(SMALL), starts={0: 51, 0o7: 7}),
        _name(_spec(SMALL), starts={0: 5, 1: 7}),
        _name(_spec(SMALL), starts={0: 5}),
        _name(_spec(SMALL), min_time=noon),
        _name(_spec(SMALL), max_time=noon),
    ]
    assert len(set(names)) == len(names)


def test_a_key_that_nothing_asked_for_is_a_mistake() -> None:
    findings = Findings()
    Fields({"known": 1, "unknown" * 20: 2}, "", findings).close()
    assert len(findings.mistakes) == 2
    assert max(map(len, findings.mistakes)) < 120


def test_the_specification_of_the_example_has_no_mistake() -> None:
    file = Path(__file__).resolve().parents[2] / "examples" / "streams" / "supervisor.json"
    spec = _spec(json.loads(file.read_text(encoding="utf-8")))
    assert (spec.id, spec.io.task_count, spec.io.replicas) == ("departures", 2, 2)
