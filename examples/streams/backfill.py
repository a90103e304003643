"""Replaces a day of departures, while the stream goes on: no flight left before its time.

The day's events are read from the files of whoever has kept them, and rolled up as the stream does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

from orcaflow.task import dataset

if TYPE_CHECKING:  # The two names that every PYSPARK task finds ready.
    spark = SparkSession.builder.getOrCreate()
    params: dict[str, str] = {}


def main(spark: SparkSession, params: dict[str, str]) -> None:
    events = spark.read.schema("time TIMESTAMP, origin STRING, delay BIGINT").json(params["events"])
    rows = events.groupBy(sf.date_trunc("hour", "time").alias("__time"), "origin").agg(
        sf.count("*").alias("flights"),
        sf.sum(sf.greatest("delay", sf.lit(0))).alias("minutes"),
    )
    with dataset("departures").replace(f"{params['day']}/P1D") as writer:
        writer.write(rows.coalesce(1))


main(spark, params)
