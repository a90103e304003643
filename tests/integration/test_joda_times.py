"""Times that are read and printed by Joda's patterns, compared with what Joda-Time itself does.

Spark takes a second to plan each pattern. With ORCAFLOW_REPEATS all patterns of the table are read,
otherwise a few. `tests/unit/test_joda_patterns.py` compares the
expressions of all patterns.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pytest

from common.model.streams.chunks import microseconds, usable_times
from common.model.streams.joda import printed_parts, reader_of
from common.model.streams.periods import read_granularity
from common.model.streams.spec import TimestampSpec
from tests.integration.spark_jobs import a_session
from tests.reference.joda_times import MOMENTS, NAMED, PATTERNS, PRINTED, TEXTS, YEAR
from worker.spark.streaming import joda, times
from worker.spark.streaming.rows import SETTINGS

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

pytestmark = pytest.mark.slow

_YEARS: Final = usable_times(read_granularity("YEAR"))
_FIRST, _LAST = (microseconds(each) // 1_000 for each in (_YEARS.start, _YEARS.end))
_AT_ONCE = 16
_DATE = "[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}"
_TIME = (
    r"[0-9]{2}(?::[0-9]{2}(?::[0-9]{2}(?:\.[0-9]{1,9})?)?)?"
    "(?:Z|[+-](?:0[0-9]|1[0-7])(?::[0-5][0-9])?)?"
)
ORDINARY: Final = {
    "iso": re.compile(f"(?:{_DATE}(?:T{_TIME})?|[0-9]{{4}}(?:-[0-9]{{2}})?)Z?"),
    "auto": re.compile(f"{_DATE}(?:[T ]{_TIME})?|[0-9]{{4}}-[0-9]{{2}}|[0-9]{{1,19}}"),
}
"""The texts that a format reads, and refuses, exactly as Druid does."""
OTHER_TIMES: Final = re.compile(r"\+[0-9]+|[12].* [A-Za-z/]{2,}.*")
"""Texts that stand for another time here: `auto` takes a signed year as milliseconds, and the name
of a zone counts."""


FEW: Final = (
    "[dd/MMM/yyyy:HH:mm:ss Z]",
    "yyyyMMddHHmmssSSS",
    "M/d/yy h:mm a",
    "EEE, dd MMM yyyy HH:mm:ss z",
    "yyyy-MM-dd HH:mm:ss ZZZ",
    "yyyyDDD",
    "xx-ww-e",
    "yyyy-MM-dd'T'HH:mm:ss.SSSZZ",
    "ddd/MM/yyyy HHH:mmm:sss",
    "EEE, dd MMM yyyy HH:mm:ss ZZZ",
    "xxxx-ww EEE HH:mm:ss ZZ",
)
"""Patterns that read nearly all fields between them."""


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    with a_session(tmp_path_factory.mktemp("warehouse")) as session:
        for key, value in SETTINGS.items():
            session.conf.set(key, value)
        yield session


@pytest.fixture(scope="module")
def texts(spark: SparkSession) -> DataFrame:
    # A table and not constants, so that Spark computes nothing while it plans.
    return spark.createDataFrame(pa.table({"text": list(TEXTS)})).cache()


def read(texts: DataFrame, columns: Mapping[str, Column]) -> dict[str, dict[str, int]]:
    """Return the texts that each column reads, with their milliseconds."""
    found: dict[str, dict[str, int]] = {}
    year = read_granularity("YEAR")
    every = list(columns)
    for names in (every[at : at + _AT_ONCE] for at in range(0, len(every), _AT_ONCE)):
        kept = [times.usable(columns[each], year).alias(str(i)) for i, each in enumerate(names)]
        rows = texts.select("text", *kept).collect()
        for index, name in enumerate(names, start=1):
            pairs = {row[0]: row[index] for row in rows if row[index] is not None}
            found[name] = {text: micros // 1_000 for text, micros in pairs.items()}
    return found


def within(table: Mapping[str, Mapping[str, int]]) -> dict[str, dict[str, int]]:
    """Return a table without the times that a dataset can't have."""
    return {
        name: {text: millis for text, millis in pairs.items() if _FIRST <= millis < _LAST}
        for name, pairs in table.items()
    }


def test_a_pattern_reads_the_texts_that_joda_reads(texts: DataFrame) -> None:
    from pyspark.sql import functions as f

    patterns = PATTERNS if "ORCAFLOW_REPEATS" in os.environ else FEW
    columns = {
        pattern: joda.micros_read(
            f.col("text"), reader_of(pattern), trimmed=True, this_year=f.lit(YEAR)
        )
        for pattern in patterns
    }
    found, wanted = read(texts, columns), within(PATTERNS)
    assert {each: found[each] for each in found if found[each] != wanted[each]} == {
        each: wanted[each] for each in found if found[each] != wanted[each]
    }


def test_a_pattern_is_read_in_generated_code(texts: DataFrame) -> None:
    from pyspark.sql import functions as f

    for pattern in FEW:
        column = joda.micros_read(f.col("text"), reader_of(pattern), trimmed=True)
        plan = texts.select(column)._jdf.queryExecution().executedPlan().toString()
        # Spark marks what it generates code for by a star.
        assert plan.startswith("*(1) Project"), pattern


def test_formats_with_a_name_read_the_texts_that_druid_reads(texts: DataFrame) -> None:
    from pyspark.sql import functions as f

    columns = {
        each: times.micros_of(f.col("text"), TimestampSpec(format=each)) for each in ORDINARY
    }
    found, wanted = read(texts, columns), within(NAMED)
    for name, ordinary in ORDINARY.items():
        here, druid = found[name], wanted[name]
        for text in TEXTS:
            if ordinary.fullmatch(text):
                assert here.get(text) == druid.get(text), (name, text)
            elif text in here and text in druid and not OTHER_TIMES.fullmatch(text):
                assert here[text] == druid[text], (name, text)
    assert [text for text in TEXTS if ":" in text[:2] and text in found["auto"]] == []


def test_a_year_of_two_digits_depends_on_the_present_year(spark: SparkSession) -> None:
    from pyspark.sql import functions as f

    frame = spark.createDataFrame(pa.table({"text": ["00", "79", "80"]}))
    reader = reader_of("yy")
    read_in = {
        year: joda.micros_read(f.col("text"), reader, trimmed=True, this_year=f.lit(year))
        for year in (2059, 2060)
    }
    years = [f.year(f.timestamp_micros(each)) for each in read_in.values()]
    assert [tuple(row) for row in frame.select(*years).collect()] == [
        (2000, 2000), (1979, 2079), (1980, 1980)
    ]  # fmt: skip


def test_a_pattern_prints_the_texts_that_joda_prints(spark: SparkSession) -> None:
    from pyspark.sql import functions as f

    moments = [None, *MOMENTS]
    frame = spark.createDataFrame(pa.table({"at": pa.array(moments, pa.int64())}))
    columns = [joda.printed(f.col("at") * 1_000, printed_parts(each)) for each in PRINTED]
    missing, *rows = frame.select(*columns).collect()
    assert set(missing) == {None}
    found = dict(zip(PRINTED, map(list, zip(*rows, strict=True)), strict=True))
    assert found == {pattern: list(shown) for pattern, shown in PRINTED.items()}
