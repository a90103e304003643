"""Reports an hour of departures by airport: flights, and minutes of delay.

Its run waits until the hour is complete, so the report never has to be written anew. A file appears
whole or not at all: an attempt that died leaves nothing that could be taken for a report.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

from orcaflow.task import dataset

if TYPE_CHECKING:  # The two names that every PYSPARK task finds ready.
    spark = SparkSession.builder.getOrCreate()
    params: dict[str, str] = {}


def main(spark: SparkSession, params: dict[str, str]) -> None:
    hour = params["hour"]
    rows = dataset("departures").frame(spark, f"{hour}/PT1H")
    sums = rows.groupBy("origin").agg(
        sf.sum("flights").alias("flights"),
        sf.coalesce(sf.sum("minutes"), sf.lit(0)).alias("minutes"),
    )
    report = {row["origin"]: [row["flights"], row["minutes"]] for row in sums.collect()}
    file = Path(params["reports"]) / f"{hour.replace(':', '')}.json"
    written = file.with_suffix(".part")
    written.write_text(json.dumps({"hour": hour, "airports": report}), encoding="utf-8")
    written.replace(file)
    print(hour, report)


main(spark, params)
