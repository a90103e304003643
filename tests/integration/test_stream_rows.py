"""Records that become rows, in a real session: formats, times, transforms, filters, rollup."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from common.model.streams.chunks import chunk_of, microseconds, moment_at, usable_times
from common.model.streams.expressions import read_expression
from common.model.streams.periods import Granularity, read_granularity
from common.model.streams.reading import read_spec
from common.model.streams.spec import SupervisorSpec, TimestampSpec
from tests.integration.spark_jobs import a_session
from tests.integration.stream_records import (
    MILLIS,
    Record,
    Stream,
    T,
    odd_records,
    spoilt_records,
)
from tests.unit.stream_specs import SMALL, changed
from worker.spark.streaming import expressions, times
from worker.spark.streaming.batches import (
    BatchWriter,
    Counts,
    TooManyParseErrorsError,
    write_segments,
)
from worker.spark.streaming.rows import (
    SETTINGS,
    Accepted,
    RowState,
    TooManyColumnsError,
)
from worker.spark.streaming.values import Kind, Value, text

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow

KEPT, BAD, THROWN = RowState.KEPT, RowState.UNPARSEABLE, RowState.THROWN_AWAY


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    with a_session(tmp_path_factory.mktemp("warehouse")) as session:
        for key, value in SETTINGS.items():
            session.conf.set(key, value)
        yield session


def test_a_record_is_one_object_and_its_values_are_converted_or_missing(
    spark: SparkSession,
) -> None:
    dimensions = [
        "origin",
        {"type": "long", "name": "number"},
        {"type": "double", "name": "delay"},
        {"type": "float", "name": "share"},
        {"type": "json", "name": "nested"},
        "a.b",
    ]
    stream = Stream(spark, {"dataSchema.dimensionsSpec.dimensions": dimensions})
    deep = "[" * 5_000 + "]" * 5_000
    rows = stream.rows(
        {"at": T, "origin": "JFK", "number": 7, "delay": "1.5", "share": 0.5, "a.b": True},
        {"at": T, "origin": 12, "number": "x", "nested": {"a": [1, None]}},
        {"at": T, "number": 7.9, "delay": "", "origin": None},
        {"at": T, "origin": {"deep": "x"}, "number": 10**30},
        {"at": T, "origin": "x" * 10_000_000},
        f'{{"at": "{T}", "nested": {deep}}}',
        b'{"at": "' + T.encode() + b'", "origin": "\xff\xfe"}',
        f'{{"at": "{T}"}}{{"at": "{T}"}}',
        f'{{"at": "{T}"}} behind',
        f'[{{"at": "{T}"}}]',
        "17",
        "null",
        "",
        "{",
        "\x00\x01",
        None,
        {"origin": "no time"},
        {"at": T, "Number": 3},
    )
    assert [row["state"] for row in rows] == [*[KEPT] * 5, *[BAD] * 10, THROWN, BAD, KEPT]
    first, second, third, fourth, *_ = rows
    assert (first["d:origin"], first["d:number"], first["d:a.b"]) == ("JFK", 7, "true")
    assert (first["d:delay"], first["d:share"]) == (1.5, 0.5)
    assert (second["d:origin"], second["d:number"], second["flawed"]) == ("12", None, True)
    assert json.loads(second["d:nested"]) == {"a": [1, None]}
    assert (third["d:number"], third["d:delay"], third["flawed"]) == (7, None, False)
    assert json.loads(fourth["d:origin"]) == {"deep": "x"}
    assert (fourth["d:number"], fourth["flawed"]) == (None, True)
    assert len(rows[4]["d:origin"]) == 10_000_000
    # Fields of JSON differ by case, also beside a dimension of another spelling.
    assert (rows[-1]["d:number"], rows[0]["flawed"]) == (None, False)


def test_a_field_may_have_any_name(spark: SparkSession) -> None:
    names = ['a"b', "a\\b", "a\nb", "a.b", " ", "ü"]
    for some in (names, names[3:]):
        stream = Stream(spark, {"dataSchema.dimensionsSpec.dimensions": some})
        (row,) = stream.rows({"at": T, **{name: name * 2 for name in some}})
        assert [row[f"d:{name}"] for name in some] == [name * 2 for name in some]


def test_a_record_is_the_same_row_whether_its_source_or_spark_has_read_it(
    spark: SparkSession,
) -> None:
    dimensions = [
        *("origin", "a.b"),
        {"type": "long", "name": "number"},
        {"type": "double", "name": "delay"},
        {"type": "json", "name": "nested"},
    ]
    changes = {"dataSchema.dimensionsSpec.dimensions": dimensions}
    records = [*odd_records(), *spoilt_records(1_500)]
    read, parsed = (Stream(spark, changes, reads=reads).rows(*records) for reads in (True, False))
    differing = [
        (record, one, other)
        for record, one, other in zip(records, read, parsed, strict=True)
        if one != other
    ]
    assert differing == []
    # Neither is empty.
    assert {row["state"] for row in read} == {KEPT, BAD}
    left = Stream(spark, changes).texts(records).count(None)
    assert 0.1 < left / len(records) < 0.9


@pytest.mark.parametrize(
    ("format_", "good", "bad"),
    [
        (
            {"type": "csv", "columns": ["at", "origin", "number"]},
            [f'{T},"a,""b""",7', f"{T},x,8\r\n", f"{T},,", f"{T},x", f"{T},x,9,more"],
            [f"{T},x,1\n{T},y,2", "", b"\xff,x,1"],
        ),
        (
            {"type": "tsv", "columns": ["at", "origin", "number"], "delimiter": "|"},
            [f'{T}|a,"b"|7', f"{T}|x|8\n", f"{T}||", f"{T}|x", f"{T}|x|9|more"],
            [f"{T}|x|1\n{T}|y|2", "", b"\xff|x|1"],
        ),
    ],
    ids=["csv", "tsv"],
)
def test_a_line_of_text_is_a_record(
    spark: SparkSession, format_: dict[str, Any], good: list[str], bad: list[Any]
) -> None:
    rows = Stream(spark, {"ioConfig.inputFormat": format_}).rows(
        *good, *bad, "," * 200_000, good[3].replace("x", '"x')
    )
    # A quotation without an end is read, and is a text.
    assert rows.pop()["state"] == KEPT
    assert [row["state"] for row in rows] == [*[KEPT] * 5, *[BAD] * 4]
    assert [(row["d:origin"], row["d:number"]) for row in rows[:5]] == [
        ('a,"b"', 7),
        ("x", 8),
        (None, None),
        ("x", None),
        ("x", 9),
    ]


