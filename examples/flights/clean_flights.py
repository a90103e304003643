"""Cleans the landed flights of a day: typed columns, and only flights whose delays are known.

Every row is judged by the first rule that it breaks, in the order of `judged`; rows that break
none are kept. Nothing disappears without being counted.
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

KEY = ("carrier", "flight", "origin", "dest", "sched_dep_time")


def main(spark: SparkSession, params: dict[str, str]) -> None:
    day = date.fromisoformat(params["day"])
    folder = Path(os.environ["ORCAFLOW_DATA_DIR"], "flights", f"day={day}")
    rows = judged(spark.read.parquet(str(folder / "landed" / "flights")))

    cleaned = str(folder / "cleaned" / "flights")
    kept = rows.where(sf.col("verdict") == "kept").select(
        "carrier",
        sf.expr("try_cast(flight AS INT)").alias("flight"),
        "origin",
        "dest",
        sf.expr("try_cast(sched_dep_time AS INT) DIV 100").cast("int").alias("scheduled_hour"),
        sf.to_timestamp("time_hour").alias("scheduled_at"),
        sf.expr("try_cast(dep_delay AS INT)").alias("departure_delay"),
        sf.expr("try_cast(arr_delay AS INT)").alias("arrival_delay"),
        sf.nullif("tailnum", sf.lit("NA")).alias("tailnum"),
    )
    kept.coalesce(1).write.mode("overwrite").parquet(cleaned)

    verdicts = ("malformed", "duplicate", "cancelled", "diverted")
    counts = rows.agg(
        sf.count("*").alias("landed"),
        *(sf.count_if(sf.col("verdict") == verdict).alias(verdict) for verdict in verdicts),
    ).crossJoin(spark.read.parquet(cleaned).agg(sf.count("*").alias("cleaned")))
    counts.coalesce(1).write.mode("overwrite").json(str(folder / "figures" / "clean_flights"))


def judged(landed: DataFrame) -> DataFrame:
    well_formed = (
        says("carrier", "[0-9A-Z]{2}")
        & says("flight", "[0-9]{1,5}")
        & says("origin", "[A-Z]{3}")
        & says("dest", "[A-Z]{3}")
        & says("sched_dep_time", "(1?[0-9]|2[0-3])[0-5][0-9]|[0-5]?[0-9]")
        & says("dep_delay", "NA|-?[0-9]{1,4}")
        & says("arr_delay", "NA|-?[0-9]{1,4}")
        & says("time_hour", "[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:00:00Z")
    )
    # Ordered by every other column, so that a rerun keeps the same one of two like rows.
    others = sorted(set(landed.columns) - set(KEY))
    alike = Window.partitionBy("well_formed", *KEY).orderBy(*others)
    return (
        landed.withColumn("well_formed", well_formed)
        .withColumn("place", sf.row_number().over(alike))
        .withColumn(
            "verdict",
            sf.when(~sf.col("well_formed"), "malformed")
            .when(sf.col("place") > 1, "duplicate")
            .when(sf.col("dep_delay") == "NA", "cancelled")
            .when(sf.col("arr_delay") == "NA", "diverted")
            .otherwise("kept"),
        )
    )


def says(column: str, pattern: str) -> Column:
    """Whether the whole text matches; a missing text does not, where SQL would say 'unknown'."""
    return sf.coalesce(sf.col(column).rlike(f"^(?:{pattern})$"), sf.lit(False))


main(spark, params)
