"""Finds the routes of a day whose flights arrived latest on average, in Spark SQL.

Routes with few flights are left out, as one bad flight would put them first. How many flights make
a route, and how many routes are listed, are parameters of the task.
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

# The quotient of two small whole numbers is the same double whenever it is the same fraction, and
# another one otherwise, so it may decide the order; equal means are told apart by the names.
FIGURES = """
    SELECT origin,
           dest,
           min(destination) AS destination,
           count(*) AS flights,
           count_if(arrival_delay >= 15) AS late,
           sum(arrival_delay) AS arrival_minutes
    FROM {joined}
    GROUP BY origin, dest
    HAVING count(*) >= :at_least
    ORDER BY arrival_minutes / flights DESC, origin, dest
    LIMIT :listed
"""


def main(spark: SparkSession, params: dict[str, str]) -> None:
    day = date.fromisoformat(params["day"])
    folder = Path(os.environ["ORCAFLOW_DATA_DIR"], "flights", f"day={day}")
    figures = spark.sql(
        FIGURES,
        args={"at_least": int(params["min_flights"]), "listed": int(params["routes_listed"])},
        joined=spark.read.parquet(str(folder / "joined")),
    )
    figures.coalesce(1).write.mode("overwrite").json(
        str(folder / "figures" / "worst_routes"), ignoreNullFields=False
    )


main(spark, params)