def test_key_headers_timestamp_and_topic_are_fields_beside_those_of_the_value(
    spark: SparkSession,
) -> None:
    kafka = {
        "type": "kafka",
        "valueFormat": {"type": "json"},
        "keyFormat": {"type": "json"},
        "headerFormat": {"type": "string"},
    }
    stream = Stream(
        spark,
        {
            "ioConfig.inputFormat": kafka,
            "dataSchema.timestampSpec": {"column": "kafka.timestamp", "format": "millis"},
            "dataSchema.dimensionsSpec.dimensions": [
                "a",
                "kafka.key",
                "kafka.header.h",
                "kafka.topic",
            ],
        },
    )
    rows = stream.rows(
        Record({"a": 1}, key={"id": "k", "more": 2}, headers=[("h", b"one"), ("h", b"two")]),
        Record({"a": 1, "kafka.key": "own"}, key=None, headers=[]),
        Record(None, key={"id": "k"}),
        Record({"a": 1}, key="no json"),
        Record("no json", key={"id": "k"}),
        Record({"a": 2}, headers=[("h", b"\xff")]),
    )
    assert [row["state"] for row in rows] == [KEPT, KEPT, KEPT, BAD, BAD, KEPT]
    assert {moment_at(row["micros"]).isoformat() for row in rows} == {"2026-11-20T04:05:06+00:00"}
    named = ("d:a", "d:kafka.key", "d:kafka.header.h", "d:kafka.topic")
    assert [tuple(row[name] for name in named) for row in (*rows[:3], rows[5])] == [
        ("1", "k", "one", "events"),
        ("1", "own", None, "events"),
        (None, "k", None, "events"),
        ("2", None, None, "events"),
    ]


