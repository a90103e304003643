"""Cleans the landed weather of a day: typed columns, one row for an airport and an hour.

Every row is judged by the first rule that it breaks, in the order of `judged`; rows that break
none are kept. Nothing disappears without being counted. Measures become whole hundredths of
their unit, since sums of whole numbers do not depend on the order in which they are added.
"""

from __future__ import annotations

import os
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as sf

if TYPE_CHECKING:  # The two names that every PYSPARK task finds ready.
    spark = SparkSession.builder.getOrCreate()
    params: dict[str, str] = {}

NUMBER = "-?[0-9]{1,6}([.][0-9]+)?"
FASTEST_WIND_MPH = 150  # The data has one gust of 1048 mph: an instrument's fault, not weather.


def main(spark: SparkSession, params: dict[str, str]) -> None:
    day = date.fromisoformat(params["day"])
    folder = Path(os.environ["ORCAFLOW_DATA_DIR"], "flights", f"day={day}")
    rows = judged(spark.read.parquet(str(folder / "landed" / "weather")))

    cleaned = str(folder / "cleaned" / "weather")
    kept = rows.where(sf.col("verdict") == "kept").select(
        "origin",
        sf.to_timestamp("time_hour").alias("scheduled_at"),
        hundredths("wind_speed").alias("wind_hundredths_mph"),
        hundredths("precip").alias("rain_hundredths_inch"),
    )
    kept.coalesce(1).write.mode("overwrite").parquet(cleaned)

    verdicts = ("malformed", "implausible", "duplicate")
    counts = rows.agg(
        sf.count("*").alias("landed"),
        *(sf.count_if(sf.col("verdict") == verdict).alias(verdict) for verdict in verdicts),
    ).crossJoin(spark.read.parquet(cleaned).agg(sf.count("*").alias("cleaned")))
    counts.coalesce(1).write.mode("overwrite").json(str(folder / "figures" / "clean_weather"))


def judged(landed: DataFrame) -> DataFrame:
    well_formed = (
        says("origin", "[A-Z]{3}")
        & says("time_hour", "[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:00:00Z")
        & says("wind_speed", f"NA|{NUMBER}")
        & says("precip", f"NA|{NUMBER}")
    )
    fault = sf.coalesce(hundredths("wind_speed") > 100 * FASTEST_WIND_MPH, sf.lit(False))
    verdict = sf.when(~well_formed, "malformed").when(fault, "implausible").otherwise("kept")
    others = sorted(set(landed.columns) - {"origin", "time_hour"})
    # Ordered by every other column, so that a rerun keeps the same one of two like rows.
    alike = Window.partitionBy("verdict", "origin", "time_hour").orderBy(*others)
    again = (sf.col("verdict") == "kept") & (sf.row_number().over(alike) > 1)
    return landed.withColumn("verdict", verdict).withColumn(
        "verdict", sf.when(again, "duplicate").otherwise(sf.col("verdict"))
    )


def hundredths(column: str) -> Column:
    """A decimal text as whole hundredths, rounded half away from zero; 'NA' is null."""
    return sf.expr(f"CAST(try_cast({column} AS DECIMAL(9, 2)) * 100 AS INT)")


def says(column: str, pattern: str) -> Column:
    """Whether the whole text matches; a missing text does not, where SQL would say 'unknown'."""
    return sf.coalesce(sf.col(column).rlike(f"^(?:{pattern})$"), sf.lit(False))


main(spark, params)
