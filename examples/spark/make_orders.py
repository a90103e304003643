"""Makes a day's orders, a million of them, as Parquet. Finds `spark` and `params` ready."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

from orcaflow.task import output

if TYPE_CHECKING:  # The two names that every PYSPARK task finds ready.
    spark = SparkSession.builder.getOrCreate()
    params: dict[str, str] = {}

CITIES = ("Berlin", "Lagos", "Lima", "Osaka")

folder = f"{os.environ['ORCAFLOW_DATA_DIR']}/orders/day={params['day']}"
cities = sf.array(*(sf.lit(city) for city in CITIES))
orders = spark.range(1_000_000).select(
    sf.col("id"),
    sf.element_at(cities, (sf.col("id") % len(CITIES) + 1).cast("int")).alias("city"),
    (sf.rand(seed=7) * 100).cast("decimal(6,2)").alias("amount"),
)
orders.write.mode("overwrite").parquet(folder)
output("folder", folder)
print(f"{spark.read.parquet(folder).count():,} orders in {folder}")