def test_columns_are_discovered_in_records_of_all_formats(spark: SparkSession) -> None:
    spec = {
        "dataSchema.dimensionsSpec": {"dimensionExclusions": ["secret"]},
        "dataSchema.metricsSpec": [{"type": "longSum", "name": "total", "fieldName": "n"}],
    }
    json_rows = Stream(spark, spec).rolled_up(
        {"at": T, "a": 1, "secret": "s", "n": 2, "total": 9, "__time": 5},
        {"at": T, "A": 1, "n": 3},
        {"at": T, "b.c": [1, 2], "n": 4},
    )
    assert [{name: row[name] for name in row if name != "__time"} for row in json_rows] == [
        {"A": "1", "b.c": None, "total": 5},
        {"A": None, "b.c": "[1,2]", "total": 4},
    ]
    kafka = {
        "type": "kafka",
        "valueFormat": {"type": "csv", "columns": ["at", "n", "x"]},
        "headerFormat": {"type": "string"},
    }
    (row,) = Stream(spark, {**spec, "ioConfig.inputFormat": kafka}).rows(
        Record(f"{T},1,2", headers=[("h", b"one"), ("h", b"two")])
    )
    assert (row["d:x"], row["d:kafka.header.h"], row["d:kafka.topic"]) == ("2", "one", "events")
    many = {f"field{number}": 1 for number in range(1_001)}
    with pytest.raises(TooManyColumnsError, match="declare dimensions"):
        Stream(spark, spec).rows({"at": T, **many})


