"""Sums up the joined flights of a day by carrier, in Spark SQL.

It writes whole counts and sums; the one division of each mean is done at the end, in the quality
checks, so that no figure depends on how Spark cut the rows into partitions.
"""

from __future__ import annotations

import os
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession

if TYPE_CHECKING:  # The two names that every PYSPARK task finds ready.
    spark = SparkSession.builder.getOrCreate()
    params: dict[str, str] = {}

FIGURES = """
    SELECT carrier,
           min(airline) AS airline,
           count(*) AS flights,
           count_if(arrival_delay >= 15) AS late,
           coalesce(sum(seats), 0) AS known_seats,
           sum(departure_delay) AS departure_minutes,
           sum(arrival_delay) AS arrival_minutes
    FROM {joined}
    GROUP BY carrier
    ORDER BY carrier
"""


def main(spark: SparkSession, params: dict[str, str]) -> None:
    day = date.fromisoformat(params["day"])
    folder = Path(os.environ["ORCAFLOW_DATA_DIR"], "flights", f"day={day}")
    figures = spark.sql(FIGURES, joined=spark.read.parquet(str(folder / "joined")))
    figures.coalesce(1).write.mode("overwrite").json(
        str(folder / "figures" / "by_carrier"), ignoreNullFields=False
    )


main(spark, params)
