"""A document that Druid shows is submitted as it is, and the keys without effect are listed."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from common.errors import InvalidSpecError
from common.model.streams.bounded import keys_without_effect
from common.model.streams.periods import FOREVER, PeriodError, read_duration, read_granularity
from common.model.streams.reading import Rules, read_spec
from common.model.streams.sequences import plain, work_of
from common.model.streams.spec import (
    EnvironmentSecret,
    NestedField,
    SupervisorSpec,
    TextFormat,
)
from operations.lint_warnings import lint_warnings
from tests.unit.druid_documents import SUBMITTED, as_old_druid_shows, as_shown
from tests.unit.stream_specs import SMALL, a_spec, changed

IO, TUNING = "spec.ioConfig", "spec.tuningConfig"
FORMAT = f"{IO}.inputFormat"


def _spec(document: Any) -> SupervisorSpec:
    read = read_spec(document).spec
    assert isinstance(read, SupervisorSpec)
    return read


def _mistakes(document: Any) -> str:
    with pytest.raises(InvalidSpecError) as caught:
        read_spec(document)
    return "\n".join(caught.value.mistakes)


def test_what_druid_shows_reads_as_what_was_submitted() -> None:
    assert _spec(as_shown()) == _spec(SUBMITTED)
    assert _spec(as_old_druid_shows()) == _spec(SUBMITTED)
    assert work_of(_spec(as_shown())) == work_of(_spec(SUBMITTED))


def _with_parser(dimensions: Any, beside: Any) -> dict[str, Any]:
    """Return a document with a parser and the parts that Druid shows after it has read the parser."""
    document = as_old_druid_shows()
    parse_spec = document["dataSchema"]["parser"]["parseSpec"]
    parse_spec["dimensionsSpec"] = dimensions
    document["dataSchema"]["timestampSpec"] = {
        "column": "at",
        "format": "ISO",
        "missingValue": None,
    }
    document["dataSchema"]["dimensionsSpec"] = beside
    document["ioConfig"]["inputFormat"] = {"type": "json", "featureSpec": {}}
    return document


def test_parts_that_mean_the_same_may_be_beside_a_parser() -> None:
    dimensions = {"dimensions": ["page", {"type": "long", "name": "user_id"}]}
    metrics = ["at", "count", "price", "spent", "users"]
    shown = {
        "dimensions": [{"type": "string", "name": "page"}, {"type": "long", "name": "user_id"}],
        "dimensionExclusions": ["__time", *metrics],
    }
    assert _spec(_with_parser(dimensions, shown)) == _spec(SUBMITTED)
    found = _with_parser({"dimensionExclusions": ["a"]}, {"dimensionExclusions": ["a", *metrics]})
    assert _spec(found).schema.dimensions.discovers
    other = _with_parser({"dimensionExclusions": ["a"]}, {"dimensionExclusions": metrics})
    assert "dimensionsSpec: differs from dataSchema.parser.parseSpec" in _mistakes(other)


def test_a_part_that_a_parser_lacks_is_read_beside_it() -> None:
    document = as_old_druid_shows()
    parse_spec = document["dataSchema"]["parser"]["parseSpec"]
    for key in ("timestampSpec", "dimensionsSpec"):
        document["dataSchema"][key] = parse_spec.pop(key)
    assert _spec(document) == _spec(SUBMITTED)


def test_keys_without_effect_are_listed_once_by_their_places() -> None:
    found = read_spec(as_shown()).ignored
    assert len(set(found)) == len(found)
    schema = "spec.dataSchema"
    assert {
        f"{TUNING}.skipSequenceNumberAvailabilityCheck",
        f"{TUNING}.indexSpec",
        f"{TUNING}.maxRowsInMemory",
        f"{schema}.dimensionsSpec.dimensions[*].multiValueHandling",
        f"{schema}.dimensionsSpec.dimensionExclusions",
        f"{schema}.metricsSpec[2].stringEncoding",
        f"{FORMAT}.useJsonNodeReader",
    } <= set(found)
    # Nothing was given there, or the key is a copy of one that counts.
    silent = ("workerThreads", "intervals", "featureSpec", "projections", "stream", "topicPattern")
    assert not [each for each in found if each.endswith(silent)]
    assert not [each for each in found if each.startswith(("dataSchema", "ioConfig"))]


def test_the_parts_below_spec_count_and_others_at_the_top_are_listed() -> None:
    document = changed(as_shown(), f"{IO}.taskCount", 3)
    read = read_spec(document)
    assert isinstance(read.spec, SupervisorSpec)
    assert read.spec.io.task_count == 3
    assert "ioConfig" in read.ignored
    assert "dataSchema" not in read.ignored
    assert "tuningConfig" in read_spec({**SMALL, "tuningConfig": {"maxRowsPerSegment": 5}}).ignored


def test_a_context_has_a_priority_and_keys_without_effect() -> None:
    context = {"priority": 80, "useConcurrentLocks": True, "taskPriority": None}
    read = read_spec(as_shown(context=context, suspended=True))
    assert isinstance(read.spec, SupervisorSpec)
    assert (read.spec.priority, read.spec.suspended) == (80, True)
    assert "context.useConcurrentLocks" in read.ignored
    assert "context.taskPriority" not in read.ignored


def test_names_that_druid_shows_beside_the_ones_it_reads_are_listed_if_they_differ() -> None:
    document = changed(as_shown(), f"{IO}.stream", "former")
    document = changed(document, f"{IO}.useEarliestOffset", False)
    read = read_spec(document)
    assert isinstance(read.spec, SupervisorSpec)
    assert (read.spec.io.topic, read.spec.io.use_earliest_offset) == ("clicks-v1", False)
    assert {f"{IO}.stream", f"{IO}.useEarliestSequenceNumber"} <= set(read.ignored)


def test_a_key_that_is_null_is_not_given_whatever_its_name() -> None:
    assert read_spec(changed(SMALL, f"{TUNING}.keyOfTheFuture", None)).ignored == ()
    assert "is not a known key" in _mistakes(changed(SMALL, f"{TUNING}.keyOfTheFuture", 1))


@pytest.mark.parametrize(
    ("text", "length"),
    [
        ("P2147483647D", FOREVER),
        ("PT9223372036854775S", FOREVER),
        ("PT2147483647H", FOREVER),
        ("PT7776000000S", timedelta(days=90_000)),
        ("P100000D", timedelta(days=100_000)),
        ("PT0.25S", timedelta(milliseconds=250)),
    ],
)
def test_a_length_that_no_date_holds_is_the_longest(text: str, length: timedelta) -> None:
    assert read_duration(text) == length


def test_a_limit_that_nothing_reaches_is_none() -> None:
    longest = "P2147483647D"
    spec = a_spec(
        lateMessageRejectionPeriod=longest,
        earlyMessageRejectionPeriod=longest,
        taskDuration=longest,
        tuningConfig={"intermediateHandoffPeriod": longest},
    )
    io = spec.io
    assert (io.late_period, io.early_period, io.task_duration) == (None, None, FOREVER)
    assert spec.tuning.intermediate_handoff_period is None


@pytest.mark.parametrize("text", ["P2147483648D", "PT2147483648M", "P99999999999D"])
def test_a_number_that_joda_does_not_read_is_refused(text: str) -> None:
    with pytest.raises(PeriodError):
        read_duration(text)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"type": "duration", "duration": 5, "origin": "2000-01-01T00:00:00Z"}, "an origin"),
        ({"type": "period", "period": "PT1H", "orgin": "2000-01-01"}, "no key orgin"),
        ({"type": "period", "period": "P2147483647D"}, "longer than any chunk"),
    ],
)
def test_what_would_cut_other_chunks_is_no_granularity(value: Any, text: str) -> None:
    with pytest.raises(PeriodError, match=text):
        read_granularity(value)


@pytest.mark.parametrize(
    ("pattern", "topic"),
    [
        ("events", "events"),
        (r"events\.v1", "events.v1"),
        ("events.v1", None),
        ("events-.*", None),
        ("a|b", None),
    ],
)
def test_a_pattern_that_means_one_topic_is_that_topic(pattern: str, topic: str | None) -> None:
    document = changed(SMALL, f"{IO}.topic", None)
    document = changed(document, f"{IO}.topicPattern", pattern)
    # Druid shows the pattern twice.
    document = changed(document, f"{IO}.stream", pattern)
    io = _spec(document).io
    assert (io.topic, io.has_pattern) == (topic or pattern, topic is None)
    assert read_spec(document).ignored == ()
    assert "topicPattern: is given beside topic" in _mistakes(
        changed(document, f"{IO}.topic", "events")
    )


PROVIDER = f"{IO}.consumerProperties"


def _provided(provider: Any, **more: Any) -> dict[str, Any]:
    properties = {"bootstrap.servers": "b:9092", "druid.dynamic.config.provider": provider, **more}
    return changed(SMALL, PROVIDER, properties)


def test_a_dynamic_provider_gives_properties() -> None:
    variables = {"client.id": "KAFKA_ID", "client.rack": "KAFKA_RACK"}
    provider = {"type": "environment", "variables": variables}
    found = _spec(_provided(provider)).io.consumer
    assert found == {
        "bootstrap.servers": "b:9092",
        "client.id": EnvironmentSecret(variable="KAFKA_ID"),
        "client.rack": EnvironmentSecret(variable="KAFKA_RACK"),
    }
    with pytest.raises(InvalidSpecError, match="KAFKA_RACK, which is not in the setting"):
        read_spec(_provided(provider), rules=Rules(variables=("KAFKA_ID",)))
    masked = {"type": "environment", "variables": dict.fromkeys(variables, "******")}
    assert read_spec(_provided(masked), rules=Rules(variables=(), is_open=lambda text: "*" in text))
    config = {"type": "mapString", "config": {"client.id": "me"}}
    assert _spec(_provided(config)).io.consumer["client.id"] == "me"
    assert _spec(_provided(None)).io.consumer == {"bootstrap.servers": "b:9092"}


@pytest.mark.parametrize(
    ("provider", "text"),
    [
        ({"type": "vault"}, "must be of type environment with variables"),
        ({"type": "environment", "variables": {"client.id": 5}}, "client.id must be a text"),
        ({"type": "mapString", "config": {"plugin.library.paths": "/x"}}, "is not allowed"),
        ({"type": "mapString", "config": {"client.rack": "r"}}, "beside the provider too"),
    ],
)
def test_a_provider_gives_nothing_that_its_author_may_not_give(provider: Any, text: str) -> None:
    found = _mistakes(_provided(provider, **{"client.rack": "r"}))
    assert text in found.replace("client.id: must", "client.id must")


def test_a_flattened_format_reads_as_fields_with_paths() -> None:
    flatten = {
        "useFieldDiscovery": False,
        "fields": [
            "page",
            {"type": "root", "name": "user", "expr": "user_id"},
            {"type": "path", "name": "city", "expr": "$.geo['home town'].name"},
            {"type": "jq", "name": "first", "expr": ".tags[0]"},
            {"type": "tree", "name": "zip", "nodes": ["geo", "zip"]},
        ],
    }
    found = _spec(changed(SMALL, FORMAT, {"type": "json", "flattenSpec": flatten})).io.input_format
    assert found == TextFormat(
        type="json",
        takes_roots=False,
        nested=(
            NestedField(name="page", path=("page",)),
            NestedField(name="user", path=("user_id",)),
            NestedField(name="city", path=("geo", "home town", "name")),
            NestedField(name="first", path=("tags", 0)),
            NestedField(name="zip", path=("geo", "zip")),
        ),
    )


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ([{"type": "path", "name": "a", "expr": "$..b"}], "fields[0].expr: can't be used: `..`"),
        ([{"type": "path", "name": "a"}], "fields[0].expr: is missing"),
        ([{"type": "tree", "name": "a", "nodes": []}], "fields[0].nodes: can't be used"),
        ([{"type": "avro", "name": "a"}], "must be root or path or jq or tree"),
        (["a", "a"], "fields: name 'a' twice"),
        ([7], "fields[0]: must be an object, not 7"),
    ],
)
def test_a_field_that_can_not_be_flattened_is_named(fields: list[Any], text: str) -> None:
    document = changed(SMALL, FORMAT, {"type": "json", "flattenSpec": {"fields": fields}})
    assert text in _mistakes(document)


def test_a_key_is_not_flattened() -> None:
    flatten = {"fields": [{"type": "path", "name": "a", "expr": "$.b.c"}]}
    key = {"type": "json", "flattenSpec": flatten}
    kafka = {"type": "kafka", "valueFormat": {"type": "json"}, "keyFormat": key}
    assert "keyFormat.flattenSpec: is not read in keys" in _mistakes(changed(SMALL, FORMAT, kafka))
    key["flattenSpec"] = {"useFieldDiscovery": True, "fields": ["id"]}
    assert _spec(changed(SMALL, FORMAT, kafka))


def test_a_format_of_an_expression_has_its_groups_as_columns() -> None:
    written: dict[str, Any] = {"type": "regex", "pattern": r"(\S+) (\d+)", "columns": ["at", "n"]}
    found = _spec(changed(SMALL, FORMAT, written)).io.input_format
    assert found == TextFormat(type="regex", columns=("at", "n"), pattern=r"(\S+) (\d+)")
    unnamed = _spec(changed(SMALL, FORMAT, {**written, "columns": None})).io.input_format
    assert isinstance(unnamed, TextFormat)
    assert unnamed.columns == ("column_1", "column_2")
    for changes, text in (
        ({"pattern": "(a"}, "pattern: '(a' can't be used: missing )"),
        ({"pattern": "a"}, "pattern: has no groups"),
        ({"pattern": None}, "pattern: is missing"),
        ({"columns": ["a", "b", "c"]}, "columns: are 3, and the pattern has 2 groups"),
    ):
        assert text in _mistakes(changed(SMALL, FORMAT, {**written, **changes}))


def test_a_list_delimiter_has_no_effect_and_is_listed() -> None:
    written = {"type": "csv", "columns": ["at", "tags"], "listDelimiter": "|"}
    assert read_spec(changed(SMALL, FORMAT, written)).ignored == (f"{FORMAT}.listDelimiter",)


def test_later_fields_of_a_format_name_no_other_work() -> None:
    assert plain(TextFormat(type="json")) == {
        "": "TextFormat",
        "type": "json",
        "columns": [],
        "delimiter": "",
        "list_delimiter": None,
    }
    flatten = {"fields": [{"type": "path", "name": "a", "expr": "$.b.c"}]}
    other = changed(SMALL, FORMAT, {"type": "json", "flattenSpec": flatten})
    assert work_of(_spec(other)) != work_of(_spec(SMALL))


def test_keys_of_a_range_that_only_supervisors_read_are_without_effect() -> None:
    document = changed(SMALL, f"{IO}.taskCount", 2)
    document = changed(document, TUNING, {"workerThreads": 2, "shutdownTimeout": "PT1M"})
    assert set(keys_without_effect({**document, "suspended": False})) == {
        f"{IO}.taskCount",
        f"{TUNING}.workerThreads",
        f"{TUNING}.shutdownTimeout",
        "suspended",
    }


def test_lint_lists_the_keys_of_a_range_without_effect() -> None:
    spec = changed(SMALL, f"{IO}.taskCount", 2)
    node = {
        "type": "STREAM",
        "name": "load",
        "params": {"spec": spec, "from": "earliest", "to": "latest"},
    }
    (found,) = lint_warnings("definition", {"tasks": [node]})
    assert (found.node, found.key) == ("load", "params.spec")
    assert found.problem == "has keys without effect here: spec.ioConfig.taskCount"