TIMES: Mapping[str, list[Any]] = {
    "auto": [MILLIS, f"{MILLIS}.0", T, "2026-11-20 04:05:06", "2026-11-20T05:05:06+01:00"],
    "iso": [T, "2026-11-20T04:05:06.000"],
    "posix": [MILLIS // 1000, f"{MILLIS // 1000}.0"],
    "millis": [MILLIS],
    "micro": [MILLIS * 1000],
    "nano": [MILLIS * 1_000_000 + 999],
    "dd.MM.YYYY HH:mm:ss": ["20.11.2026 04:05:06"],
}
NO_TIMES = ["", "yesterday", "12:30:00", 10**30, "9" * 400, "[]", "10000-01-01", "now", None]


def test_a_time_is_read_by_its_format_and_what_is_none_is_missing(spark: SparkSession) -> None:
    from pyspark.sql import functions as f

    year = read_granularity("YEAR")
    columns, wanted = [], []
    for name, good in TIMES.items():
        document = changed(SMALL, "spec.dataSchema.timestampSpec", {"column": "at", "format": name})
        spec = read_spec(document).spec
        assert isinstance(spec, SupervisorSpec)
        for written in (*good, *NO_TIMES):
            text_ = f.col("nothing") if written is None else f.concat("empty", f.lit(str(written)))
            columns.append(times.usable(times.micros_of(text_, spec.schema.timestamp), year))
        wanted += [*[MILLIS * 1000] * len(good), *[None] * len(NO_TIMES)]
    hours = ("2026-11-20T04Z", "2026-11-20T04:00", "2026-11-20T05:00+01:00")
    columns += [times.iso_micros(f.concat("empty", f.lit(each))) for each in hours]
    wanted += [microseconds(datetime(2026, 11, 20, 4, tzinfo=UTC))] * len(hours)
    # No date, though it has its `-` where a date has its first.
    columns.append(times.micros_of(f.concat("empty", f.lit("123e-5")), TimestampSpec()))
    wanted.append(0)
    # Columns and not constants, so that Spark works nothing out while it plans.
    frame = spark.createDataFrame(
        pa.table({"empty": [""], "nothing": pa.array([None], pa.string())})
    )
    assert list(frame.select(*columns).collect()[0]) == wanted


def test_times_at_the_ends_of_the_calendar_are_kept_or_unparseable(spark: SparkSession) -> None:
    years = ["0000-01-01", "0001-01-01", "9998-12-31", "9999-12-30", "9999-12-31", "-0001-01-01"]
    days = Stream(spark, {"dataSchema.granularitySpec.segmentGranularity": "DAY"})
    rows = days.rows(*({"at": f"{each} 00:00:00Z"} for each in years))
    assert [row["state"] for row in rows] == [BAD, KEPT, KEPT, KEPT, BAD, BAD]
    missing = {"column": "at", "missingValue": "2013-01-01T00:00:00Z"}
    rows = Stream(spark, {"dataSchema.timestampSpec": missing}).rows({"a": 1}, {"at": "x"}, "x")
    assert [row["state"] for row in rows] == [KEPT, BAD, BAD]
    assert moment_at(rows[0]["micros"]) == datetime(2013, 1, 1, tzinfo=UTC)


GRANULARITIES = ["SECOND", "FIVE_MINUTE", "HOUR", "DAY", "WEEK", "MONTH", "QUARTER", "YEAR"]
MOMENTS = [
    datetime(*each, tzinfo=UTC)  # type: ignore[misc]
    for each in (
        (5, 1, 8), (1582, 10, 15), (1969, 12, 31, 23, 59, 59, 999_999), (1970, 1, 1),
        (2024, 2, 29, 12), (2026, 11, 22, 23, 59, 59), (2026, 11, 23), (9990, 12, 31, 1),
    )
]  # fmt: skip


def test_columns_of_spark_cut_time_as_intervals_are_cut(spark: SparkSession) -> None:
    from pyspark.sql import functions as f

    odd = [{"type": "period", "period": each} for each in ("P5Y", "P2M", "P2W", "PT7H")]
    cuts = [read_granularity(each) for each in (*GRANULARITIES, *odd, "NONE")]
    frame = spark.createDataFrame(pa.table({"m": [microseconds(each) for each in MOMENTS]}))
    columns = [times.chunk_start(times.usable(f.col("m"), each), each) for each in cuts]
    ends = [times.chunk_end(start, each) for start, each in zip(columns, cuts, strict=True)]
    for moment, row in zip(MOMENTS, frame.select(*columns, *ends).collect(), strict=True):
        expected = [chunk_of(moment, each) for each in cuts]
        found = [None if each is None else moment_at(each) for each in row]
        assert found == [*(each.start for each in expected), *(each.end for each in expected)]


def test_all_chunks_of_usable_times_lie_within_the_calendar() -> None:
    for cut in map(read_granularity, GRANULARITIES):
        usable = usable_times(cut)
        first = chunk_of(usable.start, cut)
        last = chunk_of(usable.end - (first.end - first.start) / 1000, cut)
        assert (first.start, last.end) == (usable.start, usable.end)
        assert (usable.start.year, usable.end.year) == (1, 9999)


@pytest.mark.parametrize("cut", [Granularity(name="P5Y", months=60)])
def test_a_chunk_beyond_the_calendar_is_an_error(cut: Granularity) -> None:
    with pytest.raises(OverflowError):
        chunk_of(datetime(9999, 6, 1, tzinfo=UTC), cut)
    assert usable_times(cut).start.year == 5


ROW = {"n": "7", "m": "2", "x": "2.5", "s": "Hello", "t": "true", "j": '{"a": {"b": 5}}', "e": ""}
EXPRESSIONS: Mapping[str, str | None] = {
    "1 + 2 * 3": "7", "7 / 2": "3", "7.0 / 2": "3.5", "n / m": "3", "n % m": "1", "m ^ 3": "8",
    "n + m": "9", "n + x": "9.5", "n + s": "7Hello", "s + '!'": "Hello!", "-n": "-7", "n - 0.5": "6.5",
    "1 / 0": None, "n / 0": None, "n % 0": None, "9223372036854775807 + 1": None,
    "(0 - 9223372036854775807 - 1) / -1": None, "s * 2": None, "missing + 1": None,
    "n > 5": "1", "n > '5'": "1", "10 > 9": "1", "s == 'Hello'": "1", "n == 7.0": "1", "n != 7": "0",
    "s < n": "0", "n > 5 && x < 2": "0", "n > 5 || x < 2": "1", "!(n > 5)": "0", "!t": "0",
    "9223372036854775807 == '9223372036854775806'": "0",
    "abs(-3)": "3", "abs(0 - n)": "7", "abs(-x)": "2.5", "ceil(x)": "3.0", "floor(-x)": "-3.0",
    "ceil(3)": "3", "round(x)": "3.0", "round(2.345, 2)": "2.35", "round(1234, -2)": "1200.0",
    "sqrt(16)": "4.0", "exp(0)": "1.0", "log(1)": "0.0", "log10(1000)": "3.0", "log(-1)": None,
    "pow(2, 10)": "1024", "div(n, m)": "3", "mod(n, m)": "1", "greatest(1, n, 3)": "7",
    "least(s, 'A')": "A", "greatest(missing, 2)": "2", "greatest(missing, missing)": None,
    "cast(x, 'LONG')": "2", "cast(n, 'double')": "7.0", "cast(7, 'STRING') + 1": "8.0",
    "cast(s, 'long')": None, "if(n > 5, 'big', 'small')": "big", "if(missing, 1, 2)": "2",
    "nvl(missing, s)": "Hello", "nvl(missing, 1.5)": "1.5", "isnull(missing)": "1", "notnull(n)": "1",
    "case_searched(n < 5, 'a', n < 10, 'b', 'c')": "b", "case_searched(n < 5, 1)": None,
    "case_simple(n, 1, 'a', 7, 'b')": "b", "strlen(s)": "5", "lower(s)": "hello", "upper(s)": "HELLO",
    "reverse(s)": "olleH", "trim('  a ')": "a", "ltrim('xxa', 'x')": "a", "rtrim('axx', 'x')": "a",
    "concat(s, ' ', n)": "Hello 7", "concat(s, missing)": None, "replace(s, 'l', 'L')": "HeLLo",
    "lpad(n, 3, '0')": "007", "rpad(n, 3, '0')": "700", "substring(s, 1, 2)": "el",
    "substring(s, 2)": "llo", "substring(s, 1, -1)": "ello", "strpos(s, 'l')": "2", "strpos(s, 'z')": "-1",
    "repeat(n, 3)": "777", "contains_string(s, 'ell')": "1", "icontains_string(s, 'ELL')": "1",
    "like(s, 'H%o')": "1", "regexp_like(s, '^H.*o$')": "1", "regexp_extract(s, 'l(.)', 1)": "l",
    "regexp_extract(s, 'z')": None, "json_value(j, '$.a.b') + 1": "6", "json_value(s, '$.a')": None,
    "timestamp('2026-11-20')": "1795132800000", "timestamp_parse('20.11.2026', 'dd.MM.yyyy')": "1795132800000",
    "timestamp_parse('never')": None, "timestamp_format(0)": "1970-01-01T00:00:00.000Z",
    "timestamp_format(0, 'yyyy/MM')": "1970/01", "timestamp_floor(-1, 'P1D')": "-86400000",
    "timestamp_floor(1795132800001, 'P1M')": "1793491200000", "timestamp_ceil(1, 'PT1H')": "3600000",
    "timestamp_ceil(0, 'P1M')": "0", "timestamp_ceil(1, 'P1M')": "2678400000",
    "timestamp_shift(0, 'P1M', 2)": "5097600000", "timestamp_shift(0, 'PT1H', -1)": "-3600000",
    "timestamp_extract(0, 'YEAR')": "1970", "timestamp_extract(0, 'DOW')": "4",
    "timestamp_extract(1999, 'EPOCH')": "1", "timestamp_extract(9223372036854775807, 'YEAR')": None,
    "timestamp_floor(s, 'P1D')": None, "timestamp_shift(0, 'P1Y', 999999999)": None,
    "n == null": None, "e == ''": "1",
}  # fmt: skip


def test_expressions_are_worked_out_as_in_druid(spark: SparkSession) -> None:
    from pyspark.sql import functions as f

    frame = spark.createDataFrame(
        [tuple(ROW.values())], ", ".join(f"{name} string" for name in ROW)
    )
    row = lambda name: Value(f.col(name) if name in ROW else f.lit(None).cast("string"), Kind.ANY)  # noqa: E731
    columns = [text(expressions.value_of(read_expression(each), row)) for each in EXPRESSIONS]
    found = frame.select(*columns).collect()[0]
    assert dict(zip(EXPRESSIONS, found, strict=True)) == EXPRESSIONS


def test_transforms_come_before_the_filter_and_see_the_record_alone(spark: SparkSession) -> None:
    stream = Stream(
        spark,
        {
            "dataSchema.transformSpec": {
                "transforms": [
                    {"type": "expression", "name": "origin", "expression": "lower(origin)"},
                    {"type": "expression", "name": "number", "expression": "strlen(origin) + 1"},
                    {"type": "expression", "name": "__time", "expression": "__time + 3600000"},
                ],
                "filter": {
                    "type": "and",
                    "fields": [
                        {"type": "selector", "dimension": "origin", "value": "jfk"},
                        {"type": "not", "field": {"type": "selector", "dimension": "bad", "value": 1}},
                        {"type": "bound", "dimension": "x", "lower": 9, "upper": "100",
                         "upperStrict": True, "ordering": "numeric"},
                        {"type": "or", "fields": [
                            {"type": "in", "dimension": "c", "values": ["a", None]},
                            {"type": "bound", "dimension": "c", "lower": "m", "upper": "n"}]},
                    ],
                },
            }
        },
    )  # fmt: skip
    good = {"at": T, "origin": "JFK", "x": 10}
    rows = stream.rows(
        good,
        {**good, "bad": 1},
        {**good, "x": "9"},
        {**good, "x": 100},
        {**good, "x": "many"},
        {**good, "c": "me"},
        {**good, "c": "z"},
        {**good, "origin": "EWR"},
    )
    wanted = [KEPT, THROWN, KEPT, THROWN, THROWN, KEPT, THROWN, THROWN]
    assert [row["state"] for row in rows] == wanted
    assert (rows[0]["d:origin"], rows[0]["d:number"]) == ("jfk", 4)
    assert rows[0]["micros"] == (MILLIS + 3_600_000) * 1000


def test_rows_that_are_too_late_or_too_early_are_thrown_away(spark: SparkSession) -> None:
    least, most = datetime(2026, 11, 20, 4, tzinfo=UTC), datetime(2026, 11, 20, 5, tzinfo=UTC)
    stamps = ["03:59:59.999", "04:00", "05:00", "05:00:00.001"]
    rows = Stream(spark, {}).rows(
        *({"at": f"2026-11-20T{each}Z"} for each in stamps),
        accepted=Accepted(least=least, most=most),
    )
    assert [row["state"] for row in rows] == [THROWN, KEPT, KEPT, THROWN]


METRICS = [
    {"type": "count", "name": "rows"},
    {"type": "longSum", "name": "sum", "fieldName": "n"},
    {"type": "doubleSum", "name": "real", "fieldName": "x"},
    {"type": "floatSum", "name": "short", "fieldName": "x"},
    {"type": "longMin", "name": "least", "fieldName": "n"},
    {"type": "doubleMax", "name": "most", "fieldName": "x"},
    {"type": "stringFirst", "name": "first", "fieldName": "s"},
    {"type": "longLast", "name": "last", "fieldName": "n", "timeColumn": "seen"},
    {"type": "HLLSketchBuild", "name": "distinct", "fieldName": "s", "lgK": 10},
    {"type": "thetaSketch", "name": "theta", "fieldName": "s", "size": 64},
    {"type": "hyperUnique", "name": "hyper", "fieldName": "s"},
    {"type": "quantilesDoublesSketch", "name": "shares", "fieldName": "x", "k": 32},
]


def test_rollup_over_batches_is_that_of_all_rows(spark: SparkSession) -> None:
    from pyspark.sql import functions as f

    stream = Stream(
        spark,
        {
            "dataSchema.dimensionsSpec.dimensions": ["origin"],
            "dataSchema.metricsSpec": METRICS,
            "dataSchema.granularitySpec.queryGranularity": "MINUTE",
        },
    )
    event = {"at": "2026-11-20T04:05:06Z", "origin": "JFK", "n": 1, "x": 0.5, "s": "b", "seen": 9}
    events = [
        event,
        {**event, "at": "2026-11-20T04:05:01Z", "n": 5, "s": "a", "seen": 1},
        {**event, "origin": None, "n": 2**63 - 1},
        {**event, "origin": None, "n": 1},
        {**event, "at": "2026-11-20T04:06:00Z", "n": None, "s": None, "x": None},
        {**event, "at": "2026-11-20T04:05:59Z", "n": 7, "x": "2.5", "s": "b", "seen": 5},
    ]
    found = stream.rolled_up(*events)
    (jfk,) = (row for row in found if row["rows"] == 3)
    (nowhere,) = (row for row in found if row["origin"] is None)
    (later,) = (row for row in found if row["rows"] == 1)
    # Spark gives times in the zone of this process, which other tests may have changed.
    minute = datetime(2026, 11, 20, 4, 5, tzinfo=UTC).astimezone().replace(tzinfo=None)
    assert (jfk["__time"], jfk["origin"], jfk["rows"]) == (minute, "JFK", 3)
    assert (jfk["sum"], jfk["real"], jfk["short"], jfk["least"]) == (13, 3.5, 3.5, 1)
    assert (jfk["most"], jfk["first"], jfk["last"]) == (2.5, "a", 1)
    assert (nowhere["rows"], nowhere["sum"], nowhere["least"]) == (2, None, 1)
    assert (later["rows"], later["sum"], later["first"]) == (1, None, None)
    sketches = {each: [bytes(jfk[each])] for each in ("distinct", "hyper", "theta", "shares")}
    frame = spark.createDataFrame(pa.table(sketches))
    estimates = frame.select(
        *(f.hll_sketch_estimate(each) for each in ("distinct", "hyper")),
        f.theta_sketch_estimate("theta"),
        f.kll_sketch_get_n_double("shares"),
        f.kll_sketch_get_quantile_double("shares", f.lit(1.0)),
    ).collect()[0]
    assert [round(each, 1) for each in estimates] == [2, 2, 2, 3, 2.5]


def test_without_rollup_each_record_stays_a_row(spark: SparkSession) -> None:
    stream = Stream(
        spark,
        {
            "dataSchema.dimensionsSpec.dimensions": ["origin"],
            "dataSchema.metricsSpec": METRICS,
            "dataSchema.granularitySpec.rollup": False,
        },
    )
    event = {"at": T, "origin": "JFK", "n": 1, "s": "b"}
    rows = stream.rolled_up(event, event, event)
    assert [(row["rows"], row["sum"], row["first"]) for row in rows] == [(1, 1, "b")] * 3


def test_without_metrics_equal_rows_are_one(spark: SparkSession) -> None:
    event = {"at": T, "origin": "JFK"}
    changes = {"dataSchema.metricsSpec": [], "dataSchema.dimensionsSpec.dimensions": ["origin"]}
    rows = Stream(spark, changes).rolled_up(event, event, event)
    assert [row["origin"] for row in rows] == ["JFK"]


def test_batches_become_files_of_segments_by_chunk(spark: SparkSession, tmp_path: Path) -> None:
    stream = Stream(spark, {"tuningConfig": {"maxRowsPerSegment": 2}})
    writer = BatchWriter(stream.spec, Accepted(), (0, 7))
    staged, target = tmp_path / "staged", tmp_path / "target"
    assert write_segments(spark, staged, stream.spec, target) == ()
    events = [{"at": f"2026-11-20T04:00:0{each}Z", "origin": "JFK"} for each in range(5)]
    writer.write(stream.records(*events[:3], {"at": "2026-11-20T05:00Z"}), staged, 0)
    writer.write(stream.records("no json", None), staged, 1)
    for _ in range(2):
        # A batch that is written again replaces itself.
        writer.write(stream.records(*events[2:]), staged, 2)
    found = write_segments(spark, staged, stream.spec, target)
    hours = [str(each.interval) for each in found]
    assert hours == ["2026-11-20T04:00:00.000Z/2026-11-20T05:00:00.000Z"] * 3 + [
        "2026-11-20T05:00:00.000Z/2026-11-20T06:00:00.000Z"
    ]
    assert sorted(each.rows for each in found) == [1, 1, 2, 2]
    rows = spark.read.parquet(*(str(target / each.name) for each in found)).collect()
    assert set(rows[0].asDict()) == {"__time", "origin", "number", "rows"}
    assert sorted(row["rows"] for row in rows) == [1, 1, 1, 1, 1, 2]
    assert writer.written.event_times == {0: datetime(2026, 11, 20, 5, tzinfo=UTC)}
    assert writer.written.counts == Counts(processed=10, unparseable=1, thrown_away=1)


def test_columns_that_batches_discover_are_those_of_the_files(
    spark: SparkSession, tmp_path: Path
) -> None:
    stream = Stream(spark, {"dataSchema.dimensionsSpec": {}})
    writer = BatchWriter(stream.spec, Accepted(), (0,))
    for number, fields in enumerate(({"a": 1}, {"b": 2}, {"a": 1})):
        writer.write(stream.records({"at": T, **fields}), tmp_path / "staged", number)
    (file,) = write_segments(spark, tmp_path / "staged", stream.spec, tmp_path / "target")
    rows = spark.read.parquet(str(tmp_path / "target" / file.name)).drop("__time").collect()
    found = sorted((row.asDict() for row in rows), key=repr)
    assert found == [{"a": "1", "b": None, "rows": 2}, {"a": None, "b": "2", "rows": 1}]


def test_parse_errors_are_counted_and_kept_up_to_their_limits(
    spark: SparkSession, tmp_path: Path
) -> None:
    limits = {"maxParseExceptions": 3, "maxSavedParseExceptions": 2}
    stream = Stream(spark, {"tuningConfig": limits})
    writer = BatchWriter(stream.spec, Accepted(), (0,))
    bad = [b"\xff" * 2_000, {"at": T, "number": "many"}, {"at": T}, "x"]
    writer.write(stream.records(*bad), tmp_path, 0)
    assert writer.written.counts == Counts(processed=1, flawed=1, unparseable=2)
    first, second = writer.written.errors
    assert (first.offset, first.flawed, len(first.value)) == (0, False, 1_000)
    assert (second.offset, second.flawed, "many" in second.value) == (1, True, True)
    with pytest.raises(TooManyParseErrorsError, match=r"4 records .*maxParseExceptions is 3"):
        writer.write(stream.records("y"), tmp_path, 1)
    assert len(writer.written.errors) == 2
