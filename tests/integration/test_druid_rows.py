"""Formats, filters and expressions of Druid in a session of Spark: what Druid makes of records."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from common.model.streams.expressions import read_expression
from common.model.streams.fields import Fields, Findings
from common.model.streams.filters import read_filter
from tests.integration import druid_rows
from tests.integration.spark_jobs import a_session
from tests.integration.stream_records import Stream, T
from tests.unit.stream_regexes import GOOD
from worker.spark.streaming import expressions, filters
from worker.spark.streaming.rows import SETTINGS, RowState
from worker.spark.streaming.values import Kind, Value, text

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow

KEPT = RowState.KEPT


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    with a_session(tmp_path_factory.mktemp("warehouse")) as session:
        for key, value in SETTINGS.items():
            session.conf.set(key, value)
        yield session


def test_paths_lead_to_the_values_that_druid_flattens(spark: SparkSession) -> None:
    fields = [
        {"type": type_, "name": f"{type_} {expr}", "expr": expr} for type_, expr in druid_rows.PATHS
    ]
    changes: dict[str, Any] = {
        "ioConfig.inputFormat": {"type": "json", "flattenSpec": {"fields": fields}},
        "dataSchema.dimensionsSpec.dimensions": [*(each["name"] for each in fields), "text"],
    }
    record = {"at": T, **druid_rows.NESTED}
    wanted = {f"{type_} {expr}": each for (type_, expr), each in druid_rows.PATHS.items()}
    for reads in (True, False):
        (row,) = Stream(spark, changes, reads=reads).rows(record)
        assert {name: row[f"d:{name}"] for name in wanted} == wanted
        assert (row["state"], row["flawed"], row["d:text"]) == (KEPT, False, "plain")


@pytest.mark.parametrize("discovers", [True, False])
def test_fields_of_the_record_are_hidden_by_flattened_ones(
    spark: SparkSession, *, discovers: bool
) -> None:
    fields = ["at", {"type": "path", "name": "a", "expr": "$.b.c"}]
    flatten = {"useFieldDiscovery": discovers, "fields": fields}
    changes = {"ioConfig.inputFormat": {"type": "json", "flattenSpec": flatten}}
    record = {"at": T, "a": 1, "b": {"c": 2}, "origin": "JFK"}
    (row,) = Stream(spark, changes).rows(record)
    assert row["d:origin"] == ("JFK" if discovers else None)
    (row,) = Stream(spark, {**changes, "dataSchema.dimensionsSpec": {}}).rows(record)
    found = {name: row[name] for name in row if name.startswith("d:")}
    others = {"d:origin": "JFK"} if discovers else {}
    assert found == {"d:a": "2", **others}


NESTED_FORMATS = {
    "json": {"type": "json"},
    "kafka": {"type": "kafka", "valueFormat": {"type": "json"}},
}


@pytest.mark.parametrize("name", NESTED_FORMATS)
def test_nested_values_are_not_discovered(spark: SparkSession, name: str) -> None:
    changes = {
        "ioConfig.inputFormat": NESTED_FORMATS[name],
        "dataSchema.dimensionsSpec": {"dimensions": []},
    }
    first = {
        "object": {"a": 1},
        "objects": [1, {"a": 1}],
        "lists": [[1], [2]],
        "empty": {},
        "list": [1, "x", None],
        "json": '{"a":1}',
        "text": "[1",
        "mixed": {"a": 1},
        "none": None,
    }
    twice = f'{{"at": "{T}", "object": {{"a": 1, "a": 2}}, "text": "word"}}'
    rows = Stream(spark, changes).rows({"at": T, **first}, {"at": T, "mixed": "word"}, twice)
    wanted = [
        ('[1,"x",null]', '{"a":1}', "[1", None),
        (None, None, None, "word"),
        (None, None, "word", None),
    ]
    columns = [each for each in rows[0] if each.startswith("d:") and "kafka." not in each]
    assert columns == ["d:json", "d:list", "d:mixed", "d:text"]
    found = [tuple(row[f"d:{each}"] for each in ("list", "json", "text", "mixed")) for row in rows]
    assert found == wanted
    assert [row["state"] for row in rows] == [KEPT] * 3


def test_nested_values_that_are_named_are_dimensions(spark: SparkSession) -> None:
    fields = ["object", {"type": "path", "name": "first", "expr": "$.list[0]"}]
    changes: dict[str, Any] = {
        "ioConfig.inputFormat": {"type": "json", "flattenSpec": {"fields": fields}},
        "dataSchema.dimensionsSpec": {"dimensions": []},
    }
    record = {"at": T, "object": {"a": 1}, "list": [{"b": 2}], "other": {"c": 3}}
    (row,) = Stream(spark, changes).rows(record)
    found = {each: row[each] for each in row if each.startswith("d:")}
    assert found == {"d:first": '{"b":2}', "d:object": '{"a":1}'}
    declared = {"dimensions": [{"type": "json", "name": "other"}], "includeAllDimensions": True}
    (row,) = Stream(spark, {"dataSchema.dimensionsSpec": declared}).rows(record)
    assert {each: row[each] for each in row if each.startswith("d:")} == {"d:other": '{"c":3}'}


def test_groups_of_an_expression_are_columns(spark: SparkSession) -> None:
    format_ = {"type": "regex", "pattern": druid_rows.LINE, "columns": ["at", "origin", "number"]}
    rows = Stream(spark, {"ioConfig.inputFormat": format_}).rows(*druid_rows.LINES)
    found = [
        (row["d:origin"], row["d:number"] and str(row["d:number"]))
        if row["state"] == KEPT
        else None
        for row in rows
    ]
    assert found == list(druid_rows.LINES.values())


def test_texts_are_filtered_by_expressions_and_patterns(spark: SparkSession) -> None:
    from pyspark.sql import functions as f

    conditions = []
    for written, _ in druid_rows.FILTERS:
        findings = Findings()
        key = "dimension" if written["type"] in ("regex", "like") else "column"
        read = read_filter(Fields({key: "s", **written}, "", findings))
        assert findings.mistakes == []
        conditions.append(filters.passes(read, lambda name: Value(f.col(name), Kind.ANY)))
    frame = spark.createDataFrame(pa.table({"s": druid_rows.VALUES}))
    table = frame.select("s", *conditions).collect()
    found = [[row[0] for row in table if row[at + 1]] for at in range(len(conditions))]
    assert found == [wanted for _, wanted in druid_rows.FILTERS]


def test_expressions_that_are_taken_are_those_that_java_compiles(spark: SparkSession) -> None:
    from pyspark.sql import functions as f

    frame = spark.createDataFrame(pa.table({"s": ["abc"]}))
    assert len(frame.select(*(f.regexp_like("s", f.lit(each)) for each in GOOD)).collect()) == 1


def test_times_are_computed_by_the_clocks_of_a_zone(spark: SparkSession) -> None:
    from pyspark.sql import functions as f

    frame = spark.createDataFrame(pa.table({"a": ["x"]}))
    columns = [
        text(expressions.value_of(read_expression(each), lambda name: Value(f.col(name), Kind.ANY)))
        for each in druid_rows.ZONED
    ]
    found = frame.select(*columns).collect()[0]
    assert dict(zip(druid_rows.ZONED, found, strict=True)) == druid_rows.ZONED
