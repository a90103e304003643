"""Sums up the joined flights of a day by the hour of their scheduled departure, in Spark SQL.

The hour is the airport's own, as printed on the ticket. Only whole counts and sums are written;
the quality checks divide.
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
    SELECT scheduled_hour AS hour,
           count(*) AS flights,
           count_if(arrival_delay >= 15) AS late,
           count_if(rain_hundredths_inch > 0) AS in_rain,
           sum(departure_delay) AS departure_minutes,
           sum(arrival_delay) AS arrival_minutes,
           count(wind_hundredths_mph) AS with_wind,
           coalesce(sum(wind_hundredths_mph), 0) AS wind_hundredths_mph
    FROM {joined}
    GROUP BY scheduled_hour
    ORDER BY scheduled_hour
"""


def main(spark: SparkSession, params: dict[str, str]) -> None:
    day = date.fromisoformat(params["day"])
    folder = Path(os.environ["ORCAFLOW_DATA_DIR"], "flights", f"day={day}")
    figures = spark.sql(FIGURES, joined=spark.read.parquet(str(folder / "joined")))
    figures.coalesce(1).write.mode("overwrite").json(
        str(folder / "figures" / "by_hour"), ignoreNullFields=False
    )


main(spark, params)
