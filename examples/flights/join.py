"""Joins the clean flights of a day to the weather, the plane, the airline and the destination.

Every flight comes out exactly once, whether or not the other side knows of it: all are left joins
to tables that hold their key once.
"""

from __future__ import annotations

import os
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

if TYPE_CHECKING:  # The two names that every PYSPARK task finds ready.
    spark = SparkSession.builder.getOrCreate()
    params: dict[str, str] = {}


def main(spark: SparkSession, params: dict[str, str]) -> None:
    day = date.fromisoformat(params["day"])
    folder = Path(os.environ["ORCAFLOW_DATA_DIR"], "flights", f"day={day}")

    def table(name: str) -> DataFrame:
        return spark.read.parquet(str(folder / name))

    weather = table("cleaned/weather").withColumn("has_weather", sf.lit(True))
    planes = table("landed/planes").select(
        "tailnum", sf.expr("try_cast(seats AS INT)").alias("seats")
    )
    airlines = table("landed/airlines").select("carrier", sf.col("name").alias("airline"))
    airports = table("landed/airports").select(
        sf.col("faa").alias("dest"), sf.col("name").alias("destination")
    )
    joined = (
        table("cleaned/flights")
        .join(sf.broadcast(weather), ["origin", "scheduled_at"], "left")
        .join(sf.broadcast(planes), "tailnum", "left")
        .join(sf.broadcast(airlines), "carrier", "left")
        .join(sf.broadcast(airports), "dest", "left")
        .withColumn("has_weather", sf.coalesce("has_weather", sf.lit(False)))
    )
    joined.coalesce(1).write.mode("overwrite").parquet(str(folder / "joined"))

    counts = table("joined").agg(
        sf.count("*").alias("flights"),
        sf.count_if("has_weather").alias("with_weather"),
        sf.count("seats").alias("with_plane"),
        sf.count("destination").alias("with_destination"),
    )
    counts.coalesce(1).write.mode("overwrite").json(str(folder / "figures" / "join"))


main(spark, params)
